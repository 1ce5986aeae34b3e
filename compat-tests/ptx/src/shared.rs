//! Shared memory of a block, its banks, and copies that are on their way into it.

use std::collections::VecDeque;

use super::fault::Kind;
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

    fn check(&self, address: u64, bytes: usize) -> Found<usize> {
        if !address.is_multiple_of(bytes as u64) {
            let what = format!("shared address {address:#x} for {bytes} bytes");
            return Err((Kind::Misaligned, what));
        }
        let all = self.bytes.len() as u64;
        if address > all || all - address < bytes as u64 {
            let what = format!("{bytes} bytes at {address} of {all} bytes of shared memory");
            return Err((Kind::OutOfBounds, what));
        }
        Ok(address as usize)
    }

    pub(super) fn read(&mut self, address: u64, bytes: usize, now: Stamp) -> Found<&[u8]> {
        let at = self.check(address, bytes)?;
        self.shadow.read(at, bytes, now)?;
        Ok(&self.bytes[at..at + bytes])
    }

    pub(super) fn write(&mut self, address: u64, bytes: &[u8], now: Stamp) -> Found<()> {
        let at = self.check(address, bytes.len())?;
        self.shadow.write(at, bytes.len(), now)?;
        self.bytes[at..at + bytes.len()].copy_from_slice(bytes);
        Ok(())
    }

    /// Begins a copy: until its end the bytes are those of NaN and may not be used.
    fn begin(&mut self, copy: &Copy, now: Stamp) -> Found<()> {
        let at = self.check(copy.to, copy.bytes.len())?;
        self.shadow.begin_copy(at, copy.bytes.len(), now)?;
        self.bytes[at..at + copy.bytes.len()].fill(0xff);
        Ok(())
    }

    fn end(&mut self, copy: &Copy, now: Stamp) {
        let (at, bytes) = (copy.to as usize, &copy.bytes);
        self.bytes[at..at + bytes.len()].copy_from_slice(bytes);
        self.shadow.end_copy(at, bytes.len(), now);
    }
}

/// A copy under way.
#[derive(Debug)]
struct Copy {
    to: u64,
    bytes: Vec<u8>,
}

/// The copies of one thread, in groups.
#[derive(Default, Debug)]
pub(super) struct Copies {
    open: Vec<Copy>,
    groups: VecDeque<Vec<Copy>>,
}

impl Copies {
    pub(super) fn begin(&mut self, shared: &mut Shared, to: u64, bytes: Vec<u8>, now: Stamp) -> Found<()> {
        let copy = Copy { to, bytes };
        shared.begin(&copy, now)?;
        self.open.push(copy);
        Ok(())
    }

    /// Closes the group of the copies that began since the last time; it may be empty.
    pub(super) fn commit(&mut self) {
        self.groups.push_back(std::mem::take(&mut self.open));
    }

    /// Lets copies arrive until only the `left` newest groups are under way.
    pub(super) fn wait(&mut self, shared: &mut Shared, left: usize, now: Stamp) {
        while self.groups.len() > left {
            for copy in self.groups.pop_front().into_iter().flatten() {
                shared.end(&copy, now);
            }
        }
    }

    /// Lets all copies arrive.
    pub(super) fn wait_all(&mut self, shared: &mut Shared, now: Stamp) {
        self.commit();
        self.wait(shared, 0, now);
    }
}

/// How many wavefronts the worst phase of an access takes, given the addresses of the lanes that take part, in their
/// order. Lanes that ask for 16 bytes go eight at a time, for 8 bytes sixteen, else all together; within a phase, each
/// bank gives one dword to any number of lanes.
pub(super) fn wavefronts(addresses: &[(usize, u64)], bytes: usize) -> usize {
    let together = match bytes {
        16 => 8,
        8 => 16,
        _ => 32,
    };
    let mut worst = 0;
    for phase in 0..32 / together {
        let lanes = addresses.iter().filter(|(lane, _)| lane / together == phase);
        let mut dwords: Vec<u64> =
            lanes.flat_map(|(_, at)| (0..bytes.div_ceil(4) as u64).map(move |d| at / 4 + d)).collect();
        dwords.sort_unstable();
        dwords.dedup();
        let mut banks = [0; BANKS];
        for dword in dwords {
            banks[dword as usize % BANKS] += 1;
        }
        worst = worst.max(banks.into_iter().max().unwrap_or(0));
    }
    worst
}
