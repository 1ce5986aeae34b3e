//! Weights and activations in the order in which kernels load them.
//!
//! [`rows`], [`integers`], [`floats`], [`planes`] and [`activations`] belong to the exact kernels: integer products with the float
//! chain of the scalar definitions. [`marlin`], [`trirun`] and [`sparse`] are the layouts of the published kernels with
//! half-precision activations, as they were published, so that their files and tables can be compared; [`fast`] has the
//! further arrays that the kernels here need.

pub mod activations;
pub mod coded;
mod error;
pub mod fast;
pub mod floats;
pub mod integers;
pub mod marlin;
pub mod planes;
pub mod rows;
pub mod sparse;
pub mod trirun;

pub use error::PackError;

use error::Shape;

/// A matrix of codes, `codes[k * columns + n]`, with codes `zero` around it wherever a layout wants whole tiles.
struct Codes<'a> {
    shape: Shape,
    codes: &'a [u8],
    zero: u8,
}

impl<'a> Codes<'a> {
    /// Looks at `codes` as a matrix of codes up to `highest`.
    ///
    /// # Errors
    /// Another number of codes, or one above `highest`.
    fn new(shape: Shape, codes: &'a [u8], zero: u8, highest: u8) -> Result<Codes<'a>, PackError> {
        shape.expect(codes.len(), shape.size([shape.rows, shape.columns])?)?;
        if let Some(at) = codes.iter().position(|&c| c > highest) {
            return Err(PackError::Code {
                what: shape.what,
                code: codes[at].into(),
                row: at / shape.columns,
                column: at % shape.columns,
            });
        }
        Ok(Codes { shape, codes, zero })
    }

    /// The code at a place, inside of the matrix or beyond it.
    fn at(&self, (k, n): (usize, usize)) -> u32 {
        let inside = k < self.shape.rows && n < self.shape.columns;
        let code = if inside { self.codes[k * self.shape.columns + n] } else { self.zero };
        code.into()
    }
}
