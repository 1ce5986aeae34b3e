//! Steps of a checkpoint's tensors on their way into a file.

/// One step.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Step {
    /// The matrix, or that of every expert, has a row per input.
    Transposed,
    /// Rows alternate between the tensors that are made of it, instead of standing one after the other.
    Alternating,
    /// The same for the columns of a matrix of one row for every expert.
    ColumnsAlternate,
    /// The rows of every head have those of its keys, but for what RoPE turns, and those of its values. The keys' are
    /// transposed: they are multiplied with queries.
    KeysAndValues,
    /// For every key head its query, its key, the values and the gates that it serves: Qwen 3 Next.
    ByKeyHead,
    /// Logarithms of the rates of decay: their exponents, negative.
    Decay,
    /// The same, positive.
    Exponential,
    /// Gains as they are, although those of the class are stored less 1.
    AsItIs,
    /// The file's tensor has one extent of 1 more.
    OneRow,
    /// A router of the type of other matrices.
    AsMatrix,
    /// A matrix in floats of 32 bits.
    InFloats,
    /// For every key head the queries that it serves, the key, the value: rows of three tensors.
    ByServedHeads,
    /// Values times these, one after the other.
    Times(&'static [Factor]),
    /// Elements in another shape of as many.
    Reshaped,
    /// Values of a recurrent layer whose heads stand by key are put in turns: all first values, then all second ones.
    InTurns(Turn),
    /// Neighbours in the turned part of a head become the two halves.
    HalvesApart,
    /// Rows behind the first so many, which stand for nothing.
    Behind(u64),
    /// The two halves of every head become neighbours, although nothing turns them.
    HalvesTogether,
    /// The same for the queries and keys of a matrix of queries, keys and values.
    FusedHalvesTogether,
    /// The same for the first head, which then stands for all.
    FirstHeadTogether,
    /// Rows of the second half of every head change their sign.
    SecondHalvesNegative,
    /// One of those that are stacked, this one.
    Item(u64),
    /// Five parts in QRWKV's order, which is not that of the file.
    InFifths,
    /// The file's tensor has no extents of 1.
    Flat,
    /// Zeros stand for rows that the checkpoint lacks.
    Padded,
    /// A matrix of zeros stands before those of the checkpoint.
    BehindZeros,
    /// Numbers of tokens of another vocabulary, each less its place: they become 64-bit numbers of tokens and stand last.
    TokenOffsets,
    /// One of two vectors whose product is the file's tensor.
    Product,
    /// Rows of two tensors, of which the first has as many as the product of these numbers.
    SplitAt([&'static str; 2]),
    /// Some of the rows of a tensor, which stands in as many pieces as this number says.
    Pieces(&'static str),
    /// Values divided by 2 once more behind every so many blocks, a number of `config.json`.
    HalvedEvery(&'static str),
    /// A table of the experts that every token goes to in the first blocks, a number of `config.json`: it becomes 32-bit
    /// numbers and stands first.
    ExpertsOfTokens(&'static str),
    /// A tensor that counts for nothing in the first blocks, a number of `config.json`.
    BehindBlocks(&'static str),
    /// Gains that are stored less a fifth.
    PlusFifth,
    /// Gains that are stored less 5^-1.5.
    PlusFifthOfRoot,
}

/// A factor that `config.json` states.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Factor {
    /// The first of these numbers that is there.
    First(&'static [&'static str]),
    /// The product of two numbers, or the one given last.
    ProductOr([&'static str; 2], &'static str),
    /// The numbers of a list, for the rows of Mamba 2's projection to gates, channels, what writes the state, what
    /// reads it, and time steps.
    OfParts(&'static str),
}

/// Which elements belong to the heads that are put in turns.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Turn {
    /// Rows behind those of queries and keys.
    Channels,
    /// All rows.
    Rows,
    /// One row for every head.
    Heads,
    /// Columns.
    Columns,
    /// Query heads, those that share keys in turns: PLaMo.
    Queries,
    /// Columns for the same heads.
    Outputs,
}
