//! Inspects any mixer, trained or not, as a dynamical system: its matrices along an input, their measures, and checks
//! of their correctness.
//!
//! A [`Network`] is a fresh or a trained model. For a [`NetworkInput`] it returns one [`Subject`] per layer, whose
//! system ([`Seen`]) is measured in one pass ([`Measures`]) and compared with the mixer's other forms ([`Errors`]). A
//! [`View`] holds these results, and [`report`] draws several of them. A layer that reads its input in both directions
//! is two subjects, one per pass, which together are a non-causal system ([`BothDirections`]).

mod attention;
mod both;
mod draw;
mod engines;
mod eta;
mod gradients;
mod lemma1;
mod lemma2;
mod matrices;
mod measures;
mod products;
mod room;
mod spectrum;
mod subject;
mod table;
mod through_time;
mod training;
mod verify;
mod view;

pub use both::BothDirections;
pub use draw::{report, DrawOptions};
pub use engines::engines;
pub use eta::{etas, unnormalised, Eta, ETAS};
pub use gradients::StateGradients;
pub use lemma1::{lemma1, Heads};
pub use lemma2::{identity, lemma2, Growing};
pub use matrices::matrices;
pub use measures::{Horizon, Measures};
pub use products::bins;
pub use room::Need;
pub use subject::{check_direction, InspectPlan, InspectStage, LayerPass, Network, NetworkInput, Seen, Subject};
pub use training::{over_training, Course, Snapshot};
pub use verify::{verify, Errors};
pub use view::View;
