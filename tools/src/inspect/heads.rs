//! The heads for multi-token prediction that a file has beside its model.

use trine::arch::Arch;
use trine_formats::gguf::ModelFile;

/// The heads of a file.
struct Heads {
    /// Number of blocks of the heads, behind the blocks that are run.
    blocks: u32,
    tensors: usize,
    bytes: u64,
}

impl Heads {
    /// The heads of `model`; `None` where its keys name none.
    fn of(model: &ModelFile, arch: &str) -> Option<Heads> {
        let count = |key: &str| model.meta().get_u32(&format!("{arch}.{key}")).ok().flatten();
        let (all, blocks) = (count("block_count")?, count("nextn_predict_layers").filter(|&n| n > 0)?);
        let of_heads = all.checked_sub(blocks)?..all;
        let is_part = |name: &str| {
            let block = name.strip_prefix("blk.").and_then(|name| name.split_once('.'));
            block.is_some_and(|(block, _)| block.parse().is_ok_and(|block: u32| of_heads.contains(&block)))
        };
        let sizes: Vec<u64> = model.tensors().filter(|t| is_part(&t.name)).map(|t| t.bytes).collect();
        let bytes = sizes.iter().fold(0, |sum: u64, &n| sum.saturating_add(n));
        Some(Heads { blocks, tensors: sizes.len(), bytes })
    }
}

/// The line about heads, if the file has any.
pub fn heads(model: &ModelFile) -> Option<String> {
    let name = model.meta().get_str("general.architecture").ok()??;
    let Heads { blocks, tensors, bytes } = Heads::of(model, name)?;
    let what = match blocks {
        1 => "a head".to_owned(),
        n => format!("{n} heads"),
    };
    let use_of = match Arch::find(name).is_some_and(|arch| !arch.mtp.is_empty()) {
        _ if tensors == 0 => "whose tensors are not in the file".to_owned(),
        true => format!("{tensors} tensors of {:.1} MB, loaded for --spec-type draft-mtp alone", bytes as f64 / 1e6),
        false => format!("{tensors} tensors of {:.1} MB, which trine does not use", bytes as f64 / 1e6),
    };
    Some(format!("{what} for multi-token prediction: {use_of}"))
}
