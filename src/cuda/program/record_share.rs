//! Recording a device's rows of matrices that several devices share.

use std::ops::Range;

use trine_formats::types::TypeId;

use super::matrix::Matrix;
use super::share::Share;
use super::{ProgramError, Recorder};

impl<'a> Recorder<'a> {
    /// From now on the device has its share of the rows of each matrix.
    ///
    /// # Errors
    /// Activations in half precision: the order of their sums depends on the rows of a matrix.
    pub fn share(&mut self, share: Share) -> Result<(), ProgramError> {
        if self.is_in_halves() {
            let what = "activations in half precision times rows of matrices that GPUs share";
            return Err(ProgramError::Missing(what.to_owned()));
        }
        self.shared = Some(share);
        Ok(())
    }

    /// The device's rows of a matrix with so many rows of a type; all of them where the matrix is not shared.
    pub(super) fn own_rows(&self, ty: Option<TypeId>, rows: usize) -> Range<usize> {
        let own = self.shared.as_ref().and_then(|share| share.rows(ty, rows));
        own.unwrap_or(0..rows)
    }

    /// The device's rows of a matrix.
    pub(super) fn own_part(&self, matrix: Matrix<'a>) -> Matrix<'a> {
        let own = self.own_rows(Some(matrix.ty), matrix.rows);
        let of_row = matrix.data.len() / matrix.rows.max(1);
        // Data of another length is refused when it is laid out, whole as it is.
        match matrix.data.get(own.start * of_row..own.end * of_row) {
            Some(data) if own.len() < matrix.rows && of_row * matrix.rows == matrix.data.len() => {
                Matrix { rows: own.len(), data, ..matrix }
            }
            _ => matrix,
        }
    }
}
