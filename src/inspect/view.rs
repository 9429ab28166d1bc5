//! The results of one subject: its system, softmax attention for comparison, and the differences between its forms.

use super::attention::Attention;
use super::both::BothDirections;
use super::gradients::StateGradients;
use super::measures::{chosen, mirrored, uniform_horizon, Horizon, Measures};
use super::subject::{LayerPass, Subject};
use super::verify::{verify, Errors};
use crate::error::Result;

/// The results of one subject.
pub struct View {
    /// Name of the subject.
    pub name: String,
    /// Name of the network, and the layer that the subject is in it.
    pub place: (String, usize),
    /// Numbers kept per sequence after L tokens, and the growth of that number per further token.
    pub state: [usize; 2],
    /// Measures of its system, or the reason why there is none.
    pub found: Result<Measures, &'static str>,
    /// Parts of the mixer around the system; `None` if the system is the whole mixer.
    pub around: Option<&'static str>,
    /// Softmax attention on the same input.
    pub attention: Attention,
    /// Horizon of the same rows with equal weights; `None` where attention has none.
    pub uniform: Option<Horizon>,
    /// Differences between the four forms, if they were compared.
    pub errors: Option<Errors>,
    /// Gradients through time, if they were asked for.
    pub gradients: Option<StateGradients>,
    /// The layer in both directions, if this is the backward one and there is a system.
    pub both: Option<BothDirections>,
}

impl View {
    /// Measures the system of `subject`, and compares its four forms if `compared` is set.
    pub fn of(subject: &Subject, compared: bool) -> Result<Self> {
        let seq_len = subject.seq_len();
        let size = |seq_len| subject.mixer.state_size(seq_len);
        let seen = subject.system()?;
        let rows = match &subject.pass {
            LayerPass::Whole => chosen(seq_len),
            LayerPass::Forward | LayerPass::Backward(_) => mirrored(seq_len),
        };
        let measures = match &seen {
            Ok(seen) => Ok(Measures::of_rows(seen, subject.model.n_heads, rows.clone())?),
            Err(why) => Err(*why),
        };
        let errors = match (&seen, &measures) {
            // The parts of one sum have no forward pass of their own to compare with.
            (Ok(seen), Ok(measures)) if compared && !subject.sees_all => Some(verify(subject, seen, measures)?),
            _ => None,
        };
        let both = match (&subject.pass, &seen, &measures) {
            (LayerPass::Backward(passes), Ok(seen), Ok(measures)) => {
                BothDirections::of(passes, (seen, measures), compared)?
            }
            _ => None,
        };
        let attention = Attention::of(subject, &rows)?;
        Ok(Self {
            name: subject.name.clone(),
            place: subject.place.clone(),
            state: [size(seq_len), size(seq_len + 1) - size(seq_len)],
            uniform: attention.horizon.and(uniform_horizon(&rows)),
            attention,
            around: seen.ok().and_then(|seen| seen.around),
            found: measures,
            errors,
            gradients: subject.gradients.clone(),
            both,
        })
    }

    /// Whether forms of its system were compared, those of the layer in both directions included.
    pub fn is_verified(&self) -> bool {
        self.errors.is_some() || self.both.as_ref().is_some_and(|both| both.errors.is_some())
    }

    /// Title of the attention matrix.
    pub fn attended(&self) -> &'static str {
        match self.attention.own {
            true => "softmax attention of its queries and keys",
            false => "softmax attention, fresh",
        }
    }
}
