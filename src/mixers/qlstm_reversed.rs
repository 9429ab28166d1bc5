//! The qLSTM with the reversed sigmoid (23), (31) to (33), appendix I: the forget gate becomes
//! f = (1 / (1 + e^z))^α, the discretization that S6 uses.

use super::qlstm::{self, Forget};
use super::{Entry, Family, ReleasedBlock};
use crate::nn::Init;

pub(super) const ENTRY: Entry = Entry {
    name: "qlstm-reversed",
    equation: "qlstm with forget gate e^(-α softplus(z_f))",
    cite: "(23), (31)-(33)",
    variants: &["reference", "paper", "dsf"],
    dsf: "N = d (variant dsf)",
    heads: false,
    expands: false,
    widens: true,
    rotary: false,
    family: Family::Recurrent,
    released: ReleasedBlock::RNN,
    options: &[],
    stem: "qlstm_reversed",
    work: |spec| Some(qlstm::work(spec)),
    build: |spec, params| {
        let alpha = params.get("alpha", 1, Init::Constant(1.0))?;
        let clipped = spec.variant == "reference";
        qlstm::build(spec, params, Forget::Reversed { alpha, clipped })
    },
};

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
