//! The length that a kernel is made for, of mixers whose kernel depends on it: a part of the model, so that a short input meets the
//! first taps of the kernel that a long one meets.

use super::{MixerOption, MixerSpec};

/// The option `l_max`, with help of its own.
pub(super) const fn option(help: &'static str, implied: bool) -> MixerOption {
    MixerOption {
        name: L_MAX,
        help,
        default: |_| AUTO,
        accepts: |v| v == AUTO || v.parse::<usize>().is_ok_and(|l| (1..=1 << 24).contains(&l)),
        implied,
        short: Some("20"),
        ..MixerOption::DEFAULT
    }
}

/// The name of that option.
pub(crate) const L_MAX: &str = "l_max";
/// Its value where no length is set.
pub(crate) const AUTO: &str = "auto";

/// The length that a spec sets; `None` is the length of the input.
pub(super) fn of(spec: &MixerSpec) -> Option<usize> {
    spec.option(L_MAX).and_then(|length| length.parse().ok())
}
