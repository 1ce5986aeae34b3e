//! Memory accesses of lanes: loads, stores, asynchronous copies.

use super::fault::{Kind, Trouble};
use super::instruction::{Address, Register, Source, Space, Word};
use super::shadow::Moment;
use super::shared::wavefronts;
use super::warp::{LANES, Lanes, Surroundings, Warp, each};

/// The bytes that an instruction moves for each lane.
type Moved<const BYTES: usize> = [[u8; BYTES]; LANES];

/// Calls a method whose parameter is a number of bytes, a power of two.
macro_rules! with_bytes {
    ($bytes:expr, $warp:ident.$name:ident($($argument:expr),*)) => {
        match $bytes {
            1 => $warp.$name::<1>($($argument),*),
            2 => $warp.$name::<2>($($argument),*),
            4 => $warp.$name::<4>($($argument),*),
            8 => $warp.$name::<8>($($argument),*),
            _ => $warp.$name::<16>($($argument),*),
        }
    };
}

/// Part number `i` of what was moved, each `WORD` bytes long, as registers hold it.
#[inline(always)]
fn numbers<const WORD: usize, const BYTES: usize>(moved: &Moved<BYTES>, word: Word, i: usize) -> Lanes {
    let mut numbers = [0; LANES];
    for (number, bytes) in numbers.iter_mut().zip(moved) {
        *number = word.number(&bytes[i * WORD..(i + 1) * WORD]);
    }
    numbers
}

/// The other way round.
#[inline(always)]
fn put_numbers<const WORD: usize, const BYTES: usize>(numbers: &Lanes, i: usize, moved: &mut Moved<BYTES>) {
    for (number, bytes) in numbers.iter().zip(moved) {
        bytes[i * WORD..(i + 1) * WORD].copy_from_slice(&number.to_le_bytes()[..WORD]);
    }
}

