//! Any mixer, trained or not, as the dynamical system that it is: its matrices along an input, what they show, and
//! whether they are right.
//!
//! A [`Network`] is a fresh or a trained model; of an [`Input`] it makes a [`Subject`] a layer, whose [`Seen`] system is
//! measured in one pass ([`Measures`]) and held against the mixer's other forms ([`Errors`]): a [`View`], and several
//! of them are drawn ([`report`]).

mod attention;
mod draw;
mod engines;
mod eta;
mod lemma1;
mod lemma2;
mod measures;
mod products;
mod room;
mod spectrum;
mod subject;
mod table;
mod training;
mod verify;
mod view;

pub use draw::{report, Shown};
pub use engines::engines;
pub use eta::{etas, unnormalised, Eta, ETAS};
pub use lemma1::{lemma1, Heads};
pub use lemma2::{identity, lemma2, Growing};
pub use measures::{Horizon, Measures};
pub use products::bins;
pub use room::Need;
pub use subject::{Input, Network, Seen, Subject};
pub use training::{over_training, Course, Snapshot};
pub use verify::{verify, Errors};
pub use view::View;
