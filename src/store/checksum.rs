//! The digest that a row of a summary carries.

use super::schema::{place, CHECKSUM};
use csv::StringRecord;
use sha2::{Digest, Sha256};

/// A digest of each row of a file, whatever the order of its columns: a number with one wrong digit looks like any other.
pub(super) struct Checksum<'a> {
    /// The column that it stands in.
    pub at: Option<usize>,
    /// The other columns, by name.
    others: Vec<(&'a str, usize)>,
}

impl<'a> Checksum<'a> {
    pub fn under(header: &'a StringRecord) -> Self {
        let names = header.iter().map(str::trim).enumerate();
        let (at, others): (Vec<_>, Vec<_>) = names.partition(|(_, name)| *name == CHECKSUM);
        let mut others: Vec<_> = others.into_iter().map(|(i, name)| (name, i)).collect();
        others.sort_unstable();
        let at = at.first().map(|(i, _)| *i);
        Self { at, others }
    }

    /// Of all cells that hold something: a column without values is as good as none.
    pub fn of(&self, row: &StringRecord) -> String {
        self.of_those(row, |_| true)
    }

    /// Of the cells of some columns.
    fn of_those(&self, row: &StringRecord, counts: impl Fn(&str) -> bool) -> String {
        let mut sum = Sha256::new();
        for (name, i) in self.others.iter().filter(|(name, _)| counts(name)) {
            let text = row[*i].trim();
            if !text.is_empty() {
                for part in [name, "=", text, "\n"] {
                    sum.update(part);
                }
            }
        }
        let mut digits = hex::encode(sum.finalize());
        digits.truncate(12);
        digits
    }

    /// Why `row` is not as it was written. Files without the column pass: earlier versions wrote none. Where its cells are
    /// `spelt` in another way than here, the values count.
    pub fn check(
        &self,
        row: &StringRecord,
        spelt: impl Fn() -> StringRecord,
    ) -> Result<(), String> {
        let Some(written) = self.at.map(|at| row[at].trim()) else {
            return Ok(());
        };
        // A later version counts its own columns, which are not known here; a person may have added some.
        let known = |row: &StringRecord| self.of_those(row, |name| place(name).is_some());
        match written == self.of(row) || written == known(row) || written == known(&spelt()) {
            true => Ok(()),
            false => Err(format!(
                "the row was changed since it was written: its checksum is {}, not `{written}`; if that was meant, \
                 take the column `{CHECKSUM}` out of the file",
                known(&spelt())
            )),
        }
    }
}
