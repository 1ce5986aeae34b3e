//! Rows of a table for the last tokens of a text: embeddings of n-grams by their hash (Qwen 4).
//!
//! The n-gram of length n at a token is the token and the n - 1 before it. The end of a text, and what stands before it,
//! count as that token; so does what stands before the first one. Its hash is the exclusive or of the tokens' numbers,
//! each times the multiplier of its distance; every head of the length takes the remainder of the hash by its number of
//! rows, behind the rows of other heads.

/// Hashes of n-grams.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Ngrams {
    /// By the distance from the token: as many as the longest n-gram has tokens, at least two.
    pub multipliers: Vec<u64>,
    /// The first row and the number of rows of every head, those of length 2 first.
    pub heads: Vec<[u64; 2]>,
    /// The token that ends a text.
    pub end: u32,
}

impl Ngrams {
    /// Numbers of a sequence's state: the last tokens, the latest first, each plus one; 0 for none.
    pub fn state(&self) -> usize {
        self.multipliers.len() - 1
    }

    /// The rows of every token, `[tokens][heads]`. `state` goes on to the last of them.
    pub fn rows(&self, tokens: &[u32], state: &mut [f32]) -> Vec<usize> {
        let of_length = self.heads.len() / (self.multipliers.len() - 1);
        let mut rows = Vec::with_capacity(tokens.len() * self.heads.len());
        for &token in tokens {
            let mut hash = u64::from(token).wrapping_mul(self.multipliers[0]);
            let mut ended = false;
            let lengths = self.multipliers[1..].iter().zip(self.heads.chunks(of_length.max(1)));
            for (&before, (&multiplier, heads)) in state.iter().zip(lengths) {
                ended |= before == 0.0 || before == self.end as f32 + 1.0;
                let seen = if ended { self.end } else { before as u32 - 1 };
                hash ^= u64::from(seen).wrapping_mul(multiplier);
                rows.extend(heads.iter().map(|&[first, count]| (hash % count + first) as usize));
            }
            state.rotate_right(1);
            if let Some(latest) = state.first_mut() {
                *latest = token as f32 + 1.0;
            }
        }
        rows
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ngrams() -> Ngrams {
        Ngrams { multipliers: vec![1, 3, 5], heads: vec![[0, 100], [100, 7], [200, 100], [300, 50]], end: 9 }
    }

    #[test]
    fn hashes_go_back_to_the_end_of_a_text() {
        let ngrams = ngrams();
        let rows = ngrams.rows(&[4, 6, 9, 2], &mut [0.0; 2]);
        let two = |a: u64, b: u64| a ^ (3 * b);
        let three = |a, b, c: u64| two(a, b) ^ (5 * c);
        let of = |two: u64, three: u64| {
            [two % 100, 100 + two % 7, 200 + three % 100, 300 + three % 50].map(|row| row as usize)
        };
        let expected = [
            of(two(4, 9), three(4, 9, 9)),
            of(two(6, 4), three(6, 4, 9)),
            // the end itself sees what is before it, and nobody sees past it
            of(two(9, 6), three(9, 6, 4)),
            of(two(2, 9), three(2, 9, 9)),
        ];
        assert_eq!(rows, expected.concat());
    }

    #[test]
    fn pieces_of_a_text_are_its_whole() {
        let ngrams = ngrams();
        let tokens: Vec<u32> = (0..40).map(|i| i * i % 11).collect();
        let whole = ngrams.rows(&tokens, &mut [0.0; 2]);
        for cut in [1, 2, 7] {
            let mut state = vec![0.0; ngrams.state()];
            let parts: Vec<usize> = tokens.chunks(cut).flat_map(|part| ngrams.rows(part, &mut state)).collect();
            assert_eq!(parts, whole, "{cut}");
        }
    }
}
