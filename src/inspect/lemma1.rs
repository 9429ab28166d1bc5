//! Lemma 1, computed: softmax attention and the system of its Taylor series, truncated at order P.

use super::attention::{check_values, heads, of_head, queries_and_keys};
use super::subject::Subject;
use super::table::{panels, record};
use crate::error::{refuse, Result};
use crate::ltv::lemmas::{attention, taylor, truncated_softmax, truncation_bound};
use crate::ops::rng::Rng;
use crate::report::{Cell, Content, Grid, GridLine, PanelForm, Report, Style, Tick};
use serde_json::json;

/// Largest number of features for which the recurrence over them is run.
const RECURRENT: f64 = 4000.0;
const HIGHEST: usize = 64;

/// Queries, keys and values of the heads of one attention, L rows each. Queries and keys include the scale 1/√m.
pub struct Heads {
    /// Description of their source.
    pub name: String,
    heads: Vec<[Vec<Vec<f64>>; 3]>,
    features: usize,
}

impl Heads {
    /// Returns one head with standard normal queries, keys and values of `features` features each.
    pub fn random(features: usize, seq_len: usize, seed: u64) -> Self {
        let scale = (features as f64).powf(-0.25);
        let draw = |name: &str, scale: f64| -> Vec<Vec<f64>> {
            let mut rng = Rng::new(seed, &format!("inspect/{name}"), 0);
            let mut row = || (0..features).map(|_| scale * rng.normals().0).collect();
            (0..seq_len).map(|_| row()).collect()
        };
        Self {
            name: format!("normal random queries and keys, m = {features}, L = {seq_len}"),
            heads: vec![[draw("q", scale), draw("k", scale), draw("v", 1.0)]],
            features,
        }
    }

    /// Returns the heads of the attention of `subject`. Fails if the mixer has no queries, keys and values.
    pub fn of(subject: &Subject) -> Result<Self> {
        check_values(subject, "Lemma 1")?;
        let [q, k] = queries_and_keys(&subject.weights, &subject.u)?;
        let v = subject.u.matmul(&subject.weights["wv"].t()?.contiguous()?)?.to_dtype(q.dtype())?;
        let [count, shared] = heads(subject);
        let features = q.dim(1)? / count;
        let scale = (features as f64).powf(-0.25);
        let (q, k) = ((q * scale)?, (k * scale)?);
        let head = |head: usize| -> Result<[Vec<Vec<f64>>; 3]> {
            let part = |x, own| of_head(x, head, [count, own]);
            Ok([part(&q, count)?, part(&k, shared)?, part(&v, shared)?])
        };
        Ok(Self {
            name: format!("queries and keys of {}, m = {features}", subject.name),
            heads: (0..count).map(head).collect::<Result<_>>()?,
            features,
        })
    }

    fn largest_score(&self) -> f64 {
        self.heads.iter().fold(0.0, |worst: f64, [q, k, _]| {
            let scores = q
                .iter()
                .enumerate()
                .flat_map(|(i, q)| k[..=i].iter().map(move |k| q.iter().zip(k).map(|(a, b)| a * b).sum::<f64>()));
            scores.fold(worst, |worst, score| worst.max(score.abs()))
        })
    }
}

/// Results of one order: error, bound, error of the recurrence, and numbers of tensor features and monomials.
struct Truncated {
    error: f64,
    bound: f64,
    /// Difference between the recurrence over the features and the same sum over tokens; `None` if there are too many
    /// features.
    recurrence: Option<f64>,
    features: [f64; 2],
}

impl Truncated {
    fn of(heads: &Heads, order: usize) -> Self {
        let m = heads.features as f64;
        let tensors = (0..=order).map(|p| m.powi(p as i32)).sum();
        let monomials = (1..=order).fold(1.0, |count, p| count * (m + p as f64) / p as f64);
        let (mut error, mut bound, mut recurrence) = (0.0, 0.0, None);
        for [q, k, v] in &heads.heads {
            let exact = attention(q, k, v, f64::exp);
            let cut = attention(q, k, v, |x| taylor(x, order));
            error = apart(&exact, &cut).max(error);
            bound = truncation_bound(q, k, v, order).max(bound);
            if monomials <= RECURRENT {
                let off = apart(&truncated_softmax(q, k, v, order), &cut);
                recurrence = Some(off.max(recurrence.unwrap_or(0.0)));
            }
        }
        Self { error, bound, recurrence, features: [tensors, monomials] }
    }
}

/// A line of the report: its name, and its number for an order.
type ReportLine = (&'static str, fn(&Truncated) -> Option<f64>);

fn apart(a: &[Vec<f64>], b: &[Vec<f64>]) -> f64 {
    a.iter().flatten().zip(b.iter().flatten()).map(|(a, b)| (a - b).abs()).fold(0.0, f64::max)
}

/// Reports error and bound of every order from 1 to `order`. Fails if the order is 0 or above the highest supported
/// one.
pub fn lemma1(heads: &Heads, order: usize) -> Result<Report> {
    if !(1..=HIGHEST).contains(&order) {
        refuse!(flag "--order" = order, "must be 1 to {HIGHEST}");
    }
    let orders: Vec<usize> = (1..=order).collect();
    let each: Vec<Truncated> = orders.iter().map(|&p| Truncated::of(heads, p)).collect();
    let columns = orders.iter().copied().map(Tick::whole);
    let subject = heads.name.as_str();
    let rows: [ReportLine; 5] = [
        ("error", |t| Some(t.error)),
        ("bound", |t| Some(t.bound)),
        ("features (tensors)", |t| Some(t.features[0])),
        ("features (monomials)", |t| Some(t.features[1])),
        ("recurrence - sum over tokens", |t| t.recurrence),
    ];
    let mut records = Vec::new();
    for (name, of) in &rows {
        for (p, truncated) in orders.iter().zip(&each) {
            let at = [None, Some(json!(p))];
            records.push(record(subject, name, at, of(truncated)));
        }
    }
    let line = |(name, of): &ReportLine, text: bool| {
        GridLine::new(
            *name,
            each.iter()
                .map(|truncated| match of(truncated) {
                    None => Cell::text("-"),
                    Some(value) if text => Cell::text(super::table::shown(value)),
                    Some(value) => Cell::from(Content::Value(value)),
                })
                .collect(),
        )
    };
    let curve = Grid {
        form: PanelForm::Lines { over: "order P".to_owned(), log: false, steps: false, named: false },
        axes: ["order P".to_owned(), String::new()],
        records,
        ..Grid::new(
            "largest difference of an output, and its bound 2δ/(1-δ) max|v|".to_owned(),
            columns.clone(),
            rows[..2].iter().map(|row| line(row, false)).collect(),
            Style::Measured("difference"),
        )
    };
    let sizes = Grid {
        form: PanelForm::Table,
        axes: ["order P".to_owned(), String::new()],
        ..Grid::new(
            "features of the truncated system; its state size N is d times as large".to_owned(),
            columns,
            rows[2..].iter().map(|row| line(row, true)).collect(),
            Style::Measured("number"),
        )
    };
    let heading = format!("Lemma 1: softmax attention as a truncated Taylor system; {subject}");
    let notes = vec![
        format!("largest |q·k|/√m: {:.2}", heads.largest_score()),
        "only even orders keep every weight positive; the bound is infinite if the relative error δ of a weight reaches 1"
            .to_owned(),
    ];
    Ok(panels(heading, vec![curve, sizes], notes))
}