impl Warp<'_> {
    /// The address that each lane asks for.
    pub(super) fn addresses(&self, at: &Address, mask: u32) -> Result<Lanes, Trouble> {
        let mut all = *self.value(&at.base, mask)?;
        all.iter_mut().for_each(|address| *address = address.wrapping_add_signed(at.offset));
        Ok(all)
    }

    /// Counts the wavefronts of an access to shared memory, and finds those that take too many.
    pub(super) fn banks(&self, at: &Lanes, mask: u32, bytes: usize, around: &mut Surroundings) -> Result<(), Trouble> {
        // A lane that asks for one or two bytes looks them up in a table, at a place that data decides.
        if bytes <= 2 {
            return Ok(());
        }
        let found = wavefronts(at, mask, bytes);
        around.report.worst_wavefronts = around.report.worst_wavefronts.max(found);
        let most = if bytes == 16 { 1 } else { around.wavefronts };
        if found <= most {
            return Ok(());
        }
        let what = format!("{found} wavefronts, where {most} are enough");
        Err(Trouble::new(Kind::BankConflict, mask.trailing_zeros() as usize, what))
    }

    pub(super) fn load(
        &mut self,
        (space, word): (Space, Word),
        to: &[Register],
        at: &Address,
        mask: u32,
        around: &mut Surroundings,
    ) -> Result<(), Trouble> {
        let at = self.addresses(at, mask)?;
        with_bytes!(word.bytes * to.len(), self.load_bytes((space, word), to, &at, mask, around))
    }

    fn load_bytes<const BYTES: usize>(
        &mut self,
        (space, word): (Space, Word),
        to: &[Register],
        at: &Lanes,
        mask: u32,
        around: &mut Surroundings,
    ) -> Result<(), Trouble> {
        let mut moved = [[0; BYTES]; LANES];
        let first = self.stamp(around, 0);
        if space == Space::Shared {
            self.banks(at, mask, BYTES, around)?;
            for lane in each(mask) {
                let found = around.shared.read(at[lane], first.of(lane));
                moved[lane] = found.map_err(|(kind, what)| Trouble::new(kind, lane, what))?;
            }
        } else {
            for lane in each(mask) {
                let now = Moment { stamp: first.of(lane), ended: around.at.earlier, learnt: around.order.learnt() };
                let found = around.memory.read(at[lane], now);
                moved[lane] = found.map_err(|(kind, what)| Trouble::new(kind, lane, what))?;
            }
        }
        for (i, to) in to.iter().enumerate() {
            let numbers = match word.bytes {
                1 => numbers::<1, BYTES>(&moved, word, i),
                2 => numbers::<2, BYTES>(&moved, word, i),
                4 => numbers::<4, BYTES>(&moved, word, i),
                _ => numbers::<8, BYTES>(&moved, word, i),
            };
            self.put(*to, mask, &numbers);
        }
        Ok(())
    }

    pub(super) fn store(
        &mut self,
        (space, word): (Space, Word),
        from: &[Source],
        at: &Address,
        mask: u32,
        around: &mut Surroundings,
    ) -> Result<(), Trouble> {
        let at = self.addresses(at, mask)?;
        with_bytes!(word.bytes * from.len(), self.store_bytes((space, word), from, &at, mask, around))
    }

    fn store_bytes<const BYTES: usize>(
        &mut self,
        (space, word): (Space, Word),
        from: &[Source],
        at: &Lanes,
        mask: u32,
        around: &mut Surroundings,
    ) -> Result<(), Trouble> {
        if space == Space::Shared {
            self.banks(at, mask, BYTES, around)?;
        }
        let mut moved = [[0; BYTES]; LANES];
        for (i, source) in from.iter().enumerate() {
            let values = self.value(source, mask)?;
            match word.bytes {
                1 => put_numbers::<1, BYTES>(values, i, &mut moved),
                2 => put_numbers::<2, BYTES>(values, i, &mut moved),
                4 => put_numbers::<4, BYTES>(values, i, &mut moved),
                _ => put_numbers::<8, BYTES>(values, i, &mut moved),
            }
        }
        let first = self.stamp(around, 0);
        for lane in each(mask) {
            let stamp = first.of(lane);
            let done = match space {
                Space::Shared => around.shared.write(at[lane], &moved[lane], stamp),
                Space::Global => {
                    let now = Moment { stamp, ended: around.at.earlier, learnt: around.order.learnt() };
                    around.memory.write(at[lane], &moved[lane], now)
                }
            };
            done.map_err(|(kind, what)| Trouble::new(kind, lane, what))?;
        }
        Ok(())
    }

    /// Atomic additions, lane by lane.
    pub(super) fn add(
        &mut self,
        to: Register,
        at: &Address,
        from: &Source,
        mask: u32,
        around: &mut Surroundings,
    ) -> Result<(), Trouble> {
        let values = self.value(from, mask)?;
        let at = self.addresses(at, mask)?;
        let mut results = [0; LANES];
        for lane in each(mask) {
            let stamp = self.stamp(around, lane);
            let now = Moment { stamp, ended: around.at.earlier, learnt: around.order.learnt() };
            let found = around.memory.add(at[lane], values[lane] as u32, now);
            let before = found.map_err(|(kind, what)| Trouble::new(kind, lane, what))?;
            around.order.meet(at[lane], stamp);
            results[lane] = before.into();
        }
        self.put(to, mask, &results);
        Ok(())
    }

    pub(super) fn copy(
        &mut self,
        bytes: usize,
        (to, from): (&Address, &Address),
        read: &Source,
        mask: u32,
        around: &mut Surroundings,
    ) -> Result<(), Trouble> {
        let (to, from) = (self.addresses(to, mask)?, self.addresses(from, mask)?);
        self.banks(&to, mask, bytes, around)?;
        let read = *self.value(read, mask)?;
        let first = self.stamp(around, 0);
        for lane in each(mask) {
            let stamp = first.of(lane);
            let wanted = (read[lane] as u32 as usize).min(bytes);
            let trouble = |(kind, what)| Trouble::new(kind, lane, what);
            let mut data = [0; 16];
            // Bytes that are not read may lie anywhere.
            if wanted > 0 {
                let now = Moment { stamp, ended: around.at.earlier, learnt: around.order.learnt() };
                let memory = &mut around.memory;
                match bytes {
                    4 => data[..4].copy_from_slice(&memory.read::<4>(from[lane], now).map_err(trouble)?),
                    8 => data[..8].copy_from_slice(&memory.read::<8>(from[lane], now).map_err(trouble)?),
                    _ => data = memory.read(from[lane], now).map_err(trouble)?,
                }
                data[wanted..].fill(0);
            }
            self.copies[lane].begin(around.shared, to[lane], (data, bytes), stamp).map_err(trouble)?;
        }
        Ok(())
    }
}
