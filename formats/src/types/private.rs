//! Types of single published models, which only the programs made for them read: G8_0, FV5 and FV5B.
//!
//! ```text
//! G8_0   byte 0    2    4    6    8                15
//!             +----+----+----+----+------------------+   code of weight j (0..32): bits 2 (j mod 4),
//!             | d0 | d1 | d2 | d3 |      codes       |   2 (j mod 4) + 1 of byte 8 + j / 4;
//!             +----+----+----+----+------------------+   weight = (code - 1) * d(j / 8), bf16
//!
//! FV5    byte 0    4    8         40        72       103
//!             +----+----+---------+---------+---------+  weight j (0..256): bit j mod 8 of byte j / 8 of each;
//!             | lo | hi | plus    | minus   | high    |  weight = (plus - minus) * (high ? hi : lo), f32
//!             +----+----+---------+---------+---------+
//!
//! FV5B   f32 d, then 256 signed bytes; weight = d * byte
//! ```
//!
//! No source gives an order of sums for them; those here are trine's own.

use super::integers::{Coding, IntegerForm, Sums};
use super::num::bf16_to_f32;
use super::{Field, Format, Part, TypeId, TypeInfo, q8_0, q8_k};

/// G8_0 in the registry: embeddings and output of Pestle.
pub const G8_0: TypeInfo = TypeInfo {
    fields: &[
        Field::new(Part::Scale, Format::Bf16, 0),
        Field::new(Part::Scale, Format::Bf16, 2),
        Field::new(Part::Scale, Format::Bf16, 4),
        Field::new(Part::Scale, Format::Bf16, 6),
        Field::new(Part::Codes, Format::Bits, G8_CODES),
    ],
    act: Some(TypeId::Q8_0),
    decode: Some(decode_g8),
    dot_ref: Some(dot_g8),
    ..TypeInfo::sized(TypeId::G8_0, "g8_0", 32, G8_BYTES)
};
const G8_BYTES: usize = 16;
const G8_CODES: usize = 8;
const _: () = assert!(G8_BYTES == G8_CODES + 32 / 4);

/// FV5 in the registry: five values in a row of Neutrino.
pub const FV5: TypeInfo = TypeInfo {
    fields: &[
        Field::new(Part::Scale, Format::F32, 0),
        Field::new(Part::Scale, Format::F32, 4),
        Field::new(Part::Codes, Format::Bits, PLUS),
    ],
    act: Some(TypeId::Q8_K),
    decode: Some(decode_fv5),
    dot_ref: Some(dot_fv5),
    ..TypeInfo::sized(TypeId::FV5, "fv5", 256, FV5_BYTES)
};
const FV5_BYTES: usize = 104;
const PLUS: usize = 8;
const PLANE: usize = 256 / 8;
const _: () = assert!(FV5_BYTES == PLUS + 3 * PLANE);

/// FV5B in the registry: embeddings and output of Neutrino.
pub const FV5B: TypeInfo = TypeInfo {
    id: TypeId::FV5B,
    name: "fv5b",
    bytes: FV5B_BYTES,
    fields: &[Field::new(Part::Scale, Format::F32, 0), Field::new(Part::Codes, Format::I8, 4)],
    decode: Some(decode_fv5b),
    dot_ref: Some(dot_fv5b),
    ..FV5
};
const FV5B_BYTES: usize = 260;
const _: () = assert!(FV5B_BYTES == size_of::<f32>() + 256);

/// FV5B as integers.
pub(super) const FV5B_INTEGERS: IntegerForm = IntegerForm::new(256, Coding::Bytes, Sums::WHOLE, |_, block, to| {
    to.set(&std::array::from_fn::<_, 256, _>(|j| block[4 + j] as i8), f32_at(block, 0));
});

fn f32_at(block: &[u8], at: usize) -> f32 {
    f32::from_le_bytes([block[at], block[at + 1], block[at + 2], block[at + 3]])
}

/// The scale and the codes of each eight weights.
fn eights(block: &[u8; G8_BYTES]) -> [(f32, [i8; 8]); 4] {
    std::array::from_fn(|i| {
        let d = bf16_to_f32(u16::from_le_bytes([block[2 * i], block[2 * i + 1]]));
        let code = |j: usize| block[G8_CODES + 2 * i + j / 4] >> (2 * (j % 4)) & 3;
        (d, std::array::from_fn(|j| code(j) as i8 - 1))
    })
}

fn decode_g8(row: &[u8], out: &mut [f32]) {
    for (b, y) in row.as_chunks().0.iter().zip(out.as_chunks_mut::<32>().0) {
        for ((d, codes), y) in eights(b).into_iter().zip(y.as_chunks_mut::<8>().0) {
            for (y, code) in y.iter_mut().zip(codes) {
                *y = f32::from(code) * d;
            }
        }
    }
}

