//! The facts that a pass is told, on their way to the device.

use crate::program::Program;

/// The bytes that a pass is told, as they are copied.
pub(super) struct Staged<'p> {
    pub program: &'p Program,
    pub tokens: usize,
    pub bytes: Vec<u8>,
}

impl Staged<'_> {
    /// Writes dwords where a memory of the program begins.
    pub fn put(&mut self, memory: usize, dwords: impl Iterator<Item = [u8; 4]>) {
        let at = self.program.staged_at(memory, self.tokens).unwrap_or(0);
        let bytes: Vec<u8> = dwords.flatten().collect();
        self.bytes.resize(self.bytes.len().max(at + bytes.len()), 0);
        self.bytes[at..at + bytes.len()].copy_from_slice(&bytes);
    }
}
