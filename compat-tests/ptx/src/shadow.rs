//! Who wrote and read each byte of a memory, to find accesses that nothing orders.

use super::fault::Kind;

/// One thread at one time: accesses of two stamps are ordered by a barrier of the block or the warp between them, or
/// because they are of one thread.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(super) struct Stamp {
    /// The block, from 1; 0 is nobody.
    pub(super) block: u32,
    /// How many barriers the block has passed.
    pub(super) epoch: u32,
    /// How many barriers of its own the warp has passed.
    pub(super) turn: u32,
    pub(super) thread: u16,
}

impl Stamp {
    /// That of another thread of the warp.
    #[inline(always)]
    pub(super) fn of(self, lane: usize) -> Stamp {
        Stamp { thread: self.thread + lane as u16, ..self }
    }

    fn warp(self) -> u16 {
        self.thread / 32
    }

    /// True if this comes before `later`, whatever the order in which warps take their turns.
    fn is_before(self, later: Stamp) -> bool {
        self.block == later.block
            && (self.epoch < later.epoch
                || self.thread == later.thread
                || self.warp() == later.warp() && self.turn < later.turn)
    }
}

/// Knowledge of a thread from an atomic operation: everything before `given`, a fence of another block, comes before
/// everything after `at`, its own fence.
#[derive(Clone, Copy, Debug)]
pub(super) struct Learnt {
    pub(super) given: Stamp,
    pub(super) at: Stamp,
}

/// A thread at one time, and what its block has learnt of others.
#[derive(Clone, Copy, Debug)]
pub(super) struct Moment<'a> {
    pub(super) stamp: Stamp,
    /// Blocks up to this one have ended before the launch began, or are nobody.
    pub(super) ended: u32,
    pub(super) learnt: &'a [Learnt],
}

impl From<Stamp> for Moment<'static> {
    /// In a memory that no other block has.
    #[inline(always)]
    fn from(stamp: Stamp) -> Moment<'static> {
        Moment { stamp, ended: 0, learnt: &[] }
    }
}

impl Moment<'_> {
    /// True if this comes after `earlier`, whatever the order in which warps and blocks take their turns.
    #[inline(always)]
    fn is_after(&self, earlier: Stamp) -> bool {
        earlier.block <= self.ended || earlier.is_before(self.stamp) || self.was_told(earlier)
    }

    /// True if another block has said so.
    fn was_told(&self, earlier: Stamp) -> bool {
        let told = |l: &Learnt| earlier.is_before(l.given) && l.at.is_before(self.stamp);
        self.learnt.iter().any(told)
    }
}

/// State of a byte.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
enum ByteState {
    /// Nothing was written.
    #[default]
    Empty,
    /// A copy is under way.
    InFlight,
    Full,
}

/// The history of a byte.
#[derive(Clone, Copy, Default, Debug)]
struct Cell {
    state: ByteState,
    write: Stamp,
    read: Stamp,
    /// The last write was an atomic operation, which is ordered among its like.
    atomic: bool,
    /// Other threads of the reader's warp, and threads of other warps, have read in its epoch too.
    warp_reads: bool,
    block_reads: bool,
}

impl Cell {
    /// True if all reads come before `later`.
    fn reads_are_before(&self, moment: Moment) -> bool {
        let later = moment.stamp;
        let same_epoch = self.read.block == later.block && self.read.epoch == later.epoch;
        if self.block_reads && same_epoch {
            return false;
        }
        let own = self.read.thread == later.thread && same_epoch;
        if self.warp_reads && own {
            return self.read.turn < later.turn;
        }
        moment.is_after(self.read)
    }
}

/// The histories of all bytes of a memory.
#[derive(Default, Debug)]
pub(super) struct Shadow {
    cells: Vec<Cell>,
    /// How many bytes share a history: a dword, until something smaller is used.
    grain: usize,
}

/// Bytes of a dword.
const DWORD: usize = 4;

/// Result of an access.
type Found = Result<(), (Kind, String)>;

/// The most bytes, up to a dword, of which a place and a count are both multiples.
#[inline(always)]
fn grain(at: usize, bytes: usize) -> usize {
    1 << (at | bytes | DWORD).trailing_zeros()
}

impl Shadow {
    /// Bytes that nobody wrote, or that were there before.
    pub(super) fn new(bytes: usize, full: bool) -> Shadow {
        let state = if full { ByteState::Full } else { ByteState::Empty };
        let cell = Cell { state, ..Cell::default() };
        let grain = grain(0, bytes);
        Shadow { cells: vec![cell; bytes / grain], grain }
    }

    /// Nobody has written any byte.
    pub(super) fn clear(&mut self) {
        self.cells.fill(Cell::default());
    }

    /// The histories of some bytes, and how many bytes have one.
    #[inline(always)]
    fn cells(&mut self, at: usize, bytes: usize) -> (&mut [Cell], usize) {
        let grain = grain(at, bytes);
        if grain < self.grain {
            self.split(grain);
        }
        let shift = self.grain.trailing_zeros();
        (&mut self.cells[at >> shift..(at + bytes) >> shift], self.grain)
    }

    /// Gives fewer bytes a history of their own.
    #[cold]
    fn split(&mut self, grain: usize) {
        let each = self.cells.iter().flat_map(|&cell| std::iter::repeat_n(cell, self.grain / grain));
        (self.cells, self.grain) = (each.collect(), grain);
    }

    /// The first byte that nobody wrote.
    pub(super) fn first_empty(&self) -> Option<usize> {
        let cell = self.cells.iter().position(|c| c.state != ByteState::Full)?;
        Some(cell * self.grain)
    }

