//! Option `l_max` of mixers whose kernel depends on its length: a property of the model, so that a short input reads
//! the first taps of the same kernel as a long one.

use super::{in_range, MixerOption, MixerSpec};

/// Option `l_max` with the mixer's own help.
pub(super) const fn option(help: &'static str, implied: bool) -> MixerOption {
    MixerOption {
        name: L_MAX,
        help,
        default: |_| AUTO,
        accepts: |v| v == AUTO || in_range(v, 1..=1 << 24),
        implied,
        short: Some("20"),
        ..MixerOption::DEFAULT
    }
}

/// Name of the option.
pub(crate) const L_MAX: &str = "l_max";
/// Value that leaves the length to the input.
pub(crate) const AUTO: &str = "auto";

/// Kernel length of `spec`; `None` takes the length of the input.
pub(super) fn of(spec: &MixerSpec) -> Option<usize> {
    spec.parsed(L_MAX)
}
