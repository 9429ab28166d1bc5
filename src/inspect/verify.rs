//! Compares the four forms of one map.

use super::measures::Measures;
use super::subject::{Seen, Subject};
use crate::nn::Cx;
use candle_core::{DType, Result, Tensor};

/// Differences between the forms, in units of the largest output.
#[derive(Clone, Copy, Debug)]
pub struct Errors {
    /// Recurrence (11) and forward pass.
    pub recurrence: f64,
    /// Kernel (12) and forward pass, at the computed rows of Φ.
    pub kernel: f64,
    /// Step-by-step form and forward pass; NaN if the mixer has no such form.
    pub steps: f64,
    /// Recurrence and kernel.
    pub between: f64,
    /// Largest accepted difference for the data type of the forms.
    pub tolerance: f64,
}

impl Errors {
    /// Each difference with its name.
    pub fn each(&self) -> [(&'static str, f64); 4] {
        [
            ("recurrence (11) - forward pass", self.recurrence),
            ("kernel (12) - forward pass", self.kernel),
            ("step by step - forward pass", self.steps),
            ("recurrence (11) - kernel (12)", self.between),
        ]
    }

    /// Whether all differences are within the tolerance; a missing form is not counted.
    pub fn hold(&self) -> bool {
        let [recurrence, kernel, steps, between] = self.each().map(|(_, error)| error);
        let within = |error: f64| error <= self.tolerance;
        within(recurrence) && within(kernel) && within(between) && (steps.is_nan() || within(steps))
    }
}

/// Runs all four forms of `subject` along its input.
pub fn verify(subject: &Subject, seen: &Seen, measures: &Measures) -> Result<Errors> {
    let x = subject.u.unsqueeze(0)?;
    let whole = rows(&subject.mixer.forward(&x, &Cx::eval())?.squeeze(0)?)?;
    let recurrence = rows(&seen.system.run(&seen.input)?)?;
    let at = |rows: &[Vec<f64>]| -> Vec<Vec<f64>> { measures.rows.iter().map(|&i| rows[i].clone()).collect() };
    let scale = scale(&whole);
    let apart = |a: &[Vec<f64>], b: &[Vec<f64>]| apart(a, b) / scale;
    let steps = match stepped(subject)? {
        Some(steps) => apart(&rows(&steps)?, &whole),
        None => f64::NAN,
    };
    Ok(Errors {
        recurrence: apart(&recurrence, &whole),
        kernel: apart(&measures.outputs, &at(&whole)),
        steps,
        between: apart(&at(&recurrence), &measures.outputs),
        tolerance: tolerance(subject),
    })
}

/// Largest accepted difference of two forms, in units of the largest output.
pub fn tolerance(subject: &Subject) -> f64 {
    match subject.u.dtype() {
        DType::F64 => 1e-10,
        _ => 1e-5,
    }
}

/// y `(L, d_model)`, computed token by token; `None` if the mixer has no recurrent form.
pub fn stepped(subject: &Subject) -> Result<Option<Tensor>> {
    let Some(recurrent) = subject.mixer.recurrent() else { return Ok(None) };
    let mut state = recurrent.init(1)?;
    let step = |i: usize| recurrent.step(&subject.u.narrow(0, i, 1)?, i, &mut state);
    let ys: Vec<Tensor> = (0..subject.seq_len()).map(step).collect::<Result<_>>()?;
    Tensor::cat(&ys, 0).map(Some)
}

pub fn rows(x: &Tensor) -> Result<Vec<Vec<f64>>> {
    x.to_dtype(DType::F64)?.to_vec2()
}

/// The largest output, or 1 if all are 0.
pub fn scale(outputs: &[Vec<f64>]) -> f64 {
    let largest = outputs.iter().flatten();
    match largest.fold(0.0, |m: f64, y| m.max(y.abs())) {
        0.0 => 1.0,
        largest => largest,
    }
}

/// The largest difference; NaN if any is NaN.
pub fn apart(a: &[Vec<f64>], b: &[Vec<f64>]) -> f64 {
    let pairs = a.iter().flatten().zip(b.iter().flatten());
    pairs.map(|(a, b)| (a - b).abs()).fold(0.0, |worst, off| if off <= worst { worst } else { off })
}
