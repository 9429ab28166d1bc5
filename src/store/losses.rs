//! `losses.csv`: the training loss of every step, complete up to every checkpoint.

use crate::error::{Error, Result};
use std::fs::{self, File};
use std::io::{self, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

const HEADER: &str = "step,loss,lr\n";

/// Appends one row per step. Rows stay in memory until they are flushed.
#[derive(Debug)]
pub struct Losses {
    path: PathBuf,
    file: File,
    /// Length of the complete rows in the file, in bytes.
    written: u64,
    pending: Vec<u8>,
    missing: usize,
}

impl Losses {
    /// Opens the file at `path`, creating it if it is missing. Only the rows of the first `steps` steps of an
    /// interrupted run are kept, so that a repeated step has one row.
    pub(super) fn open(path: &Path, steps: usize) -> Result<Self> {
        let file = File::options()
            .create(true)
            .read(true)
            .write(true)
            .truncate(false)
            .open(path)
            .map_err(Error::io("open", path))?;
        let found = fs::read_to_string(path).unwrap_or_default();
        let (kept, rows) = kept(&found, steps);
        let mut losses =
            Self { path: path.to_owned(), file, written: kept as u64, pending: Vec::new(), missing: steps - rows };
        if kept == 0 {
            losses.pending.extend(HEADER.bytes());
        }
        losses.flush()?;
        Ok(losses)
    }

    /// Number of earlier steps whose rows are missing from the file.
    pub fn missing(&self) -> usize {
        self.missing
    }

    /// Adds the row of step `step`, counted from 1. Numbers are written so that they read back bit for bit.
    pub fn push(&mut self, step: usize, loss: f64, lr: f64) {
        let row = format!("{step},{loss:?},{lr:?}\n");
        self.pending.extend(row.bytes());
    }

    /// Writes all rows to the file, durably. If that fails, the next call tries again.
    pub fn flush(&mut self) -> Result<()> {
        let appended = self.append();
        appended.map_err(Error::io("write", &self.path))
    }

    /// Appends after the last complete row, overwriting the rest of a failed attempt.
    fn append(&mut self) -> io::Result<()> {
        self.file.set_len(self.written)?;
        self.file.seek(SeekFrom::Start(self.written))?;
        self.file.write_all(&self.pending)?;
        self.file.sync_data()?;
        self.written += self.pending.len() as u64;
        self.pending.clear();
        Ok(())
    }
}

/// Number of bytes of `text` to keep, and of rows in them: the header, and complete rows of ascending steps up to
/// `steps`.
fn kept(text: &str, steps: usize) -> (usize, usize) {
    let (mut bytes, mut rows, mut before) = (0, 0, 0);
    for line in text.split_inclusive('\n') {
        if bytes == 0 {
            if line != HEADER {
                break;
            }
        } else {
            match step(line) {
                Some(step) if step > before && step <= steps => before = step,
                _ => break,
            }
            rows += 1;
        }
        bytes += line.len();
    }
    (bytes, rows)
}

/// Parses a complete row and returns its step.
fn step(line: &str) -> Option<usize> {
    let cells: Vec<&str> = line.strip_suffix('\n')?.split(',').collect();
    let [step, loss, lr] = cells[..] else {
        return None;
    };
    let number = |cell: &str| cell.parse::<f64>().is_ok();
    step.parse().ok().filter(|_| number(loss) && number(lr))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::testing::Fails;

    struct World(tempfile::TempDir);

    impl World {
        fn new() -> Self {
            Self(tempfile::tempdir().unwrap())
        }

        fn open(&self, steps: usize) -> Losses {
            Losses::open(&self.0.path().join("losses.csv"), steps).unwrap()
        }

        fn text(&self) -> String {
            fs::read_to_string(self.0.path().join("losses.csv")).unwrap()
        }

        fn write(&self, text: &str) {
            fs::write(self.0.path().join("losses.csv"), text).unwrap();
        }
    }

    fn train(losses: &mut Losses, steps: std::ops::RangeInclusive<usize>) {
        for step in steps {
            losses.push(step, 10.0 / step as f64, 1e-7 * step as f64);
        }
    }

    #[test]
    fn an_interrupted_file_ends_like_an_unbroken_one() {
        let (whole, cut) = (World::new(), World::new());
        let mut losses = whole.open(0);
        train(&mut losses, 1..=9);
        losses.flush().unwrap();
        for checkpoint in 0..=5 {
            let mut losses = cut.open(checkpoint);
            assert_eq!(losses.missing(), 0);
            // Two flushes after the checkpoint, and rows that a kill lost.
            train(&mut losses, checkpoint + 1..=checkpoint + 2);
            losses.flush().unwrap();
            train(&mut losses, checkpoint + 3..=checkpoint + 3);
            losses.flush().unwrap();
            train(&mut losses, checkpoint + 4..=checkpoint + 4);
        }
        let mut losses = cut.open(6);
        train(&mut losses, 7..=9);
        losses.flush().unwrap();
        assert_eq!(cut.text(), whole.text());
        assert_eq!(whole.text().lines().count(), 10);
    }

    #[test]
    fn numbers_come_back_to_the_bit() {
        let world = World::new();
        let numbers = [0.1 + 0.2, 1e-300, 5e-324, f64::MAX, 10.826_309_204_101_562];
        let mut losses = world.open(0);
        for (step, number) in numbers.iter().enumerate() {
            losses.push(step + 1, *number, number / 3.0);
        }
        losses.flush().unwrap();
        let text = world.text();
        let rows = text.lines().skip(1).zip(numbers);
        for (row, number) in rows {
            let cells: Vec<f64> = row.split(',').map(|cell| cell.parse().unwrap()).collect();
            assert_eq!((cells[1], cells[2]), (number, number / 3.0));
        }
    }

    #[test]
    fn what_is_torn_or_foreign_is_cut_off_and_counted() {
        let row = "1,2.5,0.1\n";
        for (found, kept, missing) in [
            (String::new(), String::new(), 3),
            ("epoch,loss\n1,2\n".to_owned(), String::new(), 3),
            (format!("{HEADER}{row}2,2."), row.to_owned(), 2),
            (format!("{HEADER}{row}{row}"), row.to_owned(), 2),
            (format!("{HEADER}{row}2,x,0.1\n"), row.to_owned(), 2),
            (format!("{HEADER}{row}3,2.5,0.1\n"), format!("{row}3,2.5,0.1\n"), 1),
        ] {
            let world = World::new();
            world.write(&found);
            assert_eq!(world.open(3).missing(), missing, "{found}");
            assert_eq!(world.text(), format!("{HEADER}{kept}"), "{found}");
        }
    }

    #[test]
    fn a_failed_flush_names_the_file_and_is_made_up_for() {
        let world = World::new();
        let mut losses = world.open(0);
        let writable = losses.file.try_clone().unwrap();
        losses.file = File::open(&losses.path).unwrap();
        losses.push(1, 0.5, 0.1);
        losses.flush().fails("io").is_at("losses.csv", None);
        losses.file = writable;
        losses.push(2, 0.25, 0.1);
        losses.flush().unwrap();
        assert_eq!(world.text(), format!("{HEADER}1,0.5,0.1\n2,0.25,0.1\n"));
    }
}
