//! IQ2_S: eight weights as one of 1024 points, a sign for each weight, and a 4-bit scale for each 16.
//!
//! ```text
//! byte   0        2          34            66        74          82
//!        | d: f16 | qs: 32 B | signs: 32 B | qh: 8 B | scales: 8 |
//! weights 8 l .. 8 l + 7: low 8 bits of the place in the codebook = qs[l],
//!                         high 2 bits = 2-bit field l % 4 of qh[l / 4], signs = the bits of signs[l] (1: negative)
//! scales[g]  : low nibble = s of weights 32 g .. 32 g + 15, high nibble = s of the 16 after them
//! x          = d * (0.5 + s) / 4 * magnitude * sign
//! ```

use std::sync::OnceLock;

use super::codebook::{self, Again, BlockFit, Codebook, Kind, Unpacked, grids, scale_code};
use super::k_block::BLOCK;
use super::lanes::{Portable, Simd};
use super::num::put_f16;
use super::{Field, Format, Part, TypeId, TypeInfo};

const BYTES: usize = 82;
const SIZE: usize = 16;
const GROUPS: usize = BLOCK / SIZE;
const CODES: usize = 2;
const SIGNS: usize = CODES + BLOCK / 8;
const HIGH: usize = SIGNS + BLOCK / 8;
const SCALES: usize = HIGH + BLOCK / 32;
const _: () = assert!(SCALES + GROUPS / 2 == BYTES);

/// The registry's entry.
pub const INFO: TypeInfo = TypeInfo {
    id: TypeId::IQ2_S,
    name: "iq2_s",
    block: BLOCK,
    bytes: BYTES,
    fields: &[
        Field::new(Part::Scale, Format::F16, 0),
        Field::new(Part::Codes, Format::Bits, CODES),
        Field::new(Part::Signs, Format::Bits, SIGNS),
        Field::new(Part::HighBits, Format::Bits, HIGH),
        Field::new(Part::GroupScales, Format::Bits, SCALES),
    ],
    head: 0,
    codebook: None,
    act: Some(TypeId::Q8_K),
    decode: Some(decode),
    encode: Some(encode),
    dot_ref: Some(dot_ref),
};

fn unpack(block: &[u8; BYTES]) -> Unpacked<GROUPS> {
    let mut unpacked = Unpacked::new();
    for l in 0..BLOCK / 8 {
        let high = usize::from(block[HIGH + l / 4]) >> (2 * (l % 4)) & 3;
        let place = usize::from(block[CODES + l]) | high << 8;
        unpacked.put(l, &codebook::IQ2_S[place], block[SIGNS + l]);
    }
    unpacked.scales = codebook::scale_nibbles(&block[SCALES..]);
    unpacked
}

fn decode(row: &[u8], out: &mut [f32]) {
    codebook::decode(row, out, unpack, |d, s| d * (0.5 + s) * 0.25);
}

fn dot_ref(w: &[u8], act: &[u8]) -> f32 {
    0.125 * codebook::dot(w, act, unpack)
}

fn kind() -> &'static Kind<8> {
    static KIND: OnceLock<Kind<8>> = OnceLock::new();
    KIND.get_or_init(|| Kind {
        book: Codebook::new(&grids::IQ2_S, 2, 1),
        top: 2,
        tries: 9,
        step: 0.1,
        even_signs: false,
        zero_below: 1e-8,
        sigma: 2.0,
        plain_weight: |x, sigma2| 0.25 * sigma2 + x * x,
        fitted_start: false,
        again: Again::Missed,
    })
}

fn encode(x: &[f32], importance: Option<&[f32]>, row: &mut [u8]) {
    encode_on(Portable, x, importance, row);
}

/// `INFO`'s `encode` on an instruction set.
#[inline(always)]
pub fn encode_on<S: Simd>(simd: S, x: &[f32], importance: Option<&[f32]>, row: &mut [u8]) {
    codebook::encode(simd, kind(), (x, importance, row), encode, write);
}

/// Points and signs are written also where all scales are zero, as the reference does.
fn write(fit: &BlockFit<GROUPS>, block: &mut [u8; BYTES]) {
    block.fill(0);
    for l in 0..BLOCK / 8 {
        let (g, k) = (l / 2, l % 2);
        let point = fit.points[g][k];
        block[CODES + l] = point as u8;
        block[HIGH + l / 4] |= ((point >> 8) as u8) << (2 * (l % 4));
        block[SIGNS + l] = fit.signs[g][k];
    }
    if fit.largest == 0.0 {
        return;
    }
    let d = fit.largest / 31.0;
    // The factor is ggml's: points are found with scales that are a little too large.
    put_f16(block, 0, d * 0.9875);
    let inverse = 1.0 / d;
    for (g, scale) in fit.scales.iter().enumerate() {
        block[SCALES + g / 2] |= scale_code(inverse, *scale, 15) << (4 * (g % 2));
    }
}
