//! The per-tensor ternary formats of bitnet.cpp: what I2_S, TL1 and TL2 have in common.
//!
//! A matrix of `rows` x `columns` codes -1, 0, +1 and one `f32` scale `w` for all of it. The formats pack
//! the codes in different orders; what a matrix multiplies to is the same in all three:
//!
//! ```text
//! q, a, S = the activation row as int8, its reciprocal step, the sum of q     (Activations)
//! D = sum of (code + 1) * q          C = D - S = sum of code * q              (dot_codes, dot)
//! y = (((f32) D - (f32) S) / a) * w, every operation rounded to f32           (tail)
//! ```
//!
//! All integers are exact. bitnet.cpp's AVX2 kernel of I2_S adds in 16 bits and wraps when large
//! activations of one sign meet; that is not reproduced. `D` and `S` are exact as `f32` up to 66 051
//! columns, so `tail(D, S, ..)` of I2_S and `tail(C, 0, ..)` of TL1 and TL2 are the same number.
//!
//! The scale stands behind the codes: 4 bytes, and 28 bytes of zeros up to [`TAIL`].

use std::ops::Range;

use super::num::{largest_magnitude, nearest_int};
use super::{TypeId, i2_s, tl1, tl2};

pub use super::ternary_layout::{TAIL, TernaryError, Tiles};

/// How the codes of a matrix are laid out in bytes, in full.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Packing {
    /// [`i2_s`].
    I2S(i2_s::Interleave),
    /// [`tl1`].
    Tl1(Tiles),
    /// [`tl2`].
    Tl2(Tiles),
}

impl Packing {
    /// The tensor type that is packed like this.
    pub fn type_id(self) -> TypeId {
        match self {
            Packing::I2S(_) => TypeId::I2_S,
            Packing::Tl1(_) => TypeId::TL1,
            Packing::Tl2(_) => TypeId::TL2,
        }
    }

    /// Checks that a matrix can be packed like this.
    ///
    /// # Errors
    /// A width that no whole block fits, tile parameters that are none or do not divide the matrix.
    pub fn check(self, columns: usize, rows: usize) -> Result<(), TernaryError> {
        match self {
            Packing::I2S(interleave) => interleave.check(columns),
            Packing::Tl1(tiles) => tl1::check(tiles, columns, rows),
            Packing::Tl2(tiles) => tl2::check(tiles, columns, rows),
        }?;
        match columns.checked_mul(rows) {
            Some(n) if n <= isize::MAX as usize => Ok(()),
            _ => Err(TernaryError::TooLarge { rows, columns }),
        }
    }

    /// Bytes of the codes, where the scale starts.
    fn scale_at(self, columns: usize, rows: usize) -> usize {
        match self {
            Packing::I2S(_) | Packing::Tl1(_) => columns * rows / 4,
            Packing::Tl2(_) => tl2::code_bytes(columns, rows).next_multiple_of(TAIL),
        }
    }

    /// Packs a matrix: `codes` are its rows one after the other, each -1, 0 or +1. The result is the
    /// tensor's data, tail included.
    ///
    /// # Errors
    /// Those of [`Packing::check`], a wrong number of codes, a code that is not ternary.
    pub fn pack(self, columns: usize, rows: usize, scale: f32, codes: &[i8]) -> Result<Vec<u8>, TernaryError> {
        self.check(columns, rows)?;
        if codes.len() != columns * rows {
            return Err(TernaryError::Buffer { found: codes.len(), expected: columns * rows });
        }
        if let Some(at) = codes.iter().position(|c| !(-1..=1).contains(c)) {
            let (row, column) = (at / columns, at % columns);
            return Err(TernaryError::NotTernary { row, column, code: codes[at] });
        }
        let scale_at = self.scale_at(columns, rows);
        let mut data = vec![0; scale_at + TAIL];
        data[scale_at..scale_at + 4].copy_from_slice(&scale.to_le_bytes());
        if columns == 0 {
            return Ok(data);
        }
        for (row, codes) in codes.chunks_exact(columns).enumerate() {
            match self {
                Packing::I2S(interleave) => i2_s::pack_row(interleave, row, codes, &mut data),
                Packing::Tl1(tiles) => tl1::pack_row(tiles, row, codes, &mut data),
                Packing::Tl2(tiles) => tl2::pack_row(tiles, rows, row, codes, &mut data),
            }
        }
        Ok(data)
    }
}

/// The data of one per-tensor ternary matrix, with sizes and tiles checked. Rows are unpacked on demand.
#[derive(Clone, Copy, Debug)]
pub struct TernaryData<'a> {
    packing: Packing,
    columns: usize,
    rows: usize,
    scale: f32,
    data: &'a [u8],
}

