//! Tuning of the prefetch distance of products with packed codes, on parts of a matrix.

use super::super::probe::{Piece, Probed};
use super::{BitplaneMatrix, NAME};
use crate::kernels::bitplane::packed::{self, Kind, PAIR, PackedRows};
use crate::kernels::bitplane::reads_packed;
use crate::kernels::{AlignedBytes, Isa};

/// A matrix and the instruction set whose products of one token are measured.
///
/// They are those of the narrowest width: every width reads the nibbles that are packed for it, and it waits for memory
/// most.
struct ProbedMatrix {
    w: BitplaneMatrix,
    isa: Isa,
}

impl BitplaneMatrix {
    /// The matrix as its products of one token are measured.
    pub fn probed(self, isa: Isa) -> impl Probed {
        ProbedMatrix { w: self, isa }
    }
}

impl Probed for ProbedMatrix {
    fn name(&self) -> Option<&'static str> {
        (self.w.is_packed() && reads_packed(self.isa)).then_some(NAME)
    }

    fn bytes(&self) -> usize {
        self.w.bytes()
    }

    fn pieces(&self, bytes: usize) -> Box<dyn Iterator<Item = Piece<'_>> + '_> {
        let (isa, form) = (self.isa, self.w.form(self.isa, 1));
        let narrowest = self.w.widths.iter().map(|w| w.view.width).min();
        let Some(rows) = narrowest.and_then(|width| self.w.packed_rows(isa, width)) else {
            return Box::new(std::iter::empty());
        };
        let shape = rows.shape;
        let kinds = Kind::ALL.into_iter().filter(|kind| kind.of(rows.width));
        let lines: usize = kinds.map(|kind| shape.row_bytes(kind)).sum();
        let row = lines + shape.table_bytes(rows.width);
        let step = bytes.div_ceil(row).next_multiple_of(PAIR);
        Box::new((0..rows.rows() / step).map(move |i| {
            let part = rows.part(&(i * step..(i + 1) * step));
            let acts = AlignedBytes::new(form.act_bytes(shape.columns));
            let mut out = vec![0.0; step];
            Piece {
                bytes: step * row,
                multiply: Box::new(move |ahead| {
                    let part = PackedRows { ahead, ..part };
                    packed::multiply(isa, &part, form, &acts, 1, &mut out);
                }),
            }
        }))
    }
}
