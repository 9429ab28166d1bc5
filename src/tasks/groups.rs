//! Finite groups of permutations, whose products are the answers of state tracking.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Group by name. Its elements are numbered in lexicographic order of the permutations, so that the identity is 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Group {
    /// Sums of bits: parity.
    Z2,
    /// Sums modulo 3.
    Z3,
    /// Sums modulo 5.
    Z5,
    /// Sums modulo 60.
    Z60,
    /// Permutations of three things.
    S3,
    /// Even permutations of four things, and sums modulo 5.
    #[serde(rename = "a4xz5")]
    A4xZ5,
    /// Permutations of four things.
    S4,
    /// Even permutations of five things, the smallest group that is not solvable.
    A5,
    /// Permutations of five things.
    S5,
}

/// Permutation: the image of each point.
type Permutation = Vec<u8>;

impl Group {
    /// Permutations whose products are all elements.
    fn generators(self) -> Vec<Permutation> {
        match self {
            Self::Z2 => vec![cycle(2)],
            Self::Z3 => vec![cycle(3)],
            Self::Z5 => vec![cycle(5)],
            // Cycles of 3, 4 and 5 points, side by side.
            Self::Z60 => vec![beside(&beside(&cycle(3), &cycle(4)), &cycle(5))],
            Self::S3 => vec![cycle(3), vec![1, 0, 2]],
            Self::A4xZ5 => {
                let fixed: Permutation = (0..5).collect();
                let of_a4 = [vec![1, 2, 0, 3], vec![0, 2, 3, 1]];
                let a4 = of_a4.iter().map(|even| beside(even, &fixed));
                a4.chain([beside(&[0, 1, 2, 3], &cycle(5))]).collect()
            }
            Self::S4 => vec![cycle(4), vec![1, 0, 2, 3]],
            Self::A5 => vec![cycle(5), vec![1, 2, 0, 3, 4]],
            Self::S5 => vec![cycle(5), vec![1, 0, 2, 3, 4]],
        }
    }

    /// Number of elements.
    pub fn order(self) -> usize {
        match self {
            Self::Z2 => 2,
            Self::Z3 => 3,
            Self::Z5 => 5,
            Self::S3 => 6,
            Self::S4 => 24,
            Self::Z60 | Self::A4xZ5 | Self::A5 => 60,
            Self::S5 => 120,
        }
    }

    /// Description in a sentence.
    pub fn title(self) -> &'static str {
        match self {
            Self::Z2 => "parity",
            Self::Z3 => "sums modulo 3",
            Self::Z5 => "sums modulo 5",
            Self::Z60 => "sums modulo 60",
            Self::S3 => "words of S3",
            Self::A4xZ5 => "words of A4 x Z5",
            Self::S4 => "words of S4",
            Self::A5 => "words of A5",
            Self::S5 => "words of S5",
        }
    }

    /// Name as typed.
    pub fn name(self) -> &'static str {
        match self {
            Self::Z2 => "z2",
            Self::Z3 => "z3",
            Self::Z5 => "z5",
            Self::Z60 => "z60",
            Self::S3 => "s3",
            Self::A4xZ5 => "a4xz5",
            Self::S4 => "s4",
            Self::A5 => "a5",
            Self::S5 => "s5",
        }
    }

    /// Table of products: entry `[a · order + b]` is the element that first acts as a, then as b.
    pub fn products(self) -> Vec<u32> {
        let elements = self.elements();
        let numbers: BTreeMap<&Permutation, u32> = elements.iter().zip(0..).collect();
        let product = |a: &Permutation, b: &Permutation| numbers[&after(a, b)];
        elements.iter().flat_map(|a| elements.iter().map(move |b| product(a, b))).collect()
    }

    /// All elements, in lexicographic order.
    fn elements(self) -> Vec<Permutation> {
        let generators = self.generators();
        let points = generators.first().map_or(0, Vec::len) as u8;
        let mut known = vec![(0..points).collect::<Permutation>()];
        let mut next = 0;
        while next < known.len() {
            for generator in &generators {
                let product = after(&known[next], generator);
                if !known.contains(&product) {
                    known.push(product);
                }
            }
            next += 1;
        }
        known.sort();
        known
    }
}

/// Cycle of `points` points.
fn cycle(points: u8) -> Permutation {
    (0..points).map(|point| (point + 1) % points).collect()
}

/// Permutation of the points of both, each on its own.
fn beside(a: &[u8], b: &[u8]) -> Permutation {
    a.iter().copied().chain(b.iter().map(|point| a.len() as u8 + point)).collect()
}

/// Permutation that first acts as `a`, then as `b`.
fn after(a: &Permutation, b: &Permutation) -> Permutation {
    a.iter().map(|point| b[usize::from(*point)]).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: [Group; 9] =
        [Group::Z2, Group::Z3, Group::Z5, Group::Z60, Group::S3, Group::A4xZ5, Group::S4, Group::A5, Group::S5];

    #[test]
    fn products_are_those_of_a_group_of_its_order() {
        for group in ALL {
            let (order, products) = (group.order(), group.products());
            assert_eq!(group.elements().len(), order, "{group:?}");
            let product = |a: usize, b: usize| products[a * order + b] as usize;
            for a in 0..order {
                assert_eq!((product(0, a), product(a, 0)), (a, a), "{group:?}: the identity is 0");
                let mut row: Vec<usize> = (0..order).map(|b| product(a, b)).collect();
                row.sort_unstable();
                assert!(row.into_iter().eq(0..order), "{group:?}: every equation has a solution");
            }
            let some = |i: usize| (7 * i + 3) % order;
            for i in 0..order {
                let (a, b, c) = (some(i), some(i + 1), some(3 * i));
                assert_eq!(product(product(a, b), c), product(a, product(b, c)), "{group:?}");
            }
        }
    }

    #[test]
    fn only_groups_of_sums_commute() {
        let commutes = |group: Group| {
            let (order, products) = (group.order(), group.products());
            (0..order * order).all(|i| products[i] == products[i % order * order + i / order])
        };
        let sums: Vec<Group> = ALL.into_iter().filter(|group| commutes(*group)).collect();
        assert_eq!(sums, [Group::Z2, Group::Z3, Group::Z5, Group::Z60]);
    }

    #[test]
    fn the_parity_of_bits_is_their_sum_modulo_two() {
        assert_eq!(Group::Z2.products(), [0, 1, 1, 0]);
    }

    #[test]
    fn the_name_is_that_of_configs() {
        for group in ALL {
            assert_eq!(serde_json::to_value(group).unwrap(), group.name());
        }
    }
}
