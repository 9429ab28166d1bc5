//! One tree: drawn, written as symbols and evaluated in one go.

use crate::ops::rng::Stream;

/// What a tree is written in; a symbol is a place in here. Code point order, as ties in the
/// vocabulary are broken.
pub(super) const ALPHABET: [&str; 15] = [
    "0", "1", "2", "3", "4", "5", "6", "7", "8", "9", "X", "[MAX", "[MED", "[MIN", "[SM",
];
/// The place of what ends an operator's arguments.
pub(super) const END: u8 = 10;
/// The places of the operators.
pub(super) const MAX: u8 = 11;
const MED: u8 = 12;
const MIN: u8 = 13;

const DEEPEST: usize = 10;
const MOST_ARGUMENTS: usize = 10;

/// An expression and its value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Tree {
    /// Places in [`ALPHABET`]: an operator, its arguments, the end; or a digit.
    pub symbols: Vec<u8>,
    /// 0 to 9.
    pub value: u8,
}

impl Tree {
    /// The tree of `stream`; `None` if it has `limit` symbols or more.
    pub fn draw(mut stream: Stream, limit: usize) -> Option<Self> {
        let mut symbols = Vec::new();
        let value = grow(&mut stream, &mut symbols, 1, limit)?;
        (symbols.len() < limit).then_some(Self { symbols, value })
    }
}

/// Appends a node at `depth` with all below it and gives its value.
fn grow(stream: &mut Stream, symbols: &mut Vec<u8>, depth: usize, limit: usize) -> Option<u8> {
    if symbols.len() >= limit {
        return None;
    }
    if depth == DEEPEST || stream.below(4) > 0 {
        let digit = stream.below(10) as u8;
        symbols.push(digit);
        return Some(digit);
    }
    let mut arguments = [0; MOST_ARGUMENTS];
    let count = 2 + stream.below(MOST_ARGUMENTS as u32 - 1) as usize;
    let operator = MAX + stream.below(4) as u8;
    symbols.push(operator);
    for argument in &mut arguments[..count] {
        *argument = grow(stream, symbols, depth + 1, limit)?;
    }
    symbols.push(END);
    Some(apply(operator, &mut arguments[..count]))
}

/// MIN, MAX, the median (the mean of the middle two without its fraction) or the sum modulo 10.
fn apply(operator: u8, arguments: &mut [u8]) -> u8 {
    arguments.sort_unstable();
    let (count, middle) = (arguments.len(), arguments.len() / 2);
    match operator {
        MIN => arguments[0],
        MAX => arguments[count - 1],
        MED if count % 2 == 1 => arguments[middle],
        MED => (arguments[middle - 1] + arguments[middle]) / 2,
        _ => arguments.iter().sum::<u8>() % 10,
    }
}
