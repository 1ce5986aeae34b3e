//! Recording recurrences.

use super::memory::{RowCount, size};
use super::operation::{Operation, Powers};
use super::recurrent::{Recurrent, Tables};
use super::{Matrix, ProgramError, Recorder, Span};

/// The most numbers of a part of a state: kernels count them in 32 bits with a sign.
const MOST: usize = i32::MAX as usize;
/// The most bytes that a block of threads shares on every device.
const SHARED: usize = 48 << 10;

/// A causal convolution of every column by itself.
#[derive(Clone, Copy, Debug)]
pub struct Convolution<'a> {
    /// `[kernel][columns]`, the oldest position first.
    pub weights: &'a [f32],
    /// Added to the sums.
    pub bias: Option<&'a [f32]>,
    /// Positions from one that is seen to the next one.
    pub distance: usize,
}

/// The decays of a delta rule: softplus of each number times its head's factor; with a bound the sigmoid of their
/// product times the bound.
#[derive(Clone, Copy, Debug)]
pub struct Decay<'a> {
    /// A factor for each head.
    pub factors: &'a [f32],
    /// Numbers of a head.
    pub of_head: usize,
    /// The bound.
    pub bound: Option<f32>,
    /// The tables of libm's exponential and of its logarithm.
    pub tables: [&'a Powers; 2],
}

/// A selective scan.
#[derive(Clone, Copy, Debug)]
pub struct Scan<'a> {
    /// One rate for each head; or, where there is one for each number of each channel's state, blocks of
    /// `[number][lane]`.
    pub rates: &'a [f32],
    /// True of the latter.
    pub by_number: bool,
    /// Channels of a head, or of a block.
    pub lanes: usize,
    /// Groups of heads that share what writes the state and what reads it.
    pub groups: usize,
    /// The tables of libm's exponential and of its logarithm.
    pub tables: [&'a Powers; 2],
}

/// A delta rule.
#[derive(Clone, Copy, Debug)]
pub struct Delta<'a> {
    /// Heads with a state.
    pub heads: usize,
    /// Heads of keys and queries, which divide them.
    pub key_heads: usize,
    /// True if heads that share a key follow each other.
    pub neighbours: bool,
    /// Elements of a key, a query and a value.
    pub size: usize,
    /// The table of libm's exponential.
    pub powers: &'a Powers,
}

/// RWKV 6's recurrence, or QRWKV's.
#[derive(Clone, Copy, Debug)]
pub struct Wkv6<'a> {
    /// Elements of a head.
    pub size: usize,
    /// Factors on what a position itself adds, one for each element; QRWKV has none.
    pub first: Option<&'a [f32]>,
    /// The table of libm's exponential.
    pub powers: &'a Powers,
}

/// RWKV 7's recurrence.
#[derive(Clone, Copy, Debug)]
pub struct Wkv7<'a> {
    /// Elements of a head.
    pub size: usize,
    /// Factors on the keys that are removed, on those that are replaced, and on products of queries and keys.
    pub factors: [&'a [f32]; 3],
    /// The table of libm's exponential.
    pub powers: &'a Powers,
}

/// Hashes of n-grams.
#[derive(Clone, Copy, Debug)]
pub struct Ngrams<'a> {
    /// By the distance from the token: as many as the longest n-gram has tokens.
    pub multipliers: &'a [u64],
    /// The first row and the number of rows of every head, those of length 2 first.
    pub heads: &'a [[u64; 2]],
    /// The token that ends a text.
    pub end: u32,
}

/// Keys of blocks of positions.
#[derive(Clone, Copy, Debug)]
pub struct Compress<'a> {
    /// Elements of a key.
    pub size: usize,
    /// Positions of a block.
    pub ratio: usize,
    /// True if blocks overlap: a position has two elements for one of a key.
    pub overlap: bool,
    /// Added to the scores, `[ratio][elements of a position]`.
    pub places: &'a [f32],
    /// The table of libm's exponential.
    pub powers: &'a Powers,
}

/// Lightning attention.
#[derive(Clone, Copy, Debug)]
pub struct Lightning<'a> {
    /// Elements of a key, a query and a value.
    pub size: usize,
    /// Slopes of the heads.
    pub slopes: &'a [f32],
    /// A factor on the slopes.
    pub factor: f32,
    /// Positions of a block.
    pub block: usize,
    /// The table of libm's exponential.
    pub powers: &'a Powers,
}

