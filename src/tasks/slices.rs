//! Slices of the answers of a test set, such as by the distance between a question and its pair. Accuracies per slice
//! show how a model fails, which a single accuracy over all answers does not.

/// Slices of the answers of one test set, by one or several properties.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Slices(Vec<Property>);

/// One slice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Slice {
    /// Property by which answers are grouped, such as `distance`.
    pub by: &'static str,
    /// Least value of the property.
    pub from: usize,
    /// Greatest value of the property.
    pub to: usize,
    /// Number of answers in the slice.
    pub answers: usize,
}

/// Property of every answer.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Property {
    by: &'static str,
    /// Least and greatest value of each slice, ascending.
    bounds: Vec<(usize, usize)>,
    /// Slice of each answer, in the order of the data.
    of: Vec<u32>,
}

impl Slices {
    /// Adds one slice for each value from 0 to the greatest of `values`, which holds the value of each answer.
    pub(super) fn each(mut self, by: &'static str, values: &[usize]) -> Self {
        let most = values.iter().max().copied().unwrap_or(0);
        self.0.push(Property {
            by,
            bounds: (0..=most).map(|value| (value, value)).collect(),
            of: values.iter().map(|value| *value as u32).collect(),
        });
        self
    }

    /// Adds slices from each power of two to the next: 1, 2 to 3, 4 to 7 and so on. `values` holds the value of each
    /// answer, at least 1.
    pub(super) fn octaves(mut self, by: &'static str, values: &[usize]) -> Self {
        let octave = |value: &usize| value.max(&1).ilog2();
        let most = values.iter().map(octave).max().unwrap_or(0);
        self.0.push(Property {
            by,
            bounds: (0..=most).map(|i| (1 << i, (2 << i) - 1)).collect(),
            of: values.iter().map(octave).collect(),
        });
        self
    }

    /// All slices, property by property, in ascending order.
    pub fn all(&self) -> Vec<Slice> {
        let each = self.0.iter().flat_map(|property| {
            let mut answers = vec![0; property.bounds.len()];
            property.of.iter().for_each(|i| answers[*i as usize] += 1);
            let bounds = property.bounds.iter().zip(answers);
            bounds.map(|(&(from, to), answers)| Slice { by: property.by, from, to, answers })
        });
        each.collect()
    }

    /// Number of correct answers in each slice of [`Self::all`]. `correct` is 1 for a correct answer and 0 for a wrong
    /// one, in the order of the data.
    pub fn right(&self, correct: &[f32]) -> Vec<usize> {
        let each = self.0.iter().flat_map(|property| {
            let mut right = vec![0; property.bounds.len()];
            for (i, correct) in property.of.iter().zip(correct) {
                right[*i as usize] += usize::from(*correct > 0.5);
            }
            right
        });
        each.collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_are_counted_in_the_slice_of_their_value() {
        let slices = Slices::default().each("pair", &[0, 1, 1, 2]).octaves("distance", &[1, 3, 4, 7]);
        let all: Vec<_> = { slices.all() }.iter().map(|s| (s.by, s.from, s.to, s.answers)).collect();
        assert_eq!(
            all,
            [
                ("pair", 0, 0, 1),
                ("pair", 1, 1, 2),
                ("pair", 2, 2, 1),
                ("distance", 1, 1, 1),
                ("distance", 2, 3, 1),
                ("distance", 4, 7, 2),
            ]
        );
        assert_eq!(slices.right(&[1.0, 0.0, 1.0, 1.0]), [1, 1, 1, 1, 0, 2]);
    }
}
