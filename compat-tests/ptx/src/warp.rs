//! A warp: 32 lanes that execute the instruction of those that are furthest behind.

use super::fault::{Kind, Trouble};
use super::instruction::{Instruction, Op, Register, Source, Special};
use super::launch::{Coordinates, Report};
use super::memory::Memory;
use super::module::Kernel;
use super::order::Order;
pub(super) use super::scalar::{LANES, Lanes, each};
use super::shadow::Stamp;
use super::shared::{Copies, Shared};

/// State of a warp.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum WarpState {
    Ready,
    /// It waits for the other warps of its block.
    AtBarrier,
    Ended,
}

/// Environment of a warp while it takes its turn.
pub(super) struct Surroundings<'a> {
    pub(super) memory: &'a mut Memory,
    pub(super) shared: &'a mut Shared,
    pub(super) order: &'a mut Order,
    pub(super) report: &'a mut Report,
    pub(super) arguments: &'a [u8],
    pub(super) at: &'a Coordinates,
    /// Barriers that the block has passed.
    pub(super) epoch: u32,
    /// The most wavefronts of an access of up to eight bytes a lane.
    pub(super) wavefronts: usize,
}

/// A warp.
pub(super) struct Warp<'k> {
    pub(super) kernel: &'k Kernel,
    pub(super) number: usize,
    pub(super) state: WarpState,
    registers: Vec<Lanes>,
    /// The lanes in which each register was written.
    written: Vec<u32>,
    /// The coordinates that the kernel reads.
    specials: Vec<Lanes>,
    /// The instruction that was executed last.
    last: usize,
    /// Where all lanes stand that have not ended, or nothing while they are apart.
    place: Option<usize>,
    /// Where each lane stands while they are apart.
    places: [usize; LANES],
    /// The lanes that there are, and those that have not ended.
    pub(super) lanes: u32,
    alive: u32,
    /// Barriers of the warp alone.
    turn: u32,
    pub(super) copies: Vec<Copies>,
}

impl<'k> Warp<'k> {
    /// A warp of the first `lanes` lanes, which has to begin a block.
    pub(super) fn new(kernel: &'k Kernel, number: usize, lanes: usize) -> Warp<'k> {
        Warp {
            kernel,
            number,
            state: WarpState::Ended,
            registers: vec![[0; LANES]; kernel.registers],
            written: vec![0; kernel.registers],
            specials: Vec::new(),
            last: 0,
            place: None,
            places: [0; LANES],
            lanes: u32::MAX >> (LANES - lanes),
            alive: 0,
            turn: 0,
            copies: (0..LANES).map(|_| Copies::default()).collect(),
        }
    }

    /// Goes to the kernel's beginning in a block, with nothing left of an earlier one.
    pub(super) fn begin(&mut self, at: &Coordinates) {
        self.state = WarpState::Ready;
        self.written.fill(0);
        self.specials.clear();
        for &special in &self.kernel.specials {
            self.specials.push(std::array::from_fn(|lane| self.special(special, lane, at)));
        }
        self.place = Some(0);
        self.alive = self.lanes;
        self.turn = 0;
        self.copies.iter_mut().for_each(Copies::clear);
    }

    /// The instruction that is next, and the lanes that execute it: those that are furthest behind.
    fn front(&self) -> Option<(usize, u32)> {
        if self.alive == 0 {
            return None;
        }
        if let Some(place) = self.place {
            return Some((place, self.alive));
        }
        let place = each(self.alive).map(|lane| self.places[lane]).min()?;
        let there = each(self.alive).filter(|&lane| self.places[lane] == place);
        Some((place, there.fold(0, |mask, lane| mask | 1 << lane)))
    }

    /// The instruction that was executed last.
    pub(super) fn last(&self) -> Option<&'k Instruction> {
        self.kernel.code.get(self.last)
    }

    /// Lets lanes go on: those of `jumping` at `target`, the others of `active` behind the instruction at `place`.
    fn go_on(&mut self, place: usize, active: u32, jumping: u32, target: usize) {
        let next = match jumping {
            0 => Some(place + 1),
            _ if jumping == active => Some(target),
            _ => None,
        };
        if self.place.is_some() && next.is_some() {
            self.place = next;
            return;
        }
        if let Some(place) = self.place.take() {
            self.places = [place; LANES];
        }
        for lane in each(active) {
            let jumps = jumping >> lane & 1 == 1;
            self.places[lane] = if jumps { target } else { place + 1 };
        }
        let mut all = each(self.alive).map(|lane| self.places[lane]);
        let first = all.next();
        self.place = first.filter(|&first| all.all(|place| place == first));
    }

    #[inline(always)]
    pub(super) fn stamp(&self, around: &Surroundings, lane: usize) -> Stamp {
        Stamp {
            block: around.at.earlier + around.at.number + 1,
            epoch: around.epoch,
            turn: self.turn,
            thread: (LANES * self.number + lane) as u16,
        }
    }

