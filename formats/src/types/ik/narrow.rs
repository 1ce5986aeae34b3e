//! The types with blocks of 32 weights, and plain bytes.

use super::super::codebook::IQ1;
use super::super::k_block::BLOCK as WIDEST;

/// Codes that are signed bytes.
pub(super) fn bytes(codes: &[u8], out: &mut [i8; WIDEST]) {
    for (y, code) in out.iter_mut().zip(codes) {
        *y = *code as i8;
    }
}

/// Q6_0: six bits, of which the upper two stand apart, less 32.
pub(super) fn q6_0(b: &[u8], out: &mut [i8; WIDEST]) {
    for j in 0..16 {
        let (low, upper) = (b[10 + j], b[2 + j % 8] >> (4 * (j / 8)));
        out[j] = (low & 15 | (upper & 3) << 4) as i8 - 32;
        out[j + 16] = (low >> 4 | (upper >> 2 & 3) << 4) as i8 - 32;
    }
}

/// Writes four points of the codebook of IQ1_S in eighths, each moved down by one where `down` is set and up otherwise.
fn points(out: &mut [i8; WIDEST], point: impl Fn(usize) -> (u16, bool)) {
    for (m, out) in out.as_chunks_mut::<8>().0.iter_mut().enumerate().take(4) {
        let (place, down) = point(m);
        let moved = if down { -1 } else { 1 };
        *out = IQ1[usize::from(place)].map(|v| 8 * v + moved);
    }
}

/// The word behind the bytes of four points: their upper bits, the scale, the direction of the shift.
fn word(b: &[u8]) -> u16 {
    u16::from_le_bytes([b[4], b[5]])
}

/// The scale of a block of IQ1_S_R4.
pub(super) fn iq1_s_scale(b: &[u8], _: usize) -> i32 {
    i32::from(2 * (word(b) >> 12 & 7) + 1)
}

/// A row's part of IQ1_S_R4.
pub(super) fn iq1_s(b: &[u8], out: &mut [i8; WIDEST]) {
    let upper = word(b);
    points(out, |m| (u16::from(b[m]) | (upper >> (3 * m) & 7) << 8, upper & 0x8000 != 0));
}

/// The scale of half a block of IQ1_M_R4.
pub(super) fn iq1_m_scale(b: &[u8], g: usize) -> i32 {
    i32::from(b[6] >> (4 * g) & 15)
}

/// A row's part of IQ1_M_R4.
pub(super) fn iq1_m(b: &[u8], out: &mut [i8; WIDEST]) {
    points(out, |m| {
        let upper = b[4 + m / 2] >> (4 * (m % 2));
        (u16::from(b[m]) | u16::from(upper & 7) << 8, upper & 8 != 0)
    });
}
