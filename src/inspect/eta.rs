//! Equation (17) with a general normaliser: separable attention o_i = Σ_j (q_i·k_j) v_j / η(q_i, k_0..k_i) as a system,
//! for any η, and the effect of η on Λ and on the product of Λs with B.

use super::attention::{check_values, of_head, queries_and_keys, Attention};
use super::measures::{dot, uniform_horizon, Measures};
use super::subject::{Seen, Subject};
use super::verify::{apart, rows, scale, tolerance, Errors};
use super::view::View;
use crate::config::{ModelConfig, Protocol};
use crate::error::{ensure, refuse, unknown_value, Result};
use crate::ltv::Ltv;
use crate::mixers::{Entry, MixerOption, MIXERS};
use crate::nn::Params;
use crate::ops::rng::Rng;
use candle_core::{DType, Device, Tensor};

/// The mixer whose source is equation (17), where η = 1.
pub fn unnormalised() -> &'static Entry {
    MIXERS.iter().find(|entry| entry.cite == "(17)").expect("equation (17) is in the registry")
}

/// A normaliser with its name.
pub struct Eta {
    /// Name, as typed after `--eta`.
    pub name: &'static str,
    /// Formula.
    pub about: &'static str,
    of: fn(&EtaHead, usize) -> f64,
}

const fn row(name: &'static str, about: &'static str, of: fn(&EtaHead, usize) -> f64) -> Eta {
    Eta { name, about, of }
}

/// Every named η.
#[rustfmt::skip]
pub const ETAS: &[Eta] = &[
    row("one", "1", |_, _| 1.0),
    row("exp", "e^z with z = w·u_i", |head, i| head.z[i].exp()),
    row("softplus", "softplus(z)", |head, i| head.z[i].max(0.0) + (-head.z[i].abs()).exp().ln_1p()),
    row("sigmoid", "σ(z)", |head, i| (1.0 + (-head.z[i]).exp()).recip()),
    row("identity", "z, of either sign", |head, i| head.z[i]),
    row("length", "i, for a mean over tokens", |_, i| (i + 1) as f64),
    row("norm", "‖q_i‖ ‖k_i‖", |head, i| norm(&head.q[i]) * norm(&head.k[i])),
    row("sum", "Σ_j q_i·k_j, of either sign", |head, i| head.scores(i).sum()),
    row("abs", "Σ_j |q_i·k_j|", |head, i| head.scores(i).map(f64::abs).sum()),
    row("exp-sum", "Σ_j e^(q_i·k_j), as in softmax", |head, i| head.scores(i).map(f64::exp).sum()),
];

/// Arguments of η, for one head.
struct EtaHead {
    q: Vec<Vec<f64>>,
    k: Vec<Vec<f64>>,
    v: Vec<Vec<f64>>,
    z: Vec<f64>,
}

impl EtaHead {
    /// q_i·k_j for j up to i.
    fn scores(&self, i: usize) -> impl Iterator<Item = f64> + '_ {
        self.k[..=i].iter().map(move |k| dot(&self.q[i], k))
    }

    /// o_i, summed directly as in equation (17).
    fn output(&self, i: usize, eta: f64) -> Vec<f64> {
        let mut o = vec![0.0; self.v[i].len()];
        for (score, v) in self.scores(i).zip(&self.v) {
            o.iter_mut().zip(v).for_each(|(o, v)| *o += score * v / eta);
        }
        o
    }
}

/// Systems of (17) with each of the `names`, on the queries, keys and values of `subject`, in f64. Fails if a name is
/// unknown, the subject has no queries and keys, or η is zero or not finite.
pub fn etas(subject: &Subject, names: &[String]) -> Result<Vec<View>> {
    let heads = heads(subject)?;
    let bare = bare(subject)?;
    let view = |name: &String| {
        let known = ETAS.iter().find(|eta| eta.name == name);
        let names = ETAS.iter().map(|eta| eta.name);
        let eta = known.ok_or_else(|| unknown_value("--eta", "η", name, names))?;
        view(subject, &heads, &bare, eta)
    };
    names.iter().map(view).collect()
}