    /// The first of some bytes that nobody wrote.
    pub(super) fn first_empty_in(&self, at: usize, bytes: usize) -> Option<usize> {
        let cells = &self.cells[at / self.grain..(at + bytes).div_ceil(self.grain)];
        let cell = cells.iter().position(|c| c.state != ByteState::Full)?;
        Some((at / self.grain + cell) * self.grain)
    }

    /// Counts some bytes as written before anything that follows.
    pub(super) fn fill(&mut self, at: usize, bytes: usize) {
        for cell in self.cells(at, bytes).0 {
            *cell = Cell { state: ByteState::Full, ..Cell::default() };
        }
    }

    /// Bytes were copied from a place to another one, and count there as they do here.
    pub(super) fn copy(&mut self, from: usize, to: usize, bytes: usize) {
        let (copied, each) = self.cells(from, bytes);
        let copied = copied.to_vec();
        // The second look may find histories of fewer bytes than the first one.
        let (cells, grain) = self.cells(to, bytes);
        for (i, cell) in cells.iter_mut().enumerate() {
            *cell = Cell { state: copied[i * grain / each].state, ..Cell::default() };
        }
    }

    /// A thread reads.
    #[inline(always)]
    pub(super) fn read<'a>(&mut self, at: usize, bytes: usize, moment: impl Into<Moment<'a>>) -> Found {
        let moment = moment.into();
        let now = moment.stamp;
        let (cells, grain) = self.cells(at, bytes);
        for (i, cell) in cells.iter_mut().enumerate() {
            if cell.state != ByteState::Full || !moment.is_after(cell.write) {
                return Err(unreadable(*cell, at + i * grain, moment));
            }
            let concurrent = cell.read.block == now.block && cell.read.epoch == now.epoch && now.block != 0;
            if !concurrent {
                (cell.warp_reads, cell.block_reads) = (false, false);
            } else if cell.read.warp() != now.warp() {
                cell.block_reads = true;
            } else if cell.read.turn < now.turn {
                cell.warp_reads = false;
            } else if cell.read.thread != now.thread {
                cell.warp_reads = true;
            }
            // The latest turn counts: what comes after it comes after all reads of this warp.
            cell.read = now;
        }
        Ok(())
    }

    /// A thread writes, at once or when a copy arrives.
    #[inline(always)]
    fn overwrite(&mut self, at: usize, bytes: usize, moment: Moment, state: ByteState) -> Found {
        let write = moment.stamp;
        let (cells, grain) = self.cells(at, bytes);
        for (i, cell) in cells.iter_mut().enumerate() {
            let copied = cell.state == ByteState::InFlight;
            if copied || !moment.is_after(cell.write) || !cell.reads_are_before(moment) {
                return Err(not_writable(*cell, at + i * grain, moment));
            }
            *cell = Cell { state, write, ..Cell::default() };
        }
        Ok(())
    }

    /// A thread writes.
    pub(super) fn write<'a>(&mut self, at: usize, bytes: usize, moment: impl Into<Moment<'a>>) -> Found {
        self.overwrite(at, bytes, moment.into(), ByteState::Full)
    }

    /// A thread applies an atomic operation: a read and a write, which nothing has to order among other atomic
    /// operations.
    pub(super) fn update(&mut self, at: usize, bytes: usize, moment: Moment) -> Found {
        let ordered = |cell: &Cell| cell.atomic && cell.write.block > moment.ended;
        let (cells, grain) = self.cells(at, bytes);
        if !cells.iter().all(ordered) {
            // Its own read would take the place of those before it.
            if let Some(i) = cells.iter().position(|cell| !cell.reads_are_before(moment)) {
                return Err(not_writable(cells[i], at + i * grain, moment));
            }
            self.read(at, bytes, moment)?;
            self.overwrite(at, bytes, moment, ByteState::Full)?;
        }
        for cell in self.cells(at, bytes).0 {
            (cell.write, cell.atomic) = (moment.stamp, true);
        }
        Ok(())
    }

    /// A thread has a copy begun.
    pub(super) fn begin_copy(&mut self, at: usize, bytes: usize, now: Stamp) -> Found {
        self.overwrite(at, bytes, now.into(), ByteState::InFlight)
    }

    /// A thread has waited for its copy: for others it is written now.
    pub(super) fn end_copy(&mut self, at: usize, bytes: usize, now: Stamp) {
        for cell in self.cells(at, bytes).0 {
            (cell.state, cell.write) = (ByteState::Full, now);
        }
    }
}

/// The fault of a read of a cell, that of a byte.
#[cold]
fn unreadable(cell: Cell, byte: usize, moment: Moment) -> (Kind, String) {
    match cell.state {
        ByteState::Full => race(byte, "read", "written", cell.write, moment),
        ByteState::Empty => (Kind::Uninitialised, format!("byte {byte} was not written")),
        ByteState::InFlight => (Kind::InFlight, format!("a copy into byte {byte} was not waited for")),
    }
}

/// The same of a write.
#[cold]
fn not_writable(cell: Cell, byte: usize, moment: Moment) -> (Kind, String) {
    if cell.state == ByteState::InFlight {
        return (Kind::Race, format!("byte {byte} is written while a copy into it is under way"));
    }
    if !moment.is_after(cell.write) {
        return race(byte, "written", "written", cell.write, moment);
    }
    race(byte, "written", "read", cell.read, moment)
}

fn race(byte: usize, now: &str, before: &str, other: Stamp, moment: Moment) -> (Kind, String) {
    let place = if other.block == moment.stamp.block {
        String::new()
    } else {
        format!(" of block number {}", other.block - 1 - moment.ended)
    };
    let what =
        format!("byte {byte} is {now} and was {before} by thread {}{place} with no barrier between", other.thread);
    (Kind::Race, what)
}
