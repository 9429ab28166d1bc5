//! A split row by row, the same rows from plain text as from Parquet files.

use crate::error::{Error, Position, Result};
use crate::tasks::{lines, parquet};
use rayon::prelude::*;
use std::fs;
use std::path::{Path, PathBuf};

/// Bytes of all `files`.
pub(super) fn bytes(files: &[PathBuf]) -> Result<u64> {
    let length = |path: &PathBuf| fs::metadata(path).map(|m| m.len());
    let lengths = files
        .iter()
        .map(|p| length(p).map_err(Error::io("read", p)));
    lengths.sum()
}

/// Hands what `make` makes of each row to `take`, in order, with how many bytes of the files have been
/// read. `make` says what is wrong with a row; the error names file and row.
///
/// A line with its end is a row, and a line of blanks an empty one.
pub(super) fn read<T: Send>(
    files: &[PathBuf],
    make: impl Fn(&str) -> Result<T, String> + Sync,
    mut take: impl FnMut(T, u64) -> Result<()>,
) -> Result<()> {
    let mut before = 0;
    for path in files {
        let length = bytes(std::slice::from_ref(path))?;
        if path.extension().is_some_and(|e| e == "parquet") {
            groups(path, &make, &mut |made, share| {
                take(made, before + (share * length as f64) as u64)
            })?;
        } else {
            plain(path, &make, &mut |made, read| take(made, before + read))?;
        }
        before += length;
    }
    Ok(())
}

fn groups<T: Send>(
    path: &Path,
    make: &(impl Fn(&str) -> Result<T, String> + Sync),
    take: &mut impl FnMut(T, f64) -> Result<()>,
) -> Result<()> {
    let mut number = 0;
    parquet::each_group(path, "text", |rows, share| {
        let made: Vec<_> = rows.par_iter().map(|row| make(text(row)?)).collect();
        for made in made {
            let fault = |why: String| Error::data_at(path, Position::Row(number), why);
            take(made.map_err(fault)?, share)?;
            number += 1;
        }
        Ok(())
    })
}

fn plain<T: Send>(
    path: &Path,
    make: &(impl Fn(&str) -> Result<T, String> + Sync),
    take: &mut impl FnMut(T, u64) -> Result<()>,
) -> Result<()> {
    let mut read = 0;
    let row = |line: lines::Line| {
        let mut row = text(line.text)?.to_owned();
        if line.ended && !row.is_empty() {
            row.push('\n');
        }
        Ok((make(&row)?, line.text.len() as u64 + 1))
    };
    let rows = lines::read(path, None, usize::MAX, row, |(made, bytes)| {
        read += bytes;
        take(made, read)
    });
    rows.map(drop)
}

/// A row as it counts: one of nothing but white space is empty.
fn text(row: &[u8]) -> Result<&str, String> {
    let row = std::str::from_utf8(row).map_err(|e| format!("not UTF-8: {e}"))?;
    Ok(if row.trim().is_empty() { "" } else { row })
}

/// The rows of a text in memory.
pub(super) fn of(whole: &str) -> impl Iterator<Item = &str> {
    let empty = |line: &str| line.trim().is_empty();
    whole
        .split_inclusive('\n')
        .map(move |line| if empty(line) { "" } else { line })
}

/// Whether an article begins here: ` = Title = `, where headings inside one have more equals signs.
pub(super) fn begins_article(row: &str) -> bool {
    let inside = row
        .trim()
        .strip_prefix("= ")
        .and_then(|r| r.strip_suffix(" ="));
    inside.is_some_and(|title| !title.starts_with('=') && !title.ends_with('='))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_article_begins_at_one_equals_sign_a_side() {
        for row in [
            " = Valkyria Chronicles III = \n",
            "= a =",
            " = 1 + 1 = 2 = \n",
        ] {
            assert!(begins_article(row), "{row:?}");
        }
        for row in [
            "",
            " = = Gameplay = = \n",
            " = = = Deeper = = = \n",
            " a = b = \n",
            " = \n",
            " = = \n",
            " == x == \n",
        ] {
            assert!(!begins_article(row), "{row:?}");
        }
    }

    fn all(files: &[PathBuf]) -> Result<Vec<String>> {
        let mut rows = Vec::new();
        let mut last = 0;
        read(
            files,
            |row| Ok(row.to_owned()),
            |row, at| {
                assert!(at >= last);
                last = at;
                rows.push(row);
                Ok(())
            },
        )?;
        Ok(rows)
    }

    #[test]
    fn lines_keep_their_ends_and_lines_of_blanks_are_empty() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("train.txt");
        fs::write(&path, " \n = A = \n \t \n b\r\n\nc").unwrap();
        let rows = all(std::slice::from_ref(&path)).unwrap();
        assert_eq!(rows, ["", " = A = \n", "", " b\n", "", "c"]);
        let held: Vec<_> = of(" \n = A = \n \t \n b\n\nc").collect();
        assert_eq!(held, rows);
    }

    #[test]
    fn what_is_wrong_with_a_row_is_said_with_its_place() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("train.txt");
        fs::write(&path, b"a\n\xff\n").unwrap();
        let message = all(&[path]).unwrap_err().to_string();
        assert!(
            message.contains("train.txt, line 2: not UTF-8"),
            "{message}"
        );
        let message = all(&[dir.path().join("no.txt")]).unwrap_err().to_string();
        assert!(
            message.contains("cannot read") && message.contains("no.txt"),
            "{message}"
        );
    }
}
