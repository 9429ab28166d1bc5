//! Cache of the keys and values of attention, each `(batch, heads, tokens, width)`. A token is written into room after
//! the others, so that these are copied once in a while instead of at each token.

use super::State;
use candle_core::{Result, Tensor};

/// Number of tokens for which new room is made.
const TOKENS: usize = 256;

/// Axis of tokens.
const AXIS: usize = 2;

/// Memory that holds the tensors of a cache and has room for further tokens. It belongs to one state: a clone of the
/// state gets none, and copies its tensors when it continues.
#[derive(Debug, Default)]
pub struct Room(Option<CachedRows>);

impl Clone for Room {
    fn clone(&self) -> Self {
        Self::default()
    }
}

/// Keys and values, each `(batch, heads, rows, width)`.
#[derive(Clone, Debug)]
pub(super) struct CachedRows {
    pub tensors: [Tensor; 2],
    /// Number of rows that are written. The last is that of the last token; the first may be of tokens that the cache no
    /// longer keeps.
    pub end: usize,
}

impl State {
    /// Appends the keys and values of a token, each `(batch, heads, 1, width)`, to a cache that keeps the last `most`
    /// tokens, and returns all of them.
    pub(super) fn append(&mut self, new: [Tensor; 2], most: usize) -> Result<CachedRows> {
        let Self(all, Room(room)) = self;
        let tokens = all.first().map_or(0, |tensor| tensor.dims()[AXIS]);
        let kept = tokens.min(most - 1);
        let stays = |i: usize| all[i].narrow(AXIS, tokens - kept, kept);
        if new.iter().chain(&*all).any(Tensor::track_op) {
            // A tensor that is written in place would have no gradient.
            let tensors = match kept {
                0 => new,
                _ => both(|i| Tensor::cat(&[&stays(i)?, &new[i]], AXIS))?,
            };
            *self = Self::new(tensors.to_vec());
            return Ok(CachedRows { tensors, end: kept + 1 });
        }
        let mut rows = match room.take() {
            Some(rows) if rows.end < rows.tensors[0].dims()[AXIS] => rows,
            _ => {
                let with_room = |i: usize| {
                    let (batch, heads, _, width) = new[i].dims4()?;
                    let shape = (batch, heads, kept + TOKENS, width);
                    let tensor = Tensor::zeros(shape, new[i].dtype(), new[i].device())?;
                    if kept > 0 {
                        tensor.slice_set(&stays(i)?.contiguous()?, AXIS, 0)?;
                    }
                    Ok(tensor)
                };
                CachedRows { tensors: both(with_room)?, end: kept }
            }
        };
        for (tensor, new) in rows.tensors.iter().zip(&new) {
            tensor.slice_set(&new.contiguous()?, AXIS, rows.end)?;
        }
        rows.end += 1;
        *all = both(|i| rows.tensors[i].narrow(AXIS, rows.end - kept - 1, kept + 1))?.into();
        *room = Some(rows.clone());
        Ok(rows)
    }
}

/// Keys and values by index.
fn both(tensor: impl Fn(usize) -> Result<Tensor>) -> Result<[Tensor; 2]> {
    Ok([tensor(0)?, tensor(1)?])
}

#[cfg(test)]
mod tests {
    use super::*;
    use candle_core::{Device, Var};

    /// Keys and values of token `i`, of two heads with three numbers.
    fn token(i: usize) -> [Tensor; 2] {
        [0.0, 0.5].map(|part| Tensor::full(i as f32 + part, (1, 2, 1, 3), &Device::Cpu).unwrap())
    }

    /// Number of the token in each row of the keys, which the values must confirm.
    fn held(tensors: &[Tensor]) -> Vec<f32> {
        let [keys, values] = [0, 1].map(|i| {
            let rows: Vec<Vec<f32>> =
                tensors[i].narrow(1, 1, 1).unwrap().squeeze(1).unwrap().squeeze(0).unwrap().to_vec2().unwrap();
            rows.into_iter().map(|row| row[2]).collect::<Vec<_>>()
        });
        assert!(keys.iter().zip(&values).all(|(key, value)| key + 0.5 == *value));
        keys
    }

    fn numbers(tokens: std::ops::Range<usize>) -> Vec<f32> {
        tokens.map(|i| i as f32).collect()
    }

    #[test]
    fn a_cache_holds_the_last_tokens() {
        for most in [1, 5, TOKENS, usize::MAX] {
            let mut state = State::default();
            for i in 0..2 * TOKENS + 10 {
                let rows = state.append(token(i), most).unwrap();
                let wanted = numbers((i + 1).saturating_sub(most)..i + 1);
                assert_eq!(held(&state.0), wanted);
                assert_eq!(state.size(), 2 * 2 * 3 * wanted.len());
                let written = rows.tensors.map(|tensor| tensor.narrow(AXIS, 0, rows.end).unwrap());
                assert!(held(&written).ends_with(&wanted));
            }
        }
    }

    /// The number of tensors is that of the storages: room is made once for many tokens.
    #[test]
    fn earlier_tokens_are_copied_once_in_a_while() {
        let mut state = State::default();
        let mut rooms = Vec::new();
        for i in 0..2 * TOKENS {
            let id = state.append(token(i), usize::MAX).unwrap().tensors[0].id();
            if rooms.last() != Some(&id) {
                rooms.push(id);
            }
        }
        assert_eq!(rooms.len(), 2);
    }

    #[test]
    fn a_clone_and_its_state_continue_apart() {
        let mut state = State::default();
        for i in 0..10 {
            state.append(token(i), usize::MAX).unwrap();
        }
        let mut clone = state.clone();
        let before = state.0.clone();
        for i in 10..20 {
            state.append(token(i), usize::MAX).unwrap();
            clone.append(token(i + 100), usize::MAX).unwrap();
        }
        assert_eq!(held(&state.0), numbers(0..20));
        assert_eq!(held(&clone.0), [numbers(0..10), numbers(110..120)].concat());
        assert_eq!(held(&before), numbers(0..10));
    }

    #[test]
    fn tensors_that_were_replaced_are_kept() {
        let mut state = State::default();
        state.append(token(0), usize::MAX).unwrap();
        state.tensors_mut().clone_from_slice(&token(7));
        state.append(token(1), usize::MAX).unwrap();
        assert_eq!(held(&state.0), [7.0, 1.0]);
    }

    #[test]
    fn gradients_reach_every_token() {
        let tokens: Vec<[Var; 2]> = (0..3).map(|i| token(i).map(|x| Var::from_tensor(&x).unwrap())).collect();
        let mut state = State::default();
        for token in &tokens {
            state.append(token.each_ref().map(|x| x.as_tensor().clone()), 2).unwrap();
        }
        let sum = (state.0[0].sum_all().unwrap() + state.0[1].sqr().unwrap().sum_all().unwrap()).unwrap();
        let gradients = sum.backward().unwrap();
        let of =
            |i: usize, part: usize| gradients.get(&tokens[i][part]).unwrap().flatten_all().unwrap().to_vec1::<f32>();
        // The cache keeps two tokens: the first is not in it.
        assert_eq!(of(0, 0).unwrap(), [0.0; 6]);
        for i in [1, 2] {
            assert_eq!(of(i, 0).unwrap(), [1.0; 6]);
            assert_eq!(of(i, 1).unwrap(), [2.0 * (i as f32 + 0.5); 6]);
        }
    }
}