/// Per block `t = 0; t += d * isum` for each of its scales, then `acc += dx * t`.
fn dot_g8(w: &[u8], act: &[u8]) -> f32 {
    let mut acc = 0.0f32;
    for (w, x) in w.as_chunks().0.iter().zip(q8_0::blocks(act)) {
        let mut t = 0.0f32;
        for (i, (d, codes)) in eights(w).into_iter().enumerate() {
            let isum: i32 = (0..8).map(|j| i32::from(codes[j]) * q8_0::quant(x, 8 * i + j)).sum();
            t += d * isum as f32;
        }
        acc += q8_0::scale(x) * t;
    }
    acc
}

/// The sign of a weight, and whether its magnitude is the larger of the two.
fn fifth(block: &[u8; FV5_BYTES], j: usize) -> (i32, bool) {
    let bit = |plane: usize| block[PLUS + plane * PLANE + j / 8] >> (j % 8) & 1;
    (i32::from(bit(0)) - i32::from(bit(1)), bit(2) == 1)
}

fn decode_fv5(row: &[u8], out: &mut [f32]) {
    for (b, y) in row.as_chunks().0.iter().zip(out.as_chunks_mut::<256>().0) {
        let (low, high) = (f32_at(b, 0), f32_at(b, 4));
        for (j, y) in y.iter_mut().enumerate() {
            let (sign, is_high) = fifth(b, j);
            *y = sign as f32 * if is_high { high } else { low };
        }
    }
}

/// Per block `acc += dx * (lo * isum of the small weights + hi * isum of the large ones)`.
fn dot_fv5(w: &[u8], act: &[u8]) -> f32 {
    let mut acc = 0.0f32;
    for (w, x) in q8_k::block_pairs(w, act) {
        let mut isum = [0; 2];
        for (j, q) in q8_k::quants(x).iter().enumerate() {
            let (sign, is_high) = fifth(w, j);
            isum[usize::from(is_high)] += sign * i32::from(*q as i8);
        }
        acc += q8_k::scale(x) * (f32_at(w, 0) * isum[0] as f32 + f32_at(w, 4) * isum[1] as f32);
    }
    acc
}

fn decode_fv5b(row: &[u8], out: &mut [f32]) {
    for (b, y) in row.as_chunks::<FV5B_BYTES>().0.iter().zip(out.as_chunks_mut::<256>().0) {
        let d = f32_at(b, 0);
        for (y, code) in y.iter_mut().zip(&b[4..]) {
            *y = d * f32::from(*code as i8);
        }
    }
}

/// Per block `acc += (d * dx) * isum`.
fn dot_fv5b(w: &[u8], act: &[u8]) -> f32 {
    let mut acc = 0.0f32;
    for (w, x) in q8_k::block_pairs::<FV5B_BYTES>(w, act) {
        let products = w[4..].iter().zip(q8_k::quants(x));
        let isum: i32 = products.map(|(code, q)| i32::from(*code as i8) * i32::from(*q as i8)).sum();
        acc += f32_at(w, 0) * q8_k::scale(x) * isum as f32;
    }
    acc
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decoded(info: &TypeInfo, row: &[u8]) -> Vec<f32> {
        let mut y = vec![f32::NAN; info.block];
        info.decode.unwrap()(row, &mut y);
        y
    }

    #[test]
    fn each_eight_of_g8_0_has_its_scale() {
        // 1, -2, 0.5 and 4
        let mut block =
            [0x80, 0x3F, 0x00, 0xC0, 0x00, 0x3F, 0x80, 0x40, 0x55, 0x55, 0x55, 0x55, 0x55, 0x55, 0x55, 0x55];
        (block[8], block[11], block[15]) = (0b00_01_10_11, 0b10_01_01_01, 0b00_01_01_01);
        let y = decoded(&G8_0, &block);
        assert_eq!(y[..4], [2.0, 1.0, 0.0, -1.0]);
        assert_eq!((y[15], y[31], y[30]), (-2.0, -4.0, 0.0));
    }

    #[test]
    fn fv5_has_three_planes_and_two_scales() {
        let mut block = vec![0; FV5_BYTES];
        block[..8].copy_from_slice(&[0, 0, 0, 0x3F, 0, 0, 0x40, 0x40]);
        block[PLUS] = 0b11;
        block[PLUS + PLANE + 31] = 0x81;
        block[PLUS + 2 * PLANE] = 0b10;
        block[PLUS + 2 * PLANE + 31] = 0x80;
        let y = decoded(&FV5, &block);
        assert_eq!((y[0], y[1], y[2], y[248], y[255]), (0.5, 3.0, 0.0, -0.5, -3.0));
        let mut block = vec![0; FV5B_BYTES];
        (block[3], block[4], block[259]) = (0x3F, 0x80, 7);
        assert_eq!((decoded(&FV5B, &block)[0], decoded(&FV5B, &block)[255]), (-64.0, 3.5));
    }
}
