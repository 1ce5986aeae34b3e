//! Instructions as they are executed.

use super::mma::Form;
use super::scalar::Scalar;

/// A register's number.
pub(super) type Register = usize;

/// A coordinate that is fixed for a thread: of itself or of its block, and the sizes of both.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Special {
    /// `%tid`
    Thread(usize),
    /// `%ntid`
    Threads(usize),
    /// `%ctaid`
    Block(usize),
    /// `%nctaid`
    Blocks(usize),
    /// `%laneid`
    Lane,
    /// The place of the array that a launch brings, behind the kernel's own.
    Dynamic,
}

/// Where an operand's value comes from.
#[derive(Clone, Copy, Debug)]
pub(super) enum Source {
    Register(Register),
    /// The number of one of the kernel's constants.
    Constant(usize),
    /// The number of one of the coordinates that the kernel reads.
    Special(usize),
}

/// A base and a distance from it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Address {
    pub(super) base: Source,
    pub(super) offset: i64,
}

/// Which memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Space {
    Global,
    Shared,
}

/// A number in memory: its bytes, and whether it fills a register with its sign.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Word {
    pub(super) bytes: usize,
    pub(super) signed: bool,
}

impl Word {
    /// Little-endian bytes as a register holds them.
    #[inline(always)]
    pub(super) fn number(self, bytes: &[u8]) -> u64 {
        let negative = self.signed && bytes[bytes.len() - 1] >= 0x80;
        let mut all = if negative { [0xff; 8] } else { [0; 8] };
        all[..bytes.len()].copy_from_slice(bytes);
        u64::from_le_bytes(all)
    }
}

/// Whose value a lane gets in a shuffle.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Shuffle {
    Up,
    Down,
    Butterfly,
    Index,
}

/// Operation of an instruction.
#[derive(Debug)]
pub(super) enum Op {
    /// One result from up to four values of the same lane.
    Scalar {
        f: Scalar,
        to: Register,
        from: Vec<Source>,
    },
    /// Parts of `bits` bits put together, the lowest first.
    Join {
        to: Register,
        from: Vec<Source>,
        bits: usize,
    },
    /// A value taken apart into parts of `bits` bits, the lowest first. Parts without a register are not wanted.
    Part {
        to: Vec<Option<Register>>,
        from: Source,
        bits: usize,
    },
    Load {
        space: Space,
        word: Word,
        to: Vec<Register>,
        at: Address,
    },
    Store {
        space: Space,
        word: Word,
        from: Vec<Source>,
        at: Address,
    },
    /// `atom.add` on 32 bits of global memory.
    Add {
        to: Register,
        at: Address,
        from: Source,
    },
    /// An argument of the launch, `at` bytes behind the first.
    Argument {
        word: Word,
        to: Vec<Register>,
        at: usize,
    },
    Branch(usize),
    Exit,
    /// `bar.sync 0`
    Barrier,
    /// `bar.warp.sync`
    WarpBarrier,
    /// `cp.async`: bytes, and how many of them are read; the rest becomes zero.
    Copy {
        bytes: usize,
        to: Address,
        from: Address,
        read: Source,
    },
    Commit,
    /// Waits until at most this number of the groups is under way.
    WaitGroup(usize),
    /// Waits for all copies, those of no group too.
    WaitAll,
    /// `ldmatrix`: one register for each matrix.
    Matrix {
        to: Vec<Register>,
        at: Address,
        transposed: bool,
    },
    Mma {
        form: Form,
        d: Vec<Register>,
        a: Vec<Source>,
        b: Vec<Source>,
        c: Vec<Source>,
        /// Metadata and selector of a sparse product.
        sparse: Option<(Source, usize)>,
    },
    Shuffle {
        mode: Shuffle,
        to: Register,
        /// True if the value came from a lane of the segment.
        valid: Option<Register>,
        from: Source,
        by: Source,
        clamp: Source,
        members: Source,
    },
    /// Orders this thread's accesses for the whole device: see `order`.
    Fence,
}

/// An instruction of a kernel.
#[derive(Debug)]
pub(super) struct Instruction {
    pub(super) op: Op,
    /// The predicate under which it is executed, and whether that is negated.
    pub(super) guard: Option<(Register, bool)>,
    pub(super) line: usize,
    pub(super) text: String,
}
