//! Faults of a kernel.

use thiserror::Error;

/// Text that the emulator does not take.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
#[error("line {line}: {what}")]
pub struct ParseError {
    /// Line of the text, from 1.
    pub line: usize,
    /// Description of the fault.
    pub what: String,
}

/// The kinds of faults that a run ends with.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// Two threads use the same byte, one of them writes, and nothing orders them.
    Race,
    /// A byte or register that nobody wrote is read.
    Uninitialised,
    /// A byte is used that an asynchronous copy is still to write.
    InFlight,
    /// An address outside of all buffers or of shared memory, or a write into a buffer that is only read.
    OutOfBounds,
    /// An address that is no multiple of what is read or written there.
    Misaligned,
    /// A shared memory access takes more wavefronts than it may.
    BankConflict,
    /// An instruction of the whole warp is executed by a part of it.
    PartialWarp,
    /// A barrier that some warps never reach.
    Barrier,
    /// More instructions than the launch may take.
    Budget,
    /// The launch does not fit the kernel: arguments, threads, shared memory.
    Launch,
}

/// A fault and where it happened.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
#[error("{kernel}, line {line} `{text}`, block {block:?} thread {thread}: {kind:?}: {what}")]
pub struct Fault {
    /// Kind of the fault.
    pub kind: Kind,
    /// The same in words.
    pub what: String,
    /// The kernel.
    pub kernel: String,
    /// Line of the text, from 1; 0 where no instruction is to blame.
    pub line: usize,
    /// The instruction.
    pub text: String,
    /// The block.
    pub block: [u32; 3],
    /// The thread of the block that was caught.
    pub thread: usize,
}

/// A fault before it is known which instruction of which thread met it: the kind, words, and the lane.
#[derive(Debug)]
pub(super) struct Trouble {
    pub(super) kind: Kind,
    pub(super) what: String,
    pub(super) lane: usize,
}

impl Trouble {
    pub(super) fn new(kind: Kind, lane: usize, what: impl Into<String>) -> Trouble {
        Trouble { kind, what: what.into(), lane }
    }
}
