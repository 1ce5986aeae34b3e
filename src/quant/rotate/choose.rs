//! Which matrices are rotated, and by what.

use std::collections::{BTreeMap, BTreeSet};

use trine_formats::gguf::{Metadata, ModelFile};
use trine_formats::rotated::{MOST_BLOCK, OUTPUT, Rotated, TABLE};
use trine_formats::types::TypeId;

use super::basis::Heads;
use super::error::RotateError;
use super::named::Nameable;
use crate::model::{LoadOptions, Weights};
use crate::quant::codec::{can_read, is_quantized};
use crate::quant::row::Row;

/// Architectures whose files have the heads of linear attention in turns.
const IN_TURNS: &[&str] = &["qwen35", "qwen35moe"];

/// The keys of a rotation by blocks of `block`, with signs of a seed: all matrices that can be named, the embeddings where
/// their rows are whole blocks, and where there is no output matrix these for both. The model's program says what it
/// multiplies by.
pub fn rotation(
    model: &ModelFile,
    rows: &[Row],
    (block, seed, partly): (usize, Option<u64>, bool),
) -> Result<Rotated, RotateError> {
    let meta = model.meta();
    if let Some(old) = Rotated::read(meta)? {
        return Err(RotateError::Already(old.block));
    }
    if !block.is_power_of_two() || !(2..=MOST_BLOCK as usize).contains(&block) {
        return Err(RotateError::Block(block));
    }
    let options = LoadOptions { repack: false, ..LoadOptions::default() };
    let loaded = Weights::load(model, &options).map_err(Box::new)?;
    let arch = loaded.config().arch;
    let nameable = Nameable { arch, multiplied: loaded.multiplied() };
    let number = |key: &str| meta.get_u32(&format!("{}.{key}", arch.name));
    let fits = |row: &Row| row.columns().is_multiple_of(block as u64);
    let always = |row: &Row| row.name == TABLE || nameable.always(&row.name);
    let named = rows.iter().filter(|row| always(row) || fits(row) && nameable.where_it_fits(&row.name));
    let (fitting, others): (Vec<&Row>, Vec<&Row>) = named.partition(|row| fits(row));
    if fitting.is_empty() {
        return Err(RotateError::Nothing(block));
    }
    if let (Some(first), false) = (others.first(), partly) {
        let most = others.iter().map(|row| 1u64 << row.columns().trailing_zeros()).min().unwrap_or(1);
        let (count, first, columns) = (others.len(), first.name.clone(), first.columns());
        return Err(RotateError::Misfit { count, first, columns, block, most });
    }
    let table = fitting.iter().any(|row| row.name == TABLE);
    let names = fitting.iter().map(|row| row.name.clone()).filter(|name| name != TABLE);
    let weights: BTreeSet<String> = names.collect();
    let heads = || {
        let sizes = [number("ssm.time_step_rank")?, number("ssm.group_count")?].map(|n| n.unwrap_or(0));
        Ok::<bool, RotateError>(sizes[1] > 0 && sizes[0] > sizes[1])
    };
    let grouped = IN_TURNS.contains(&arch.name) && weights.iter().any(|name| name.contains(".ssm_out.")) && heads()?;
    let tied = table && !rows.iter().any(|row| row.name == OUTPUT);
    if weights.is_empty() {
        return Err(RotateError::Nothing(block));
    }
    let widths: BTreeSet<usize> = fitting.iter().map(|row| row.columns() as usize).collect();
    let signs = seed.map(|seed| widths.iter().map(|&width| (width, signs(width, seed))).collect::<BTreeMap<_, _>>());
    Ok(Rotated { block, signs, weights, table, tied, grouped })
}

/// The keys of a rotated model, all of whose matrices are there.
pub fn present(meta: &Metadata, rows: &[Row]) -> Result<Rotated, RotateError> {
    let rotated = Rotated::read(meta)?.ok_or(RotateError::NotRotated)?;
    let table = rotated.table.then_some(TABLE);
    let named = rotated.weights.iter().map(String::as_str).chain(table);
    let names: BTreeSet<&str> = rows.iter().map(|row| row.name.as_str()).collect();
    match named.into_iter().find(|name| !names.contains(name)) {
        Some(missing) => Err(RotateError::Missing(missing.to_owned())),
        None => Ok(rotated),
    }
}

/// Makes sure that rows can be read, and that quantized ones have a type that they become.
pub fn check_types<'a>(rows: impl Iterator<Item = &'a Row> + Clone, ty: Option<TypeId>) -> Result<(), RotateError> {
    let by_rows = |row: &&Row| can_read(row.from) && row.from.info().is_some_and(|t| !t.is_per_tensor());
    if let Some(row) = rows.clone().find(|row| !by_rows(row)) {
        return Err(RotateError::Codec { tensor: row.name.clone(), ty: row.from });
    }
    let quantized: Vec<&Row> = rows.filter(|row| is_quantized(row.from)).collect();
    match (quantized.first(), ty) {
        (Some(first), None) => {
            let (count, first, ty) = (quantized.len(), first.name.clone(), first.from);
            Err(RotateError::Quantized { count, first, ty })
        }
        _ => Ok(()),
    }
}

/// Heads of linear attention whose outputs make rows of `width`.
///
/// # Errors
/// The reason why there are none.
pub fn heads(meta: &Metadata, width: usize) -> Result<Heads, String> {
    let arch = meta.get_str("general.architecture").ok().flatten().unwrap_or_default();
    let number = |key: &str| {
        let key = format!("{arch}.ssm.{key}");
        let n = meta.get_u32(&key).map_err(|e| e.to_string())?;
        n.filter(|&n| n > 0).map(|n| n as usize).ok_or_else(|| format!("{key} is missing"))
    };
    let (values, keys) = (number("time_step_rank")?, number("group_count")?);
    match values.is_multiple_of(keys) && width.is_multiple_of(values) {
        true => Ok(Heads { values, keys }),
        false => Err(format!("{width} columns are not {values} heads, a whole number for each of {keys} keys")),
    }
}

/// `general.file_type` of a type of floats.
pub fn file_type(ty: TypeId) -> Option<u32> {
    match ty {
        TypeId::F32 => Some(0),
        TypeId::F16 => Some(1),
        TypeId::BF16 => Some(32),
        _ => None,
    }
}

/// Random signs of a row: the top bits of the numbers of splitmix64, seeded with the seed and the width.
fn signs(width: usize, seed: u64) -> Vec<f32> {
    let mut state = seed ^ (width as u64).rotate_left(32);
    let next = |_| {
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = state;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        if (z ^ (z >> 31)) >> 63 == 0 { 1.0 } else { -1.0 }
    };
    (0..width).map(next).collect()
}
