//! Rows that a type of 32-weight blocks holds without rounding.
//!
//! Weights that were whole numbers times a scale once, as those of quantized checkpoints, are so again: scale and codes
//! are not chosen but found, and every value is compared. The type's ordinary encoder would choose another scale, and
//! round.

use half::f16;

use super::block32::{BLOCK, Codes, Fifths, Nibbles};
use super::num::put_f16;
use super::{TypeId, TypeInfo};

/// Finds scales and codes of a row, whose bytes go into `row`.
///
/// # Errors
/// The first column of a block that the type does not hold, or 0 if the type has no such scales (known are Q4_0, Q4_1,
/// Q5_0, Q5_1 and Q8_0) or `row` is not what `x` needs.
pub fn encode(ty: TypeId, x: &[f32], row: &mut [u8]) -> Result<(), usize> {
    let block: fn(&[f32; BLOCK], &mut [u8]) -> bool = match ty {
        TypeId::Q4_0 => scaled::<Nibbles>,
        TypeId::Q5_0 => scaled::<Fifths>,
        TypeId::Q4_1 => shifted::<Nibbles>,
        TypeId::Q5_1 => shifted::<Fifths>,
        TypeId::Q8_0 => bytes,
        _ => return Err(0),
    };
    let size = ty.info().map_or(0, |t: &TypeInfo| t.bytes);
    if size == 0 || !x.len().is_multiple_of(BLOCK) || row.len() != x.len() / BLOCK * size {
        return Err(0);
    }
    let mut blocks = x.as_chunks().0.iter().zip(row.chunks_mut(size));
    blocks.position(|(x, b)| !block(x, b)).map_or(Ok(()), |n| Err(n * BLOCK))
}

/// True if the type is one of those that [`encode`] knows.
pub fn knows(ty: TypeId) -> bool {
    matches!(ty, TypeId::Q4_0 | TypeId::Q4_1 | TypeId::Q5_0 | TypeId::Q5_1 | TypeId::Q8_0)
}

/// The largest scale of 16 bits of which all values are the multiples from `low` to `high`; 0 for zeros.
fn scale(x: &[f32; BLOCK], low: i32, high: i32) -> Option<f32> {
    let least = x.iter().filter(|v| **v != 0.0).fold(f32::INFINITY, |a, v| a.min(v.abs()));
    if least == f32::INFINITY {
        return Some(0.0);
    }
    let fits = |d: f32| d != 0.0 && f16::from_f32(d).to_f32() == d && codes(x, d, low, high).is_some();
    (1..=high.max(-low)).find_map(|n| {
        let d = least / n as f32;
        // a negative scale where there is one multiple more below zero than above
        if d * n as f32 != least { None } else { [d, -d].into_iter().find(|d| fits(*d)) }
    })
}

/// The multiples of `d` that the values are.
fn codes(x: &[f32; BLOCK], d: f32, low: i32, high: i32) -> Option<[i32; BLOCK]> {
    let mut codes = [0; BLOCK];
    for (code, v) in codes.iter_mut().zip(x) {
        let n = if d == 0.0 { 0.0 } else { (v / d).round_ties_even() };
        if !(n >= low as f32 && n <= high as f32 && n * d == *v) {
            return None;
        }
        *code = n as i32;
    }
    Some(codes)
}

/// A scale, and codes around the middle.
fn scaled<C: Codes>(x: &[f32; BLOCK], b: &mut [u8]) -> bool {
    let (low, high) = (-C::ZERO, C::TOP - C::ZERO);
    let Some((d, codes)) = scale(x, low, high).and_then(|d| Some((d, codes(x, d, low, high)?))) else {
        return false;
    };
    put_f16(b, 0, d);
    C::pack(&codes.map(|n| (n + C::ZERO) as u8), &mut b[2..]);
    true
}

/// A scale and a least value.
fn shifted<C: Codes>(x: &[f32; BLOCK], b: &mut [u8]) -> bool {
    let least = x.iter().copied().fold(f32::INFINITY, f32::min);
    if f16::from_f32(least).to_f32() != least {
        return false;
    }
    let above = x.map(|v| v - least);
    let Some((d, codes)) = scale(&above, 0, C::TOP).and_then(|d| Some((d, codes(&above, d, 0, C::TOP)?))) else {
        return false;
    };
    if d < 0.0 || codes.iter().zip(x).any(|(n, v)| d * *n as f32 + least != *v) {
        return false;
    }
    put_f16(b, 0, d);
    put_f16(b, 2, least);
    C::pack(&codes.map(|n| n as u8), &mut b[4..]);
    true
}

/// A scale and bytes with a sign.
fn bytes(x: &[f32; BLOCK], b: &mut [u8]) -> bool {
    let Some((d, codes)) = scale(x, -128, 127).and_then(|d| Some((d, codes(x, d, -128, 127)?))) else {
        return false;
    };
    put_f16(b, 0, d);
    b[2..].iter_mut().zip(codes).for_each(|(b, n)| *b = n as u8);
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every code of every type, with scales of all binades of f16.
    #[test]
    fn multiples_of_a_scale_come_back() {
        for (ty, low, high) in [
            (TypeId::Q4_0, -8, 7),
            (TypeId::Q4_0, -7, 8),
            (TypeId::Q5_0, -16, 15),
            (TypeId::Q8_0, -128, 127),
            (TypeId::Q4_1, 0, 15),
            (TypeId::Q5_1, 0, 31),
        ] {
            for k in 0..200 {
                let d = f16::from_bits(0x0001 + k * 150).to_f32();
                let least = if low == 0 { d * 4.0 } else { 0.0 };
                let mut values = [0.0; BLOCK];
                for (j, v) in values.iter_mut().enumerate() {
                    let n = low + (j as i32 * 37 + k as i32) % (high - low + 1);
                    *v = n as f32 * d + least;
                }
                let info = ty.info().expect("a type");
                let (mut row, mut out) = (vec![0; info.bytes], [0.0; BLOCK]);
                let found = encode(ty, &values, &mut row);
                if !f16::from_f32(values.iter().copied().fold(f32::INFINITY, f32::min)).is_finite() {
                    continue;
                }
                assert_eq!(found, Ok(()), "{ty} {d:e}");
                info.decode.expect("a decoder")(&row, &mut out);
                assert_eq!(out, values, "{ty} {d:e}");
            }
        }
    }

    #[test]
    fn what_would_be_rounded_is_refused() {
        let mut row = [0u8; 18];
        let mut values = [0.5f32; 64];
        assert_eq!(encode(TypeId::Q4_0, &[0.1; 32], &mut row), Err(0));
        assert_eq!(encode(TypeId::Q4_0, &values[..31], &mut row), Err(0));
        assert_eq!(encode(TypeId::Q6_K, &values[..32], &mut row), Err(0));
        values[40] = 0.3;
        assert_eq!(encode(TypeId::Q4_0, &values, &mut [0u8; 36]), Err(32));
        values[40] = f32::NAN;
        assert_eq!(encode(TypeId::Q8_0, &values, &mut [0u8; 68]), Err(32));
        assert_eq!(encode(TypeId::Q4_1, &values, &mut [0u8; 40]), Err(32));
    }
}