fn view(subject: &Subject, heads: &[EtaHead], bare: &Ltv, eta: &Eta) -> Result<View> {
    let seq_len = subject.seq_len();
    let name = format!("η = {}", eta.name);
    let channels = bare.sizes()?.1;
    let (mut normalisers, mut outputs) = (Vec::new(), Vec::new());
    for i in 0..seq_len {
        for head in heads {
            let value = (eta.of)(head, i);
            ensure!(
                value != 0.0 && value.is_finite(),
                "{name} is {value} at token {}: it must be finite and not 0, since Λ_i = η_{{i-1}}/η_i",
                i + 1
            );
            outputs.extend(head.output(i, value));
            normalisers.extend(vec![value; channels / heads.len()]);
        }
    }
    let shape = (seq_len, channels);
    let eta = Tensor::from_vec(normalisers, shape, &Device::Cpu)?;
    let system = bare.normalised(&eta)?;
    let values = system.values(&subject.u)?;
    let direct = Tensor::from_vec(outputs, shape, &Device::Cpu)?;
    let direct = rows(&system.read_out(direct, &values, &subject.u)?)?;
    let seen = Seen { system, input: subject.u.clone(), around: None };
    let measures = Measures::of(&seen)?;
    let recurrence = rows(&seen.system.run(&subject.u)?)?;
    let at = |rows: &[Vec<f64>]| -> Vec<Vec<f64>> { measures.rows.iter().map(|&i| rows[i].clone()).collect() };
    let off = |a: &[Vec<f64>], b: &[Vec<f64>]| apart(a, b) / scale(&direct);
    let errors = Errors {
        recurrence: off(&recurrence, &direct),
        kernel: off(&measures.outputs, &at(&direct)),
        steps: f64::NAN,
        between: off(&at(&recurrence), &measures.outputs),
        tolerance: tolerance(subject),
    };
    Ok(View {
        place: (name.clone(), 0),
        name,
        state: [seen.system.width()?, 0],
        attention: Attention::of(subject, &measures.rows)?,
        uniform: uniform_horizon(&measures.rows),
        around: None,
        found: Ok(measures),
        errors: Some(errors),
        gradients: None,
        both: None,
    })
}

/// The system of `subject`'s queries, keys and values with η = 1.
fn bare(subject: &Subject) -> Result<Ltv> {
    let model =
        ModelConfig { mixer: unnormalised().name.to_owned(), options: Default::default(), ..subject.model.clone() };
    let params = Params::given(subject.weights.clone(), DType::F64, &Device::Cpu).detached();
    let system = unnormalised().build(&model, &params)?.ltv(&subject.u)?;
    Ok(system.expect("without a normaliser it is a system"))
}

/// The heads of an attention. z = w·u_i uses the weights of the mixer's own normaliser if it has one, and normal random
/// weights otherwise.
fn heads(subject: &Subject) -> Result<Vec<EtaHead>> {
    check_values(subject, "equation (17)")?;
    let (u, weights) = (&subject.u, &subject.weights);
    let altered = subject.entry.options.iter().find(|option| {
        let value = subject.model.options.get(option.name);
        ["kv_heads", "head_dim", "bias"].contains(&option.name)
            && value.is_some_and(|value| value != (option.default)(Protocol::Reference))
    });
    if let Some(MixerOption { name, .. }) = altered {
        refuse!("{} has the option {name}: equation (17) needs heads with keys and values of their own that share --d, and biases", subject.name);
    }
    let (count, d) = (subject.model.n_heads, subject.model.d_model);
    let [q, k] = queries_and_keys(weights, u)?;
    let affine = |w: &Tensor, b: Option<&Tensor>| -> Result<Tensor> {
        let x = u.matmul(&w.t()?.contiguous()?)?;
        Ok(match b {
            Some(b) => x.broadcast_add(b)?,
            None => x,
        })
    };
    let v = affine(&weights["wv"], weights.get("bv"))?;
    let z = match weights.get("wn") {
        Some(w) => affine(w, weights.get("bn"))?,
        None => {
            let mut rng = Rng::new(subject.seed, "inspect/eta", 0);
            let scale = (d as f64).powf(-0.5);
            let w: Vec<f64> = (0..count * d).map(|_| scale * rng.normals().0).collect();
            affine(&Tensor::from_vec(w, (count, d), &Device::Cpu)?, None)?
        }
    };
    let head = |head: usize| -> Result<EtaHead> {
        let part = |x: &Tensor| of_head(x, head, [count, count]);
        Ok(EtaHead { q: part(&q)?, k: part(&k)?, v: part(&v)?, z: part(&z)?.concat() })
    };
    (0..count).map(head).collect()
}

fn norm(x: &[f64]) -> f64 {
    dot(x, x).sqrt()
}
