//! Guides, one page per subject. Tests run the commands that they show.

#[doc = include_str!("guide/sweeps.md")]
pub mod sweeps {}

#[doc = include_str!("guide/programs.md")]
pub mod programs {}

#[doc = include_str!("guide/skills.md")]
pub mod skills {}

#[doc = include_str!("guide/lra.md")]
pub mod lra {}

#[doc = include_str!("guide/wikitext.md")]
pub mod wikitext {}

#[doc = include_str!("guide/inspect.md")]
pub mod inspect {}

#[doc = include_str!("guide/mixers.md")]
pub mod mixers {}

#[doc = include_str!("guide/pretrained.md")]
pub mod pretrained {}

#[doc = include_str!("guide/speed.md")]
pub mod speed {}

#[doc = include_str!("guide/correctness.md")]
pub mod correctness {}

#[doc = include_str!("guide/glossary.md")]
pub mod glossary {}

#[doc = include_str!("guide/extending.md")]
pub mod extending {}
