//! A build without the feature `cuda`.

pub(super) fn has_gpu() -> bool {
    false
}

pub(super) fn check(_: usize) -> Result<(), String> {
    Err(
        "this build of dsf has no CUDA support; build it with `make cuda`, or use --device cpu"
            .to_owned(),
    )
}
