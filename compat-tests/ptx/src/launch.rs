//! A launch: what a kernel is started with, and the report of what it did.

use super::module::Kernel;
use super::warp::LANES;

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
        let named = self.opcodes(kernel).filter(|(name, _)| name.starts_with(opcode));
        named.map(|(_, count)| count).sum()
    }

    /// Bytes that instructions whose opcodes begin with `opcode` would have moved, `ld.global` or `st.global`, had all lanes
    /// of their warps taken part.
    pub fn bytes(&self, kernel: &Kernel, opcode: &str) -> u64 {
        let named = self.opcodes(kernel).filter(|(name, _)| name.starts_with(opcode));
        let each = |name: &str| {
            let of_lane = name.split('.').fold(0, |bytes, part| bytes + bits(part) / 8);
            let elements = if name.contains(".v4.") { 4 } else { 1 + u64::from(name.contains(".v2.")) };
            LANES as u64 * of_lane * elements
        };
        named.map(|(name, count)| each(name) * count).sum()
    }

    /// The opcode of each instruction, and how often it was executed.
    fn opcodes<'k>(&'k self, kernel: &'k Kernel) -> impl Iterator<Item = (&'k str, u64)> {
        kernel.code.iter().zip(&self.executed).filter_map(|(i, &count)| {
            // A guard stands before the opcode.
            let mut words = i.text.split(' ').skip_while(|w| ["@", "!"].contains(w) || w.starts_with("%p"));
            Some((words.next()?, count))
        })
    }
}

/// The bits of a type such as `u32`; 0 for other parts of an opcode.
fn bits(part: &str) -> u64 {
    part.strip_prefix(['b', 'u', 's', 'f']).and_then(|digits| digits.parse().ok()).unwrap_or(0)
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
