//! Rows of half floats, brain floats and floats, as the file has them, and what bounds sums of their products.
//!
//! Rows are filled up to whole eights of columns with zeros, so that each begins at a multiple of 16 bytes. Of every row a
//! kernel has to know the length, rounded up, and the smallest magnitude but zero: `[row][2]`. They tell it whether
//! products may be added in any order (`kernels/floats.cu`).

use std::borrow::Cow;

use trine_formats::types::TypeId;

use super::{PackError, Shape};

/// Columns that rows are filled up to a multiple of.
const EIGHT: usize = 8;
/// Sums of squares beside one another.
const LANES: usize = 16;
/// More than what the sums' roundings and the squares that are too small for single precision can take away.
const SLACK: f64 = 1.0 + 1.0 / 1024.0;
const UNDERFLOW: f64 = 1e-36;
/// The most squares that are added in single precision before their sum is added to the row's.
const PIECE: usize = 4096;

/// Bytes of a number of a type; `None` for other types.
pub const fn size(ty: TypeId) -> Option<usize> {
    match ty {
        TypeId::F16 | TypeId::BF16 => Some(2),
        TypeId::F32 => Some(4),
        _ => None,
    }
}

/// Columns of a filled row.
pub const fn filled(columns: usize) -> usize {
    columns.div_ceil(EIGHT) * EIGHT
}

fn shape(ty: TypeId, rows: usize, columns: usize) -> Result<(Shape, usize), PackError> {
    let bytes = size(ty).ok_or_else(|| PackError::Type { name: ty.to_string() })?;
    let what = ty.info().map_or("floats", |info| info.name);
    Ok((Shape { what, rows, columns }, bytes))
}

/// Bytes of the rows and of their bounds.
///
/// # Errors
/// Another type, a matrix beyond all memory.
pub fn bytes(ty: TypeId, rows: usize, columns: usize) -> Result<[usize; 2], PackError> {
    let (shape, bytes) = shape(ty, rows, columns)?;
    Ok([shape.size([rows, columns.div_ceil(EIGHT), EIGHT * bytes])?, shape.size([rows, 8])?])
}

/// The rows, filled up.
///
/// # Errors
/// Those of [`bytes`], data of another length.
pub fn rows(ty: TypeId, data: &[u8], rows: usize, columns: usize) -> Result<Cow<'_, [u8]>, PackError> {
    let (shape, bytes) = shape(ty, rows, columns)?;
    shape.expect(data.len(), shape.size([rows, columns, bytes])?)?;
    if columns.is_multiple_of(EIGHT) {
        return Ok(data.into());
    }
    let wide = filled(columns) * bytes;
    let mut all = vec![0; shape.size([rows, wide])?];
    for (to, from) in all.chunks_exact_mut(wide).zip(data.chunks_exact(columns * bytes)) {
        to[..from.len()].copy_from_slice(from);
    }
    Ok(all.into())
}

/// The length of every row, rounded up, and its smallest magnitude but zero, which is 0 for a row of zeros.
///
/// # Errors
/// Those of [`rows`].
pub fn bounds(ty: TypeId, data: &[u8], rows: usize, columns: usize) -> Result<Vec<f32>, PackError> {
    let (shape, bytes) = shape(ty, rows, columns)?;
    shape.expect(data.len(), shape.size([rows, columns, bytes])?)?;
    let of_row = |row: &[u8]| match ty {
        TypeId::F16 => row_bounds(row.as_chunks::<2>().0, |bytes| half_magnitude(u16::from_le_bytes(bytes))),
        TypeId::BF16 => row_bounds(row.as_chunks::<2>().0, |[a, b]| f32::from_le_bytes([0, 0, a, b & 0x7f])),
        _ => row_bounds(row.as_chunks::<4>().0, |[a, b, c, d]| f32::from_le_bytes([a, b, c, d & 0x7f])),
    };
    if columns == 0 {
        return Ok(vec![0.0; 2 * rows]);
    }
    Ok(data.chunks_exact(columns * bytes).flat_map(of_row).collect())
}

/// The magnitude of a half float; infinity for what is no number. In this form many are converted at a time.
fn half_magnitude(bits: u16) -> f32 {
    /// 2^112, between the exponents of both types.
    const POWER: f32 = f32::from_bits((127 + 112) << 23);
    let magnitude = bits & 0x7fff;
    if magnitude >= 0x7c00 { f32::INFINITY } else { f32::from_bits(u32::from(magnitude) << 13) * POWER }
}

