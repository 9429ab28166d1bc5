//! The quasi-LSTM (8), (20), appendix F.2 (Stanić et al. 2023): gates of the input alone, so the
//! recurrence is diagonal and linear in its state; and the same with the reversed sigmoid (23) as
//! forget gate.

use super::gated_block::{self, GatedBlock};
use super::{Core, Entry, Family, Mixer, MixerSpec, MixerWork, Recurrent, ReleasedBlock, State};
use crate::ltv::{Channels, Ltv};
use crate::nn::{linear, project, Cx, Init, Params};
use crate::ops::{self, Gates};
use candle_core::{Result, Tensor};

pub(super) const ENTRY: Entry = Entry {
    name: "qlstm",
    equation: "x_i = σ(z_f) x_{i-1} + σ(z_i) tanh(W u_i), y_i = σ(z_o) tanh(x_i)",
    cite: "(8), (20)",
    variants: &["reference", "paper", "dsf"],
    dsf: "N = d (variant dsf)",
    heads: false,
    expands: false,
    widens: true,
    rotary: false,
    family: Family::Recurrent,
    released: ReleasedBlock::RNN,
    options: &[],
    stem: "qlstm",
    work: |spec| Some(work(spec)),
    build: |spec, params| {
        // The released class holds this scalar too; the plain forget gate never reads it.
        if spec.variant == "reference" {
            params.get("alpha", 1, Init::Constant(1.0))?;
        }
        build(spec, params, Forget::Sigmoid)
    },
};

/// The forget gate becomes f = (1 / (1 + e^z))^α, the discretization that S6 uses (appendix I).
pub(super) const REVERSED: Entry = Entry {
    name: "qlstm-reversed",
    equation: "qlstm with forget gate e^(-α softplus(z_f))",
    cite: "(23), (31)-(33)",
    stem: "qlstm_reversed",
    build: |spec, params| {
        let alpha = params.get("alpha", 1, Init::Constant(1.0))?;
        let clipped = spec.variant == "reference";
        build(spec, params, Forget::Reversed { alpha, clipped })
    },
    ..ENTRY
};

/// The forget gate as a function of its pre-activation.
enum Forget {
    /// f = σ(z).
    Sigmoid,
    /// f = σ(-z)^α = e^{-α softplus(z)} (23), the power taken in the exponent.
    Reversed {
        /// α `(1)`.
        alpha: Tensor,
        /// Whether α acts as max(α, 0), as in the released code.
        clipped: bool,
    },
}

impl Forget {
    fn gates(&self) -> Result<Gates> {
        Ok(match self {
            Forget::Sigmoid => Gates::Sigmoid,
            Forget::Reversed { alpha, clipped } => Gates::Reversed {
                alpha: if *clipped {
                    alpha.relu()?
                } else {
                    alpha.clone()
                },
            },
        })
    }
}

/// The arithmetic of the variant named by `spec`; the reversed gate only adds a power.
fn work(spec: &MixerSpec) -> MixerWork {
    let d = spec.d_model;
    match spec.variant {
        "reference" => gated_block::work(spec, 3),
        _ => MixerWork::new(Core::GatedScan, [d, 1], 4 * d * d),
    }
}

/// Builds the variant named by `spec`.
fn build(spec: &MixerSpec, params: &Params, forget: Forget) -> Result<Box<dyn Mixer>> {
    Ok(if spec.variant == "reference" {
        let block = GatedBlock::new(spec, params)?;
        let width = block.width;
        Box::new(Released {
            wgates: params.weight("wgates", (3 * width, width), spec.input_std)?,
            bgates: params.bias("bgates", 3 * width, width)?,
            block,
            forget,
        })
    } else {
        let d = spec.d_model;
        let weight = |name| params.weight(name, (d, d), spec.input_std);
        Box::new(Plain {
            wu: weight("wu")?,
            wf: weight("wf")?,
            wi: weight("wi")?,
            wo: weight("wo")?,
            squash: spec.variant == "paper",
            forget,
        })
    })
}

/// Variants `paper` (with its two tanh) and `dsf` (without, equation (20)).
struct Plain {
    wu: Tensor,
    wf: Tensor,
    wi: Tensor,
    wo: Tensor,
    squash: bool,
    forget: Forget,
}

impl Plain {
    fn tanh(&self, x: Tensor) -> Result<Tensor> {
        if self.squash {
            ops::tanh(&x)
        } else {
            Ok(x)
        }
    }

    /// Pre-activations of forget and input gate, `(.., 2d)`, and the input `(.., d)`.
    fn drive(&self, u: &Tensor) -> Result<(Tensor, Tensor)> {
        let z = linear(u, &Tensor::cat(&[&self.wf, &self.wi], 0)?, None)?;
        Ok((z, self.tanh(linear(u, &self.wu, None)?)?))
    }

    fn finish(&self, h: &Tensor, u: &Tensor) -> Result<Tensor> {
        ops::sigmoid(&linear(u, &self.wo, None)?)? * self.tanh(h.clone())?
    }
}

