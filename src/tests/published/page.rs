//! A page whose numbers are compared with files, and those of them that were not.

use super::{distinct, ends, number, one, thousands, words, Row};
use std::cell::RefCell;
use std::ops::Range;

/// Words before the number of a part of a paper.
const NUMBERED: [&str; 6] = ["Figure", "Figures", "Table", "Section", "Lemma", "equation"];

/// A part of a page with its lines joined by single spaces, and the places of what was compared with files.
pub struct Page {
    text: String,
    compared: RefCell<Vec<Range<usize>>>,
}

/// A page beside the runs that it describes.
pub struct Beside<'a> {
    page: &'a Page,
    rows: &'a [Row],
}

impl Page {
    pub fn new(text: &str) -> Self {
        let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
        Self { text, compared: RefCell::default() }
    }

    pub fn beside<'a>(&'a self, rows: &'a [Row]) -> Beside<'a> {
        Beside { page: self, rows }
    }

    /// [`Beside::says`] of a text without columns.
    #[track_caller]
    pub fn says(&self, text: &str, values: &[String]) {
        self.beside(&[]).says(text, values);
    }

    /// Asserts that a table has a line that begins with `first`, which holds no result, and goes on with these cells.
    #[track_caller]
    pub fn has_line(&self, first: &str, cells: &[String]) {
        self.says(&format!("| {first} |{}", " {} |".repeat(cells.len())), cells);
    }

    /// Asserts that every number was compared.
    #[track_caller]
    pub fn assert_all_compared(&self) {
        let compared = self.compared.borrow();
        let mut left = numbers(&self.text);
        left.retain(|number| !compared.iter().any(|place| place.start <= number.start && number.end <= place.end));
        let around = |number: Range<usize>| {
            let [before, after] = [&self.text[..number.start], &self.text[number.end..]];
            let before: Vec<&str> = before.rsplitn(11, ' ').take(10).collect();
            let before: Vec<&str> = before.into_iter().rev().collect();
            let after: Vec<&str> = after.splitn(11, ' ').take(10).collect();
            format!("{} >{}< {}", before.join(" "), &self.text[number], after.join(" "))
        };
        let left: Vec<String> = left.into_iter().map(around).collect();
        assert!(left.is_empty(), "{} numbers are compared with no file:\n{}", left.len(), left.join("\n"));
    }
}

impl Beside<'_> {
    /// Asserts that the page says this once, and that what it has in braces is found in files. Braces hold nothing for
    /// the next of `values`; or `runs` for the number of rows; or a column of which all rows have the same value. With
    /// `,` after it, that is written with thousands apart; with `#`, the values of a column are counted in words; with
    /// `<` or `>`, the least or the largest is taken.
    #[track_caller]
    pub fn says(&self, text: &str, values: &[String]) {
        let (mut full, mut places, mut values) = (String::new(), Vec::new(), values.iter());
        let mut pieces = text.split('{');
        full.push_str(pieces.next().unwrap());
        for piece in pieces {
            let (name, rest) = piece.split_once('}').unwrap();
            let start = full.len();
            full.push_str(&match name {
                "" => values.next().unwrap_or_else(|| panic!("too few values: {text}")).clone(),
                _ => self.value(name),
            });
            places.push(start..full.len());
            full.push_str(rest);
        }
        assert_eq!(values.next(), None, "too many values: {text}");
        let page = &self.page.text;
        let found: Vec<usize> = page.match_indices(&full).map(|(at, _)| at).collect();
        let [at] = found[..] else {
            let known = (0..=full.len()).rev().find(|end| full.is_char_boundary(*end) && page.contains(&full[..*end]));
            panic!("{} times on the page: {full}\nas far as: {}", found.len(), &full[..known.unwrap()]);
        };
        let places = places.into_iter().map(|place| at + place.start..at + place.end);
        self.page.compared.borrow_mut().extend(places);
    }

    /// The text for a name in braces.
    fn value(&self, name: &str) -> String {
        let (column, sign) = name.split_at(name.trim_end_matches([',', '#', '<', '>']).len());
        let values = || self.rows.iter().map(|row| number(row, column));
        match (column, sign) {
            ("runs", "") => self.rows.len().to_string(),
            ("lr", "") => format!("{:e}", one(self.rows, column).parse::<f64>().unwrap()),
            (_, "#") => words(distinct(self.rows, column).len()),
            (_, ",") => thousands(one(self.rows, column)),
            (_, "<") => ends(values())[0].to_string(),
            (_, ">") => ends(values())[1].to_string(),
            _ => one(self.rows, column).to_owned(),
        }
    }
}

