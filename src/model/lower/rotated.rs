//! Inputs of rotated matrices.

use trine_formats::rotated::{OUTPUT, Rotated, RotatedError, TABLE};

use super::lowering::Lowering;
use crate::model::Problem;
use crate::ops::hadamard::Hadamard;
use crate::program::Value;

/// The rotation of inputs of `width` elements.
///
/// # Errors
/// The reason why such inputs cannot be rotated.
fn rotation(rotated: &Rotated, width: usize) -> Result<Hadamard, RotatedError> {
    let signs = rotated.signs_of(width)?.to_vec();
    Ok(Hadamard { block: rotated.block, signs, inverse: false })
}

impl Lowering<'_, '_> {
    /// `x` as the matrix of a tensor wants it: rotated where the tensor is rotated. Matrices with the same input share
    /// the rotated one.
    pub(super) fn rotated(&mut self, x: Value, tensor: &str) -> Value {
        self.multiplied.insert(tensor.to_owned());
        let Some(rotated) = &self.c.rotated else {
            return x;
        };
        let tied = rotated.tied && tensor == TABLE;
        if !tied && !rotated.weights.contains(tensor) {
            return x;
        }
        let permuted = rotated.is_grouped(tensor);
        if let Some((.., y)) = self.rotations.iter().find(|known| (known.0, known.1) == (x, permuted)) {
            return *y;
        }
        let rotation = match rotation(rotated, self.b.columns(x)) {
            Ok(rotation) => rotation,
            Err(why) => {
                let what = format!("it cannot be multiplied with rotated inputs: {why}");
                self.loader.problem(Problem::tensor(tensor, what));
                return x;
            }
        };
        let ordered = if permuted { self.in_training_order(x) } else { x };
        let y = self.b.hadamard("rotated", ordered, rotation);
        self.rotations.push((x, permuted, y));
        y
    }

    /// The embeddings, rotated back where the table is rotated.
    pub(super) fn unrotated_embeddings(&mut self, x: Value) -> Value {
        let Some(rotated) = self.c.rotated.as_ref().filter(|rotated| rotated.table) else {
            return x;
        };
        match rotation(rotated, self.b.columns(x)) {
            Ok(rotation) => self.b.hadamard("unrotated", x, Hadamard { inverse: true, ..rotation }),
            Err(why) => {
                self.loader.problem(Problem::tensor(TABLE, format!("its rows cannot be rotated back: {why}")));
                x
            }
        }
    }

    /// The outputs of linear attention's heads, `[keys' turns][keys][head]`, in the order of their training, in which the
    /// heads of a key follow each other.
    fn in_training_order(&mut self, x: Value) -> Value {
        let sizes = self.c.mixing.sizes;
        let of_key = sizes.heads / sizes.groups.max(1);
        if of_key <= 1 {
            return x;
        }
        let head = self.b.columns(x) / sizes.heads;
        let turns = self.b.split_into(x, (0..of_key).map(|_| ("heads_of_a_turn", sizes.groups * head)));
        let turns: Vec<(Value, usize)> = turns.into_iter().map(|turn| (turn, head)).collect();
        self.b.join("heads_by_key", &turns)
    }

    /// Notes rotated tensors that nothing is multiplied by, and what rotated models do not have.
    pub(super) fn check_rotated(&mut self, rotated: &Rotated) {
        for name in rotated.weights.iter().filter(|name| !self.multiplied.contains(*name)) {
            let what = "key prism.hadamard.weight_names names it, and the model does not multiply by it";
            self.loader.problem(Problem::tensor(name, what));
        }
        if self.loader.has_adapters() {
            let what = "adapters are not applied to rotated weights; merge the adapter before they are rotated";
            self.loader.problem(Problem::Contradiction(what.to_owned()));
        }
        if rotated.table && !rotated.tied && !self.loader.has(OUTPUT) {
            let what = "it is rotated and there is no output.weight: version 2 of prism.hadamard.* has keys for that";
            self.loader.problem(Problem::tensor(TABLE, what));
        }
    }
}
