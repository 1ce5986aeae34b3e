//! Buffers and launches.

use super::block::{Dice, Run, run};
use super::fault::{Fault, Kind};
use super::launch::{Argument, Buffer, Coordinates, Launch, Report, Schedule};
use super::memory::Memory;
use super::module::{Kernel, Module};
use super::order::Order;
use super::shared::Shared;
use super::warp::{LANES, Warp};

/// Global memory, and what runs on it.
#[derive(Default, Debug)]
pub struct Device {
    memory: Memory,
    /// Blocks of all launches until now.
    blocks: u32,
}

impl Device {
    /// A device without buffers.
    pub fn new() -> Device {
        Device::default()
    }

    /// A buffer that kernels read and may not write.
    pub fn constant(&mut self, bytes: Vec<u8>) -> Buffer {
        Buffer(self.memory.constant(bytes))
    }

    /// A buffer that kernels write before anything reads it.
    pub fn empty(&mut self, bytes: usize) -> Buffer {
        Buffer(self.memory.variable(vec![0xff; bytes], false))
    }

    /// A buffer that kernels read and write.
    pub fn variable(&mut self, bytes: Vec<u8>) -> Buffer {
        Buffer(self.memory.variable(bytes, true))
    }

    /// A buffer that kernels read and write without being watched, which is faster: races and bytes that nobody wrote
    /// are not found.
    pub fn unwatched(&mut self, bytes: Vec<u8>) -> Buffer {
        Buffer(self.memory.unwatched(bytes))
    }

    /// Takes the memory of a buffer away. An access is outside of it from now on.
    pub fn free(&mut self, buffer: Buffer) {
        self.memory.clear(buffer.0);
    }

    /// The address of a buffer's first byte.
    pub fn address(buffer: Buffer) -> u64 {
        Memory::address(buffer.0)
    }

    /// The buffer of an address and the place in it, which may lie behind its end.
    pub fn place(&self, address: u64) -> Option<(Buffer, usize)> {
        let (buffer, at) = self.memory.place(address)?;
        Some((Buffer(buffer), at))
    }

    /// Copies `count` bytes of a buffer from a place to another; what nobody wrote stays that.
    ///
    /// # Panics
    /// When they end behind its end.
    pub fn copy(&mut self, buffer: Buffer, from: usize, to: usize, count: usize) {
        self.memory.copy(buffer.0, from, to, count);
    }

    /// The bytes of a buffer.
    ///
    /// # Panics
    /// When not all of them were written.
    pub fn bytes(&self, buffer: Buffer) -> &[u8] {
        let (bytes, empty) = self.memory.bytes(buffer.0);
        assert_eq!(empty, None, "the first byte of {buffer:?} nobody wrote");
        bytes
    }

    /// Writes bytes into a buffer from a place on, before the launches that follow.
    ///
    /// # Panics
    /// When they end behind its end.
    pub fn fill(&mut self, buffer: Buffer, at: usize, bytes: &[u8]) {
        self.memory.fill(buffer.0, at, bytes);
    }

    /// `count` bytes of a buffer from a place on.
    ///
    /// # Panics
    /// When they end behind its end, or not all of them were written.
    pub fn some_bytes(&self, buffer: Buffer, at: usize, count: usize) -> &[u8] {
        let (bytes, empty) = self.memory.some(buffer.0, at, count);
        assert_eq!(empty, None, "the first byte of {buffer:?} nobody wrote");
        bytes
    }

    /// The numbers of a buffer.
    ///
    /// # Panics
    /// When not all of them were written.
    pub fn floats(&self, buffer: Buffer) -> Vec<f32> {
        let numbers = self.bytes(buffer).as_chunks::<4>().0;
        numbers.iter().map(|b| f32::from_le_bytes(*b)).collect()
    }

    /// Runs a kernel to its end.
    ///
    /// # Errors
    /// A launch that does not fit the kernel, and whatever the kernel does wrong.
    pub fn launch(&mut self, module: &Module, name: &str, launch: &Launch) -> Result<Report, Fault> {
        let refused = |what: String| Fault {
            kind: Kind::Launch,
            what,
            kernel: name.to_owned(),
            line: 0,
            text: String::new(),
            block: [0; 3],
            thread: 0,
        };
        let kernel = module.kernel(name).ok_or_else(|| refused("the module has no such kernel".to_owned()))?;
        let threads: u32 = launch.threads.iter().product();
        let most = kernel.threads.unwrap_or(1024).min(1024);
        if threads == 0 || threads > most {
            return Err(refused(format!("{threads} threads, 1 to {most} are possible")));
        }
        let arguments = arguments(kernel, launch.arguments).map_err(refused)?;
        let mut report = Report { executed: vec![0; kernel.code.len()], ..Report::default() };
        let mut order_of_blocks = Order::default();
        let dynamic = kernel.shared.next_multiple_of(16);
        let mut shared = Shared::new(dynamic + launch.shared as usize);
        let threads = threads as usize;
        let lanes = |warp: usize| (threads - LANES * warp).min(LANES);
        let mut warps: Vec<Warp> =
            (0..threads.div_ceil(LANES)).map(|warp| Warp::new(kernel, warp, lanes(warp))).collect();
        let earlier = self.blocks;
        self.blocks += launch.blocks.iter().product::<u32>();
        for number in order(launch) {
            let [x, y, _] = launch.blocks;
            let block = [number % x, number / x % y, number / (x * y)];
            let at = Coordinates {
                block,
                blocks: launch.blocks,
                threads: launch.threads,
                number,
                earlier,
                dynamic: dynamic as u64,
            };
            let mut block = Run {
                warps: &mut warps,
                shared: &mut shared,
                memory: &mut self.memory,
                report: &mut report,
                order: &mut order_of_blocks,
                arguments: &arguments,
                at,
                wavefronts: launch.wavefronts,
                budget: launch.budget,
            };
            run(launch.schedule, &mut block)?;
        }
        Ok(report)
    }
}

/// The bytes of the arguments, each at a multiple of its size.
fn arguments(kernel: &Kernel, given: &[Argument]) -> Result<Vec<u8>, String> {
    if given.len() != kernel.arguments.len() {
        let (found, expected) = (given.len(), kernel.arguments.len());
        return Err(format!("{found} arguments, the kernel takes {expected}"));
    }
    let mut bytes = Vec::new();
    for (i, (given, &size)) in given.iter().zip(&kernel.arguments).enumerate() {
        let value = match *given {
            Argument::Buffer(buffer) => Memory::address(buffer.0).to_le_bytes().to_vec(),
            Argument::Place(buffer, at) => {
                let address = Memory::address(buffer.0) + at as u64;
                address.to_le_bytes().to_vec()
            }
            Argument::U32(value) => value.to_le_bytes().to_vec(),
            Argument::F32(value) => value.to_le_bytes().to_vec(),
            Argument::U64(value) => value.to_le_bytes().to_vec(),
        };
        if value.len() != size {
            let found = value.len();
            return Err(format!("argument {i} has {found} bytes, the kernel's {size}"));
        }
        bytes.resize(bytes.len().next_multiple_of(size), 0);
        bytes.extend(value);
    }
    Ok(bytes)
}

/// The blocks' numbers in the order in which they run.
fn order(launch: &Launch) -> Vec<u32> {
    let mut numbers: Vec<u32> = (0..launch.blocks.iter().product()).collect();
    if let Schedule::Random(seed) = launch.schedule {
        let mut dice = Dice::new(!seed);
        for i in (1..numbers.len()).rev() {
            numbers.swap(i, dice.below(i + 1));
        }
    }
    numbers
}
