//! Reader of large files with one example or row per line. The lines of a block are parsed in parallel.

use crate::error::{Error, Position, Result};
use crate::files;
use rayon::prelude::*;
use std::io::{BufRead, BufReader, Read};
use std::path::Path;

/// Size in bytes of a block of lines: enough for all threads, and little memory compared with the tokens.
const BLOCK: usize = 4 << 20;

/// Largest length of a line in bytes, so that a file without line ends is not read whole.
const LONGEST: usize = 64 << 20;

/// Line of a file without its line end.
#[derive(Clone, Copy)]
pub(super) struct TextLine<'a> {
    /// Bytes of the line.
    pub(super) text: &'a [u8],
    /// Whether a line end follows; the last line of a file may lack one.
    pub(super) ended: bool,
}

impl<'a> TextLine<'a> {
    /// Bytes of the line without the byte-order mark that may precede the first line.
    pub(super) fn unmarked(self) -> &'a [u8] {
        self.text.strip_prefix(files::BOM).unwrap_or(self.text)
    }
}

/// Parses the first `most` lines of the file at `path` and passes the results to `take`, in order. Returns the number
/// of lines. If `header` is given, the first line must equal it and is not counted. Fails with the file, the line and
/// the reason that `parse` returned, or with an error of `take`.
pub(super) fn read<T: Send>(
    path: &Path,
    header: Option<&str>,
    most: usize,
    parse: impl Fn(TextLine) -> Result<T, String> + Sync,
    mut take: impl FnMut(T) -> Result<()>,
) -> Result<usize> {
    let mut file = BufReader::new(files::open(path)?);
    let (mut block, mut number, mut taken) = (Vec::new(), 0, 0);
    loop {
        read_block(path, &mut file, &mut block)?;
        if block.is_empty() {
            return Ok(taken);
        }
        let mut lines = split(&block);
        if let (0, Some(header)) = (number, header) {
            number = 1;
            check_header(path, lines.remove(0), header)?;
        }
        lines.truncate(most - taken);
        let parsed: Vec<_> = lines.par_iter().map(|line| parse(*line)).collect();
        for (line, parsed) in lines.iter().zip(parsed) {
            number += 1;
            take(parsed.map_err(|reason| fault(path, number, *line, &reason))?)?;
        }
        taken += lines.len();
        if taken == most {
            return Ok(taken);
        }
    }
}

fn check_header(path: &Path, line: TextLine, header: &str) -> Result<()> {
    if line.unmarked() == header.as_bytes() {
        return Ok(());
    }
    if files::is_utf16(line.text) {
        return Err(Error::data(path, files::UTF16));
    }
    let (expected, found) = (header.escape_debug(), excerpt(line.text));
    let reason = format!("the header must be `{expected}`, not `{found}`");
    Err(fault(path, 1, line, &reason))
}

fn fault(path: &Path, number: usize, line: TextLine, reason: &str) -> Error {
    let cut = if line.ended { "" } else { "; the file ends inside this line: get a new copy" };
    Error::data_at(path, Position::Line(number as u64), format!("{reason}{cut}"))
}

/// Beginning of arbitrary bytes in a form that can be printed in a sentence.
pub(super) fn excerpt(bytes: &[u8]) -> String {
    let shown: String = String::from_utf8_lossy(&bytes[..bytes.len().min(160)]).chars().take(40).collect();
    let more = if shown.len() < bytes.len() { "..." } else { "" };
    format!("{}{more}", shown.escape_debug())
}

/// Lines of a block, without LF or CR LF.
fn split(block: &[u8]) -> Vec<TextLine<'_>> {
    let lines = block.split_inclusive(|byte| *byte == b'\n');
    lines
        .map(|line| {
            let text = line.strip_suffix(b"\n");
            let (text, ended) = (text.unwrap_or(line), text.is_some());
            let text = text.strip_suffix(b"\r").unwrap_or(text);
            TextLine { text, ended }
        })
        .collect()
}

/// Reads the next lines of `file` into `block`, up to a line end after [`BLOCK`] bytes; `block` is empty at the end.
fn read_block(path: &Path, file: &mut impl BufRead, block: &mut Vec<u8>) -> Result<()> {
    block.clear();
    while block.len() < BLOCK {
        let line = file.by_ref().take(LONGEST as u64 + 1).read_until(b'\n', block).map_err(Error::io("read", path))?;
        if line > LONGEST {
            let reason = "MiB without a line end; expected one example per line";
            return Err(Error::data(path, format!("{} {reason}", LONGEST >> 20)));
        }
        if line == 0 {
            break;
        }
    }
    Ok(())
}

/// Whether an article of WikiText begins with this line, ` = Title = `. Headings inside an article have more equals
/// signs.
pub(super) fn begins_article(line: &str) -> bool {
    let inside = line.trim().strip_prefix("= ").and_then(|line| line.strip_suffix(" ="));
    inside.is_some_and(|title| !title.starts_with('=') && !title.ends_with('='))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::testing::Fails;

    fn lines(content: &str, header: Option<&str>, most: usize) -> Result<Vec<String>> {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), content).unwrap();
        let text = |line: TextLine| String::from_utf8(line.text.to_vec()).map_err(|e| e.to_string());
        let text = |line: TextLine| match line.text {
            b"bad" => Err("it is bad".to_owned()),
            _ => text(line),
        };
        let mut all = Vec::new();
        let n = read(file.path(), header, most, text, |line| {
            all.push(line);
            Ok(())
        })?;
        assert_eq!(n, all.len());
        Ok(all)
    }

    #[test]
    fn lines_come_in_order_without_their_ends() {
        assert_eq!(lines("a\r\n\nb", None, 9).unwrap(), ["a", "", "b"]);
        assert_eq!(lines("h\r\na\r\n", Some("h"), 9).unwrap(), ["a"]);
        assert_eq!(lines("\u{feff}h\r\na\r\n", Some("h"), 9).unwrap(), ["a"]);
        assert_eq!(lines("a\nb\nbad\n", None, 2).unwrap(), ["a", "b"]);
        assert!(lines("", Some("h"), 2).unwrap().is_empty());
    }

    #[test]
    fn errors_name_the_line_and_a_cut_file() {
        for (content, line, names) in
            [("h\na\nbad\n", 3, &["it is bad"][..]), ("h\na\nbad", 3, &[]), ("x\u{1}\n", 1, &["`h`", "`x\\u{1}`"])]
        {
            let at = lines(content, Some("h"), 9).fails("data");
            assert_eq!(at.position, Some(Position::Line(line)), "{at:?}");
            at.names(names);
        }
    }

    #[test]
    fn a_line_may_cross_blocks_but_not_go_on_for_ever() {
        let long = "x".repeat(BLOCK + 5);
        let all = lines(&format!("a\n{long}\nb\n"), None, 9).unwrap();
        assert_eq!((all.len(), all[1].len()), (3, long.len()));
        let endless = "x".repeat(LONGEST + BLOCK + 1);
        lines(&endless, None, 9).fails("data");
    }

    #[test]
    fn an_article_begins_at_one_equals_sign_a_side() {
        for row in [" = Valkyria Chronicles III = \n", "= a =", " = 1 + 1 = 2 = \n"] {
            assert!(begins_article(row), "{row:?}");
        }
        for row in
            ["", " = = Gameplay = = \n", " = = = Deeper = = = \n", " a = b = \n", " = \n", " = = \n", " == x == \n"]
        {
            assert!(!begins_article(row), "{row:?}");
        }
    }
}
