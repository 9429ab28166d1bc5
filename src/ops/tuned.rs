//! Sizes chosen for a GPU. Tests take small ones instead, so that small tensors have several tiles; [`at_full_size`] lets a
//! test take those of production.

/// A size of production, and that of tests.
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

/// Does `work`, whose launches from this thread take the sizes of production.
#[cfg(test)]
pub(crate) fn at_full_size<T>(work: impl FnOnce() -> T) -> T {
    let before = FULL_SIZE.replace(true);
    let made = work();
    FULL_SIZE.set(before);
    made
}
