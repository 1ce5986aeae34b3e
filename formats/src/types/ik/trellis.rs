//! The trellis types: eight or four weights are the first numbers of a sequence, of which a block holds the seeds.

use super::super::k_block::BLOCK as WIDEST;

/// The least seed of all groups.
const FIRST_SEED: u32 = 4096;

/// The next number of a sequence: -126 to 126.
#[inline]
fn next(x: &mut u32) -> i8 {
    *x = x.wrapping_mul(0xCBAC_1FED);
    let sum: i32 = (*x & 0x3F3F_3F3F).to_le_bytes().into_iter().map(i32::from).sum();
    (sum - 126) as i8
}

/// Writes the sequences of groups of `N` weights.
#[inline(always)]
fn sequences<const N: usize>(out: &mut [i8; WIDEST], seed: impl Fn(usize) -> u32) {
    for (n, out) in out.as_chunks_mut::<N>().0.iter_mut().enumerate() {
        let mut x = FIRST_SEED + seed(n);
        out.iter_mut().for_each(|y| *y = next(&mut x));
    }
}

/// Seeds of 13 bits: bytes, then nibbles from byte 40 on, then bits beside the scales.
pub(super) fn iq1_kt(b: &[u8], out: &mut [i8; WIDEST]) {
    sequences::<8>(out, |n| {
        let (low, middle) = (b[8 + n], b[40 + n % 16] >> (4 * (n / 16)) & 15);
        u32::from(low) | u32::from(middle) << 8 | u32::from(b[n / 4] >> (4 + n % 4) & 1) << 12
    });
}

fn word(b: &[u8], n: usize) -> u32 {
    u32::from(u16::from_le_bytes([b[4 + 2 * n], b[5 + 2 * n]]))
}

/// Seeds of 16 bits.
pub(super) fn iq2_kt(b: &[u8], out: &mut [i8; WIDEST]) {
    sequences::<8>(out, |n| word(b, n));
}

/// The magnitudes of [`iq2_kt`], with signs of their own.
pub(super) fn iq3_kt(b: &[u8], out: &mut [i8; WIDEST]) {
    iq2_kt(b, out);
    for (w, y) in out.iter_mut().enumerate() {
        *y = if iq3_kt_sign(b, w) { -y.abs() } else { y.abs() };
    }
}

/// Tells whether a weight of IQ3_KT is negative.
pub(super) fn iq3_kt_sign(b: &[u8], w: usize) -> bool {
    b[68 + w % 32] >> (w / 32) & 1 == 1
}

/// The 32 bits beside the seeds of 32 weights: one bit more of their seeds, the scale, three bits of each seed.
fn beside(b: &[u8], g: usize) -> u32 {
    u32::from_le_bytes([b[4 * g], b[4 * g + 1], b[4 * g + 2], b[4 * g + 3]])
}

/// The scale of a group of IQ4_KT.
pub(super) fn iq4_kt_scale(b: &[u8], g: usize) -> i32 {
    (beside(b, g) >> 1 & 127) as i32 - 64
}

/// Seeds of 16 bits for four weights each.
pub(super) fn iq4_kt(b: &[u8], out: &mut [i8; WIDEST]) {
    sequences::<4>(out, |n| {
        let more = beside(b, n / 8);
        let low = u32::from(b[32 + n]) | u32::from(b[96 + n % 32] >> (4 * (n / 32)) & 15) << 8;
        low | (more >> (8 + 3 * (n % 8)) & 7) << 12 | (more & 1) << 15
    });
}
