//! Lemma 2 at work: which mixers can do with a larger n what they do with a smaller one; and identity (33).

use super::subject::Subject;
use super::table::{record, shown};
use crate::config::ModelConfig;
use crate::error::{ensure, Result};
use crate::ltv::lemmas::{run, Step};
use crate::ltv::Ltv;
use crate::mixers::{Growth, MIXERS};
use crate::nn::{Cx, Params};
use crate::ops;
use crate::ops::rng::Rng;
use crate::report::{Cell, Coverage, Facts, Form, Grid, Line, Report, Style};
use candle_core::{DType, Device, Tensor};
use serde_json::json;
use std::collections::HashMap;

/// Biases that the limit of linear attention is followed along.
const BIASES: [f64; 5] = [0.0, -5.0, -14.0, -30.0, -40.0];
/// How far fresh weights are moved, so that nothing is zero or one by chance.
const MOVED: f64 = 0.3;

/// A mixer and the size that it grows to.
pub struct Growing<'a> {
    /// The mixer with its weights and what it reads, in f64.
    pub subject: &'a Subject,
    /// n'.
    pub to: usize,
    /// Whether its weights are moved from their start: those of a fresh mixer.
    pub moved: bool,
}

/// One line of the table.
struct Grown {
    how: String,
    off: Option<f64>,
}

impl Growing<'_> {
    fn normal(&self, name: &str, like: &Tensor) -> Result<Tensor> {
        let mut rng = Rng::new(self.subject.seed, &format!("inspect/lemma2/{name}"), 0);
        let values: Vec<f64> = (0..like.elem_count())
            .map(|_| MOVED * rng.normals().0)
            .collect();
        Ok(Tensor::from_vec(values, like.shape(), &Device::Cpu)?)
    }

    /// The weights of the small mixer.
    fn small(&self) -> Result<HashMap<String, Tensor>> {
        let weights = self.subject.weights.iter();
        let moved = weights.map(|(name, value)| {
            let value = match self.moved {
                true => (value + self.normal(name, value)?)?,
                false => value.clone(),
            };
            Ok((name.clone(), value))
        });
        moved.collect()
    }

    /// y of the mixer of size n with these weights.
    fn output(&self, n: usize, weights: HashMap<String, Tensor>) -> Result<Tensor> {
        let model = self.model(n);
        let params = Params::given(weights, DType::F64, &Device::Cpu).detached();
        let mixer = self.subject.entry.build(&model, &params)?;
        Ok(mixer.forward(&self.subject.u.unsqueeze(0)?, &Cx::eval())?)
    }

    fn model(&self, n: usize) -> ModelConfig {
        ModelConfig {
            d_state: n,
            ..self.subject.model.clone()
        }
    }

    /// The small weights inside weights of size n': 0 in what is `zeroed`, random elsewhere; `fill` says what else is
    /// done to a parameter.
    fn embedded(
        &self,
        small: &HashMap<String, Tensor>,
        zeroed: &[&str],
        fill: impl Fn(&str, Tensor, Tensor) -> Result<Tensor>,
    ) -> Result<HashMap<String, Tensor>> {
        let params = Params::seeded(self.subject.seed, DType::F64, &Device::Cpu).detached();
        self.subject.entry.build(&self.model(self.to), &params)?;
        let grow = |(name, var): (String, candle_core::Var)| {
            let new = match zeroed.contains(&name.as_str()) {
                true => var.zeros_like()?,
                false => self.normal(&name, &var)?,
            };
            let value = fill(&name, new, small[&name].clone())?;
            Ok((name, value))
        };
        params.vars().into_iter().map(grow).collect()
    }

    /// Relative to the largest output.
    fn off(&self, small: &HashMap<String, Tensor>, big: HashMap<String, Tensor>) -> Result<f64> {
        let wanted = self.output(self.subject.model.d_state, small.clone())?;
        let got = self.output(self.to, big)?;
        let largest: f64 = wanted.abs()?.max_all()?.to_scalar()?;
        let apart: f64 = (got - wanted)?.abs()?.max_all()?.to_scalar()?;
        Ok(apart / largest)
    }

    /// By the rule of the registry.
    fn grown(&self) -> Result<Vec<Grown>> {
        let small = self.small()?;
        let factor = (self.to as f64 / self.subject.model.d_state as f64).sqrt();
        Ok(match self.subject.entry.growth {
            Growth::Exact { zeroed, scaled } => {
                let big = self.embedded(&small, zeroed, |name, new, old| {
                    let scale = if scaled.contains(&name) { factor } else { 1.0 };
                    Ok((corner(&new, &old)? * scale)?)
                })?;
                let scaled = match scaled {
                    [] => String::new(),
                    names => format!(", {} times √(n'/n)", names.join(" and ")),
                };
                vec![Grown {
                    how: format!("zeros in the new rows of {}{scaled}", zeroed.join(", ")),
                    off: Some(self.off(&small, big)?),
                }]
            }
            Growth::Limit { zeroed, bias } => {
                let mut lines = Vec::new();
                for value in BIASES {
                    // Without biases only the zero rows are left.
                    if value != 0.0 && !small.contains_key(bias) {
                        continue;
                    }
                    let big = self.embedded(&small, zeroed, |name, new, old| {
                        let new = if name == bias {
                            (new.zeros_like()? + value)?
                        } else {
                            new
                        };
                        corner(&new, &old)
                    })?;
                    let off = Some(self.off(&small, big)?);
                    lines.push(Grown {
                        how: format!("zero rows, {bias} = {value} there (a limit)"),
                        off,
                    });
                }
                lines
            }
            Growth::No(why) => vec![Grown {
                how: why.to_owned(),
                off: None,
            }],
        })
    }

    /// The lemma itself: the system with as many further states again, coupled at random.
    fn as_system(&self) -> Result<Option<f64>> {
        let Ok(seen) = self.subject.system()? else {
            return Ok(None);
        };
        let small = steps(&seen.system)?;
        let mut rng = Rng::new(self.subject.seed, "inspect/lemma2/blocks", 0);
        let mut block = |rows: usize, columns: usize| -> Vec<Vec<f64>> {
            let mut row = || (0..columns).map(|_| 0.1 * rng.normals().0).collect();
            (0..rows).map(|_| row()).collect()
        };
        let states = seen.system.width()?;
        let extra = states.min(8);
        let inputs = seen.system.inputs()?;
        let big: Vec<Step> = small
            .iter()
            .map(|step| {
                let (bar, hat) = (block(extra, states), block(extra, extra));
                step.enlarged(&bar, &hat, &block(extra, inputs))
            })
            .collect();
        let mut u: Vec<Vec<f64>> = seen.input.to_vec2()?;
        if u[0].len() < inputs {
            u.iter_mut().for_each(|row| row.push(1.0));
        }
        let (wanted, _) = run(&small, &u);
        let (got, _) = run(&big, &u);
        let largest = wanted
            .iter()
            .flatten()
            .fold(0.0, |m: f64, y| m.max(y.abs()));
        let pairs = wanted.iter().flatten().zip(got.iter().flatten());
        let apart = pairs.map(|(a, b)| (a - b).abs()).fold(0.0, f64::max);
        Ok(Some(apart / largest))
    }
}

