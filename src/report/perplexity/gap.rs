//! The paper's claim in one number: how much of what linear attention lacks to softmax normalisation
//! makes up for.

/// (linear - normalized) / (linear - softmax).
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Gap {
    /// 0 to 1 where normalized attention is between the two; below 0 where it is worse than linear.
    Closed(f64),
    /// Not all three have a number.
    Missing,
    /// Linear attention is no worse than softmax.
    None,
}

impl Gap {
    /// Of the perplexities of linear, normalized and softmax attention.
    pub fn of(perplexities: [Option<f64>; 3]) -> Self {
        let [Some(linear), Some(normalized), Some(softmax)] = perplexities else {
            return Self::Missing;
        };
        if linear <= softmax {
            return Self::None;
        }
        Self::Closed((linear - normalized) / (linear - softmax))
    }

    pub fn share(self) -> Option<f64> {
        match self {
            Self::Closed(share) => Some(share),
            Self::Missing | Self::None => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn share(linear: f64, normalized: f64, softmax: f64) -> Option<f64> {
        Gap::of([linear, normalized, softmax].map(Some)).share()
    }

    #[test]
    fn the_papers_numbers_close_23_percent_of_the_gap() {
        let paper = share(17.42, 16.43, 13.15).unwrap();
        assert!((paper - 0.99 / 4.27).abs() < 1e-12, "{paper}");
    }

    #[test]
    fn worse_than_linear_is_below_nothing_and_better_than_softmax_above_all() {
        assert_eq!(share(20.0, 22.0, 16.0), Some(-0.5));
        assert_eq!(share(20.0, 14.0, 16.0), Some(1.5));
    }

    #[test]
    fn without_a_gap_or_without_a_number_there_is_no_share() {
        for softmax in [20.0, 21.0] {
            assert_eq!(Gap::of([20.0, 19.0, softmax].map(Some)), Gap::None);
        }
        for missing in 0..3 {
            let mut three = [20.0, 19.0, 16.0].map(Some);
            three[missing] = None;
            assert_eq!(Gap::of(three), Gap::Missing);
        }
    }
}
