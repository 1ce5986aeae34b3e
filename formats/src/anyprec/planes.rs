//! Bit planes: the codes of a row, one bit of each to a plane.

/// Words of 64 bits in a plane of a row.
pub fn words(columns: usize) -> usize {
    columns.div_ceil(64)
}

/// Puts the codes of a row into its planes, each of `8 · words(codes.len())` bytes: the first plane gets the
/// leading of `planes.len()` bits.
pub fn pack_row(codes: &[u8], planes: &mut [&mut [u8]]) {
    let bits = planes.len();
    for (p, plane) in planes.iter_mut().enumerate() {
        let shift = bits - 1 - p;
        let (bytes, pad) = plane.split_at_mut(codes.len().div_ceil(8));
        for (byte, codes) in bytes.iter_mut().zip(codes.chunks(8)) {
            let mut eight = [0; 8];
            eight[..codes.len()].copy_from_slice(codes);
            *byte = gather(u64::from_le_bytes(eight) >> shift);
        }
        pad.fill(0);
    }
}

/// The lowest bits of eight bytes as one byte, the first byte's lowest.
fn gather(bytes: u64) -> u8 {
    // each bit is moved to a place of its own in the upper byte
    ((bytes & 0x0101_0101_0101_0101).wrapping_mul(0x0102_0408_1020_4080) >> 56) as u8
}

/// The codes of a row of which the first `planes.len()` planes are given: the leading bits of each code.
pub fn unpack_row(planes: &[&[u8]], codes: &mut [u8]) {
    codes.fill(0);
    for plane in planes {
        for (codes, byte) in codes.chunks_mut(8).zip(*plane) {
            for (i, code) in codes.iter_mut().enumerate() {
                *code = *code << 1 | byte >> i & 1;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bits_go_where_the_layout_says() {
        for columns in [1, 7, 8, 63, 64, 65, 96, 576, 608] {
            for bits in 1..=8usize {
                let codes: Vec<u8> = (0..columns).map(|i| (i * 37 + i / 5) as u8 & (0xff >> (8 - bits))).collect();
                let bytes = 8 * words(columns);
                let mut planes = vec![vec![0xaa; bytes]; bits];
                let mut places: Vec<&mut [u8]> = planes.iter_mut().map(|p| &mut p[..]).collect();
                pack_row(&codes, &mut places);
                for (p, plane) in planes.iter().enumerate() {
                    let (words, []) = plane.as_chunks::<8>() else { panic!("half a word") };
                    for i in 0..64 * words.len() {
                        let bit = u64::from_le_bytes(words[i / 64]) >> (i % 64) & 1;
                        let code = codes.get(i).copied().unwrap_or(0);
                        assert_eq!(bit, u64::from(code >> (bits - 1 - p) & 1));
                    }
                }
                for width in 1..=bits {
                    let some: Vec<&[u8]> = planes[..width].iter().map(|p| &p[..]).collect();
                    let mut got = vec![0xff; columns];
                    unpack_row(&some, &mut got);
                    let want = codes.iter().map(|c| c >> (bits - width));
                    assert!(got.into_iter().eq(want), "{columns} {bits} {width}");
                }
            }
        }
    }
}