impl Mixer for Plain {
    fn forward(&self, u: &Tensor, cx: &Cx) -> Result<Tensor> {
        let (z, x) = self.drive(u)?;
        let h = ops::gated_scan(
            &z,
            &x,
            &self.forget.gates()?,
            cx.rows().map(|rows| &rows.positions),
        )?;
        self.finish(&h, &cx.select(u)?)
    }

    fn state_size(&self, _seq_len: usize) -> usize {
        self.wu.dims()[0]
    }

    fn recurrent(&self) -> Option<&dyn Recurrent> {
        Some(self)
    }

    fn ltv(&self, u: &Tensor) -> Result<Option<Ltv>> {
        if self.squash {
            return Ok(None); // the tanh around the state is not of the form (11)
        }
        let (z, _) = self.drive(u)?;
        let (forget, input) = self.forget.gates()?.values(&z)?;
        let system = Channels {
            lambda: forget.unsqueeze(2)?,
            write: input.unsqueeze(2)?,
            read: ops::sigmoid(&linear(u, &self.wo, None)?)?.unsqueeze(2)?,
            value: Some(&self.wu),
            skip: None,
            output: None,
        };
        system.system().map(Some)
    }
}

impl Recurrent for Plain {
    fn init(&self, batch: usize) -> Result<State> {
        let shape = (batch, self.wu.dim(0)?);
        Ok(State(vec![Tensor::zeros(
            shape,
            self.wu.dtype(),
            self.wu.device(),
        )?]))
    }

    fn step(&self, x_t: &Tensor, _at: usize, state: &mut State) -> Result<Tensor> {
        let (z, x) = self.drive(x_t)?;
        let (forget, input) = self.forget.gates()?.values(&z)?;
        let h = ((&state.0[0] * forget)? + (input * x)?)?;
        let y = self.finish(&h, x_t)?;
        *state = State(vec![h]);
        Ok(y)
    }
}

/// Variant `reference`: h_i = f h_{i-1} + σ(z_i) x_i inside the gated block, no tanh anywhere.
struct Released {
    block: GatedBlock,
    wgates: Tensor,
    bgates: Tensor,
    forget: Forget,
}

impl Released {
    /// Weights and biases of the gates (forget, input), and of the output gate.
    fn maps(&self) -> Result<[[Tensor; 2]; 2]> {
        let e = self.block.width;
        let part = |first: usize, count: usize| -> Result<[Tensor; 2]> {
            let w = self.wgates.narrow(0, first * e, count * e)?;
            Ok([w, self.bgates.narrow(0, first * e, count * e)?])
        };
        Ok([part(0, 2)?, part(2, 1)?])
    }
}

impl Mixer for Released {
    fn forward(&self, u: &Tensor, cx: &Cx) -> Result<Tensor> {
        let (x, gate) = self.block.drive(u, cx)?;
        let [[wz, bz], [wo, bo]] = self.maps()?;
        let maps = project(&x, &[(&wz, Some(&bz))], &[(&wo, Some(&bo))], cx)?;
        let h = ops::gated_scan(
            &maps.all[0],
            &x,
            &self.forget.gates()?,
            cx.rows().map(|rows| &rows.positions),
        )?;
        self.block.finish(&h, Some(&maps.queried[0]), &gate)
    }

    fn state_size(&self, _seq_len: usize) -> usize {
        self.block.state_size()
    }

    fn recurrent(&self) -> Option<&dyn Recurrent> {
        Some(self)
    }
}

impl Recurrent for Released {
    fn init(&self, batch: usize) -> Result<State> {
        self.block.zero_state(batch)
    }

    fn step(&self, x_t: &Tensor, _at: usize, state: &mut State) -> Result<Tensor> {
        let [x, gate, window] = self.block.drive_step(x_t, &state.0[1])?;
        let [[wz, bz], [wo, bo]] = self.maps()?;
        let z = linear(&x, &wz, Some(&bz))?;
        let (forget, input) = self.forget.gates()?.values(&z)?;
        let h = ((&state.0[0] * forget)? + (input * &x)?)?;
        let output = linear(&x, &wo, Some(&bo))?;
        *state = State(vec![h.clone(), window]);
        self.block.finish(&h, Some(&output), &gate)
    }
}

#[cfg(test)]
mod tests {
    use crate::ops;
    use candle_core::{Device, Tensor};

    #[test]
    fn the_reversed_gate_is_a_power_of_the_sigmoid_of_minus_z() {
        let z = Tensor::new(&[-8.0f64, -1.0, 0.0, 0.5, 3.0, 20.0], &Device::Cpu).unwrap();
        let a = 1.7;
        let power = ops::sigmoid(&z.neg().unwrap()).unwrap().powf(a).unwrap();
        let exponent = (ops::softplus(&z).unwrap() * -a).unwrap().exp().unwrap();
        for (p, e) in power
            .to_vec1::<f64>()
            .unwrap()
            .iter()
            .zip(exponent.to_vec1::<f64>().unwrap())
        {
            assert!((p - e).abs() <= 1e-14 * p, "{p} {e}");
        }
    }
}
