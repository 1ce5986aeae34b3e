//! Tuning of the prefetch distance of products with a widely linear matrix, on parts of it.

use super::super::probe::{Piece, Probed};
use super::{Tile, WidelyLinear};
use crate::kernels::widely::CodeLayout;
use crate::kernels::{AlignedBytes, Isa};

/// A matrix and the instruction set whose products of one token are measured.
struct ProbedMatrix {
    w: WidelyLinear,
    isa: Isa,
}

impl WidelyLinear {
    /// The matrix as its products of one token are measured.
    pub fn probed(self, isa: Isa) -> impl Probed {
        ProbedMatrix { w: self, isa }
    }
}

impl Probed for ProbedMatrix {
    fn name(&self) -> Option<&'static str> {
        let prefetches = self.w.packed && self.w.form.prefetches(self.isa);
        self.w.form.name().filter(|_| prefetches)
    }

    fn bytes(&self) -> usize {
        self.w.codes.len()
    }

    fn pieces(&self, bytes: usize) -> Box<dyn Iterator<Item = Piece<'_>> + '_> {
        let w = &self.w;
        let (form, unit) = (w.form, w.form.unit_bytes(&w.shape));
        let (all, step) = (w.codes.len() / unit, bytes.div_ceil(unit));
        Box::new((0..all / step).map(move |i| {
            let units = i * step..(i + 1) * step;
            let acts = AlignedBytes::new(w.path.act_bytes(&w.shape));
            let mut tile = Tile::default();
            Piece {
                bytes: step * unit,
                multiply: Box::new(move |ahead| {
                    if form == CodeLayout::Lanes {
                        return w.multiply_tables(self.isa, ahead, &units, &acts, |_, _, _| {});
                    }
                    for i in units {
                        w.multiply((self.isa, ahead), i, &acts, 1, &mut tile);
                    }
                }),
            }
        }))
    }
}
