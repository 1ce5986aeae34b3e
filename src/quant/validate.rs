//! Finds values that would poison a model: block scales and floats that are infinite or not a number.
//!
//! The same places are looked at as in ggml's `ggml_validate_row_data`.

use trine_formats::types::{Field, Format, Part, TypeId};

/// The first block of `data`, rows of `columns` weights, with an infinity or a NaN, and which of the two it is. The
/// scale of a row counts for the first of its blocks.
pub fn first_bad(ty: TypeId, columns: usize, data: &[u8]) -> Option<(usize, &'static str)> {
    let info = ty.info()?;
    if let Some(format) = info.row_scale() {
        let scale = Field { part: Part::Scale, format, at: 0 };
        let blocks = columns / info.block;
        let rows = data.chunks_exact(info.head + blocks * info.bytes);
        let mut bad = rows.map(|row| bad_float(&scale, row)).enumerate();
        return bad.find_map(|(row, what)| Some((row * blocks, what?)));
    }
    // Models are hardly ever damaged: look whether there is anything at all before looking where.
    let all_good = match info.fields {
        [field] => match field.format {
            Format::F16 => none_of(data, |v| is_full(u16::from_le_bytes(*v), 0x7c00)),
            Format::Bf16 => none_of(data, |v| is_full(u16::from_le_bytes(*v), 0x7f80)),
            Format::F32 => none_of(data, |v| u32::from_le_bytes(*v) & 0x7f80_0000 == 0x7f80_0000),
            _ => false,
        },
        fields => !fields.iter().any(|field| is_float(field.format)),
    };
    if all_good {
        return None;
    }
    let mut blocks = data.chunks_exact(info.bytes).enumerate();
    blocks.find_map(|(i, block)| {
        let what = info.fields.iter().find_map(|field| bad_float(field, block));
        what.map(|what| (i, what))
    })
}

/// True if a field may hold an infinity or a NaN.
fn is_float(format: Format) -> bool {
    !matches!(format, Format::I8 | Format::I16 | Format::Bits)
}

/// Values that are looked at together, without a branch in between.
const TOGETHER: usize = 256;

/// True if all bits of `exponent` are set.
#[inline(always)]
fn is_full(bits: u16, exponent: u16) -> bool {
    bits & exponent == exponent
}

/// True if no value of `N` bytes is bad.
#[inline(always)]
fn none_of<const N: usize>(data: &[u8], is_bad: impl Fn(&[u8; N]) -> bool) -> bool {
    data.as_chunks::<N>().0.chunks(TOGETHER).all(|values| !values.iter().fold(false, |bad, v| bad | is_bad(v)))
}

#[inline(always)]
fn f16_at(block: &[u8], at: usize) -> u32 {
    u32::from(block[at]) | u32::from(block[at + 1]) << 8
}

