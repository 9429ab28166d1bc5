//! Lemma 2, computed: mixers whose map with a smaller n is embedded in one with a larger n; and identity (33).

use super::subject::Subject;
use super::table::{panels, record, shown};
use crate::config::ModelConfig;
use crate::error::{ensure, Error, Result};
use crate::ltv::lemmas::SystemStep;
use crate::ltv::Ltv;
use crate::mixers::{Entry, Growth, MixerSpec, MIXERS, ZERO_ORDER_HOLD};
use crate::nn::{Cx, Params};
use crate::ops;
use crate::ops::rng::Rng;
use crate::report::{Cell, Facts, Grid, GridLine, PanelForm, Report, Style};
use crate::store::check_memory;
use candle_core::{DType, Device, IndexOp, Tensor};
use std::collections::HashMap;

/// Biases at which the limit of linear attention is evaluated.
const BIASES: [f64; 5] = [0.0, -5.0, -14.0, -30.0, -40.0];
/// Standard deviation of the noise added to fresh weights, so that no weight is zero or one by initialisation, and of
/// random new weights.
const MOVED: f64 = 0.3;

/// Largest number of copies of a dense Λ_i in memory at a time.
const SPELLED: f64 = 5.0;
/// Largest number of copies of the enlarged weights in memory at a time.
const GROWN: f64 = 4.0;
/// End of the message on a Λ_i that does not fit into memory.
const LEFT_OUT: &str = "left out";

/// A mixer and the size to which it is enlarged.
pub struct Growing<'a> {
    /// The mixer with its weights and its input, in f64.
    pub subject: &'a Subject,
    /// n'.
    pub to: usize,
    /// Whether noise is added to its weights, as for a fresh mixer.
    pub moved: bool,
}

/// A line of the table.
struct Grown {
    how: String,
    off: Option<f64>,
}