/// The places of the numbers of a text: no digits of code, names, targets of links, ranges in brackets, numbered parts
/// of a paper and years of citations.
fn numbers(text: &str) -> Vec<Range<usize>> {
    let (mut found, mut at) = (Vec::new(), 0);
    while let Some(first) = text[at..].chars().next() {
        let (before, rest) = text.split_at(at);
        let until = |end: &str| 1 + rest[1..].find(end).unwrap() + end.len();
        let range =
            || rest.find(']').is_some_and(|end| !rest[1..end].contains(|c: char| !"-0123456789., ".contains(c)));
        at += match first {
            '`' => until("`"),
            ']' if rest.starts_with("](") => until(")"),
            '[' if range() => until("]"),
            '0'..='9' => {
                let length = length(rest.as_bytes());
                if !is_name(before, rest.split_at(length)) {
                    found.push(at..at + length);
                }
                length
            }
            other => other.len_utf8(),
        };
    }
    found
}

/// The length of the number with which a text begins, such as `1,024`, `99.7` or `1e-3`.
fn length(text: &[u8]) -> usize {
    let digit = |at: usize| text.get(at).is_some_and(u8::is_ascii_digit);
    let mut end = 0;
    loop {
        end += match text.get(end) {
            Some(b'0'..=b'9') => 1,
            Some(b'.' | b',' | b'e') if digit(end + 1) => 2,
            Some(b'e') if text[end + 1..].starts_with(b"-") && digit(end + 2) => 3,
            _ => return end,
        };
    }
}

/// Whether a number between these texts belongs to a name, such as `S6`, `RWKV-7`, `2be22b1`, `Figure 2` or `Gu et al.
/// (2020`.
fn is_name(before: &str, (number, after): (&str, &str)) -> bool {
    let of_word = |text: &str| text.ends_with(char::is_alphabetic);
    let last = before.trim_end_matches([' ', '(']).rsplit([' ', '(', '*']).next().unwrap_or("");
    let cited = before.trim_end_matches(|c: char| c.is_ascii_digit() || " ,(".contains(c)).ends_with("et al.");
    of_word(before)
        || after.starts_with(char::is_alphabetic)
        || before.strip_suffix('-').is_some_and(of_word)
        || before.ends_with([' ', '(']) && NUMBERED.contains(&last)
        || cited && number.len() == 4
}

#[test]
fn numbers_of_names_and_code_are_no_results() {
    let found = |text: &'static str| numbers(text).into_iter().map(|place| &text[place]).collect::<Vec<_>>();
    assert_eq!(
        found("At 4.64e-4 S6 reaches 99.7 ± 0.1 % (`--lr 3`), RWKV-7 -1,024."),
        ["4.64e-4", "99.7", "0.1", "1,024"]
    );
    assert_eq!(
        found("Figure 2 of Gu et al. (2020, 2022), equation (16), 1aa20b3: [5 of](a7.svg) in [-1, 0.5]."),
        ["5"]
    );
}

#[test]
fn a_number_that_no_text_computed_is_left() {
    let rows = [[("d".to_owned(), "4096".to_owned())].into()];
    let page = Page::new("| a | 5.0 % |\nWidth 4,096, in 3\nruns.");
    page.has_line("a", &["5.0 %".to_owned()]);
    page.beside(&rows).says("Width {d,}, in 3", &[]);
    assert!(std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| page.assert_all_compared())).is_err());
    page.says("in {} runs", &["3".to_owned()]);
    page.assert_all_compared();
}
