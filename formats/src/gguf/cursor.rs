//! A bounds-checked reader over the bytes of a file, and the memory budget of what is read.

use super::error::{ErrorKind, Unnamed};

/// Limits of a header's size. The defaults fit every published model and keep a hostile file small.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Bytes of memory for metadata and tensor table together, bookkeeping included.
    pub memory: u64,
    /// Largest `general.alignment`.
    pub alignment: u64,
    /// Longest metadata key in bytes; GGUF's own limit is 65535.
    pub key: u64,
    /// Accept a file whose data ends early; the header must be whole. A [`ModelFile`](super::ModelFile)
    /// of it has no data for the tensors that are not all there.
    pub partial: bool,
}

impl Default for Limits {
    fn default() -> Self {
        Limits { memory: 60 << 20, alignment: 1 << 16, key: u16::MAX as u64, partial: false }
    }
}

/// Position in a byte slice plus the memory that may still be allocated for what is read from it.
pub(crate) struct Cursor<'a> {
    bytes: &'a [u8],
    pos: usize,
    memory: u64,
}

impl<'a> Cursor<'a> {
    pub fn new(bytes: &'a [u8], memory: u64) -> Self {
        Cursor { bytes, pos: 0, memory }
    }

    /// Offset of the next byte.
    pub fn pos(&self) -> u64 {
        self.pos as u64
    }

    /// Bytes after the position.
    pub fn left(&self) -> u64 {
        (self.bytes.len() - self.pos) as u64
    }

    /// An error at the position.
    pub fn err<T>(&self, kind: ErrorKind) -> Result<T, Unnamed> {
        Err(Unnamed { offset: self.pos(), kind })
    }

    /// The next `n` bytes.
    pub fn take(&mut self, n: u64) -> Result<&'a [u8], Unnamed> {
        if n > self.left() {
            return self.err(ErrorKind::Truncated { need: n, left: self.left() });
        }
        let start = self.pos;
        self.pos += n as usize;
        Ok(&self.bytes[start..self.pos])
    }

    /// The next `N` bytes as an array.
    pub fn array<const N: usize>(&mut self) -> Result<[u8; N], Unnamed> {
        let mut out = [0; N];
        out.copy_from_slice(self.take(N as u64)?);
        Ok(out)
    }

    pub fn u32(&mut self) -> Result<u32, Unnamed> {
        Ok(u32::from_le_bytes(self.array()?))
    }

    pub fn u64(&mut self) -> Result<u64, Unnamed> {
        Ok(u64::from_le_bytes(self.array()?))
    }

    /// A string: length, then bytes; longer than `max` is an error.
    pub fn string(&mut self, max: u64) -> Result<&'a [u8], Unnamed> {
        let start = self.pos;
        let len = self.u64()?;
        if len > max.min(self.left()) {
            let left = self.left();
            self.pos = start;
            return self.err(if len > left {
                ErrorKind::Truncated { need: len, left }
            } else {
                ErrorKind::TooLong { len, max }
            });
        }
        self.take(len)
    }

    /// A count of entries that take at least `entry` bytes each in what is left of the file.
    pub fn count(&mut self, entry: u64) -> Result<u64, Unnamed> {
        let start = self.pos;
        let count = self.u64()?;
        let (left, max) = (self.left(), self.left() / entry);
        if count > max {
            self.pos = start;
            return self.err(ErrorKind::Count { count, left, max });
        }
        Ok(count)
    }

    /// Takes `need` bytes from the memory budget, before they are allocated.
    pub fn charge(&mut self, need: u64) -> Result<(), Unnamed> {
        if need > self.memory {
            return self.err(ErrorKind::Memory { need, left: self.memory });
        }
        self.memory -= need;
        Ok(())
    }

    /// The same position again, to read ahead.
    pub fn fork(&self) -> Self {
        Cursor { bytes: self.bytes, pos: self.pos, memory: self.memory }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_count_is_refused_where_it_stands_if_the_rest_cannot_hold_it() {
        let file = |count: u64| [&count.to_le_bytes()[..], &[0; 8]].concat();
        assert_eq!(Cursor::new(&file(2), 0).count(4).ok(), Some(2));
        let refused = Cursor::new(&file(3), 0).count(4).unwrap_err();
        assert_eq!(refused.offset, 0);
        assert!(matches!(refused.kind, ErrorKind::Count { count: 3, left: 8, max: 2 }));
    }
}
