//! A kernel with data of its own to run on.

use anyhow::Result;
use trine_kernels::packed::Method;
use trine_kernels::{AlignedBytes, Isa};

use super::super::kernel_type::KernelType;

/// Weights per row.
pub const COLUMNS: usize = 4096;

/// One kernel of a type.
pub trait Subject {
    /// The type of the weights.
    fn ty(&self) -> KernelType;
    /// The instruction set it was asked for.
    fn isa(&self) -> Isa;
    /// `rows` for those of a file, or the name of the form of weights or activations.
    fn layout(&self) -> &'static str;
    /// How its products are computed.
    fn method(&self) -> Method {
        Method::MultiplyAdd
    }
    /// True if it multiplies floats.
    fn is_float(&self) -> bool;
    /// Bytes of a row in a file.
    fn row_bytes(&self) -> usize;
    /// A matrix of random weights.
    ///
    /// # Errors
    /// No memory; a layout that cannot hold the weights.
    fn matrix(&self, rows: usize) -> Result<Box<dyn BenchMatrix>>;
}

/// Weight matrix of one kernel's benchmark.
pub trait BenchMatrix: Sync {
    /// Bytes that a product reads.
    fn bytes(&self) -> usize;
    /// Outputs of a product with one activation row.
    fn rows(&self) -> usize;
    /// Writes `x` as a product with `tokens` rows takes it.
    fn arrange(&self, x: &[f32], tokens: usize) -> Vec<u8>;
    /// One product, on the current pool; outputs in an order of the kernel's own.
    fn multiply(&self, acts: &Activations, out: &mut [f32]);

    /// `tokens` rows of random activations.
    fn activations(&self, tokens: usize) -> Activations {
        let x: Vec<f32> = (0..COLUMNS).map(|i| ((i * 2_654_435_761) % 2001) as f32 / 1000.0 - 1.0).collect();
        let row = self.arrange(&x, tokens);
        let mut rows = AlignedBytes::new(row.len() * tokens);
        for out in rows.chunks_exact_mut(row.len().max(1)) {
            out.copy_from_slice(&row);
        }
        Activations { rows, x: x.repeat(tokens), tokens }
    }

    /// Room for the outputs of a product with `tokens` activation rows.
    fn outputs(&self, tokens: usize) -> Vec<f32> {
        vec![0.0; self.rows() * tokens]
    }
}

/// Activation rows, all alike.
pub struct Activations {
    /// As the kernel takes them.
    pub rows: AlignedBytes,
    /// The values.
    pub x: Vec<f32>,
    /// Number of rows.
    pub tokens: usize,
}

#[cfg(test)]
pub mod tests {
    use super::*;

    /// The bits of a product of a matrix of `rows` rows, in ascending order: all tokens are alike, so the order of the two
    /// does not show.
    pub fn bits(subject: &dyn Subject, rows: usize, tokens: usize) -> Vec<u32> {
        let matrix = subject.matrix(rows).expect("a matrix");
        let mut out = matrix.outputs(tokens);
        matrix.multiply(&matrix.activations(tokens), &mut out);
        let mut bits: Vec<u32> = out.iter().map(|v| v.to_bits()).collect();
        bits.sort_unstable();
        assert!(bits[0] != bits[bits.len() - 1], "{}", subject.ty());
        bits
    }
}