/// `small` in the leading corner of `big`.
fn corner(big: &Tensor, small: &Tensor) -> Result<Tensor> {
    let range: Vec<_> = small.dims().iter().map(|n| 0..*n).collect();
    Ok(big.slice_assign(&range, small)?)
}

/// The matrices of every step, spelled out.
fn steps(system: &Ltv) -> Result<Vec<Step>> {
    let lambda = system.transitions()?.into_iter();
    let lambda: Vec<Vec<Vec<f64>>> = lambda
        .map(|x| x.to_vec2())
        .collect::<candle_core::Result<_>>()?;
    let (b, c) = (system.b()?.to_vec3::<f64>()?, system.c()?.to_vec3::<f64>()?);
    let d: Option<Vec<Vec<Vec<f64>>>> = system.d()?.map(|d| d.to_vec3()).transpose()?;
    let step = |i: usize| Step {
        lambda: lambda[i].clone(),
        b: b[i].clone(),
        d: match &d {
            Some(d) => d[i].clone(),
            None => vec![vec![0.0; b[i][0].len()]; c[i].len()],
        },
        c: c[i].clone(),
    };
    Ok((0..lambda.len()).map(step).collect())
}

/// Every mixer grown.
pub fn lemma2(growing: &[Growing]) -> Result<Report> {
    let mut lines = Vec::new();
    let mut records: Vec<Facts> = Vec::new();
    let mut push = |subject: &str, how: &str, off: Option<f64>| {
        lines.push(Line {
            name: subject.to_owned(),
            printed: false,
            cells: vec![Cell::text(off.map_or("-".into(), shown)), Cell::text(how)],
        });
        records.push(record(subject, how, [None, None], off));
    };
    for growing in growing {
        let subject = growing.subject;
        ensure!(
            !subject.entry.expands || growing.to > subject.model.d_state,
            "--to-n {}: Lemma 2 embeds n = {} in a larger n",
            growing.to,
            subject.model.d_state
        );
        for grown in growing.grown()? {
            push(&subject.name, &grown.how, grown.off);
        }
        if let Some(off) = growing.as_system()? {
            push(
                &subject.name,
                "as a system, with random Λ̄, Λ̂ and B̄",
                Some(off),
            );
        }
    }
    let columns = ["difference".to_owned(), "how".to_owned()].to_vec();
    let style = Style::Measured("difference");
    let title = "outputs with n' against those with n, relative to the largest".to_owned();
    Ok(table_report(
        "Lemma 2: a larger state can do what a smaller one does",
        Grid {
            form: Form::Table,
            records,
            ..Grid::new(title, columns, lines, style)
        },
    ))
}

