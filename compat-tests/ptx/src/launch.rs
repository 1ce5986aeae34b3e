//! A launch: what a kernel is started with, and the report of what it did.

use super::module::Kernel;

/// A buffer in global memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Buffer(pub(super) usize);

/// An argument of a launch. Its type has to be as large as the kernel's.
#[derive(Clone, Copy, Debug)]
pub enum Argument {
    /// The address of a buffer.
    Buffer(Buffer),
    /// That of one of its bytes, counted from its start.
    Place(Buffer, usize),
    /// 32 bits.
    U32(u32),
    /// 64 bits.
    U64(u64),
    /// A number in single precision.
    F32(f32),
}

/// In which order warps take their turns. Blocks run one after the other, at random in a random order. One that waited
/// for another would not end.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Schedule {
    /// One after the other.
    InTurn,
    /// At random, for as many instructions as chance has it; the seed.
    Random(u64),
    /// This warp only when all others are waiting or have ended.
    Last(usize),
}

/// A launch of a kernel.
#[derive(Clone, Debug)]
pub struct Launch<'a> {
    /// Blocks along x, y and z.
    pub blocks: [u32; 3],
    /// Threads of a block along x, y and z.
    pub threads: [u32; 3],
    /// Bytes of shared memory beside those that the kernel brings.
    pub shared: u32,
    /// Arguments in the kernel's order.
    pub arguments: &'a [Argument],
    /// The order of warps.
    pub schedule: Schedule,
    /// The most wavefronts that an access to shared memory may take where a lane asks for four or eight bytes; for 16
    /// bytes it is always one for each eight lanes, and for one or two, which are looked up in tables, any number.
    pub wavefronts: usize,
    /// The most instructions that all warps together may execute.
    pub budget: u64,
}

impl Default for Launch<'_> {
    fn default() -> Self {
        Launch {
            blocks: [1; 3],
            threads: [32, 1, 1],
            shared: 0,
            arguments: &[],
            schedule: Schedule::InTurn,
            wavefronts: 1,
            budget: 1 << 32,
        }
    }
}

/// Statistics of a launch.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Report {
    /// Instructions that warps have executed.
    pub instructions: u64,
    /// Products of matrices among them.
    pub products: u64,
    /// The most wavefronts of an access to shared memory.
    pub worst_wavefronts: usize,
    /// How often each instruction was executed, in the kernel's order.
    pub(super) executed: Vec<u64>,
}

impl Report {
    pub(super) fn count(&mut self, place: usize) {
        self.instructions += 1;
        self.executed[place] += 1;
    }

    /// How often instructions whose opcodes begin with `opcode` were executed.
    pub fn executed(&self, kernel: &Kernel, opcode: &str) -> u64 {
        let pairs = kernel.code.iter().zip(&self.executed);
        let named = pairs.filter(|(i, _)| {
            let words = i.text.split(' ');
            // A guard stands before the opcode.
            let mut words = words.skip_while(|w| ["@", "!"].contains(w) || w.starts_with("%p"));
            words.next().is_some_and(|w| w.starts_with(opcode))
        });
        named.map(|(_, count)| count).sum()
    }
}

/// Where a block stands.
#[derive(Clone, Debug)]
pub(super) struct Coordinates {
    pub(super) block: [u32; 3],
    pub(super) blocks: [u32; 3],
    pub(super) threads: [u32; 3],
    /// The block's number among all of its launch.
    pub(super) number: u32,
    /// Blocks of the launches before this one.
    pub(super) earlier: u32,
    /// Where the shared memory begins that the launch brings.
    pub(super) dynamic: u64,
}