impl Growing<'_> {
    fn normal(&self, name: &str, like: &Tensor) -> Result<Tensor> {
        let mut rng = Rng::new(self.subject.seed, &format!("inspect/lemma2/{name}"), 0);
        let values: Vec<f64> = (0..like.elem_count()).map(|_| MOVED * rng.normals().0).collect();
        Ok(Tensor::from_vec(values, like.shape(), &Device::Cpu)?)
    }

    /// The weights of the small mixer.
    fn small(&self) -> Result<HashMap<String, Tensor>> {
        let moved = self.subject.weights.iter().map(|(name, value)| {
            let value = if self.moved { (value + self.normal(name, value)?)? } else { value.clone() };
            Ok((name.clone(), value))
        });
        moved.collect()
    }

    /// y of the mixer of size n with these weights.
    fn output(&self, n: usize, weights: HashMap<String, Tensor>) -> Result<Tensor> {
        let model = self.model(n);
        let params = Params::given(weights, DType::F64, &Device::Cpu).detached();
        Ok(self.subject.entry.build(&model, &params)?.forward(&self.subject.u.unsqueeze(0)?, &Cx::eval())?)
    }

    fn model(&self, n: usize) -> ModelConfig {
        ModelConfig { d_state: n, ..self.subject.model.clone() }
    }

    /// Embeds the small weights in weights of size n'. New entries are 0 in the parameters `zeroed` and random
    /// elsewhere; `fill` may replace them by parameter name.
    fn embedded(
        &self,
        small: &HashMap<String, Tensor>,
        zeroed: &[&str],
        fill: impl Fn(&str, Tensor) -> Result<Tensor>,
    ) -> Result<HashMap<String, Tensor>> {
        let params = Params::seeded(self.subject.seed, DType::F64, &Device::Cpu).detached();
        self.subject.entry.build(&self.model(self.to), &params)?;
        let grow = |(name, var): (String, candle_core::Var)| {
            let new = if zeroed.contains(&name.as_str()) { var.zeros_like()? } else { self.normal(&name, &var)? };
            let new = fill(&name, new)?;
            let parts = [self.subject.model.d_state, self.to].map(|n| self.parts(&name, n));
            let value = inside(&new, &small[&name], parts, self.subject.model.n_heads)?;
            Ok((name, value))
        };
        params.vars().into_iter().map(grow).collect()
    }

    /// Numbers of rows of the parts that are stacked in a parameter with state expansion `n`; `None` if it is not
    /// stacked.
    fn parts(&self, name: &str, n: usize) -> Option<Vec<usize>> {
        match self.subject.entry.growth {
            Growth::Stacked { parts, .. } => parts(name, &MixerSpec::from(&self.model(n))),
            _ => None,
        }
    }

    /// Largest difference of the outputs, relative to the largest output.
    fn off(&self, small: &HashMap<String, Tensor>, big: HashMap<String, Tensor>) -> Result<f64> {
        let wanted = self.output(self.subject.model.d_state, small.clone())?;
        let got = self.output(self.to, big)?;
        let largest: f64 = wanted.abs()?.max_all()?.to_scalar()?;
        let apart: f64 = (got - wanted)?.abs()?.max_all()?.to_scalar()?;
        Ok(relative(apart, largest))
    }

    /// Enlarges the mixer by its rule in the registry.
    fn grown(&self) -> Result<Vec<Grown>> {
        let small = self.small()?;
        let factor = (self.to as f64 / self.subject.model.d_state as f64).sqrt();
        Ok(match self.subject.entry.growth {
            Growth::Exact { zeroed, scaled } => {
                let mut big = self.embedded(&small, zeroed, |_, new| Ok(new))?;
                for name in scaled {
                    // The name belongs to another variant if this mixer has no such parameter.
                    if let Some(value) = big.get_mut(*name) {
                        *value = (&*value * factor)?;
                    }
                }
                let scaled = match scaled {
                    [] => String::new(),
                    names => format!(", {} times √(n'/n)", names.join(" and ")),
                };
                let zeroed: Vec<&str> = zeroed.iter().copied().filter(|name| small.contains_key(*name)).collect();
                vec![Grown {
                    how: format!("zeros in the new rows of {}{scaled}", zeroed.join(", ")),
                    off: Some(self.off(&small, big)?),
                }]
            }
            Growth::Stacked { zeroed, .. } => {
                let big = self.embedded(&small, zeroed, |_, new| Ok(new))?;
                vec![Grown {
                    how: format!("zeros in the new rows of each part of {}", zeroed.join(", ")),
                    off: Some(self.off(&small, big)?),
                }]
            }
            Growth::Limit { zeroed, bias } => {
                let mut lines = Vec::new();
                for value in BIASES {
                    // Without biases, only the zero rows are evaluated.
                    if value != 0.0 && !small.contains_key(bias) {
                        continue;
                    }
                    let big = self.embedded(&small, zeroed, |name, new| match name == bias {
                        true => Ok((new.zeros_like()? + value)?),
                        false => Ok(new),
                    })?;
                    let off = Some(self.off(&small, big)?);
                    lines.push(Grown {
                        how: format!("zeros in the new rows of the weights, {bias} = {value} there (a limit)"),
                        off,
                    });
                }
                lines
            }
            Growth::No(why) => vec![Grown { how: why.to_owned(), off: None }],
        })
    }

    /// The lemma itself: the system with additional, randomly coupled states. Only one step's dense matrices are in
    /// memory at a time.
    fn as_system(&self) -> Result<Option<Grown>> {
        let Ok(seen) = self.subject.system()? else { return Ok(None) };
        let (system, states) = (&seen.system, seen.system.width()?);
        let needed = SPELLED * 8.0 * (states as f64).powi(2);
        if let Err(why) = check_memory(needed, &format!("a Λ_i of {states} by {states}"), LEFT_OUT) {
            let how = format!("as a system: {why}");
            return Ok(Some(Grown { how, off: None }));
        }
        let mut rng = Rng::new(self.subject.seed, "inspect/lemma2/blocks", 0);
        let mut block = |rows: usize, columns: usize| -> Vec<Vec<f64>> {
            let mut row = || (0..columns).map(|_| 0.1 * rng.normals().0).collect();
            (0..rows).map(|_| row()).collect()
        };
        let (extra, inputs) = (states.min(8), system.inputs()?);
        let (mut h, mut larger) = (vec![0.0; states], vec![0.0; states + extra]);
        let (mut largest, mut apart) = (0.0f64, 0.0f64);
        let (b, c, d) = (system.b()?, system.c()?, system.d()?);
        for (i, mut u) in seen.input.to_vec2()?.into_iter().enumerate() {
            u.resize(inputs, 1.0); // the constant input of an affine mixer
            let c: Vec<Vec<f64>> = c.i(i)?.to_vec2()?;
            let step = SystemStep {
                lambda: system.transition(i)?.to_vec2()?,
                b: b.i(i)?.to_vec2()?,
                d: match &d {
                    Some(d) => d.i(i)?.to_vec2()?,
                    None => vec![vec![0.0; inputs]; c.len()],
                },
                c,
            };
            let (bar, hat) = (block(extra, states), block(extra, extra));
            let wanted = step.advance(&mut h, &u);
            let got = step.enlarged(&bar, &hat, &block(extra, inputs)).advance(&mut larger, &u);
            largest = wanted.iter().fold(largest, |most, y| most.max(y.abs()));
            let pairs = wanted.iter().zip(&got);
            apart = pairs.fold(apart, |worst, (a, b)| worst.max((a - b).abs()));
        }
        Ok(Some(Grown {
            how: "as a system, with random Λ̄, Λ̂ and B̄".to_owned(), off: Some(relative(apart, largest))
        }))
    }

    /// Checks n'. Fails if the mixer does not support n', or its weights do not fit into memory.
    fn check(&self) -> Result<()> {
        let (subject, to) = (self.subject, self.to);
        let (entry, from) = (subject.entry, subject.model.d_state);
        if !entry.expands {
            return Ok(());
        }
        ensure!(
            to > from,
            flag "--to-n" = to, "must be larger than n = {from}, which Lemma 2 embeds in it");
        let model = self.model(to);
        entry.check_sizes(&model).map_err(|e| Error::flag_value("--to-n", to, e.diagnostic().reason))?;
        let counted = Params::without_values(DType::F64);
        entry.build(&model, &counted)?;
        let numbers = counted.count() + counted.constants();
        check_memory(GROWN * 8.0 * numbers as f64, &format!("--to-n {to} of {}", entry.name), "take a smaller --to-n")
    }
}

