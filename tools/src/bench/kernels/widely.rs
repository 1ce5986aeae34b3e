//! Products of widely linear matrices.

use anyhow::{Context, Result};
use trine::ops::product::SharedArena;
use trine::ops::product::widely::{WidelyLinear, WidelyProduct, multiply_all};
use trine_formats::gguf::Blob;
use trine_formats::widely::{Rule, Scope, WidelyMatrix};
use trine_kernels::widely::Path;
use trine_kernels::{AlignedBytes, Isa};

use super::super::kernel_type::KernelType;
use super::super::synth::random_bytes;
use super::subject::{Activations, BenchMatrix, COLUMNS, Subject};

/// The kernel of a number of stages.
pub struct Widely {
    stages: usize,
    path: Path,
    isa: Isa,
}

impl Widely {
    /// The kernels of one to four stages, in both arithmetics.
    pub fn all(isa: Isa) -> impl Iterator<Item = Widely> {
        (1..=4).flat_map(move |stages| [Path::Exact, Path::Int8].map(|path| Widely { stages, path, isa }))
    }
}

impl Subject for Widely {
    fn ty(&self) -> KernelType {
        KernelType::Widely(self.stages)
    }

    fn isa(&self) -> Isa {
        self.isa
    }

    fn layout(&self) -> &'static str {
        match self.path {
            Path::Exact => "exact",
            Path::Int8 => "int8",
        }
    }

    fn is_float(&self) -> bool {
        self.path == Path::Exact
    }

    fn row_bytes(&self) -> usize {
        // Two bits of each stage for a complex weight, which serves two columns and two rows and comes twice.
        COLUMNS * self.stages / 4
    }

    fn matrix(&self, rows: usize) -> Result<Box<dyn BenchMatrix>> {
        let rule =
            Rule { stages: self.stages, scope: Scope::Tensor, profile: Default::default(), tie: Default::default() };
        let rows = rows.next_multiple_of(2);
        let shape = rule.shape(rows, COLUMNS).context("sides that are not even")?;
        let matrix = WidelyMatrix {
            codes: Blob::from_vec(random_bytes("codes", 4 * shape.rows * shape.row_words())),
            scales: (0..shape.groups() * shape.group_scales()).map(|i| 0.5 / (1 + i) as f32).collect(),
            shape,
        };
        let w = WidelyLinear::new(matrix, self.path, self.isa).packed(&SharedArena::default(), self.isa);
        let w = w.context("cannot get memory for the weights")?;
        Ok(Box::new(Matrix { w, isa: self.isa, rows }))
    }
}

struct Matrix {
    w: WidelyLinear,
    isa: Isa,
    rows: usize,
}

impl BenchMatrix for Matrix {
    fn bytes(&self) -> usize {
        self.w.layout().1
    }

    fn rows(&self) -> usize {
        self.rows
    }

    fn arrange(&self, x: &[f32], _: usize) -> Vec<u8> {
        let (path, shape) = (self.w.path(), self.w.shape());
        let mut out = AlignedBytes::new(path.act_bytes(shape));
        path.arrange(self.isa, shape, x, &mut out);
        out.to_vec()
    }

    fn multiply(&self, acts: &Activations, out: &mut [f32]) {
        multiply_all(self.isa, &mut [WidelyProduct { w: &self.w, acts: &acts.rows, out }], acts.tokens);
    }
}

#[cfg(test)]
mod tests {
    use trine_kernels::testing::isas;

    use super::super::subject::tests::bits;
    use super::*;

    /// The product itself is measured: every instruction set gives the bits of the first one.
    #[test]
    fn all_kernels_of_a_rule_agree() {
        let mut expected: Vec<Vec<u32>> = Vec::new();
        for isa in isas() {
            for (i, subject) in Widely::all(isa).enumerate() {
                let bits = bits(&subject, 66, 3);
                if i == expected.len() {
                    expected.push(bits.clone());
                }
                assert!(expected[i] == bits, "{} {} {isa}", subject.ty(), subject.layout());
            }
        }
    }
}
