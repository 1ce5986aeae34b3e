//! Shared memory of a block, its banks, and copies that are on their way into it.

use std::collections::VecDeque;

use super::fault::Kind;
use super::scalar::{LANES, Lanes, each};
use super::shadow::{Shadow, Stamp};

/// Banks, each four bytes wide.
const BANKS: usize = 32;

/// Shared memory.
#[derive(Debug)]
pub(super) struct Shared {
    bytes: Vec<u8>,
    shadow: Shadow,
}

type Found<T> = Result<T, (Kind, String)>;

impl Shared {
    pub(super) fn new(bytes: usize) -> Shared {
        Shared { bytes: vec![0xff; bytes], shadow: Shadow::new(bytes, false) }
    }

    /// Nobody has written anything: a block begins.
    pub(super) fn clear(&mut self) {
        self.bytes.fill(0xff);
        self.shadow.clear();
    }

    #[inline(always)]
    fn check(&self, address: u64, bytes: usize) -> Found<usize> {
        let all = self.bytes.len() as u64;
        if !address.is_multiple_of(bytes as u64) || address > all || all - address < bytes as u64 {
            return Err(outside(address, bytes, all));
        }
        Ok(address as usize)
    }

    #[inline(always)]
    pub(super) fn read<const BYTES: usize>(&mut self, address: u64, now: Stamp) -> Found<[u8; BYTES]> {
        let at = self.check(address, BYTES)?;
        self.shadow.read(at, BYTES, now)?;
        let mut found = [0; BYTES];
        found.copy_from_slice(&self.bytes[at..at + BYTES]);
        Ok(found)
    }

    #[inline(always)]
    pub(super) fn write<const BYTES: usize>(&mut self, address: u64, bytes: &[u8; BYTES], now: Stamp) -> Found<()> {
        let at = self.check(address, BYTES)?;
        self.shadow.write(at, BYTES, now)?;
        self.bytes[at..at + BYTES].copy_from_slice(bytes);
        Ok(())
    }

    /// Begins a copy: until its end the bytes are those of NaN and may not be used.
    fn begin(&mut self, copy: &Copy, now: Stamp) -> Found<()> {
        let at = self.check(copy.to, copy.bytes)?;
        self.shadow.begin_copy(at, copy.bytes, now)?;
        self.bytes[at..at + copy.bytes].fill(0xff);
        Ok(())
    }

    fn end(&mut self, copy: &Copy, now: Stamp) {
        let (at, bytes) = (copy.to as usize, copy.bytes);
        self.bytes[at..at + bytes].copy_from_slice(&copy.data[..bytes]);
        self.shadow.end_copy(at, bytes, now);
    }
}

/// The reason why an access finds no place in `all` bytes.
#[cold]
fn outside(address: u64, bytes: usize, all: u64) -> (Kind, String) {
    if !address.is_multiple_of(bytes as u64) {
        return (Kind::Misaligned, format!("shared address {address:#x} for {bytes} bytes"));
    }
    (Kind::OutOfBounds, format!("{bytes} bytes at {address} of {all} bytes of shared memory"))
}

/// A copy under way.
#[derive(Debug)]
struct Copy {
    to: u64,
    bytes: usize,
    data: [u8; 16],
}

/// The copies of one thread, in groups.
#[derive(Default, Debug)]
pub(super) struct Copies {
    /// Those under way, the oldest first.
    copies: VecDeque<Copy>,
    /// How many of them each closed group has; the others are in none yet.
    groups: VecDeque<usize>,
    open: usize,
}

impl Copies {
    /// Nothing is under way.
    pub(super) fn clear(&mut self) {
        self.copies.clear();
        self.groups.clear();
        self.open = 0;
    }

    pub(super) fn begin(
        &mut self,
        shared: &mut Shared,
        to: u64,
        (data, bytes): ([u8; 16], usize),
        now: Stamp,
    ) -> Found<()> {
        let copy = Copy { to, bytes, data };
        shared.begin(&copy, now)?;
        self.copies.push_back(copy);
        self.open += 1;
        Ok(())
    }

    /// Closes the group of the copies that began since the last time; it may be empty.
    pub(super) fn commit(&mut self) {
        self.groups.push_back(std::mem::take(&mut self.open));
    }

    /// Lets copies arrive until only the `left` newest groups are under way.
    pub(super) fn wait(&mut self, shared: &mut Shared, left: usize, now: Stamp) {
        while self.groups.len() > left {
            let count = self.groups.pop_front().unwrap_or(0);
            self.copies.drain(..count).for_each(|copy| shared.end(&copy, now));
        }
    }

    /// Lets all copies arrive.
    pub(super) fn wait_all(&mut self, shared: &mut Shared, now: Stamp) {
        self.commit();
        self.wait(shared, 0, now);
    }
}

/// How many wavefronts the worst phase of an access takes, given the addresses of the lanes of `mask`. Lanes that ask for
/// 16 bytes go eight at a time, for 8 bytes sixteen, else all together; within a phase, each bank gives one dword to any
/// number of lanes.
pub(super) fn wavefronts(at: &Lanes, mask: u32, bytes: usize) -> usize {
    let together = match bytes {
        16 => 8,
        8 => 16,
        _ => 32,
    };
    let phase = |first: usize| mask & (u32::MAX >> (LANES - together)) << first;
    (0..LANES).step_by(together).map(|first| wavefronts_of(at, phase(first), bytes)).max().unwrap_or(0)
}

/// The same of one phase.
fn wavefronts_of(at: &Lanes, mask: u32, bytes: usize) -> usize {
    let dwords = bytes.div_ceil(4) as u64;
    // The dword that each bank gives, as long as none gives two.
    let mut given = [u64::MAX; BANKS];
    for lane in each(mask) {
        for dword in at[lane] / 4..at[lane] / 4 + dwords {
            let given = &mut given[dword as usize % BANKS];
            if *given != u64::MAX && *given != dword {
                return conflicts(at, mask, dwords);
            }
            *given = dword;
        }
    }
    usize::from(mask != 0)
}

/// The same where some bank gives several dwords.
#[cold]
fn conflicts(at: &Lanes, mask: u32, dwords: u64) -> usize {
    let mut all: Vec<u64> = each(mask).flat_map(|lane| (0..dwords).map(move |d| at[lane] / 4 + d)).collect();
    all.sort_unstable();
    all.dedup();
    let mut banks = [0; BANKS];
    for dword in all {
        banks[dword as usize % BANKS] += 1;
    }
    banks.into_iter().max().unwrap_or(0)
}
