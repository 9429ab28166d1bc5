//! Rules of language that a test can hold.

use crate::sources;
use std::fs;
use std::path::Path;

/// Words with which no doc comment begins: what follows would be half a sentence, without the thing that it describes.
const NO_FIRST_WORDS: [&str; 12] =
    ["What", "Of", "Which", "How", "That", "Those", "Where", "As", "They", "Whose", "Why", "Likewise"];

/// Phrases of a help text that point to another one by its place, which differs from command to command.
const POSITIONS: [&str; 6] = ["the above", "two above", "see above", "as above", "the below", "see below"];

fn is_doc(line: &str) -> bool {
    line.starts_with("///") || line.starts_with("//!")
}

#[test]
fn doc_comments_begin_with_what_they_describe() {
    let mut wrong = Vec::new();
    for source in sources::all() {
        let lines: Vec<&str> = source.text.lines().map(str::trim).collect();
        for (i, line) in lines.iter().enumerate().filter(|(_, line)| is_doc(line)) {
            let begins = i == 0 || !is_doc(lines[i - 1]);
            let first = line[3..].split_whitespace().next().unwrap_or("");
            let first = first.trim_matches(|c: char| !c.is_alphanumeric());
            if begins && NO_FIRST_WORDS.contains(&first) {
                wrong.push(format!("{}:{}: {line}", source.path, i + 1));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn help_names_other_flags_and_never_their_place() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/tests/cli/snapshots/help");
    let pages = fs::read_dir(folder).unwrap().map(|page| page.unwrap().path());
    let mut read = 0;
    for page in pages {
        let text = fs::read_to_string(&page).unwrap();
        let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
        for phrase in POSITIONS {
            assert!(!text.contains(phrase), "{}: {phrase}", page.display());
        }
        read += 1;
    }
    assert!(read > 50, "{read} pages of help");
}
