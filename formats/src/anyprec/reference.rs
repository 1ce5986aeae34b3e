//! The packing of the reference's checkpoints, made for its GPU kernel.
//!
//! A plane of a row has one bit per weight, the first weight in the upper bit of a byte. The bytes of each
//! 128, or what is left at the end, are then reordered so that a thread's 32-bit word holds 8 weights of each
//! quarter: with `q` a quarter of the bytes, byte `o` goes to `4 (o mod q) + (⌊o / q⌋ xor 3)`.

/// Bytes that are reordered together.
const CHUNK: usize = 128;

/// Where byte `o` of a chunk of `len` bytes goes.
fn place(o: usize, len: usize) -> usize {
    let quarter = len / 4;
    4 * (o % quarter) + ((o / quarter) ^ 3)
}

/// The codes of a matrix from the reference's `qweight`: `bits` planes of `rows` rows of `columns / 32` words of 32
/// bits, little-endian. `None` when `columns` is no multiple of 32 or the number of bytes differs.
pub fn unpack_reference(qweight: &[u8], bits: usize, rows: usize, columns: usize) -> Option<Vec<u8>> {
    let row_bytes = columns / 8;
    let plane_bytes = row_bytes.checked_mul(rows)?;
    let fits = columns.is_multiple_of(32) && (1..=8).contains(&bits);
    if !fits || plane_bytes.checked_mul(bits)? != qweight.len() {
        return None;
    }
    let mut codes = vec![0u8; plane_bytes * 8];
    if codes.is_empty() {
        return Some(codes);
    }
    for plane in qweight.chunks_exact(plane_bytes) {
        let rows = plane.chunks_exact(row_bytes);
        for (row, codes) in rows.zip(codes.chunks_exact_mut(columns)) {
            for (chunk, codes) in row.chunks(CHUNK).zip(codes.chunks_mut(8 * CHUNK)) {
                for (o, codes) in codes.chunks_exact_mut(8).enumerate() {
                    let byte = chunk[place(o, chunk.len())];
                    for (i, code) in codes.iter_mut().enumerate() {
                        *code = *code << 1 | byte >> (7 - i) & 1;
                    }
                }
            }
        }
    }
    Some(codes)
}

/// Packs the codes of a matrix as the reference does. `None` when `columns` is no multiple of 32.
pub fn pack_reference(codes: &[u8], bits: usize, columns: usize) -> Option<Vec<u8>> {
    let fits = columns.is_multiple_of(32) && columns > 0 && (1..=8).contains(&bits);
    if !fits || !codes.len().is_multiple_of(columns) {
        return None;
    }
    let mut out = Vec::with_capacity(bits * codes.len() / 8);
    for p in 0..bits {
        for row in codes.chunks_exact(columns) {
            for codes in row.chunks(8 * CHUNK) {
                let start = out.len();
                let len = codes.len() / 8;
                out.resize(start + len, 0);
                for (o, codes) in codes.chunks_exact(8).enumerate() {
                    let bit = |byte: u8, code: &u8| byte << 1 | code >> (bits - 1 - p) & 1;
                    out[start + place(o, len)] = codes.iter().fold(0, bit);
                }
            }
        }
    }
    Some(out)
}
