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
    /// Gains as they are, although those of the class are stored less 1.
    AsItIs,
    /// The vector is a matrix of one row, as the checkpoint has it.
    OneRow,
    /// Elements in another shape of as many.
    Reshaped,
    /// Values of a recurrent layer whose heads stand by key are put in turns: all first values, then all second ones.
    InTurns(Turn),
    /// Neighbours in the turned part of a head become the two halves.
    HalvesApart,
    /// The two halves of every head become neighbours, although nothing turns them.
    HalvesTogether,
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
}