/// A difference in units of the largest output, or the absolute difference if all outputs are 0.
fn relative(apart: f64, largest: f64) -> f64 {
    apart / if largest > 0.0 { largest } else { 1.0 }
}

/// Copies `small` into the leading corner of each part of `big`, and of each head of a part that grows.
fn inside(big: &Tensor, small: &Tensor, parts: [Option<Vec<usize>>; 2], heads: usize) -> Result<Tensor> {
    let [small_parts, big_parts] = parts;
    let of = |parts: Option<Vec<usize>>, x: &Tensor| parts.unwrap_or_else(|| vec![x.dims()[0]]);
    let (mut from, mut to) = (0, 0);
    let mut pieces = Vec::new();
    for (few, many) in of(small_parts, small).into_iter().zip(of(big_parts, big)) {
        let by_head = few != many && few % heads == 0 && many % heads == 0;
        let count = if by_head { heads } else { 1 };
        for _ in 0..count {
            let new = big.narrow(0, to, many / count)?;
            pieces.push(corner(&new, &small.narrow(0, from, few / count)?)?);
            (from, to) = (from + few / count, to + many / count);
        }
    }
    Ok(Tensor::cat(&pieces, 0)?)
}

/// Copies `small` into the leading corner of `big`.
fn corner(big: &Tensor, small: &Tensor) -> Result<Tensor> {
    let range: Vec<_> = small.dims().iter().map(|n| 0..*n).collect();
    Ok(big.slice_assign(&range, small)?)
}

/// Enlarges every mixer and reports the differences. Fails if a mixer does not support its n', or its weights do not
/// fit into memory.
pub fn lemma2(growing: &[Growing]) -> Result<Report> {
    let mut lines = Vec::new();
    let mut records: Vec<Facts> = Vec::new();
    let mut push = |subject: &str, how: &str, off: Option<f64>| {
        lines.push(GridLine::new(subject, vec![Cell::text(off.map_or("-".into(), shown)), Cell::text(how)]));
        records.push(record(subject, how, [None, None], off));
    };
    growing.iter().try_for_each(Growing::check)?;
    for growing in growing {
        let system = growing.as_system()?;
        for grown in growing.grown()?.into_iter().chain(system) {
            push(&growing.subject.name, &grown.how, grown.off);
        }
    }
    let columns = ["difference", "embedding"];
    let style = Style::Measured("difference");
    let title = "differences of the outputs with n' and with n, relative to the largest output".to_owned();
    Ok(table_report(
        "Lemma 2: a larger state can do what a smaller one does",
        Grid { form: PanelForm::Table, records, ..Grid::new(title, columns, lines, style) },
    ))
}

fn table_report(heading: &str, grid: Grid) -> Report {
    panels(heading.to_owned(), vec![grid], Vec::new())
}