/// The fault of a field's float, if the field is one and has a fault.
fn bad_float(field: &Field, block: &[u8]) -> Option<&'static str> {
    let u16_at = |at: usize| f16_at(block, field.at + at);
    let verdict = |exponent_full: bool, mantissa: bool| match (exponent_full, mantissa) {
        (false, _) => None,
        (true, false) => Some("an infinity"),
        (true, true) => Some("a NaN"),
    };
    let f16 = |h: u32| verdict(h & 0x7c00 == 0x7c00, h & 0x03ff != 0);
    match field.format {
        Format::F16 => f16(u16_at(0)),
        Format::Bf16 => verdict(u16_at(0) & 0x7f80 == 0x7f80, u16_at(0) & 0x7f != 0),
        Format::F32 => {
            let bits = u16_at(0) | u16_at(2) << 16;
            verdict(bits & 0x7f80_0000 == 0x7f80_0000, bits & 0x7f_ffff != 0)
        }
        Format::F64 => {
            let low = u16_at(0) | u16_at(2) << 16;
            let high = u16_at(4) | u16_at(6) << 16;
            let mantissa = high & 0xf_ffff != 0 || low != 0;
            verdict(high & 0x7ff0_0000 == 0x7ff0_0000, mantissa)
        }
        Format::E8m0 => (block[field.at] == 0xff).then_some("a NaN"),
        Format::F16Nibbles => {
            let nibble = |at: usize| u16_at(at) >> 12;
            f16(nibble(0) | nibble(2) << 4 | nibble(4) << 8 | nibble(6) << 12)
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use trine_formats::types::REGISTRY;

    /// Where each type has f16 values, from the structs of ggml-common.h.
    const F16_AT: &[(TypeId, &[usize])] = &[
        (TypeId::F16, &[0]),
        (TypeId::Q4_0, &[0]),
        (TypeId::Q4_1, &[0, 2]),
        (TypeId::Q5_1, &[0, 2]),
        (TypeId::Q8_0, &[0]),
        (TypeId::Q2_K, &[80, 82]),
        (TypeId::Q3_K, &[108]),
        (TypeId::Q4_K, &[0, 2]),
        (TypeId::Q6_K, &[208]),
        (TypeId::TQ1_0, &[52]),
        (TypeId::TQ2_0, &[64]),
        (TypeId::Q1_0, &[0]),
        (TypeId::Q2_0, &[0]),
        (TypeId::Q2_0_G128, &[0]),
        (TypeId::PQ2_0, &[0]),
        (TypeId::PTQ1_0, &[26]),
        (TypeId::Q2_0C, &[0]),
        (TypeId::STQ1_0, &[40]),
        (TypeId::IQ1_S, &[0]),
        (TypeId::IQ2_XXS, &[0]),
        (TypeId::IQ2_XS, &[0]),
        (TypeId::IQ2_S, &[0]),
        (TypeId::IQ3_XXS, &[0]),
        (TypeId::IQ3_S, &[0]),
        (TypeId::IQ4_NL, &[0]),
        (TypeId::IQ4_XS, &[0]),
    ];

    #[test]
    fn finds_bad_scales() {
        for &(ty, places) in F16_AT {
            let bytes = ty.info().unwrap().bytes;
            for &at in places {
                let mut data = vec![0u8; 3 * bytes];
                data[2 * bytes + at + 1] = 0x7c;
                assert_eq!(first_bad(ty, 0, &data), Some((2, "an infinity")), "{ty}");
                data[2 * bytes + at] = 1;
                assert_eq!(first_bad(ty, 0, &data), Some((2, "a NaN")), "{ty}");
                data[2 * bytes + at + 1] = 0x7b;
                assert_eq!(first_bad(ty, 0, &data), None, "{ty}");
            }
        }
    }

    /// The fast look over many blocks misses none.
    #[test]
    fn finds_one_among_many() {
        for info in REGISTRY.iter().filter(|info| info.row_scale().is_none()) {
            let n = 3 * TOGETHER + 5;
            let mut data = vec![0u8; n * info.bytes];
            for at in [0, 1, TOGETHER - 1, TOGETHER, n - 1] {
                let block = at * info.bytes..(at + 1) * info.bytes;
                data[block.clone()].fill(0xff);
                let found = first_bad(info.id, 0, &data);
                let has_floats = info.fields.iter().any(|field| is_float(field.format));
                let expected = has_floats.then_some((at, "a NaN"));
                assert_eq!(found, expected, "{}", info.name);
                data[block].fill(0);
            }
        }
    }

    #[test]
    fn codes_are_not_scales() {
        for &(ty, places) in F16_AT {
            let bytes = ty.info().unwrap().bytes;
            let mut data = vec![0xff; bytes];
            places.iter().for_each(|&at| data[at + 1] = 0);
            assert_eq!(first_bad(ty, 0, &data), None, "{ty}");
        }
    }

    #[test]
    fn plain_floats() {
        let of = |x: f32| first_bad(TypeId::F32, 0, &x.to_le_bytes()).map(|b| b.1);
        assert_eq!(of(f32::MAX), None);
        assert_eq!(of(f32::NEG_INFINITY), Some("an infinity"));
        assert_eq!(of(f32::NAN), Some("a NaN"));
        let of = |x: f64| first_bad(TypeId::F64, 0, &x.to_le_bytes()).map(|b| b.1);
        assert_eq!(of(f64::MAX), None);
        assert_eq!(of(f64::INFINITY), Some("an infinity"));
        assert_eq!(of(f64::NAN), Some("a NaN"));
        assert_eq!(first_bad(TypeId::BF16, 0, &[0x80, 0x7f]), Some((0, "an infinity")));
        assert_eq!(first_bad(TypeId::BF16, 0, &[0x7f, 0x7f]), None);
        assert_eq!(first_bad(TypeId::MXFP4, 0, &[0xff; 17]), Some((0, "a NaN")));
        assert_eq!(first_bad(TypeId::I32, 0, &[0xff; 4]), None);
    }

    #[test]
    fn every_type_can_be_asked() {
        for info in REGISTRY {
            assert_eq!(first_bad(info.id, 0, &vec![0; info.bytes * 2]), None, "{}", info.name);
        }
    }

    #[test]
    fn scales_of_rows_count_for_their_first_block() {
        for (ty, row, exponent) in [(TypeId::IQ1_BN, 2 + 39, 1), (TypeId::IQ2_BN, 4 + 48, 3)] {
            let mut data = vec![0xffu8; 3 * row];
            data.chunks_exact_mut(row).for_each(|r| r[exponent] = 0);
            assert_eq!(first_bad(ty, 192, &data), None, "{ty}");
            data[2 * row + exponent] = 0x7f;
            assert_eq!(first_bad(ty, 192, &data), Some((6, "a NaN")), "{ty}");
        }
    }
}