impl<'a> TernaryData<'a> {
    /// Looks at `data` as a matrix of `rows` x `columns`.
    ///
    /// # Errors
    /// Those of [`Packing::check`]; data that is cut off, too long or without the scale.
    pub fn new(packing: Packing, columns: usize, rows: usize, data: &'a [u8]) -> Result<TernaryData<'a>, TernaryError> {
        packing.check(columns, rows)?;
        let scale_at = packing.scale_at(columns, rows);
        let (found, expected) = (data.len(), scale_at + TAIL);
        if found == scale_at {
            return Err(TernaryError::NoScale { found, expected });
        }
        if found != expected {
            let ty = packing.type_id();
            return Err(TernaryError::Length { ty, rows, columns, found, expected });
        }
        let mut scale = [0; 4];
        scale.copy_from_slice(&data[scale_at..scale_at + 4]);
        Ok(TernaryData { packing, columns, rows, scale: f32::from_le_bytes(scale), data })
    }

    /// The layout.
    pub fn packing(&self) -> Packing {
        self.packing
    }

    /// Weights per row.
    pub fn columns(&self) -> usize {
        self.columns
    }

    /// Number of rows.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// The scale `w` of the whole tensor, as it stands in the file: any bit pattern.
    pub fn scale(&self) -> f32 {
        self.scale
    }

    /// Unpacks some rows into `out`, `columns` codes of -1, 0, +1 each. Rows can be unpacked in any order
    /// and in parallel.
    ///
    /// # Errors
    /// Rows that are not there, an `out` of another length, a code that stands for no weight.
    pub fn unpack_rows(&self, rows: Range<usize>, out: &mut [i8]) -> Result<(), TernaryError> {
        if rows.start > rows.end || rows.end > self.rows {
            return Err(TernaryError::Rows { first: rows.start, end: rows.end, rows: self.rows });
        }
        let expected = rows.len() * self.columns;
        if out.len() != expected {
            return Err(TernaryError::Buffer { found: out.len(), expected });
        }
        if self.columns == 0 {
            return Ok(());
        }
        for (row, out) in rows.zip(out.chunks_exact_mut(self.columns)) {
            let unpacked = match self.packing {
                Packing::I2S(interleave) => i2_s::unpack_row(interleave, row, self.data, out),
                Packing::Tl1(tiles) => tl1::unpack_row(tiles, row, self.data, out),
                Packing::Tl2(tiles) => tl2::unpack_row(tiles, self.rows, row, self.data, out),
            };
            unpacked.map_err(|bad| TernaryError::Code {
                ty: self.packing.type_id(),
                row,
                column: bad.column,
                code: bad.code,
            })?;
        }
        Ok(())
    }

    /// All codes, row after row.
    ///
    /// # Errors
    /// A code that stands for no weight.
    pub fn codes(&self) -> Result<Vec<i8>, TernaryError> {
        let mut out = vec![0; self.rows * self.columns];
        self.unpack_rows(0..self.rows, &mut out)?;
        Ok(out)
    }
}

/// The error of the first bad byte in a part of the data of an I2_S, TL1 or TL2 matrix that is copied as it is: `bytes`
/// from byte `start` of the tensor on. Without the `packing` of TL2, whose codes cannot be told apart then, only the
/// scale is checked.
///
/// Parts begin and end at multiples of 4 bytes, so that the scale is in one of them.
pub fn first_bad_byte(
    ty: TypeId,
    packing: Option<Packing>,
    (columns, rows): (usize, usize),
    start: usize,
    bytes: &[u8],
) -> Option<(usize, &'static str)> {
    const CODE: &str = "a code that stands for no weight";
    let cells = columns.checked_mul(rows)?;
    // Where codes lie, and whether a byte of them is bad.
    type Bad = fn(u8) -> bool;
    let pairs: Bad = |b| b >> 4 > 8 || b & 15 > 8;
    let triples: Bad = |b| b >> 4 > 13 || b & 15 > 13;
    let (regions, scale_at): ([(Range<usize>, Bad); 2], usize) = match (ty, packing) {
        (TypeId::I2_S, _) => ([(0..cells / 4, |b| b & b >> 1 & 0x55 != 0), (0..0, pairs)], cells / 4),
        (TypeId::TL1, _) => ([(0..cells / 4, pairs), (0..0, pairs)], cells / 4),
        (TypeId::TL2, Some(packing @ Packing::Tl2(tiles))) => {
            let three = columns / (tiles.columns as usize).max(1) * tiles.columns as usize;
            let two = (columns - three) * rows / 4;
            let first = three * rows / 24 * 5;
            let regions = [(0..three * rows / 6, triples), (first..first + two, pairs)];
            (regions, packing.scale_at(columns, rows))
        }
        (TypeId::TL2, _) => {
            let all = super::tl2::tensor_bytes(columns as u64, rows as u64)?;
            ([(0..0, triples), (0..0, pairs)], usize::try_from(all).ok()? - TAIL)
        }
        _ => return None,
    };
    let here = |region: &Range<usize>| {
        let within = |at: usize| at.saturating_sub(start).min(bytes.len());
        within(region.start)..within(region.end)
    };
    for (region, bad) in &regions {
        let part = here(region);
        let codes = &bytes[part.clone()];
        // Models are hardly ever damaged: look whether there is anything at all before looking where.
        if codes.iter().fold(false, |any, &b| any | bad(b))
            && let Some(at) = codes.iter().position(|&b| bad(b))
        {
            return Some((part.start + at, CODE));
        }
    }
    let scale = here(&(scale_at..scale_at + 4));
    let value = bytes.get(scale.clone())?.first_chunk::<4>();
    let value = f32::from_le_bytes(*value?);
    match value {
        v if v.is_nan() => Some((scale.start, "a NaN for its scale")),
        v if v.is_infinite() => Some((scale.start, "an infinity for its scale")),
        _ => None,
    }
}

/// The codes and the scale of a matrix of floats, by bitnet.cpp's rule for all three formats: the scale is
/// the largest magnitude, what is smaller than 1e-6 becomes 0, everything else its sign. Nothing is
/// rounded: 0.1 beside 1.0 becomes +1, so this is lossless only for weights that are ternary already.
/// NaN is passed over for the scale and gets code -1.
///
/// `codes` must be as long as `x`.
pub fn ternarize(x: &[f32], codes: &mut [i8]) -> f32 {
    let scale = largest_magnitude(x);
    for (&x, code) in x.iter().zip(codes) {
        let x = f64::from(x);
        *code = if x.abs() < 1e-6 {
            0
        } else if x * f64::from(scale) > 0.0 {
            1
        } else {
            -1
        };
    }
    scale
}

/// Scale and sum of one activation row (one token), beside its int8 values.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct ActScale {
    /// Quants per unit, `127 / max|x|`: the reciprocal of the step.
    pub a: f32,
    /// Sum of the quants.
    pub sum: i32,
}

