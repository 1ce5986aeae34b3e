//! Control vectors: directions that are added to the residual stream behind blocks.

use trine_formats::gguf::{ModelFile, TensorInfo};
use trine_formats::types::TypeId;

use super::ModelError;
use super::lora::Adapter;

/// Files of directions, and the blocks behind which they are added.
#[derive(Clone, Debug, Default)]
pub struct Control {
    /// Files with a tensor `direction.N` for block number N, and the factor on each; what several have for a block is
    /// added up.
    pub vectors: Vec<Adapter>,
    /// The first and the last block; a number that is not positive stands for the first or last that there is. Block 0
    /// has no direction.
    pub blocks: (i32, i32),
}

impl Control {
    /// The vectors to add after each of `n_block` blocks, `[blocks][n_embd]`; an empty one adds nothing.
    ///
    /// # Errors
    /// A file that holds no directions, or none for such a model.
    pub(super) fn read(&self, n_block: usize, n_embd: usize) -> Result<Vec<Vec<f32>>, ModelError> {
        let mut sum = vec![Vec::new(); n_block];
        if self.vectors.is_empty() {
            return Ok(sum);
        }
        let from = usize::try_from(self.blocks.0.max(1)).unwrap_or(1);
        let to = match usize::try_from(self.blocks.1) {
            Ok(to @ 1..) => to.min(n_block - 1),
            _ => n_block - 1,
        };
        for (i, direction) in sum.iter_mut().enumerate() {
            if (from..=to).contains(&i) {
                // blocks that no file has a direction for are given zeros, which turn -0 to +0
                *direction = vec![0.0; n_embd];
            }
        }
        for vector in &self.vectors {
            let of_file = directions(vector, n_block, n_embd)
                .map_err(|what| ModelError::Adapter { path: vector.path(), what })?;
            for (sum, own) in sum.iter_mut().zip(&of_file) {
                sum.iter_mut().zip(own).for_each(|(s, v)| *s += v);
            }
        }
        Ok(sum)
    }
}

/// The directions of one file, times their factor, by number of the block.
fn directions(vector: &Adapter, n_block: usize, n_embd: usize) -> Result<Vec<Vec<f32>>, String> {
    let file: &ModelFile = &vector.file;
    let mut found = vec![Vec::new(); n_block];
    if file.n_tensors() == 0 {
        return Err("it has no tensor: a control vector has direction.1 and further ones".into());
    }
    for info in file.tensors() {
        let block = number(info)?;
        check(info, n_embd)?;
        let Some((view, direction)) = file.tensor(&info.name).zip(found.get_mut(block)) else {
            continue;
        };
        direction.resize(n_embd, 0.0f32);
        for (sum, bytes) in direction.iter_mut().zip(view.data.chunks_exact(4)) {
            let value = f32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]);
            *sum += value * vector.scale;
        }
    }
    Ok(found)
}

/// The block that a tensor is for.
fn number(info: &TensorInfo) -> Result<usize, String> {
    let name = &info.name;
    let number = name.strip_prefix("direction.").map(str::parse);
    match number {
        Some(Ok(0)) => Err(format!("tensor {name}: block 0 has no direction")),
        Some(Ok(number)) => Ok(number),
        _ => Err(format!("tensor {name} is no direction: a control vector has direction.1 and further ones")),
    }
}

fn check(info: &TensorInfo, n_embd: usize) -> Result<(), String> {
    let (name, shape) = (&info.name, &info.shape);
    if info.ty != TypeId::F32 {
        let ty = info.ty;
        return Err(format!("tensor {name} has type {ty}, expected F32"));
    }
    let of_model = shape.first() == Some(&(n_embd as u64));
    if !of_model || shape[1..].iter().any(|&n| n != 1) {
        return Err(format!(
            "tensor {name} has shape {shape:?}, expected [{n_embd}]: is the control vector for another model?"
        ));
    }
    Ok(())
}
