//! Adapters of a model that tokens of its text switch on (llama.cpp's `graniteswitch`).
//!
//! A token of a list switches its adapter on, for itself and for those behind it. Which one that is, attention over one
//! head says: the key of a switching token is a gain and that of any other token minus it, the value is the number of the
//! adapter, 0 of any other token, and the query is 1. The soft-max leaves one switching token next to everything, and
//! the output, rounded, is its number; behind several of them it is the mean of their numbers, as in the reference.

use std::collections::BTreeMap;

use crate::kernels::Floats;

/// The tokens that switch adapters on.
#[derive(Clone, Debug)]
pub struct Switch {
    /// Adapters; number 0 is the one that adds nothing, and they are counted behind it.
    pub adapters: usize,
    /// Key of a switching token.
    pub gain: f32,
    /// Switching tokens: the adapter, and the token whose embedding stands for it.
    pub tokens: BTreeMap<u32, [u32; 2]>,
    /// Elements of the head, of which the first is used.
    pub head: usize,
}

impl Switch {
    /// The tokens whose embeddings stand for `tokens`.
    pub fn embedded<'a>(&'a self, tokens: &'a [u32]) -> impl ExactSizeIterator<Item = usize> + 'a {
        tokens.iter().map(|token| self.tokens.get(token).map_or(*token, |&[_, stands]| stands) as usize)
    }

    /// Queries, keys and values for `tokens`, `[tokens][head]`.
    pub fn signals(&self, tokens: &[u32]) -> [Floats; 3] {
        let rows = |of: &dyn Fn(Option<&[u32; 2]>) -> f32| {
            let mut rows = Floats::scratch(tokens.len() * self.head);
            rows.fill(0.0);
            for (row, token) in rows.chunks_exact_mut(self.head).zip(tokens) {
                row[0] = of(self.tokens.get(token));
            }
            rows
        };
        let key = |switches: Option<&[u32; 2]>| if switches.is_some() { self.gain } else { -self.gain };
        let value = |switches: Option<&[u32; 2]>| switches.map_or(0.0, |&[adapter, _]| adapter as f32);
        [rows(&|_| 1.0), rows(&key), rows(&value)]
    }

    /// The adapters of tokens with these outputs of attention, `[tokens][head]`.
    pub fn chosen(&self, outputs: &[f32]) -> Vec<usize> {
        let of = |row: &[f32]| row[0].clamp(0.0, self.adapters as f32).round() as usize;
        outputs.chunks_exact(self.head).map(of).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::Switch;

    #[test]
    fn tokens_switch_and_others_stand_for_them() {
        let tokens = [(7, [1, 3]), (9, [2, 7])].into();
        let switch = Switch { adapters: 2, gain: 15.0, tokens, head: 2 };
        assert_eq!(switch.embedded(&[7, 8, 9]).collect::<Vec<_>>(), [3, 8, 7]);
        let [q, k, v] = switch.signals(&[8, 9]);
        assert_eq!(q[..], [1.0, 0.0, 1.0, 0.0]);
        assert_eq!(k[..], [-15.0, 0.0, 15.0, 0.0]);
        assert_eq!(v[..], [0.0, 0.0, 2.0, 0.0]);
        assert_eq!(switch.chosen(&[0.4, 9.0, 0.5, 9.0, 1.5, 9.0, 7.0, 9.0, -1.0, 9.0]), [0, 1, 2, 2, 0]);
    }
}