/// Identity (33) for every mixer with a parameter A: with A = a I, its transitions are the reversed sigmoid σ(-z)^a of
/// the z whose softplus is the step size; and theorem 1 of Gu & Dao (2023), under the zero-order hold: the input enters
/// with the factor g = (1 - σ(-z)^a)/a, which is the gate σ(z) for a = 1. Fails if a is not a positive number.
pub fn identity(model: impl Fn(&str) -> Result<ModelConfig>, a: f64, seq_len: usize) -> Result<Report> {
    ensure!(
        a > 0.0 && a.is_finite(),
        flag "--a" = a, "must be a positive number");
    let (mut lines, mut records) = (Vec::new(), Vec::new());
    let (mut held_lines, mut held_records) = (Vec::new(), Vec::new());
    for entry in MIXERS {
        let model = model(entry.name)?;
        let Some(system) = system_of_rate(entry, &model, a, seq_len)? else { continue };
        let Some(steps) = &system.gate else { continue };
        // z = ln(e^Δ - 1), so that softplus(z) = Δ.
        let z = (steps.exp()? - 1.0)?.log()?;
        let reversed = ops::sigmoid(&z.neg()?)?.powf(a)?.unsqueeze(2)?;
        let off = largest(&system.decay.broadcast_sub(&reversed)?)?;
        let ends = [steps.min_all()?, steps.max_all()?];
        let ends = [ends[0].to_scalar::<f64>()?, ends[1].to_scalar::<f64>()?];
        let name = format!("{} ({})", entry.name, model.variant);
        lines.push(GridLine::new(
            name.as_str(),
            vec![Cell::text(shown(off)), Cell::text(format!("{:.1e} to {:.1e}", ends[0], ends[1]))],
        ));
        records.push(record(&name, "identity", [None, None], Some(off)));
        let (option, hold) = ZERO_ORDER_HOLD;
        if !entry.options.iter().any(|known| known.name == option) {
            continue;
        }
        let mut held = model.clone();
        held.options.insert(option.to_owned(), hold.to_owned());
        let Some(held) = system_of_rate(entry, &held, a, seq_len)? else { continue };
        let input = system.write.broadcast_div(&steps.unsqueeze(2)?)?; // B, by Euler's B̄ = Δ B
        let gate = ((1.0 - reversed)? / a)?;
        let off = largest(&(&held.write - input.broadcast_mul(&gate)?)?)?.max(largest(&(held.decay - &system.decay)?)?);
        held_lines.push(GridLine::new(name.as_str(), vec![Cell::text(shown(off)), Cell::text(shown(largest(&gate)?))]));
        held_records.push(record(&name, "gate", [None, None], Some(off)));
    }
    let columns = ["difference", "step sizes Δ"];
    let a = if (1e-6..1e6).contains(&a) { format!("{a}") } else { format!("{a:e}") };
    let title = format!("largest |e^(-Δ a) - σ(-z)^a| with Δ = softplus(z), a = {a}");
    let table = |title, columns: [&str; 2], lines, records| Grid {
        form: PanelForm::Table,
        records,
        ..Grid::new(title, columns, lines, Style::Measured("difference"))
    };
    let held = "zero-order hold, h = (1 - a g) h + g B u with g = (1 - σ(-z)^a)/a: largest |B̄ - g B|".to_owned();
    let grids =
        vec![table(title, columns, lines, records), table(held, ["difference", "largest g"], held_lines, held_records)];
    let note =
        "with a = 1 the gate g is σ(z), and with n = 1 and B = 1 the recurrence is the gated RNN h = (1 - g) h + g u \
                of theorem 1 of Gu & Dao (2023)";
    Ok(panels(
        "Identity (33): the transition of S6 with A = a I is a reversed sigmoid".to_owned(),
        grids,
        vec![note.to_owned()],
    ))
}

/// The system of a fresh mixer with A = -a for every state, along normal inputs so large that its steps differ; `None`
/// if it has no A or no system.
fn system_of_rate(entry: &Entry, model: &ModelConfig, a: f64, seq_len: usize) -> Result<Option<Ltv>> {
    let params = Params::seeded(1, DType::F64, &Device::Cpu).detached();
    let mixer = entry.build(model, &params)?;
    let Some((_, a_log)) = params.vars().into_iter().find(|(name, _)| name == "a_log") else { return Ok(None) };
    a_log.set(&(a_log.zeros_like()? + a.ln())?)?;
    let mut rng = Rng::new(1, "inspect/identity", 0);
    let count = seq_len * model.d_model;
    let u: Vec<f64> = (0..count).map(|_| 20.0 * rng.normals().0).collect();
    let u = Tensor::from_vec(u, (seq_len, model.d_model), &Device::Cpu)?;
    Ok(match mixer.ltv(&u)? {
        Some(system) => Some(system),
        None => mixer.inner(&u)?.map(|inner| inner.system),
    })
}

/// The largest absolute value.
fn largest(x: &Tensor) -> Result<f64> {
    Ok(x.abs()?.max_all()?.to_scalar()?)
}
