//! ListOps (Nangia and Bowman 2018) in the format of the Long Range Arena, one tree and its value per line; and
//! generated trees in the same format.

mod tree;

pub(super) use tree::{check_generated, generated};

use super::files::{self, LISTOPS};
use super::vocab::RAW_END;
use super::{parts, LraConfig, LraDataset, LraSplits};
use crate::error::{Error, Result};
use crate::tasks::lines::{excerpt, TextLine};
use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::Path;

/// Header line above the examples.
const HEADER: &str = "Source\tTarget";

/// Symbols of a tree; the code of a symbol is its index. The order breaks ties in the vocabulary: the released code
/// writes the closing bracket as X.
const ALPHABET: [&str; 15] = ["0", "1", "2", "3", "4", "5", "6", "7", "8", "9", "]", "[MAX", "[MED", "[MIN", "[SM"];
/// Code of the bracket that ends an operator's arguments. Digits are the codes below it.
const END: u8 = 10;
/// Codes of the operators, from this one on.
const MAX: u8 = 11;
const MED: u8 = 12;
const MIN: u8 = 13;

/// Reads the splits from the folder at or below `dir`: the first examples of each file.
pub(super) fn load(config: &LraConfig, dir: &Path) -> Result<LraSplits> {
    let dir = files::find(LraDataset::Listops, config.contour_length(), dir)?;
    let parse = |line: TextLine| parse(line, config.seq_len);
    parts::of_lines(&dir, LISTOPS, Some(HEADER), config, parse)
}

/// Codes of the tokens, truncated and with their end token, and the value.
fn parse(line: TextLine, seq_len: usize) -> Result<([Vec<u8>; 1], u8), String> {
    let tab = line.text.iter().rposition(|byte| *byte == b'\t');
    let (source, target) = tab.map_or((line.text, &[][..]), |tab| (&line.text[..tab], &line.text[tab + 1..]));
    let &[digit @ b'0'..=b'9'] = target else {
        return Err(format!("expected an expression, a tab and a digit, found `{}`", excerpt(line.text)));
    };
    // A token takes about six bytes of a line.
    let mut document = Vec::with_capacity(source.len() / 6 + 2);
    let mut open = 0_usize;
    for word in source.split(u8::is_ascii_whitespace) {
        let Some(code) = code(word)? else { continue };
        if open == 0 && !document.is_empty() {
            return Err("the expression is followed by more symbols".to_owned());
        }
        document.push(code);
        open += usize::from(code >= MAX);
        if code == END {
            open = open.checked_sub(1).ok_or("a `]` closes no operator")?;
        }
    }
    if document.is_empty() {
        return Err("the expression is empty".to_owned());
    }
    if open > 0 {
        return Err(format!("number of operators without a `]`: {open}"));
    }
    document.truncate(seq_len - 1);
    document.push(RAW_END);
    Ok(([document], digit - b'0'))
}

/// Code of a word; `None` for parentheses, which are redundant to the brackets.
fn code(word: &[u8]) -> Result<Option<u8>, String> {
    if word.is_empty() {
        return Ok(None);
    }
    let bare = |byte: &u8| !b"()".contains(byte);
    if !word.iter().all(bare) {
        return code(&word.iter().copied().filter(bare).collect::<Vec<u8>>());
    }
    let known = (0..).zip(ALPHABET).find(|(_, symbol)| symbol.as_bytes() == word);
    known.map(|(code, _)| Some(code)).ok_or_else(|| {
        let word = excerpt(word);
        format!("unknown symbol `{word}`; expected digits, [MIN, [MAX, [MED, [SM and ]")
    })
}

/// Writes the trees of `config` into `folder`: a header, then one expression and its value per line, separated by a tab
/// and ended by CR LF.
pub(super) fn write(config: &LraConfig, folder: &Path, progress: &mut dyn FnMut(usize) -> Result<()>) -> Result<()> {
    let paths = LISTOPS.map(|name| folder.join(name));
    let mut files = Vec::new();
    for path in &paths {
        let file = File::create(path).map_err(Error::io("create", path))?;
        let mut file = BufWriter::new(file);
        write!(file, "{HEADER}\r\n").map_err(Error::io("write", path))?;
        files.push(file);
    }
    tree::each(config, &mut |split, tree| {
        let (expression, value) = (expression(&tree.symbols), tree.value);
        let written = write!(files[split], "{expression}\t{value}\r\n");
        written.map_err(Error::io("write", &paths[split]))?;
        progress(1)
    })?;
    for (file, path) in files.iter_mut().zip(&paths) {
        file.flush().and_then(|()| file.get_ref().sync_all()).map_err(Error::io("write", path))?;
    }
    Ok(())
}

/// Text of a tree in the format of the release, where a tree is binary and nests to the left: an operator is paired
/// with its first argument, that pair with the second one, and so on to the closing bracket, and every pair is in
/// parentheses. Hence `k` arguments need `k + 1` parentheses before the operator.
fn expression(symbols: &[u8]) -> String {
    let arguments = counts_of_arguments(symbols);
    let mut text = String::with_capacity(7 * symbols.len());
    let mut depth = 0;
    for (&symbol, arguments) in symbols.iter().zip(arguments) {
        if symbol >= MAX {
            text.push_str(&"( ".repeat(arguments + 1));
            depth += 1;
        }
        text.push_str(ALPHABET[usize::from(symbol)]);
        text.push(' ');
        if symbol == END {
            text.push_str(") ");
            depth -= 1;
        }
        let ends_an_argument = symbol <= END;
        if ends_an_argument && depth > 0 {
            text.push_str(") ");
        }
    }
    text.truncate(text.trim_end().len());
    text
}

/// Number of arguments of each operator; 0 for other symbols.
fn counts_of_arguments(symbols: &[u8]) -> Vec<usize> {
    let mut counts = vec![0; symbols.len()];
    let mut open = Vec::new();
    for (place, &symbol) in symbols.iter().enumerate() {
        if symbol == END {
            open.pop();
            continue;
        }
        if let Some(&operator) = open.last() {
            let count: &mut usize = &mut counts[operator];
            *count += 1;
        }
        if symbol >= MAX {
            open.push(place);
        }
    }
    counts
}

#[cfg(test)]
mod tests;
