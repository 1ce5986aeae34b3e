//! Models whose heads for multi-token prediction are often right.

use trine_formats::gguf::ModelFile;
use trine_formats::gguf::write::NewTensor;
use trine_formats::types::TypeId;

use super::Listing;

/// Factor on what blocks of the trunk but for the last one add to the residual stream.
const LITTLE: f32 = 0.002;

/// The model of a listing with a head that nearly agrees with it: the blocks of the trunk but for the last one add little
/// to the residual stream, and the head's block, which reads the embedding alone, is a copy of the last one.
pub fn agreeing(listing: &Listing) -> Vec<u8> {
    let model = crate::gguf::model(listing.file());
    let arch = model.meta().get_str("general.architecture").expect("text").expect("a name").to_owned();
    let count = |key: &str| model.meta().get_u32(&format!("{arch}.{key}")).expect("a number").expect("a key") as usize;
    let (columns, head) = (count("embedding_length"), count("block_count") - 1);
    let mut tensors = Vec::new();
    for info in model.tensors() {
        let rows = match info.name.strip_prefix(&format!("blk.{head}.")) {
            Some(part) => of_head(&model, part, head, columns),
            None => of_trunk(&model, &info.name, head, columns),
        };
        let bytes = rows.iter().flat_map(|v| v.to_le_bytes()).collect();
        tensors.push((NewTensor::new(info.name.clone(), info.shape.clone(), TypeId::F32), bytes));
    }
    crate::gguf::bytes(model.meta(), &tensors)
}

fn of_trunk(model: &ModelFile, name: &str, head: usize, columns: usize) -> Vec<f32> {
    let own = floats(model, name);
    let adds = ["attn_output.weight", "ssm_out.weight", "ffn_down"].iter().any(|part| name.contains(part));
    match name {
        "token_embd.weight" => normed(own, columns),
        _ if adds && !name.starts_with(&format!("blk.{}.", head - 1)) => own.iter().map(|v| v * LITTLE).collect(),
        _ => own,
    }
}

fn of_head(model: &ModelFile, part: &str, head: usize, columns: usize) -> Vec<f32> {
    match part {
        "nextn.eh_proj.weight" => {
            let one = |i: usize| f32::from(u8::from(i / (2 * columns) == i % (2 * columns)));
            (0..2 * columns * columns).map(one).collect()
        }
        "nextn.enorm.weight" | "nextn.hnorm.weight" => vec![1.0; columns],
        "nextn.shared_head_head.weight" if model.tensor("output.weight").is_some() => floats(model, "output.weight"),
        "nextn.embed_tokens.weight" | "nextn.shared_head_head.weight" => {
            normed(floats(model, "token_embd.weight"), columns)
        }
        "nextn.shared_head_norm.weight" => floats(model, "output_norm.weight"),
        part => floats(model, &format!("blk.{}.{part}", head - 1)),
    }
}

/// Rows whose mean square is 1.
fn normed(mut rows: Vec<f32>, columns: usize) -> Vec<f32> {
    for row in rows.chunks_exact_mut(columns) {
        let mean = row.iter().map(|v| v * v).sum::<f32>() / columns as f32;
        row.iter_mut().for_each(|v| *v /= mean.sqrt());
    }
    rows
}

fn floats(model: &ModelFile, name: &str) -> Vec<f32> {
    let view = model.tensor(name).unwrap_or_else(|| panic!("{name}"));
    view.data.as_chunks::<4>().0.iter().map(|bytes| f32::from_le_bytes(*bytes)).collect()
}