fn refused<T>(what: String) -> Result<T, ProgramError> {
    Err(ProgramError::Missing(what))
}

impl<'a> Recorder<'a> {
    /// Takes a part of the state: where it begins.
    fn part_of_state(&mut self, factors: &[usize]) -> Result<usize, ProgramError> {
        let (from, more) = (self.state, size(factors, "a state")?);
        match from.checked_add(more).filter(|&end| end <= MOST) {
            Some(end) => {
                self.state = end;
                Ok(from)
            }
            None => Err(ProgramError::TooLarge(format!("a state of {from} and {more} numbers"))),
        }
    }

    fn of_tokens(&self, what: &str, values: &[(Span, usize)]) -> Result<(), ProgramError> {
        let same = |&(x, columns): &(Span, usize)| self.rows(x) == RowCount::Tokens && self.columns(x) == columns;
        match values.iter().all(same) {
            true => Ok(()),
            false => {
                let found: Vec<usize> = values.iter().map(|(x, _)| self.columns(*x)).collect();
                refused(format!("{what} of {found:?} columns"))
            }
        }
    }

    fn shares(what: &str, floats: usize) -> Result<(), ProgramError> {
        match floats.saturating_mul(4) <= SHARED {
            true => Ok(()),
            false => refused(format!("{what} of {floats} numbers at a time")),
        }
    }