    /// Executes one instruction.
    pub(super) fn step(&mut self, around: &mut Surroundings) -> Result<(), Trouble> {
        let Some((place, active)) = self.front() else {
            self.state = WarpState::Ended;
            return Ok(());
        };
        self.last = place;
        let Some(instruction) = self.kernel.code.get(place) else {
            let what = "the kernel ends without a return";
            return Err(Trouble::new(Kind::Launch, 0, what));
        };
        let mut mask = active;
        if let Some((register, negated)) = instruction.guard {
            let holds = self.value(&Source::Register(register), active)?;
            let bits = holds.iter().rev().fold(0, |bits, &holds| bits << 1 | u32::from(holds == 1));
            mask &= if negated { !bits } else { bits };
        }
        around.report.count(place);
        if let Op::Branch(target) = instruction.op {
            self.go_on(place, active, mask, target);
            return Ok(());
        }
        if let Op::Exit = instruction.op {
            self.alive &= !mask;
            if self.alive == 0 {
                self.state = WarpState::Ended;
            }
            self.go_on(place, active & !mask, 0, 0);
            return Ok(());
        }
        self.go_on(place, active, 0, 0);
        if mask == 0 {
            return Ok(());
        }
        match &instruction.op {
            Op::Barrier => {
                self.whole(mask, self.lanes)?;
                self.state = WarpState::AtBarrier;
                Ok(())
            }
            Op::WarpBarrier => {
                self.whole(mask, self.lanes)?;
                self.turn += 1;
                Ok(())
            }
            op => self.execute(op, mask, around),
        }
    }

    /// Checks that an instruction of the whole warp is executed by all of it.
    pub(super) fn whole(&self, mask: u32, expected: u32) -> Result<(), Trouble> {
        if mask == expected {
            return Ok(());
        }
        let lane = (mask ^ expected).trailing_zeros() as usize;
        let what = format!("executed by lanes {mask:#x} alone");
        Err(Trouble::new(Kind::PartialWarp, lane, what))
    }

    fn execute(&mut self, op: &Op, mask: u32, around: &mut Surroundings) -> Result<(), Trouble> {
        match op {
            Op::Scalar { f, to, from } => {
                let mut values: [&Lanes; 4] = [&[0; LANES]; 4];
                for (value, source) in values.iter_mut().zip(from) {
                    *value = self.value(source, mask)?;
                }
                let mut results = [0; LANES];
                f(values, &mut results);
                self.put(*to, mask, &results);
                Ok(())
            }
            Op::Join { to, from, bits } => {
                let mut results = [0; LANES];
                for (i, part) in from.iter().enumerate() {
                    let parts = self.value(part, mask)?;
                    for (result, part) in results.iter_mut().zip(parts) {
                        *result |= (part & (u64::MAX >> (64 - bits))) << (i * bits);
                    }
                }
                self.put(*to, mask, &results);
                Ok(())
            }
            Op::Part { to, from, bits } => {
                let values = *self.value(from, mask)?;
                for (i, to) in to.iter().enumerate() {
                    let Some(to) = to else { continue };
                    let mut part = values;
                    part.iter_mut().for_each(|v| *v = *v >> (i * bits) & (u64::MAX >> (64 - bits)));
                    self.put(*to, mask, &part);
                }
                Ok(())
            }
            Op::Argument { word, to, at } => {
                for (i, to) in to.iter().enumerate() {
                    let at = at + i * word.bytes;
                    let value = word.number(&around.arguments[at..at + word.bytes]);
                    self.put(*to, mask, &[value; LANES]);
                }
                Ok(())
            }
            Op::Load { space, word, to, at } => self.load((*space, *word), to, at, mask, around),
            Op::Store { space, word, from, at } => self.store((*space, *word), from, at, mask, around),
            Op::Copy { bytes, to, from, read } => self.copy(*bytes, (to, from), read, mask, around),
            Op::Commit => {
                each(mask).for_each(|lane| self.copies[lane].commit());
                Ok(())
            }
            Op::WaitGroup(left) => {
                for lane in each(mask) {
                    let now = self.stamp(around, lane);
                    self.copies[lane].wait(around.shared, *left, now);
                }
                Ok(())
            }
            Op::WaitAll => {
                for lane in each(mask) {
                    let now = self.stamp(around, lane);
                    self.copies[lane].wait_all(around.shared, now);
                }
                Ok(())
            }
            Op::Fence => {
                for lane in each(mask) {
                    around.order.fence(self.stamp(around, lane));
                }
                Ok(())
            }
            Op::Add { to, at, from } => self.add(*to, at, from, mask, around),
            op => self.together(op, mask, around),
        }
    }

    /// An operand of all lanes; that of each lane of the mask is known.
    #[inline(always)]
    pub(super) fn value(&self, source: &Source, mask: u32) -> Result<&Lanes, Trouble> {
        match *source {
            Source::Register(register) => {
                let open = mask & !self.written[register];
                if open != 0 {
                    let lane = open.trailing_zeros() as usize;
                    return Err(Trouble::new(Kind::Uninitialised, lane, "a register that was not written"));
                }
                Ok(&self.registers[register])
            }
            Source::Constant(number) => Ok(&self.kernel.constants[number]),
            Source::Special(number) => Ok(&self.specials[number]),
        }
    }

    /// A coordinate of a lane.
    fn special(&self, special: Special, lane: usize, at: &Coordinates) -> u64 {
        let [x, y, _] = at.threads.map(|n| n as usize);
        let thread = LANES * self.number + lane;
        match special {
            Special::Thread(0) => (thread % x) as u64,
            Special::Thread(1) => (thread / x % y) as u64,
            Special::Thread(_) => (thread / (x * y)) as u64,
            Special::Threads(axis) => at.threads[axis].into(),
            Special::Block(axis) => at.block[axis].into(),
            Special::Blocks(axis) => at.blocks[axis].into(),
            Special::Lane => lane as u64,
            Special::Dynamic => at.dynamic,
        }
    }

    /// Writes a register in the lanes of a mask.
    #[inline(always)]
    pub(super) fn put(&mut self, to: Register, mask: u32, values: &Lanes) {
        let register = &mut self.registers[to];
        if mask == u32::MAX {
            *register = *values;
        } else {
            each(mask).for_each(|lane| register[lane] = values[lane]);
        }
        self.written[to] |= mask;
    }
}
