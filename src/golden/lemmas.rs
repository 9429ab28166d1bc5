//! Checks of lemma files: truncated softmax with its limit and its bound, and the enlarged system.

use super::file::{nan_max, GoldenFile};
use super::Worst;
use crate::error::{refuse, Result};
use crate::ltv::lemmas::{
    attention, monomial_features, run, taylor, tensor_features, truncated_softmax, truncation_bound, SystemStep,
};

/// Highest order at which tensor features are computed; their number grows as m^P.
const FULL_FEATURES: usize = 5;

/// max |a - b|; infinite if the lengths differ.
fn apart<'a>(a: impl IntoIterator<Item = &'a f64>, b: impl IntoIterator<Item = &'a f64>) -> f64 {
    let (mut a, mut b) = (a.into_iter(), b.into_iter());
    let mut worst: f64 = 0.0;
    loop {
        match (a.next(), b.next()) {
            (Some(a), Some(b)) => worst = nan_max(worst, (a - b).abs()),
            (None, None) => return worst,
            _ => return f64::INFINITY,
        }
    }
}

/// Checks Lemma 1 in f64.
pub(super) fn first(file: &GoldenFile) -> Result<Worst> {
    let (q, k, v) = (file.rows("q")?, file.rows("k")?, file.rows("v")?);
    if q.is_empty() || q.len() != k.len() || q.len() != v.len() || q[0].len() != k[0].len() {
        refuse!("q, k and v must have the same, positive length");
    }
    let exact = attention(&q, &k, &v, f64::exp);
    let mut worst = Worst::default();
    let wanted = file.vec("y_softmax")?;
    worst.add("y_softmax", apart(exact.iter().flatten(), &wanted), 1e-11);
    let (errors, bounds) = (file.vec("err")?, file.vec("bound")?);
    let dims = file.rows("feature_dims")?;
    let truncated = file.f64("y_trunc")?.to_vec3::<f64>()?;
    let orders = [errors.len(), bounds.len(), dims.len()];
    if orders.iter().any(|n| *n != truncated.len()) || dims.iter().any(|d| d.len() != 2) {
        refuse!("err, bound, feature_dims and y_trunc differ in length");
    }
    for (order, wanted) in truncated.iter().enumerate() {
        let y = truncated_softmax(&q, &k, &v, order);
        let largest = wanted.iter().flatten().fold(1.0, |m: f64, x| m.max(x.abs()));
        let off = apart(y.iter().flatten(), wanted.iter().flatten());
        worst.add(format!("y_trunc {order}"), off, 1e-11 * largest);
        let error = apart(y.iter().flatten(), exact.iter().flatten());
        worst.add(format!("err {order}"), (error - errors[order]).abs(), 1e-11 * largest);
        let bound = truncation_bound(&q, &k, &v, order);
        worst.add(format!("within bound {order}"), (error - bound).max(0.0), 1e-11);
        worst.add(format!("bound {order}"), gap(bound, bounds[order]), 1e-9);
        worst.merge(features(&q, &k, order, &dims[order]));
    }
    Ok(worst)
}

/// Relative distance of two positive numbers, either of which may be infinite.
fn gap(a: f64, b: f64) -> f64 {
    if a == b {
        0.0
    } else {
        (a - b).abs() / b.abs().max(1.0)
    }
}

/// Checks that both feature maps reproduce T_P, with the numbers of features listed in the file.
fn features(q: &[Vec<f64>], k: &[Vec<f64>], order: usize, dims: &[f64]) -> Worst {
    let mut worst = Worst::default();
    let width = q[0].len();
    let full: usize = (0..=order as u32).map(|p| width.pow(p)).sum();
    let distinct = monomial_features(&q[0], order).len();
    let miscount = (full as f64 - dims[0]).abs() + (distinct as f64 - dims[1]).abs();
    worst.add(format!("feature_dims {order}"), miscount, 0.5);
    for (q, k) in q.iter().zip(k) {
        let score: f64 = q.iter().zip(k).map(|(a, b)| a * b).sum();
        let wanted = taylor(score, order);
        let mut product = |kind: &str, map: fn(&[f64], usize) -> Vec<f64>| {
            let got: f64 = map(q, order).iter().zip(map(k, order)).map(|(a, b)| a * b).sum();
            let tolerance = 1e-13 * taylor(score.abs(), order).max(1.0);
            worst.add(format!("{kind} features {order}"), (got - wanted).abs(), tolerance);
        };
        product("monomial", monomial_features);
        if order <= FULL_FEATURES {
            product("tensor", tensor_features);
        }
    }
    worst
}

/// Checks Lemma 2 in f64.
pub(super) fn second(file: &GoldenFile) -> Result<Worst> {
    let three = |name: &str| -> Result<Vec<Vec<Vec<f64>>>> { Ok(file.f64(name)?.to_vec3()?) };
    let (lam, u) = (file.rows("lam")?, file.rows("u")?);
    let (b, c, d) = (three("b")?, three("c")?, three("d")?);
    let (bar, hat, b_bar) = (three("lambda_bar")?, three("lambda_hat")?, three("b_bar")?);
    let lengths = [b.len(), c.len(), d.len(), bar.len(), hat.len(), b_bar.len(), u.len()];
    if lengths.iter().any(|l| *l != lam.len()) {
        refuse!("the tensors have different lengths");
    }
    let diagonal = |row: &[f64]| -> Vec<Vec<f64>> {
        let at = |i: usize, j: usize| if i == j { row[i] } else { 0.0 };
        (0..row.len()).map(|i| (0..row.len()).map(|j| at(i, j)).collect()).collect()
    };
    let small: Vec<SystemStep> = (0..lam.len())
        .map(|i| SystemStep { lambda: diagonal(&lam[i]), b: b[i].clone(), c: c[i].clone(), d: d[i].clone() })
        .collect();
    let big: Vec<SystemStep> =
        small.iter().enumerate().map(|(i, step)| step.enlarged(&bar[i], &hat[i], &b_bar[i])).collect();
    let (y, h) = run(&small, &u);
    let (y_big, h_big) = run(&big, &u);
    let (y_wanted, h_wanted) = (file.vec("y")?, file.vec("h_last")?);
    let mut worst = Worst::default();
    worst.add("y", apart(y.iter().flatten(), &y_wanted), 1e-12);
    worst.add("enlarged y", apart(y_big.iter().flatten(), &y_wanted), 1e-12);
    worst.add("h_last", apart(&h, &h_wanted), 1e-12);
    worst.add("first states", apart(h_big.iter().take(h.len()), &h_wanted), 1e-12);
    worst.add("h_big_last", apart(&h_big, &file.vec("h_big_last")?), 1e-12);
    Ok(worst)
}
