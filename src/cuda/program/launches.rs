//! Sizes of a program, and its launches as data.

use crate::pack::PackError;
use crate::plan::{Launch, PlanError};

/// Sizes for which a program has memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Limits {
    /// Tokens of a pass, and so its sequences.
    pub tokens: usize,
    /// Rows of logits that are computed together.
    pub wanted: usize,
    /// Positions of a sequence.
    pub context: usize,
    /// Positions of a page of keys and values, a power of two.
    pub page: usize,
    /// Pages of all sequences.
    pub pages: usize,
    /// Slots for what recurrent layers have kept of sequences.
    pub slots: usize,
}

impl Limits {
    /// Pages of a sequence.
    pub fn row(&self) -> usize {
        self.context.div_ceil(self.page.max(1))
    }
}

/// The caches that a pass attends to, and the device: long caches are shared among its multiprocessors.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Caches {
    pub(super) longest: usize,
    pub(super) multiprocessors: usize,
}

impl Caches {
    /// Cells from which on a cache is shared: over fewer, two more launches take longer than they save.
    pub(super) const LONG: usize = 1024;

    /// Caches of which the longest has so many cells. That number is rounded down to a power of two, or to 0 where no cache
    /// is shared, so that the launches of a pass are the same for many tokens in turn.
    pub fn new(longest: usize, multiprocessors: usize) -> Caches {
        let power = longest.checked_ilog2().filter(|_| longest >= Caches::LONG);
        Caches { longest: power.map_or(0, |power| 1 << power), multiprocessors }
    }
}

/// Why there is no program for a model.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum ProgramError {
    /// No kernel does what the model needs.
    #[error("the GPU has no kernel for {0}")]
    Missing(String),
    /// A size that no buffer or grid has.
    #[error("{0} is more than a GPU takes; lower the context, the sequences or the tokens of a pass")]
    TooLarge(String),
    /// A product without a plan.
    #[error(transparent)]
    Plan(#[from] PlanError),
    /// A matrix that cannot be laid out.
    #[error("{name}: {why}")]
    Pack {
        /// The matrix.
        name: String,
        /// Why not.
        why: PackError,
    },
}

/// An argument of a call.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Operand {
    /// Byte `.1` of memory number `.0`.
    Memory(usize, usize),
    /// 32 bits.
    U32(u32),
    /// A number in single precision.
    F32(f32),
}

/// A kernel, its grid and its arguments.
#[derive(Clone, PartialEq, Debug)]
pub struct Call {
    /// The kernel and its grid.
    pub launch: Launch,
    /// Its arguments in order.
    pub operands: Vec<Operand>,
}

/// Copies among devices that share matrices: each sends its part of some memory to all others, where it goes to the same
/// place.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Exchange {
    /// Ranges of memory that are exchanged at the same time.
    pub pieces: Vec<Piece>,
}

/// A range of memory of which every device has made a part.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Piece {
    /// The number of the memory in the program of a device.
    pub memory: usize,
    /// The first bytes of the devices' parts, and the end.
    pub bounds: Vec<usize>,
}

/// Launches that need nothing from other devices, and the exchange behind them.
#[derive(Clone, PartialEq, Debug)]
pub struct Stretch {
    /// The launches.
    pub calls: Vec<Call>,
    /// The exchange; `None` behind the last stretch of a pass.
    pub exchange: Option<Exchange>,
}

/// The memory with a fixed number that every program has.
pub(crate) mod fixed {
    /// Identifiers of the tokens: u32 each.
    pub const TOKENS: usize = 0;
    /// Sequence and position of the tokens: two u32 each.
    pub const PLACES: usize = 1;
    /// Where their keys and values go, the page and the cell of it: two u32 each.
    pub const CELLS: usize = 2;
    /// The pages of the sequences: a row of u32 for each.
    pub const TABLES: usize = 3;
    /// Numbers of the tokens whose logits are wanted: u32 each.
    pub const WANTED: usize = 4;
    /// Scratch memory that one launch writes for the next or for itself.
    pub const WORK: usize = 5;
    /// Counters by which a slice of a product knows that it is the last: u32 each.
    pub const TICKETS: usize = 6;
    /// States of sequences, a slot for each.
    pub const STATES: usize = 7;
    /// The slots of the sequences of a pass, and 1 where the sequence begins: two u32 each.
    pub const SLOTS: usize = 8;
    /// Outputs of products whose rows devices share, on their way from one to the others.
    pub const PARTS: usize = 9;
    /// Factors of what adapters add: 1 where there is one, and the factor, a u32 and a float each.
    pub const FACTORS: usize = 10;
}
