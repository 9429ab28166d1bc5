//! Checksums of the rows of a summary.

use super::column::Column;
use csv::StringRecord;
use sha2::{Digest, Sha256};

/// Digest of each row of a file, independent of the order of its columns. It detects a changed digit, which no other
/// check can.
pub(super) struct RowChecksum<'a> {
    /// Index of the checksum column.
    pub at: Option<usize>,
    /// Names and indices of the other columns.
    others: Vec<(&'a str, usize)>,
}

impl<'a> RowChecksum<'a> {
    pub fn under(header: &'a StringRecord) -> Self {
        let names = header.iter().map(str::trim).enumerate();
        let (at, others): (Vec<_>, Vec<_>) = names.partition(|(_, name)| *name == Column::CHECKSUM.name());
        let mut others: Vec<_> = others.into_iter().map(|(i, name)| (name, i)).collect();
        others.sort_unstable();
        let at = at.first().map(|(i, _)| *i);
        Self { at, others }
    }

    /// Returns the digest of all non-empty cells, so that an empty column and a missing one give the same digest.
    pub fn digest(&self, row: &StringRecord) -> String {
        self.digest_where(row, |_| true)
    }

    /// Returns the digest of the cells whose column satisfies `counts`.
    fn digest_where(&self, row: &StringRecord, counts: impl Fn(&str) -> bool) -> String {
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

    /// Compares `row` with its checksum. Files without the column pass, since earlier versions wrote none. `spelt`
    /// returns the row in this program's spelling: a cell that another program spelt differently passes if its value is
    /// unchanged.
    pub fn check(&self, row: &StringRecord, spelt: impl Fn() -> StringRecord) -> Result<(), String> {
        let Some(written) = self.at.map(|at| row[at].trim()) else {
            return Ok(());
        };
        // A later version includes columns that are unknown here, and users may have added others.
        let known = |row: &StringRecord| self.digest_where(row, |name| Column::find(name).is_some());
        if written == self.digest(row) || written == known(row) || written == known(&spelt()) {
            Ok(())
        } else {
            Err(format!(
                "the row was changed since it was written: its checksum is {}, not `{written}`; if that was meant, \
                 take the column `{}` out of the file",
                known(&spelt()),
                Column::CHECKSUM.name()
            ))
        }
    }
}
