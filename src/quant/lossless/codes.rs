//! A ternary matrix taken apart: codes, and the scale of every span of weights.

use rayon::prelude::*;
use trine_formats::types::TypeId;
use trine_formats::types::ternary::TernaryError;

use super::decode::{Decoder, Scratch};

/// Weights of a float row that are looked at together; no known checkpoint has scales that reach less far.
const SPAN: usize = 32;

/// Codes and scales, row after row.
#[derive(Debug, PartialEq)]
pub struct Codes {
    /// Weights that share a scale.
    pub span: usize,
    /// -1, 0, +1.
    pub codes: Vec<i8>,
    /// One per span, positive; 0 where all codes are 0.
    pub scales: Vec<f32>,
}

/// Why a matrix has no codes.
#[derive(Debug, PartialEq)]
pub enum NoCodes {
    /// A weight is neither 0 nor of the magnitude of those before it.
    NotTernary { row: usize, column: usize },
    /// The one scale of the tensor is an infinity or not a number.
    Scale(f32),
    /// A code that stands for nothing.
    Damaged(TernaryError),
}

impl From<TernaryError> for NoCodes {
    fn from(e: TernaryError) -> NoCodes {
        NoCodes::Damaged(e)
    }
}

impl Codes {
    /// Takes a matrix of type `ty` apart.
    ///
    /// # Errors
    /// Weights that are not ternary, damaged data.
    pub fn read(ty: TypeId, source: &Decoder<'_>) -> Result<Codes, NoCodes> {
        if let Some(packed) = source.packed() {
            let scale = packed.scale();
            if !scale.is_finite() {
                return Err(NoCodes::Scale(scale));
            }
            let mut codes = vec![0i8; source.columns() * source.rows()];
            codes
                .par_chunks_mut(source.columns().max(1))
                .enumerate()
                .try_for_each(|(row, out)| packed.unpack_rows(row..row + 1, out))?;
            if scale <= 0.0 {
                let sign = if scale < 0.0 { -1 } else { 0 };
                codes.iter_mut().for_each(|c| *c *= sign);
            }
            let zero = codes.iter().all(|&c| c == 0);
            return Ok(Codes { span: codes.len().max(1), codes, scales: vec![if zero { 0.0 } else { scale.abs() }] });
        }
        let columns = source.columns();
        let block = ty.info().map_or(1, |t| t.block);
        let span = match block {
            1 if columns.is_multiple_of(SPAN) => SPAN,
            1 => columns,
            block => block,
        }
        .max(1);
        let n = columns * source.rows();
        let (mut codes, mut scales) = (vec![0i8; n], vec![0f32; n.div_ceil(span)]);
        codes
            .par_chunks_mut(columns.max(1))
            .zip(scales.par_chunks_mut((columns / span).max(1)))
            .enumerate()
            .try_for_each_init(
                || (Scratch::default(), vec![0f32; columns]),
                |(scratch, x), (row, (codes, scales))| {
                    source.row(row, scratch, x)?;
                    let spans = x.chunks(span).zip(codes.chunks_mut(span)).zip(scales);
                    for (i, ((x, codes), scale)) in spans.enumerate() {
                        *scale =
                            take_apart(x, codes).map_err(|at| NoCodes::NotTernary { row, column: i * span + at })?;
                    }
                    Ok::<_, NoCodes>(())
                },
            )?;
        Ok(Codes { span, codes, scales })
    }

    /// The scales of spans that are not all zero.
    pub fn used_scales(&self) -> impl Iterator<Item = f32> {
        self.scales.iter().copied().filter(|&s| s > 0.0)
    }
}

/// The codes and the scale of a span; the first weight that is not ternary.
fn take_apart(x: &[f32], codes: &mut [i8]) -> Result<f32, usize> {
    let scale = x.iter().map(|v| v.abs()).find(|&m| m != 0.0).unwrap_or(0.0);
    for (at, (&v, code)) in x.iter().zip(codes).enumerate() {
        *code = if v == 0.0 {
            0
        } else if v == scale {
            1
        } else if v == -scale {
            -1
        } else {
            return Err(at);
        };
    }
    Ok(scale)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(ty: TypeId, columns: usize, x: &[f32]) -> Result<Codes, NoCodes> {
        let mut data = vec![0; ty.info().unwrap().row_bytes(x.len() as u64).unwrap() as usize];
        ty.info().unwrap().encode.unwrap()(x, None, &mut data);
        let rows = x.len() / columns;
        let source = Decoder::new(ty, None, columns, rows, &data).unwrap().unwrap();
        Codes::read(ty, &source)
    }

    #[test]
    fn every_span_has_its_own_scale() {
        let mut x = vec![0f32; 128];
        (x[0], x[31], x[32], x[70]) = (0.5, -0.5, -0.25, -0.0);
        let got = read(TypeId::F32, 64, &x).unwrap();
        assert_eq!((got.span, &got.scales[..]), (32, &[0.5, 0.25, 0.0, 0.0][..]));
        let at = |i: usize| got.codes[i];
        assert_eq!([at(0), at(1), at(31), at(32), at(70)], [1, 0, -1, -1, 0]);
        x[3] = 0.5000001;
        let bad = NoCodes::NotTernary { row: 0, column: 3 };
        assert_eq!(read(TypeId::F32, 64, &x), Err(bad));
        x[3] = f32::NAN;
        assert!(read(TypeId::F32, 64, &x).is_err());
    }

    #[test]
    fn rows_of_odd_width_are_one_span() {
        let got = read(TypeId::F32, 5, &[1.0, 0.0, -1.0, 0.0, 1.0, 2.0, 2.0, 0.0, 0.0, -2.0]);
        assert_eq!(got.unwrap().scales, [1.0, 2.0]);
    }

    #[test]
    fn blocks_give_their_scale() {
        let x: Vec<f32> = (0..512)
            .map(|i| {
                if i % 3 == 0 {
                    0.0
                } else if i < 256 {
                    0.75
                } else {
                    -3.0
                }
            })
            .collect();
        for ty in [TypeId::TQ1_0, TypeId::TQ2_0] {
            let got = read(ty, 512, &x).unwrap();
            assert_eq!((got.span, &got.scales[..]), (256, &[0.75, 3.0][..]), "{ty}");
            assert_eq!(&got.codes[..2], [0, 1]);
            assert_eq!(&got.codes[510..], [0, -1]);
        }
        assert_eq!(read(TypeId::Q2_0, 512, &x).unwrap().scales.len(), 8);
    }

    #[test]
    fn scales_of_either_sign_and_code_three() {
        // TQ2_0: codes 0, 1, 2 with a scale of -0.5, then a code 3
        let mut block = vec![0b0101_0101u8; 66];
        (block[0], block[1]) = (0b0101_0100, 0b0101_0110);
        block[64..].copy_from_slice(&[0x00, 0xb8]);
        let source = Decoder::new(TypeId::TQ2_0, None, 256, 1, &block);
        let got = Codes::read(TypeId::TQ2_0, &source.unwrap().unwrap()).unwrap();
        assert_eq!((got.scales[0], got.codes[0], got.codes[1], got.codes[2]), (0.5, 1, -1, 0));
        block[1] = 0b0101_0111;
        let source = Decoder::new(TypeId::TQ2_0, None, 256, 1, &block);
        let bad = NoCodes::NotTernary { row: 0, column: 1 };
        assert_eq!(Codes::read(TypeId::TQ2_0, &source.unwrap().unwrap()), Err(bad));
    }
}
