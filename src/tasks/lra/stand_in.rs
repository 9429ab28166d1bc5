//! Stand-in for the retrieval task if the papers are not available: halves of encyclopaedia articles; the label is
//! whether both are of one article.

use super::files::PAIRS;
use crate::error::{refuse, Error, Result};
use crate::files::read_bytes;
use crate::ops::rng::Rng;
use crate::tasks::lines::begins_article;
use std::fs;
use std::io::{BufWriter, Write};
use std::path::Path;

/// Largest number of bytes of a half before printing.
const HALF: usize = 4000;

/// Least number of bytes of an article; shorter ones have no useful halves.
const SHORTEST: usize = 400;

/// Writes the three files of the task, of `sizes` pairs, into the folder `out`. `text` is plain text in the form of
/// WikiText, where an article begins at a line ` = Title = `. Pairs alternate between the two halves of one article and
/// the first halves of two articles; no article is used in two files. A model may learn the topics of the articles, or
/// merely that a second document which begins like an article is from another one. The files are a function of the
/// text, `sizes` and `seed`.
pub fn write_stand_in(text: &Path, out: &Path, sizes: [usize; 3], seed: u64) -> Result<()> {
    let bytes = read_bytes(text)?;
    let mut articles = articles(&bytes);
    let needed = 2 * sizes.iter().filter(|size| **size > 0).count();
    if articles.len() < needed {
        refuse!(
            path text,
            "has {} articles of at least {SHORTEST} bytes, but {needed} are needed, two for each split; an article begins at a line ` = Title = `, as in WikiText",
            articles.len()
        );
    }
    Rng::new(seed, "lra/retrieval/stand-in/articles", 0).shuffle(&mut articles);
    fs::create_dir_all(out).map_err(Error::io("create", out))?;
    let mut rest = articles.as_slice();
    for (i, share) in shares(sizes, articles.len()).into_iter().enumerate() {
        let (own, others) = rest.split_at(share);
        rest = others;
        write(&out.join(PAIRS[i]), own, sizes[i], seed, i as u64)?;
    }
    Ok(())
}

/// Number of `articles` for each split: in proportion to its pairs, but at least two.
fn shares(sizes: [usize; 3], articles: usize) -> [usize; 3] {
    let pairs = sizes.iter().sum::<usize>().max(1) as f64;
    let least = sizes.map(|size| if size > 0 { 2 } else { 0 });
    let spare = (articles - least.iter().sum::<usize>()) as f64;
    [0, 1, 2].map(|i| least[i] + (sizes[i] as f64 / pairs * spare) as usize)
}

/// Index of an article in the text and its bytes.
type Article<'a> = (usize, &'a [u8]);

fn articles(text: &[u8]) -> Vec<Article<'_>> {
    let (mut starts, mut at) = (Vec::new(), 0);
    for line in text.split_inclusive(|byte| *byte == b'\n') {
        if begins_article(&String::from_utf8_lossy(line)) {
            starts.push(at);
        }
        at += line.len();
    }
    let ends = starts.iter().skip(1).chain([&at]);
    let articles = starts.iter().zip(ends).map(|(from, to)| &text[*from..*to]);
    articles.enumerate().filter(|(_, a)| a.len() >= SHORTEST).collect()
}

fn write(path: &Path, articles: &[Article], pairs: usize, seed: u64, split: u64) -> Result<()> {
    let failed = |error: std::io::Error| Error::io("write", path)(error);
    let folder = path.parent().unwrap_or(Path::new("."));
    let mut file = BufWriter::new(tempfile::NamedTempFile::new_in(folder).map_err(failed)?);
    let rngs = Rng::new(seed, "lra/retrieval/stand-in/pairs", 0);
    for i in 0..pairs as u64 {
        let mut rng = rngs.at(split << 48 | i);
        let same = i % 2 == 0;
        let first = rng.below(articles.len() as u32) as usize;
        let step = 1 + rng.below(articles.len() as u32 - 1) as usize;
        let second = if same { first } else { (first + step) % articles.len() };
        let [(a, one), (b, two)] = [first, second].map(|i| articles[i]);
        let middle = two.len() / 2;
        let second = if same { &two[middle..] } else { &two[..middle] };
        let [one, two] = [&one[..one.len() / 2], second].map(|half| printed(beginning(half)));
        let label = if same { "1.0" } else { "0.0" };
        writeln!(file, "{label}\tA{a}\tA{b}\t{one}\t{two}").map_err(failed)?;
    }
    let file = file.into_inner().map_err(|error| failed(error.into_error()))?;
    file.persist(path).map_err(|error| failed(error.error))?;
    Ok(())
}

/// First [`HALF`] bytes of a half of an article.
fn beginning(half: &[u8]) -> &[u8] {
    &half[..half.len().min(HALF)]
}

/// Text of a byte string as printed by Python.
fn printed(text: &[u8]) -> String {
    let double = text.contains(&b'\'') && !text.contains(&b'"');
    let quote = if double { '"' } else { '\'' };
    let mut shown = format!("b{quote}");
    for &byte in text {
        match byte {
            b'\\' => shown.push_str("\\\\"),
            b'\n' => shown.push_str("\\n"),
            b'\r' => shown.push_str("\\r"),
            b'\t' => shown.push_str("\\t"),
            b' '..=b'~' => {
                if char::from(byte) == quote {
                    shown.push('\\');
                }
                shown.push(char::from(byte));
            }
            _ => shown.push_str(&format!("\\x{byte:02x}")),
        }
    }
    shown.push(quote);
    shown
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_printed_as_python_prints_them() {
        assert_eq!(printed(b"a\n\xe2\\"), r"b'a\n\xe2\\'");
        assert_eq!(printed(b"it's"), "b\"it's\"");
        assert_eq!(printed(b"'\""), "b'\\'\"'");
    }

    #[test]
    fn every_split_has_two_articles_of_its_own() {
        assert_eq!(shares([96, 2, 2], 6), [2, 2, 2]);
        assert_eq!(shares([50, 25, 25], 106), [52, 27, 27]);
        assert_eq!(shares([10, 0, 10], 5), [2, 0, 2]);
    }
}