fn table_report(heading: &str, grid: Grid) -> Report {
    Report {
        heading: heading.to_owned(),
        facts: vec![("inspection".to_owned(), json!(1))],
        list: "panels",
        grids: vec![grid],
        printed: Vec::new(),
        notes: Vec::new(),
        coverage: Coverage::default(),
    }
}

/// Identity (33) for every mixer whose A can be set: with A = a I its own transitions are the reversed sigmoid
/// σ(-z)^a of the z whose softplus is its step.
pub fn identity(
    model: impl Fn(&str) -> Result<ModelConfig>,
    a: f64,
    seq_len: usize,
) -> Result<Report> {
    ensure!(
        a > 0.0 && a.is_finite(),
        "--a must be a positive number, not {a}"
    );
    let (mut lines, mut records) = (Vec::new(), Vec::new());
    for entry in MIXERS {
        let model = model(entry.name)?;
        let params = Params::seeded(1, DType::F64, &Device::Cpu).detached();
        let mixer = entry.build(&model, &params)?;
        let Some((_, a_log)) = params.vars().into_iter().find(|(name, _)| name == "a_log") else {
            continue;
        };
        a_log.set(&(a_log.zeros_like()? + a.ln())?)?;
        let mut rng = Rng::new(1, "inspect/identity", 0);
        let count = seq_len * model.d_model;
        let u: Vec<f64> = (0..count).map(|_| 20.0 * rng.normals().0).collect();
        let u = Tensor::from_vec(u, (seq_len, model.d_model), &Device::Cpu)?;
        let system = match (mixer.ltv(&u)?, mixer.inner(&u)?) {
            (Some(system), _) => system,
            (None, Some(inner)) => inner.system,
            (None, None) => continue,
        };
        let Some(steps) = &system.gate else { continue };
        // z = ln(e^Δ - 1), where softplus(z) = Δ.
        let z = (steps.exp()? - 1.0)?.log()?;
        let reversed = ops::sigmoid(&z.neg()?)?.powf(a)?.unsqueeze(2)?;
        let gap = system.decay.broadcast_sub(&reversed)?.abs()?;
        let off: f64 = gap.max_all()?.to_scalar()?;
        let ends = [steps.min_all()?, steps.max_all()?];
        let ends = [ends[0].to_scalar::<f64>()?, ends[1].to_scalar::<f64>()?];
        let name = format!("{} ({})", entry.name, model.variant);
        lines.push(Line {
            name: name.clone(),
            printed: false,
            cells: vec![
                Cell::text(shown(off)),
                Cell::text(format!("{:.1e} to {:.1e}", ends[0], ends[1])),
            ],
        });
        records.push(record(&name, "identity", [None, None], Some(off)));
    }
    let columns = ["difference".to_owned(), "steps Δ".to_owned()].to_vec();
    let title = format!("largest |e^(-Δ a) - σ(-z)^a| with Δ = softplus(z), a = {a}");
    Ok(table_report(
        "Identity (33): the transition of S6 with A = a I is a reversed sigmoid",
        Grid {
            form: Form::Table,
            records,
            ..Grid::new(title, columns, lines, Style::Measured("difference"))
        },
    ))
}
