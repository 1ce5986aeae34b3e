//! Compressed keys: one for every block of positions, of which it is a weighted mean, element by element (DeepSeek 4).
//!
//! Every position has values and scores. When a block of `ratio` positions is full, the soft-max over its positions of
//! an element's scores, to each of which a number for the place in the block is added, weighs the element's values;
//! products are rounded to `f32` and added up in `f64` in order. Where blocks overlap, a position has two elements of
//! values and of scores for each of a key: the first one counts in the block behind its own, before the second ones of
//! that block's positions. The first block has none before it: those scores are minus infinity.

use super::soft_max::soft_max;
use crate::kernels::Floats;

/// Blocks of positions that become one key each.
#[derive(Clone, Debug)]
pub struct Compress {
    /// Elements of a key.
    pub size: usize,
    /// Positions of a block.
    pub ratio: usize,
    /// True if blocks overlap.
    pub overlap: bool,
    /// Added to the scores, `[ratio][elements of a position]`.
    pub places: Vec<f32>,
}

impl Compress {
    /// Elements of the values, and of the scores, of a position.
    pub const fn width(size: usize, overlap: bool) -> usize {
        if overlap { size.saturating_mul(2) } else { size }
    }

    /// Positions that are remembered.
    const fn remembered(ratio: usize, overlap: bool) -> usize {
        if overlap { ratio.saturating_mul(2) } else { ratio }
    }

    /// Numbers of a sequence's state: how many positions there were, up to those that make a difference, and values and
    /// scores of the last ones.
    pub const fn state(size: usize, ratio: usize, overlap: bool) -> usize {
        let rows = Compress::remembered(ratio, overlap);
        rows.saturating_mul(2).saturating_mul(Compress::width(size, overlap)).saturating_add(1)
    }

    /// Keys, `[tokens][size]`: that of a block in the row of its last position, and zeros in others. `values` and
    /// `scores` are `[tokens][elements of a position]`, of the positions behind those of `state`, which goes on to the
    /// last of them.
    pub fn run(&self, [values, scores]: [&[f32]; 2], state: &mut [f32]) -> Floats {
        let (width, rows) = (Compress::width(self.size, self.overlap), Compress::remembered(self.ratio, self.overlap));
        let tokens = values.len() / width;
        let mut keys = Floats::scratch(tokens * self.size);
        keys.fill(0.0);
        let Some((count, state)) = state.split_first_mut() else {
            return keys;
        };
        let (kept_values, kept_scores) = state.split_at_mut(rows * width);
        let mut position = *count as usize;
        let inputs = values.chunks_exact(width).zip(scores.chunks_exact(width));
        for ((value, score), key) in inputs.zip(keys.chunks_exact_mut(self.size)) {
            let row = position % rows * width;
            kept_values[row..][..width].copy_from_slice(value);
            let place = self.places[position % self.ratio * width..][..width].iter();
            let biased = kept_scores[row..][..width].iter_mut().zip(score).zip(place);
            biased.for_each(|((kept, score), place)| *kept = score + place);
            position += 1;
            if position.is_multiple_of(self.ratio) {
                self.key(position - self.ratio, [kept_values, kept_scores], key);
            }
            // from here on only the place in the blocks matters
            if position >= 2 * rows {
                position -= rows;
            }
        }
        *count = position as f32;
        keys
    }

    /// The key of the block that begins at `first`.
    fn key(&self, first: usize, [values, scores]: [&[f32]; 2], key: &mut [f32]) {
        let (width, rows) = (Compress::width(self.size, self.overlap), Compress::remembered(self.ratio, self.overlap));
        // where the elements of the block before, if there is one, and of this one stand
        let before = (0..self.ratio).map(|i| (first + i).checked_sub(self.ratio).map(|p| p % rows * width));
        let own = (first..first + self.ratio).map(|p| Some(p % rows * width + width - self.size));
        let places: Vec<Option<usize>> = before.filter(|_| self.overlap).chain(own).collect();
        let mut weights = vec![0f32; places.len()];
        for (e, key) in key.iter_mut().enumerate() {
            let score = |place: &Option<usize>| place.map_or(f32::NEG_INFINITY, |at| scores[at + e]);
            weights.iter_mut().zip(&places).for_each(|(w, place)| *w = score(place));
            soft_max(&mut weights);
            let terms = weights.iter().zip(&places);
            let products = terms.map(|(w, place)| place.map_or(0.0, |at| values[at + e]) * w);
            *key = products.fold(0f64, |sum, product| sum + f64::from(product)) as f32;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernels::testing::Random;

    #[test]
    fn blocks_of_equal_scores_are_means_of_what_stands_before_and_in_them() {
        let compress = Compress { size: 1, ratio: 2, overlap: true, places: vec![0.0; 4] };
        // elements for the next block and for the own one
        let values = [1.0, 10.0, 3.0, 30.0, 5.0, 50.0, 7.0, 70.0];
        let mut state = vec![0f32; Compress::state(1, 2, true)];
        let keys = compress.run([&values, &[0.0; 8]], &mut state);
        assert_eq!(*keys, [0.0, 20.0, 0.0, (1.0 + 3.0 + 50.0 + 70.0) / 4.0]);
    }

    #[test]
    fn places_in_a_block_have_scores_of_their_own() {
        let compress = Compress { size: 1, ratio: 2, overlap: false, places: vec![0.0, f32::NEG_INFINITY] };
        let mut state = vec![0f32; Compress::state(1, 2, false)];
        let keys = compress.run([&[4.0, 8.0, 6.0, 2.0], &[1.0; 4]], &mut state);
        assert_eq!(*keys, [0.0, 4.0, 0.0, 6.0]);
    }

    #[test]
    fn pieces_of_a_text_are_its_whole() {
        let mut random = Random(0xc0de);
        let (size, ratio, tokens) = (3, 4, 37);
        for overlap in [false, true] {
            let width = Compress::width(size, overlap);
            let mut floats = |n: usize| -> Vec<f32> { (0..n).map(|_| random.float()).collect() };
            let compress = Compress { size, ratio, overlap, places: floats(ratio * width) };
            let (values, scores) = (floats(tokens * width), floats(tokens * width));
            let run = |steps: &[usize]| {
                let mut state = vec![0f32; Compress::state(size, ratio, overlap)];
                let (mut keys, mut from) = (Vec::new(), 0);
                for step in steps {
                    let rows = from * width..(from + step) * width;
                    let part = compress.run([&values[rows.clone()], &scores[rows]], &mut state);
                    keys.extend(part.iter().map(|v| v.to_bits()));
                    from += step;
                }
                (keys, state)
            };
            let whole = run(&[tokens]);
            assert_eq!(run(&[1, 2, 3, 4, 5, 22]), whole, "{overlap}");
            assert_eq!(run(&[1; 37]), whole, "{overlap}");
        }
    }
}
