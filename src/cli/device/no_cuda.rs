//! Stubs for a build without the feature `cuda`.

pub(super) fn gpus() -> usize {
    0
}

pub(super) fn check(_: usize) -> Result<(), String> {
    Err("this build of dsf has no CUDA support; build it with `make cuda`, or use --device cpu".to_owned())
}
