//! Both products of a gated network, its activation and the encoding for the next product, in one region of the pool.
//!
//! Done one after the other, the products of a prompt are written to rows that no second-level cache holds, read for
//! the activation, written, and read again to be encoded; writing them alone takes up to a fifth of a prompt's time.
//! Here a task takes some columns from the products to the encoded blocks, a quarter of the bytes, while they stay in
//! its cache.

use super::activation::Activation;
use super::activations::{Activations, encode, encoded_bytes};
use super::matmul::Matrix;
use crate::kernels::packed::Encoding;
use crate::kernels::{AlignedBytes, Floats};
use crate::pool;

/// Rows of the matrices (columns of their output) that a task computes: a block of the type with the largest blocks.
const COLUMNS: usize = 256;
/// Tokens of a task at most, for which a group of rows is unpacked once.
const TOKENS: usize = 256;
/// Tokens of a task at least, where there are threads for more tasks.
const FEW: usize = 64;

/// `f(W x) * (V x)` for every row of `x`, encoded for products with `next`; `None` where that has to be done step by
/// step: with few rows, matrices that are not packed or have a scale, and where somebody sees the values.
///
/// The bits are those of [`super::matmul::matmul`], [`Activation::gate`] and the encoding one after the other.
pub fn gated(
    [gate, up]: [&Matrix; 2],
    activation: Activation,
    next: &Matrix,
    x: &Activations<'_>,
) -> Option<Activations<'static>> {
    let (gate, up) = (gate.as_packed()?, up.as_packed()?);
    let encoding = next.as_packed()?.layout().encoding;
    let fits = gate.rows() == up.rows() && gate.rows() == next.cols;
    // The scale of a row of whole numbers is that of the whole row.
    let by_blocks = matches!(encoding, Encoding::Type(_));
    if x.tokens() < FEW || x.is_observed() || !by_blocks || !fits {
        return None;
    }
    let isa = x.isa();
    let both = [gate, up].map(|w| (w, x.arranged(w.layout())));
    let (rows, tokens) = (gate.rows(), x.tokens());
    let row_bytes = encoded_bytes(encoding, rows);
    let mut encoded = AlignedBytes::scratch(tokens * row_bytes);
    let at_once = tokens_of_a_task(tokens, rows.div_ceil(COLUMNS));
    let size = (at_once, encoded_bytes(encoding, COLUMNS));
    pool::tiles_mut(&mut encoded, row_bytes, size, |mut tile| {
        let first = tile.cols.start / size.1 * COLUMNS;
        let columns = first..rows.min(first + COLUMNS);
        let some = tile.rows.clone();
        // The activation leaves its result in the gate's place.
        let [mut values, ups] = both.each_ref().map(|(w, acts)| {
            let (lanes, act_bytes) = (w.layout().rows, (w.layout().act_bytes)(w.cols()));
            let acts = &acts[some.start * act_bytes..some.end * act_bytes];
            let groups = columns.start / lanes..columns.end.div_ceil(lanes);
            let mut values = Floats::scratch(some.len() * columns.len());
            w.multiply_groups(groups, acts, &mut values);
            values
        });
        activation.chunk(isa, &mut values, &ups);
        for (t, values) in values.chunks_exact(columns.len()).enumerate() {
            encode(encoding, isa, values, tile.row(t));
        }
    });
    Some(Activations::of_encoded(encoding, encoded, rows, isa))
}

/// Number of tokens of a task, such that every thread gets a few tasks.
fn tokens_of_a_task(tokens: usize, across: usize) -> usize {
    let wanted = (4 * pool::threads()).div_ceil(across);
    let even = tokens.div_ceil(tokens.div_ceil(TOKENS).max(wanted));
    even.next_multiple_of(16).max(FEW)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernels::testing::Random;
    use crate::kernels::{Isa, Level};
    use crate::ops::matmul::matmul;
    use crate::ops::product::SharedArena;
    use crate::ops::product::density::Dense;
    use trine_formats::gguf::Blob;
    use trine_formats::types::TypeId;

    /// Rows of random weights of a type, as a file has them.
    fn matrix(ty: TypeId, cols: usize, rows: usize, isa: Isa, random: &mut Random) -> Matrix {
        let info = ty.info().expect("a type");
        let x: Vec<f32> = (0..cols * rows).map(|_| random.float()).collect();
        let mut data = vec![0; x.len() / info.block * info.bytes];
        info.encode.expect("an encoder")(&x, None, &mut data);
        Matrix::new(ty, cols, rows, Blob::from_vec(data), isa).expect("a matrix")
    }

    /// Against rows of the file, multiplied, gated and encoded one after the other.
    #[test]
    fn the_bits_are_those_of_one_step_after_the_other() {
        let mut random = Random(7);
        // the second block of columns is not whole where the types allow that
        let cases = [(TypeId::TQ2_0, 512), (TypeId::Q4_K, 512), (TypeId::Q8_0, 416), (TypeId::F16, 400)];
        let levels = Level::ALL.iter().filter_map(|&level| Isa::of(level));
        for isa in levels {
            for (ty, rows) in cases {
                let first = [0; 2].map(|_| matrix(ty, 256, rows, isa, &mut random));
                let next = matrix(ty, rows, 96, isa, &mut random);
                let arena = SharedArena::default();
                let pack = |m: &Matrix| m.clone().packed(&arena, isa, Dense::Always).expect("memory");
                let (packed, packed_next) = (first.each_ref().map(pack), pack(&next));
                for tokens in [FEW, FEW + 37, 300] {
                    let x: Vec<f32> = (0..256 * tokens).map(|_| random.float()).collect();
                    let acts = Activations::new(&x, 256, isa);
                    let [mut gate, up] = matmul(first.each_ref(), &acts);
                    Activation::Silu.gate(isa, &mut gate, &up);
                    let [expected] = matmul([&next], &Activations::new(&gate, rows, isa));
                    let given = gated(packed.each_ref(), Activation::Silu, &packed_next, &acts);
                    if packed.iter().any(|m| m.as_packed().is_none()) {
                        assert!(given.is_none(), "{ty} {isa:?}");
                        continue;
                    }
                    let [given] = matmul([&packed_next], &given.expect("gated"));
                    let same = given.iter().map(|v| v.to_bits());
                    let same = same.eq(expected.iter().map(|v| v.to_bits()));
                    assert!(same, "{ty} {isa:?} {tokens} tokens");
                }
            }
        }
    }
}
