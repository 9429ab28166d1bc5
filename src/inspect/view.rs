//! What is known of one subject: its system, softmax beside it, and how far its forms are apart.

use super::attention::Attention;
use super::measures::{chosen, uniform_horizon, Horizon, Measures};
use super::subject::Subject;
use super::verify::{verify, Errors};
use crate::error::Result;

/// What is known of one subject.
pub struct View {
    /// As the subject's.
    pub name: String,
    /// Numbers kept per sequence after L tokens, and how many more each further token takes.
    pub state: [usize; 2],
    /// What its system shows, or why there is none.
    pub found: Result<Measures, &'static str>,
    /// What surrounds the system, where it is not the mixer.
    pub around: Option<&'static str>,
    /// Softmax on the same input.
    pub attention: Attention,
    /// The horizon of the same rows, had all their tokens the same weight.
    pub uniform: Option<Horizon>,
    /// How far the four forms are apart, if they were compared.
    pub errors: Option<Errors>,
}

impl View {
    /// Of `subject`; its forms are compared if that is asked for.
    pub fn of(subject: &Subject, compared: bool) -> Result<Self> {
        let seq_len = subject.seq_len();
        let size = |seq_len| subject.mixer.state_size(seq_len);
        let seen = subject.system()?;
        let measures = match &seen {
            Ok(seen) => Ok(Measures::of(seen)?),
            Err(why) => Err(*why),
        };
        let errors = match (&seen, &measures) {
            (Ok(seen), Ok(measures)) if compared => Some(verify(subject, seen, measures)?),
            _ => None,
        };
        let rows = match &measures {
            Ok(measures) => measures.rows.clone(),
            Err(_) => chosen(seq_len),
        };
        Ok(Self {
            name: subject.name.clone(),
            state: [size(seq_len), size(seq_len + 1) - size(seq_len)],
            attention: Attention::of(subject, &rows)?,
            uniform: uniform_horizon(&rows),
            around: seen.ok().and_then(|seen| seen.around),
            found: measures,
            errors,
        })
    }

    /// What the attention matrix beside it is of.
    pub fn attended(&self) -> &'static str {
        match self.attention.own {
            true => "softmax of its queries and keys",
            false => "softmax, fresh",
        }
    }
}
