//! ListOps (Nangia and Bowman 2018) as the Long Range Arena prints it: a tree a line, and its value.

use super::part::{self, Part};
use super::vocab::RAW_END;
use super::{place, Documents, Splits};
use crate::error::Result;
use crate::tasks::lines::{self, excerpt, Line};
use crate::tasks::lra::{LraConfig, LraDataset};
use std::path::{Path, PathBuf};

const FILES: [&str; 3] = ["basic_train.tsv", "basic_val.tsv", "basic_test.tsv"];

/// What stands above the examples.
const HEADER: &str = "Source\tTarget";

/// The closing bracket, which the released code writes as X. Digits are the codes before it.
const CLOSE: u8 = 10;

/// The first operator; the others follow in the order of their names.
const OPERATORS: u8 = 11;

/// The splits in the folder at or below `dir`: the first examples of each file.
pub(super) fn load(config: &LraConfig, dir: &Path) -> Result<Splits> {
    let dir = find(dir)?;
    part::of_files(&dir, FILES, config, |path, part, wanted| {
        split(path, part, wanted, config.seq_len)
    })
}

/// The folder at or below `dir` in which the files lie.
pub(super) fn find(dir: &Path) -> Result<PathBuf> {
    place::find(dir, LraDataset::Listops, &FILES)
}

fn split(path: &Path, part: Part, wanted: usize, seq_len: usize) -> Result<Documents> {
    let mut examples = Documents::new(1);
    let held = lines::read(
        path,
        Some(HEADER),
        wanted,
        |line| parse(line, seq_len),
        |(document, label): (Vec<u8>, u8)| {
            examples.push(&[&document], label);
            Ok(())
        },
    )?;
    part.enough(path, held, wanted)?;
    Ok(examples)
}

/// Codes of the tokens, cut and with their end, and the value.
fn parse(line: Line, seq_len: usize) -> Result<(Vec<u8>, u8), String> {
    let tab = line.text.iter().rposition(|byte| *byte == b'\t');
    let (source, target) = tab.map_or((line.text, &[][..]), |tab| {
        (&line.text[..tab], &line.text[tab + 1..])
    });
    let &[digit @ b'0'..=b'9'] = target else {
        return Err(format!(
            "expected is an expression, a tab and a digit, not `{}`",
            excerpt(line.text)
        ));
    };
    // About six bytes of a line make a token.
    let mut document = Vec::with_capacity(source.len() / 6 + 2);
    let mut open = 0_usize;
    for word in source.split(u8::is_ascii_whitespace) {
        let Some(code) = code(word)? else { continue };
        if open == 0 && !document.is_empty() {
            return Err("there is more behind the end of the expression".to_owned());
        }
        document.push(code);
        open += usize::from(code >= OPERATORS);
        if code == CLOSE {
            open = open.checked_sub(1).ok_or("a `]` closes no operator")?;
        }
    }
    if document.is_empty() {
        return Err("the expression is empty".to_owned());
    }
    if open > 0 {
        return Err(format!("operators without a `]`: {open}"));
    }
    document.truncate(seq_len - 1);
    document.push(RAW_END);
    Ok((document, digit - b'0'))
}

/// The code of a word, in the order of the tokens as text; `None` for parentheses, which only repeat
/// what the brackets say.
fn code(word: &[u8]) -> Result<Option<u8>, String> {
    Ok(Some(match word {
        b"" | b"(" | b")" => return Ok(None),
        [digit @ b'0'..=b'9'] => digit - b'0',
        b"]" => CLOSE,
        b"[MAX" => OPERATORS,
        b"[MED" => OPERATORS + 1,
        b"[MIN" => OPERATORS + 2,
        b"[SM" => OPERATORS + 3,
        _ if word.contains(&b'(') || word.contains(&b')') => {
            let mut word = word.to_vec();
            word.retain(|byte| !b"()".contains(byte));
            return code(&word);
        }
        _ => {
            return Err(format!(
                "unknown symbol `{}`; known are digits, [MIN, [MAX, [MED, [SM and ]",
                excerpt(word)
            ))
        }
    }))
}

#[cfg(test)]
mod tests;
