//! Tensors that depend on the length of a sequence alone.

use candle_core::Result;
use std::cell::RefCell;

/// Number of lengths whose tables are kept: those of training, validation and test, and one more.
const LENGTHS: usize = 4;

/// Tables of a mixer for the first few lengths that it meets; those of other lengths are made each time.
///
/// The first steps of a training run make the tables of its length, and a recorded step reads them where they are: it
/// may not upload them, and they must stay. Therefore tables are never replaced.
pub struct Tables<T>(RefCell<Vec<(usize, T)>>);

impl<T> Default for Tables<T> {
    fn default() -> Self {
        Self(RefCell::default())
    }
}

impl<T: Clone> Tables<T> {
    /// Returns the table of `len`, from `make` if there is none yet.
    pub fn of(&self, len: usize, make: impl FnOnce() -> Result<T>) -> Result<T> {
        let known = self.0.borrow().iter().find(|(of, _)| *of == len).map(|(_, table)| table.clone());
        if let Some(table) = known {
            return Ok(table);
        }
        let table = make()?;
        let mut tables = self.0.borrow_mut();
        if tables.len() < LENGTHS {
            tables.push((len, table.clone()));
        }
        Ok(table)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_of_the_first_lengths_are_made_once() {
        let (tables, made) = (Tables::default(), RefCell::new(Vec::new()));
        let of = |len| {
            let make = || {
                made.borrow_mut().push(len);
                Ok(10 * len)
            };
            assert_eq!(tables.of(len, make).unwrap(), 10 * len);
        };
        [3, 5, 3, 7, 5, 8, 9, 9, 3].into_iter().for_each(of);
        assert_eq!(made.into_inner(), [3, 5, 7, 8, 9, 9]);
    }
}
