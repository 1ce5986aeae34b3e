//! Any-precision products at one width.

use anyhow::{Context, Result};
use trine::ops::product::SharedArena;
use trine::ops::product::bitplane::{BitplaneMatrix, BitplaneProduct, multiply_all};
use trine_formats::anyprec::{ApView, MAX_BITS, words};
use trine_formats::gguf::Blob;
use trine_formats::types::num::f32_to_f16;
use trine_kernels::bitplane::NumberPath;
use trine_kernels::{AlignedBytes, Isa};

use super::super::kernel_type::{KernelType, MIN_BITS};
use super::super::synth::random_bytes;
use super::subject::{Activations, BenchMatrix, COLUMNS, Subject};

/// The kernel of a width.
pub struct Planes {
    width: u8,
    path: NumberPath,
    isa: Isa,
}

impl Planes {
    /// The kernels of all widths, in both arithmetics.
    pub fn all(isa: Isa) -> impl Iterator<Item = Planes> {
        let paths = [NumberPath::F32, NumberPath::I16];
        (MIN_BITS..=MAX_BITS).flat_map(move |width| paths.map(|path| Planes { width, path, isa }))
    }

    /// Bytes of the centroids of a row.
    fn lut_bytes(&self) -> usize {
        2 << self.width
    }
}

impl Subject for Planes {
    fn ty(&self) -> KernelType {
        KernelType::AnyPrec(self.width)
    }

    fn isa(&self) -> Isa {
        self.isa
    }

    fn layout(&self) -> &'static str {
        match self.path {
            NumberPath::F32 => "f32",
            NumberPath::I16 => "i16",
        }
    }

    fn is_float(&self) -> bool {
        self.path == NumberPath::F32
    }

    fn row_bytes(&self) -> usize {
        usize::from(self.width) * 8 * words(COLUMNS) + self.lut_bytes()
    }

    fn matrix(&self, rows: usize) -> Result<Box<dyn BenchMatrix>> {
        let plane = |i: u8| Blob::from_vec(random_bytes(&format!("plane {i}"), 8 * words(COLUMNS) * rows));
        let centroid = |i: usize| f32_to_f16((i * 37 % 101) as f32 / 3200.0 - 0.015).to_le_bytes();
        let view = ApView {
            width: self.width,
            columns: COLUMNS,
            rows,
            groups: 1,
            planes: (0..self.width).map(plane).collect(),
            lut: Blob::from_vec((0..self.lut_bytes() / 2 * rows).flat_map(centroid).collect()),
            sparse: None,
        };
        let w = BitplaneMatrix::new(self.path, [view]).packed(&SharedArena::default(), self.isa);
        let matrix = PlaneMatrix { w, width: self.width, isa: self.isa, rows };
        // The first product packs the codes.
        let mut out = matrix.outputs(1);
        matrix.multiply(&matrix.activations(1), &mut out);
        out.iter().any(|y| *y != 0.0).then_some(()).context("a product of random weights is zero")?;
        Ok(Box::new(matrix))
    }
}

struct PlaneMatrix {
    w: BitplaneMatrix,
    width: u8,
    isa: Isa,
    rows: usize,
}

impl BenchMatrix for PlaneMatrix {
    fn bytes(&self) -> usize {
        self.w.bytes()
    }

    fn rows(&self) -> usize {
        self.rows
    }

    fn arrange(&self, x: &[f32], tokens: usize) -> Vec<u8> {
        let form = self.w.form(self.isa, tokens);
        let mut out = AlignedBytes::new(form.act_bytes(COLUMNS));
        form.arrange(self.isa, x, &mut out);
        out.to_vec()
    }

    fn multiply(&self, acts: &Activations, out: &mut [f32]) {
        let Activations { rows, x, tokens } = acts;
        let form = self.w.form(self.isa, *tokens);
        let product = BitplaneProduct { w: &self.w, width: self.width, form, acts: rows, x, out };
        multiply_all(self.isa, &mut [product], *tokens);
    }
}

#[cfg(test)]
mod tests {
    use trine_kernels::testing::isas;

    use super::super::subject::tests::bits;
    use super::*;

    /// The product itself is measured: every instruction set gives the bits of the first one.
    #[test]
    fn all_kernels_of_a_width_agree() {
        let mut expected: Vec<Vec<u32>> = Vec::new();
        for isa in isas() {
            for (i, subject) in Planes::all(isa).enumerate() {
                let bits = bits(&subject, 66, 3);
                if i == expected.len() {
                    expected.push(bits.clone());
                }
                assert!(expected[i] == bits, "{} {} {isa}", subject.ty(), subject.layout());
            }
        }
    }
}