/// Smallest magnitude that I2_S scales an activation row by.
const FLOOR: f64 = 1e-5;

/// Quantizes an activation row for I2_S into `q`, which must be as long as `x`:
///
/// ```text
/// m = max(1e-5, max|x|) in f64      a = f32(127 / m)      q = round_half_even(fl32(x * a)) in -128..=127
/// ```
///
/// The product is rounded before it is rounded to an integer: no fused multiply-add. What bitnet.cpp
/// leaves undefined is defined here: a row with NaN has `a` NaN, one with an infinity has `a` 0, both
/// have `q` 0 throughout, so that every output of the row is NaN.
pub fn quantize_i2_s(x: &[f32], q: &mut [i8]) -> ActScale {
    let m = f64::from(largest_magnitude(x)).max(FLOOR);
    quantize(x, (127.0 / m) as f32, q)
}

/// Quantizes an activation row for TL1 and TL2 into `q`, which must be as long as `x`: as
/// [`quantize_i2_s`], but `a = fl32(127 / max|x|)` without a floor. A row of zeros, or one so small that
/// `a` is infinite, has `q` 0 throughout and gives outputs of +0, where bitnet.cpp leaves the sign to
/// chance. NaN and infinities as in [`quantize_i2_s`].
pub fn quantize_tl(x: &[f32], q: &mut [i8]) -> ActScale {
    quantize(x, 127.0 / largest_magnitude(x), q)
}

fn quantize(x: &[f32], a: f32, q: &mut [i8]) -> ActScale {
    if x.iter().any(|v| v.is_nan()) {
        q.fill(0);
        return ActScale { a: f32::NAN, sum: 0 };
    }
    if a == 0.0 || a.is_infinite() {
        q.fill(0);
        return ActScale { a, sum: 0 };
    }
    let mut sum = 0;
    for (&x, q) in x.iter().zip(q) {
        *q = nearest_int(x * a).clamp(-128, 127) as i8;
        sum += i32::from(*q);
    }
    ActScale { a, sum }
}

/// `C`: sum of `code * q`, exact.
pub fn dot(codes: &[i8], q: &[i8]) -> i32 {
    codes.iter().zip(q).map(|(&c, &q)| i32::from(c) * i32::from(q)).sum()
}

/// `D`: sum of `(code + 1) * q`, exact; `D - S = C`.
pub fn dot_codes(codes: &[i8], q: &[i8]) -> i32 {
    codes.iter().zip(q).map(|(&c, &q)| (i32::from(c) + 1) * i32::from(q)).sum()
}

/// The output of a row: `(((f32) d - (f32) s) / a) * w`, every operation rounded to `f32`. I2_S has
/// `d = D`, `s = S`; TL1 and TL2 have `d = C`, `s = 0`.
#[inline]
pub fn tail(d: i32, s: i32, a: f32, w: f32) -> f32 {
    (d as f32 - s as f32) / a * w
}
