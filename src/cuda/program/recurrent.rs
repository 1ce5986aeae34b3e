//! Recurrences over the positions of sequences, and what stands around them.

/// One of them: `x` is read, `to` is written. `state` is where its part of a sequence's state begins.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) enum Recurrent {
    /// A causal convolution of every column by itself.
    Convolve { x: usize, weights: usize, bias: Option<usize>, kernel: usize, distance: usize, state: usize, to: usize },
    /// Rows of a table for the n-grams of every token.
    Ngrams {
        /// Memories of the multipliers, and of the first row and the number of rows of every head.
        rule: [usize; 2],
        /// The token that ends a text.
        end: u32,
        /// Tokens of the longest n-gram.
        longest: usize,
        state: usize,
        to: usize,
    },
    /// A key for each block of positions.
    Compress {
        /// Values and scores of the positions.
        inputs: [usize; 2],
        /// Added to the scores by the place in a block.
        places: usize,
        powers: usize,
        size: usize,
        ratio: usize,
        overlap: bool,
        state: usize,
        to: usize,
    },
    /// The row of the position before.
    Shift { x: usize, state: usize, to: usize },
    /// Decays of a delta rule.
    Decay { x: usize, factors: usize, tables: Tables, bound: Option<f32>, of_head: usize },
    /// A selective scan.
    Scan {
        x: usize,
        steps: usize,
        /// Values that write the state and read it.
        vectors: [usize; 2],
        rates: usize,
        tables: Tables,
        /// True if every number of a channel's state has a rate.
        by_number: bool,
        /// Channels with one time step, or of a block of rates.
        lanes: usize,
        groups: usize,
        state: usize,
        to: usize,
    },
    /// A delta rule.
    Delta {
        /// Queries, keys, values, decays, strengths.
        inputs: [usize; 5],
        powers: usize,
        neighbours: bool,
        heads: usize,
        key_heads: usize,
        size: usize,
        state: usize,
        to: usize,
    },
    /// RWKV 6's recurrence, or without factors on what a position adds itself that of QRWKV.
    Wkv6 {
        /// Queries, keys, values, decays.
        inputs: [usize; 4],
        first: Option<usize>,
        powers: usize,
        size: usize,
        state: usize,
        to: usize,
    },
    /// RWKV 7's recurrence.
    Wkv7 {
        /// Queries, decays, keys, values, rates.
        inputs: [usize; 5],
        /// Factors on keys that are removed and replaced, and on products of queries and keys.
        factors: [usize; 3],
        powers: usize,
        size: usize,
        state: usize,
        to: usize,
    },
    /// Lightning attention.
    Lightning {
        /// Queries, keys, values.
        inputs: [usize; 3],
        slopes: usize,
        powers: usize,
        factor: f32,
        /// Positions of a block.
        cells: usize,
        size: usize,
        state: usize,
        to: usize,
    },
}

/// Memories of the tables of libm's exponential and of its logarithm.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Tables {
    pub powers: usize,
    pub logarithms: usize,
}

impl Recurrent {
    /// Calls `f` with every value that it reads or writes.
    pub fn values(&self, mut f: impl FnMut(usize)) {
        let mut all = |values: &[usize]| values.iter().for_each(|&value| f(value));
        match self {
            Recurrent::Convolve { x, to, .. } | Recurrent::Shift { x, to, .. } => all(&[*x, *to]),
            Recurrent::Decay { x, .. } | Recurrent::Ngrams { to: x, .. } => all(&[*x]),
            Recurrent::Scan { x, steps, vectors: [b, c], to, .. } => all(&[*x, *steps, *b, *c, *to]),
            Recurrent::Delta { inputs, to, .. } | Recurrent::Wkv7 { inputs, to, .. } => {
                all(inputs);
                all(&[*to]);
            }
            Recurrent::Wkv6 { inputs, to, .. } => {
                all(inputs);
                all(&[*to]);
            }
            Recurrent::Compress { inputs, to, .. } => {
                all(inputs);
                all(&[*to]);
            }
            Recurrent::Lightning { inputs, to, .. } => {
                all(inputs);
                all(&[*to]);
            }
        }
    }
}
