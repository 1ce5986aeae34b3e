//! Whole numbers of a few bits, packed into words of 32, the first in the lowest bits.

/// How many numbers of `bits` bits a word holds.
pub fn per_word(bits: u32) -> u64 {
    u64::from(32 / bits)
}

/// Number `n` of the word that begins at byte `4 * word`.
pub fn code(bytes: &[u8], word: usize, n: u32, bits: u32) -> i32 {
    let at = &bytes[4 * word..4 * word + 4];
    let word = u32::from_le_bytes([at[0], at[1], at[2], at[3]]);
    (word >> (n * bits) & ((1 << bits) - 1)) as i32
}

/// Where AWQ has the number of each of eight columns in a word.
pub const AWQ_PLACE: [u32; 8] = [0, 4, 1, 5, 2, 6, 3, 7];