    fn tables(&mut self, [powers, logarithms]: [&'a Powers; 2]) -> Tables {
        let [powers, logarithms] = [powers, logarithms].map(|table| self.store.powers(&mut self.memories, table));
        Tables { powers, logarithms }
    }

    fn push(&mut self, recurrent: Recurrent) {
        self.operations.push(Operation::Recurrent(recurrent));
    }

    /// A causal convolution over positions; it continues from the state.
    ///
    /// # Errors
    /// Weights of other columns, a state that no buffer holds.
    pub fn convolve(&mut self, x: Span, rule: &Convolution<'a>) -> Result<Span, ProgramError> {
        let (columns, count) = (self.columns(x), rule.weights.len());
        let kernel = count / columns;
        self.of_tokens("a convolution", &[(x, columns)])?;
        if kernel == 0 || kernel * columns != count || rule.bias.is_some_and(|bias| bias.len() != columns) {
            return refused(format!("a convolution of {columns} columns with {count} weights"));
        }
        let weights = self.vector(rule.weights)?;
        let bias = rule.bias.map(|bias| self.vector(bias)).transpose()?;
        let state = self.part_of_state(&[kernel - 1, rule.distance, columns])?;
        let to = self.value(RowCount::Tokens, columns)?;
        let distance = rule.distance;
        self.push(Recurrent::Convolve { x: x.0, weights, bias, kernel, distance, state, to: to.0 });
        Ok(to)
    }

    /// Rows of a table for the n-grams that end with every token, decoded: those of all heads side by side; it continues
    /// from the state.
    ///
    /// # Errors
    /// Heads that are not as many for each length, or of rows that the table does not have; what [`Recorder::embed`]
    /// refuses.
    pub fn embed_ngrams(&mut self, table: Matrix<'a>, rule: &Ngrams<'a>) -> Result<Span, ProgramError> {
        let Ngrams { multipliers, heads, end } = *rule;
        let (longest, count) = (multipliers.len(), heads.len());
        let there = |&[first, rows]: &[u64; 2]| rows > 0 && first.checked_add(rows) <= Some(table.rows as u64);
        let whole = longest > 1 && count > 0 && count.is_multiple_of(longest - 1);
        // The numbers of tokens in a state are exact in single precision.
        let exact = self.vocabulary().max(end as usize) < 1 << 24 && u32::try_from(table.rows).is_ok();
        if !whole || !exact || !heads.iter().all(there) {
            return refused(format!("{count} heads of n-grams of {longest} in {} rows", table.rows));
        }
        let rule = [multipliers, heads.as_flattened()].map(|table| self.store.powers(&mut self.memories, table));
        let state = self.part_of_state(&[longest - 1])?;
        let to = self.value(RowCount::Tokens, count)?;
        self.reads_tokens = true;
        self.push(Recurrent::Ngrams { rule, end, longest, state, to: to.0 });
        self.embed_rows(table, Some(to))
    }

    /// A key for each block of positions, of their values and scores, in the row of its last one, and zeros in others; it
    /// continues from the state.
    ///
    /// # Errors
    /// Values of several shapes, a state that no buffer holds.
    pub fn compress(&mut self, inputs: [Span; 2], rule: &Compress<'a>) -> Result<Span, ProgramError> {
        let Compress { size, ratio, overlap, places, powers } = *rule;
        let width = size.saturating_mul(1 + usize::from(overlap));
        let kept = ratio.saturating_mul(1 + usize::from(overlap));
        self.of_tokens("compressed keys", &inputs.map(|x| (x, width)))?;
        if ratio == 0 || ratio.checked_mul(width) != Some(places.len()) {
            return refused(format!("blocks of {ratio} positions with {} numbers of places", places.len()));
        }
        let places = self.vector(places)?;
        let powers = self.store.powers(&mut self.memories, powers);
        let state = self.part_of_state(&[2, kept, width])?;
        let to = self.value(RowCount::Tokens, size)?;
        let inputs = inputs.map(|x| x.0);
        self.push(Recurrent::Compress { inputs, places, powers, size, ratio, overlap, state, to: to.0 });
        Ok(to)
    }

    /// The row of the position before; it continues from the state.
    ///
    /// # Errors
    /// A state that no buffer holds.
    pub fn shift(&mut self, x: Span) -> Result<Span, ProgramError> {
        let columns = self.columns(x);
        self.of_tokens("a shift", &[(x, columns)])?;
        let state = self.part_of_state(&[columns])?;
        let to = self.value(RowCount::Tokens, columns)?;
        self.push(Recurrent::Shift { x: x.0, state, to: to.0 });
        Ok(to)
    }

    /// The decays of a delta rule, where their numbers are.
    ///
    /// # Errors
    /// Factors of other heads.
    pub fn decay(&mut self, x: Span, rule: &Decay<'a>) -> Result<(), ProgramError> {
        let heads = rule.factors.len();
        if heads == 0 || rule.of_head.checked_mul(heads) != Some(self.columns(x)) {
            return refused(format!("decays of {} columns with {heads} factors", self.columns(x)));
        }
        self.changes(x);
        let factors = self.vector(rule.factors)?;
        let tables = self.tables(rule.tables);
        self.push(Recurrent::Decay { x: x.0, factors, tables, bound: rule.bound, of_head: rule.of_head });
        Ok(())
    }

    /// A selective scan of channels, time steps, what writes and what reads the state; it continues from the state.
    ///
    /// # Errors
    /// Values and rates of several shapes, a state that no buffer holds.
    pub fn scan(&mut self, [x, steps, b, c]: [Span; 4], rule: &Scan<'a>) -> Result<Span, ProgramError> {
        let Scan { rates, by_number, lanes, groups, tables } = *rule;
        let channels = self.columns(x);
        let whole = |n: usize, by: usize| by > 0 && n.is_multiple_of(by);
        let numbers = self.columns(b) / groups.max(1);
        let blocks = channels.div_ceil(lanes.max(1));
        let fits = match by_number {
            true => groups == 1 && rates.len() == channels * numbers,
            false => whole(channels, lanes) && rates.len() == blocks && whole(blocks, groups),
        };
        if lanes == 0 || !whole(self.columns(b), groups) || !fits {
            return refused(format!("a scan of {channels} channels with {} rates", rates.len()));
        }
        let of_steps = if by_number { channels } else { blocks };
        let shapes = [(x, channels), (steps, of_steps), (b, groups * numbers), (c, groups * numbers)];
        self.of_tokens("a scan", &shapes)?;
        let rates = self.vector(rates)?;
        let tables = self.tables(tables);
        let state = self.part_of_state(&[numbers, channels])?;
        let to = self.value(RowCount::Tokens, channels)?;
        let vectors = [b.0, c.0];
        let (x, steps) = (x.0, steps.0);
        self.push(Recurrent::Scan { x, steps, vectors, rates, tables, by_number, lanes, groups, state, to: to.0 });
        Ok(to)
    }

    /// A delta rule of queries, keys, values, decays and strengths; it continues from the state. Decays are one for
    /// each head, or one for each element of its key.
    ///
    /// # Errors
    /// Values of several shapes, a state that no buffer holds.
    pub fn delta(&mut self, inputs: [Span; 5], rule: &Delta<'a>) -> Result<Span, ProgramError> {
        let Delta { heads, key_heads, neighbours, size, powers } = *rule;
        if key_heads == 0 || !heads.is_multiple_of(key_heads) || size == 0 {
            return refused(format!("a delta rule of {heads} heads with {key_heads} keys"));
        }
        let [q, k, v, g, b] = inputs;
        let decays = self.columns(g);
        let of_key = key_heads.saturating_mul(size);
        let of_value = heads.saturating_mul(size);
        let decays = if decays == heads { heads } else { of_value };
        self.of_tokens("a delta rule", &[(q, of_key), (k, of_key), (v, of_value), (g, decays), (b, heads)])?;
        Self::shares("a delta rule", 3 * size)?;
        let powers = self.store.powers(&mut self.memories, powers);
        let state = self.part_of_state(&[size, size, heads])?;
        let to = self.value(RowCount::Tokens, of_value)?;
        let inputs = inputs.map(|x| x.0);
        self.push(Recurrent::Delta { inputs, powers, neighbours, heads, key_heads, size, state, to: to.0 });
        Ok(to)
    }

    /// RWKV 6's recurrence of queries, keys, values and decays, or QRWKV's; it continues from the state.
    ///
    /// # Errors
    /// Values of several shapes, a state that no buffer holds.
    pub fn wkv6(&mut self, inputs: [Span; 4], rule: &Wkv6<'a>) -> Result<Span, ProgramError> {
        let Wkv6 { size, first, powers } = *rule;
        let columns = self.columns(inputs[0]);
        self.of_tokens("a recurrence", &inputs.map(|x| (x, columns)))?;
        if size == 0 || !columns.is_multiple_of(size) || first.is_some_and(|first| first.len() != columns) {
            return refused(format!("heads of {size} of {columns} columns"));
        }
        Self::shares("a recurrence", 4 * size)?;
        let first = first.map(|first| self.vector(first)).transpose()?;
        let powers = self.store.powers(&mut self.memories, powers);
        let state = self.part_of_state(&[size, columns])?;
        let to = self.value(RowCount::Tokens, columns)?;
        self.push(Recurrent::Wkv6 { inputs: inputs.map(|x| x.0), first, powers, size, state, to: to.0 });
        Ok(to)
    }

    /// RWKV 7's recurrence of queries, decays, keys, values and rates; it continues from the state. The result holds
    /// the outputs of the state, and behind them the position's own.
    ///
    /// # Errors
    /// Values of several shapes, a state that no buffer holds.
    pub fn wkv7(&mut self, inputs: [Span; 5], rule: &Wkv7<'a>) -> Result<Span, ProgramError> {
        let Wkv7 { size, factors, powers } = *rule;
        let columns = self.columns(inputs[0]);
        self.of_tokens("a recurrence", &inputs.map(|x| (x, columns)))?;
        if size == 0 || !columns.is_multiple_of(size) || factors.iter().any(|factors| factors.len() != columns) {
            return refused(format!("heads of {size} of {columns} columns"));
        }
        Self::shares("a recurrence", 6 * size)?;
        let [removal, replacement, bonus] = factors.map(|factors| self.vector(factors));
        let factors = [removal?, replacement?, bonus?];
        let powers = self.store.powers(&mut self.memories, powers);
        let state = self.part_of_state(&[size, columns])?;
        let to = self.value(RowCount::Tokens, columns.saturating_mul(2))?;
        self.push(Recurrent::Wkv7 { inputs: inputs.map(|x| x.0), factors, powers, size, state, to: to.0 });
        Ok(to)
    }

    /// Lightning attention of queries, keys and values; it continues from the state.
    ///
    /// # Errors
    /// Values of several shapes, a state that no buffer holds.
    pub fn lightning(&mut self, inputs: [Span; 3], rule: &Lightning<'a>) -> Result<Span, ProgramError> {
        let Lightning { size, slopes, factor, block, powers } = *rule;
        let (heads, columns) = (slopes.len(), self.columns(inputs[0]));
        self.of_tokens("lightning attention", &inputs.map(|x| (x, columns)))?;
        if size == 0 || block == 0 || heads.checked_mul(size) != Some(columns) {
            return refused(format!("lightning attention of {heads} heads of {size}"));
        }
        Self::shares("lightning attention", block)?;
        let slopes = self.vector(slopes)?;
        let powers = self.store.powers(&mut self.memories, powers);
        let of_column = size.saturating_add(block.saturating_mul(2));
        let state = self.part_of_state(&[columns, of_column])?;
        let to = self.value(RowCount::Tokens, columns)?;
        let inputs = inputs.map(|x| x.0);
        self.push(Recurrent::Lightning { inputs, slopes, powers, factor, cells: block, size, state, to: to.0 });
        Ok(to)
    }
}
