//! Sizes chosen for a GPU. Tests use small ones instead, so that small tensors have several tiles; a test can call
//! [`at_full_size`] to use those of production.

/// A size for production, and one for tests.
#[derive(Clone, Copy)]
pub(crate) struct Tuned {
    full: usize,
    small: usize,
}

impl Tuned {
    pub(crate) const fn new(full: usize, small: usize) -> Self {
        Self { full, small }
    }

    pub(crate) fn get(self) -> usize {
        match full_size() {
            true => self.full,
            false => self.small,
        }
    }
}

#[cfg(not(test))]
fn full_size() -> bool {
    true
}

#[cfg(test)]
thread_local! {
    static FULL_SIZE: std::cell::Cell<bool> = const { std::cell::Cell::new(false) };
}

#[cfg(test)]
fn full_size() -> bool {
    FULL_SIZE.get()
}

/// Runs `work`; launches by this thread use the sizes of production.
#[cfg(test)]
pub(crate) fn at_full_size<T>(work: impl FnOnce() -> T) -> T {
    let before = FULL_SIZE.replace(true);
    let made = work();
    FULL_SIZE.set(before);
    made
}
