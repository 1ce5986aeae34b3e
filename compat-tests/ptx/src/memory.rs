//! Global memory: buffers that lie far apart.

use super::fault::Kind;
use super::shadow::{Moment, Shadow};

/// Addresses from here on are shared memory seen as generic ones.
pub(super) const WINDOW: u64 = 1 << 60;
/// The distance between the first bytes of two buffers.
const DISTANCE: u64 = 1 << 40;

/// A buffer.
#[derive(Debug)]
struct Range {
    bytes: Vec<u8>,
    /// Shadow of a buffer whose accesses are watched.
    shadow: Option<Shadow>,
    /// Kernels read it alone.
    constant: bool,
}

/// All buffers of a device.
#[derive(Default, Debug)]
pub(super) struct Memory {
    ranges: Vec<Range>,
}

/// Result of an access, or the kind of fault and words.
type Found<T> = Result<T, (Kind, String)>;

impl Memory {
    /// A buffer that kernels read.
    pub(super) fn constant(&mut self, bytes: Vec<u8>) -> usize {
        self.push(bytes, None, true)
    }

    /// A buffer that kernels read and write without being watched, which is faster: races and bytes that nobody wrote
    /// are not found.
    pub(super) fn unwatched(&mut self, bytes: Vec<u8>) -> usize {
        self.push(bytes, None, false)
    }

    fn push(&mut self, bytes: Vec<u8>, shadow: Option<Shadow>, constant: bool) -> usize {
        self.ranges.push(Range { bytes, shadow, constant });
        self.ranges.len() - 1
    }

    /// Takes the bytes of a buffer away: it has none from now on.
    pub(super) fn clear(&mut self, buffer: usize) {
        let range = &mut self.ranges[buffer];
        range.bytes = Vec::new();
        range.shadow = range.shadow.is_some().then(|| Shadow::new(0, true));
    }

    /// The buffer of an address and the place in it.
    pub(super) fn place(&self, address: u64) -> Option<(usize, usize)> {
        let (number, at) = (address / DISTANCE, (address % DISTANCE) as usize);
        let buffer = usize::try_from(number).ok()?.checked_sub(1)?;
        (buffer < self.ranges.len()).then_some((buffer, at))
    }

    /// Copies bytes within a buffer; what nobody wrote stays that.
    pub(super) fn copy(&mut self, buffer: usize, from: usize, to: usize, count: usize) {
        let range = &mut self.ranges[buffer];
        range.bytes.copy_within(from..from + count, to);
        if let Some(shadow) = &mut range.shadow {
            shadow.copy(from, to, count);
        }
    }

    /// A buffer that kernels write. Its bytes count as written when `full`.
    pub(super) fn variable(&mut self, bytes: Vec<u8>, full: bool) -> usize {
        let shadow = Some(Shadow::new(bytes.len(), full));
        self.push(bytes, shadow, false)
    }

    /// The address of a buffer's first byte.
    pub(super) fn address(buffer: usize) -> u64 {
        (buffer as u64 + 1) * DISTANCE
    }

    /// The bytes of a buffer, and the first that was not written.
    pub(super) fn bytes(&self, buffer: usize) -> (&[u8], Option<usize>) {
        let range = &self.ranges[buffer];
        let empty = range.shadow.as_ref().and_then(Shadow::first_empty);
        (&range.bytes, empty)
    }

    /// Writes bytes from outside, which count as written before all launches that follow.
    pub(super) fn fill(&mut self, buffer: usize, at: usize, bytes: &[u8]) {
        let range = &mut self.ranges[buffer];
        range.bytes[at..at + bytes.len()].copy_from_slice(bytes);
        if let Some(shadow) = &mut range.shadow {
            shadow.fill(at, bytes.len());
        }
    }

    /// Some bytes of a buffer, and the first of them that was not written.
    pub(super) fn some(&self, buffer: usize, at: usize, count: usize) -> (&[u8], Option<usize>) {
        let range = &self.ranges[buffer];
        let shadow = range.shadow.as_ref();
        let empty = shadow.and_then(|s| s.first_empty_in(at, count));
        (&range.bytes[at..at + count], empty)
    }

    /// The buffer that holds all of an access, and the place in it.
    #[inline(always)]
    fn find(&self, address: u64, bytes: usize) -> Found<(usize, usize)> {
        let (number, at) = (address / DISTANCE, (address % DISTANCE) as usize);
        let buffer = (number as usize).wrapping_sub(1);
        match self.ranges.get(buffer) {
            Some(range) if at + bytes <= range.bytes.len() && address.is_multiple_of(bytes as u64) => Ok((buffer, at)),
            found => Err(outside(address, bytes, (buffer, at), found)),
        }
    }

    /// Reads bytes, a power of two.
    #[inline(always)]
    pub(super) fn read<const BYTES: usize>(&mut self, address: u64, now: Moment) -> Found<[u8; BYTES]> {
        let (buffer, at) = self.find(address, BYTES)?;
        let range = &mut self.ranges[buffer];
        if let Some(shadow) = &mut range.shadow {
            shadow.read(at, BYTES, now)?;
        }
        let mut found = [0; BYTES];
        found.copy_from_slice(&range.bytes[at..at + BYTES]);
        Ok(found)
    }

    /// Writes a power of two of bytes.
    #[inline(always)]
    pub(super) fn write<const BYTES: usize>(&mut self, address: u64, bytes: &[u8; BYTES], now: Moment) -> Found<()> {
        let ((all, shadow), at) = self.variable_at(address, BYTES)?;
        if let Some(shadow) = shadow {
            shadow.write(at, BYTES, now)?;
        }
        all[at..at + BYTES].copy_from_slice(bytes);
        Ok(())
    }

    /// Adds to 32 bits in one step, and gives what they were.
    pub(super) fn add(&mut self, address: u64, value: u32, now: Moment) -> Found<u32> {
        let ((all, shadow), at) = self.variable_at(address, 4)?;
        if let Some(shadow) = shadow {
            shadow.update(at, 4, now)?;
        }
        let word = &mut all[at..at + 4];
        let before = u32::from_le_bytes([word[0], word[1], word[2], word[3]]);
        word.copy_from_slice(&before.wrapping_add(value).to_le_bytes());
        Ok(before)
    }

    /// The bytes and histories of a buffer that may be written, and the place in it.
    #[inline(always)]
    fn variable_at(&mut self, address: u64, bytes: usize) -> Found<(Variable<'_>, usize)> {
        let (buffer, at) = self.find(address, bytes)?;
        let range = &mut self.ranges[buffer];
        if range.constant {
            let what = format!("buffer {buffer} is only to be read");
            return Err((Kind::OutOfBounds, what));
        }
        Ok(((&mut range.bytes, range.shadow.as_mut()), at))
    }
}

/// The reason why an access finds no place in a buffer.
#[cold]
fn outside(address: u64, bytes: usize, (buffer, at): (usize, usize), range: Option<&Range>) -> (Kind, String) {
    if !address.is_multiple_of(bytes as u64) {
        return (Kind::Misaligned, format!("address {address:#x} for {bytes} bytes"));
    }
    let what = match range {
        Some(range) => format!("{bytes} bytes at {at} of buffer {buffer}, which has {}", range.bytes.len()),
        None => format!("address {address:#x} is in no buffer"),
    };
    (Kind::OutOfBounds, what)
}

/// Bytes that may be written, and their histories where they are watched.
type Variable<'a> = (&'a mut [u8], Option<&'a mut Shadow>);
