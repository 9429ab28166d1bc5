//! The three files of the release.

use super::tree::{ALPHABET, END, MAX};
use super::{each, Progress};
use crate::error::{Error, Result};
use crate::tasks::lra::LraConfig;
use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::Path;

const FILES: [&str; 3] = ["basic_train.tsv", "basic_val.tsv", "basic_test.tsv"];

/// Writes the trees of `config` into `folder`: a header, then one expression and its value a line,
/// between them a tab, behind them CR LF.
pub fn write(config: &LraConfig, folder: &Path, progress: Progress) -> Result<()> {
    let paths = FILES.map(|name| folder.join(name));
    let mut files = Vec::new();
    for path in &paths {
        let file = File::create(path).map_err(Error::io("create", path))?;
        let mut file = BufWriter::new(file);
        file.write_all(b"Source\tTarget\r\n")
            .map_err(Error::io("write", path))?;
        files.push(file);
    }
    each(config, &mut |split, tree| {
        let line = format!("{}\t{}\r\n", expression(&tree.symbols), tree.value);
        files[split]
            .write_all(line.as_bytes())
            .map_err(Error::io("write", &paths[split]))?;
        progress(1)
    })?;
    for (file, path) in files.iter_mut().zip(&paths) {
        let written = file.flush().and_then(|()| file.get_ref().sync_all());
        written.map_err(Error::io("write", path))?;
    }
    Ok(())
}

/// The tree as the release prints it. There a tree is binary and nests to the left: an operator is
/// paired with its first argument, that pair with the second one, and so on to the closing bracket;
/// every pair stands in parentheses. So `k` arguments need `k + 1` parentheses before the operator.
pub(super) fn expression(symbols: &[u8]) -> String {
    let arguments = counts_of_arguments(symbols);
    let mut text = String::with_capacity(7 * symbols.len());
    let mut depth = 0;
    for (&symbol, arguments) in symbols.iter().zip(arguments) {
        match symbol {
            END => {
                text.push_str("] ) ");
                depth -= 1;
            }
            _ if symbol >= MAX => {
                text.push_str(&"( ".repeat(arguments + 1));
                depth += 1;
            }
            _ => {}
        }
        if symbol != END {
            text.push_str(ALPHABET[usize::from(symbol)]);
            text.push(' ');
        }
        let ends_an_argument = symbol <= END;
        if ends_an_argument && depth > 0 {
            text.push_str(") ");
        }
    }
    text.truncate(text.trim_end().len());
    text
}

/// For each operator its number of arguments; 0 for the other symbols.
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