fn row_bounds<const N: usize>(row: &[[u8; N]], magnitude: impl Fn([u8; N]) -> f32) -> [f32; 2] {
    let mut square = UNDERFLOW;
    // Less one, so that zero is the largest.
    let mut least = [u32::MAX; LANES];
    for piece in row.chunks(PIECE) {
        let mut sums = [0f32; LANES];
        for numbers in piece.chunks(LANES) {
            for ((sum, least), number) in sums.iter_mut().zip(&mut least).zip(numbers) {
                let v = magnitude(*number);
                *sum += v * v;
                *least = (*least).min(v.to_bits().wrapping_sub(1));
            }
        }
        square += sums.iter().map(|&sum| f64::from(sum)).sum::<f64>();
    }
    let least = least.into_iter().fold(u32::MAX, u32::min);
    [(square.sqrt() * SLACK) as f32, f32::from_bits(least.wrapping_add(1))]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_begin_at_multiples_of_sixteen_bytes() {
        let data: Vec<u8> = (0..30).collect();
        let filled = rows(TypeId::BF16, &data, 3, 5).expect("rows");
        assert_eq!(bytes(TypeId::BF16, 3, 5).expect("sizes"), [48, 24]);
        for (row, of_row) in filled.chunks_exact(16).enumerate() {
            assert_eq!(of_row[..10], data[10 * row..][..10]);
            assert_eq!(of_row[10..], [0; 6]);
        }
        assert!(matches!(rows(TypeId::F32, &data[..0], 0, 16), Ok(Cow::Borrowed(_))));
    }

    #[test]
    fn lengths_are_not_too_short_and_magnitudes_are_found() {
        let mut state = 1u32;
        let mut next = || {
            state = state.wrapping_mul(0x915f_77f5).wrapping_add(1);
            state >> 16
        };
        for ty in [TypeId::F16, TypeId::BF16, TypeId::F32] {
            let (info, size) = (ty.info().expect("a type"), size(ty).expect("a size"));
            for columns in [1, 7, 16, 5000] {
                let mut data: Vec<u8> = (0..columns * size).map(|_| next() as u8).collect();
                // Magnitudes between 2^-60 and 2^20, and a zero.
                for number in data.chunks_exact_mut(size) {
                    let exponent = (if ty == TypeId::F16 { 4 + next() % 20 } else { 67 + next() % 80 }) as u16;
                    let sign = next() as u16 & 0x8000;
                    let bits = if ty == TypeId::F16 { sign | exponent << 10 } else { sign | exponent << 7 };
                    number[size - 2..].copy_from_slice(&bits.to_le_bytes());
                }
                data[..size].fill(0);
                let mut row = vec![0.0; columns];
                info.decode.expect("a decoder")(&data, &mut row);
                let length = row.iter().map(|&x| f64::from(x) * f64::from(x)).sum::<f64>().sqrt();
                let least = row.iter().map(|x| x.abs()).filter(|&x| x > 0.0).reduce(f32::min);
                let found = bounds(ty, &data, 1, columns).expect("bounds");
                assert!(f64::from(found[0]) >= length, "{ty} {columns}: {found:?} {length}");
                assert!(f64::from(found[0]) <= 1.002 * length + 1e-17, "{ty} {columns}: {found:?} {length}");
                assert_eq!(found[1], least.unwrap_or(0.0), "{ty} {columns}");
            }
        }
        // Squares that single precision does not hold, infinities and what is no number.
        for (x, least_length) in [(1e-30f32, 1e-30f64), (1e30, 1e30), (f32::INFINITY, f64::INFINITY)] {
            let found = bounds(TypeId::F32, &x.to_le_bytes(), 1, 1).expect("bounds");
            assert!(f64::from(found[0]) >= least_length);
        }
        let found = bounds(TypeId::F32, &f32::NAN.to_le_bytes(), 1, 1).expect("bounds");
        assert!(!found[0].is_finite());
        for bits in [0x7c00u16, 0xfc01] {
            let found = bounds(TypeId::F16, &bits.to_le_bytes(), 1, 1).expect("bounds");
            assert!(!found[0].is_finite());
        }
        for bits in 0..0x7c00u16 {
            let exact = trine_formats::types::num::f16_to_f32(bits);
            assert_eq!(half_magnitude(bits | 0x8000).to_bits(), exact.to_bits());
        }
    }

    #[test]
    fn shapes_that_do_not_fit_are_refused() {
        assert!(rows(TypeId::F16, &[0; 3], 1, 2).is_err());
        assert!(bounds(TypeId::F16, &[0; 3], 1, 2).is_err());
        assert!(bytes(TypeId::Q8_0, 1, 32).is_err());
        let huge = bytes(TypeId::F16, usize::MAX, 2).expect_err("a refusal");
        assert!(huge.to_string().contains("more than memory"), "{huge}");
    }
}
