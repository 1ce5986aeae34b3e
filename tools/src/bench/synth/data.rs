//! Synthetic weights: a few random rows per tensor, encoded once and repeated to its full height.
//!
//! Encoding every row of a large model takes longer than measuring it, and the time of a kernel does
//! not depend on the values. The source values are f16 numbers, so that a file made in a type is the
//! one that `rquantize` makes from the same model in F16.

use anyhow::{Context, Result};
use trine::quant::Row;
use trine_formats::gguf::TensorInfo;
use trine_formats::gguf::write::NewTensor;
use trine_formats::types::num::{f16_to_f32, f32_to_f16};
use trine_formats::types::{EncodeFn, TypeId};
use trine_kernels::ternary;

/// Distinct rows of a matrix; the rest repeat them.
const DISTINCT: usize = 32;

/// Distribution of a tensor's weights.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// About normal, with the deviation that keeps activations at their size.
    Normal,
    /// -s, 0, +s, one s for the tensor.
    Ternary,
    /// Close to 1.
    Norm,
}

/// Steele and others' SplitMix64: fast, and one word of state.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    /// Mean 0, deviation 1: the sum of four uniform numbers.
    fn normal(&mut self) -> f32 {
        let z = self.next();
        let sum: u32 = (0..4).map(|i| (z >> (16 * i)) as u32 & 0xFFFF).sum();
        (sum as f32 / 65_536.0 - 2.0) * 3f32.sqrt()
    }
}

/// A seed that depends on the tensor's name only (FNV-1a).
fn seed(name: &str) -> u64 {
    name.bytes().fold(0xCBF2_9CE4_8422_2325, |h, b| (h ^ u64::from(b)).wrapping_mul(0x0100_0000_01B3))
}

fn round(x: f32) -> f32 {
    f16_to_f32(f32_to_f16(x))
}

/// Bytes of tensor `row` in its target type.
///
/// # Errors
/// A type that trine cannot write.
pub fn tensor(row: &Row, kind: Kind) -> Result<Vec<u8>> {
    let columns = usize::try_from(row.columns())?;
    let rows = usize::try_from(row.weights() / row.columns().max(1))?;
    let mut random = Random(seed(&row.name));
    if let Some(packing) = row.moves.and_then(|m| m.to) {
        // sampled as the floats below, so that both give the same matrix
        let distinct: Vec<i8> = (0..columns * rows.min(DISTINCT)).map(|_| code(&mut random)).collect();
        let codes: Vec<i8> = distinct.iter().copied().cycle().take(columns * rows).collect();
        return Ok(packing.pack(columns, rows, scale(columns), &codes)?);
    }
    let (encode, row_bytes) = encoder(row.to, columns)?;
    let mut bytes = vec![0u8; row_bytes * rows];
    let (first, rest) = bytes.split_at_mut(row_bytes * rows.min(DISTINCT));
    encode_rows(kind, columns, row_bytes, encode, &mut random, first);
    for out in rest.chunks_mut(first.len().max(1)) {
        out.copy_from_slice(&first[..out.len()]);
    }
    let expected = usize::try_from(row.bytes).ok().filter(|&n| n == bytes.len());
    expected.with_context(|| format!("tensor {}: its size is not that of its rows", row.name))?;
    Ok(bytes)
}

/// The row of a tensor that is made in the type that it has.
pub fn row(tensor: &NewTensor) -> Row {
    let (columns, rows) = (tensor.shape[0], tensor.shape.iter().skip(1).product());
    let bytes = tensor.ty.info().and_then(|t| t.tensor_bytes(columns, rows));
    let bytes = bytes.unwrap_or(0);
    let (name, shape) = (tensor.name.clone(), tensor.shape.clone());
    Row::of(&TensorInfo { name, shape, ty: tensor.ty, offset: 0, bytes })
}

/// Random bytes, which depend on the name alone.
pub fn random_bytes(name: &str, len: usize) -> Vec<u8> {
    let mut random = Random(seed(name));
    let words = (0..len.div_ceil(8)).flat_map(|_| random.next().to_le_bytes());
    words.take(len).collect()
}

/// `rows` random rows of `columns` weights in a type; of I2_S their codes as the engine keeps them.
///
/// # Errors
/// A type that trine cannot write.
pub fn random_rows(ty: TypeId, columns: usize, rows: usize) -> Result<Vec<u8>> {
    let mut random = Random(1);
    if ty == TypeId::I2_S {
        let row_bytes = ternary::row_bytes(columns);
        let mut bytes = vec![0u8; rows * row_bytes];
        for out in bytes.chunks_exact_mut(row_bytes.max(1)) {
            let codes: Vec<i8> = (0..columns).map(|_| code(&mut random)).collect();
            ternary::pack_row(&codes, out);
        }
        return Ok(bytes);
    }
    let (encode, row_bytes) = encoder(ty, columns)?;
    let is_ternary = matches!(ty, TypeId::TQ1_0 | TypeId::TQ2_0 | TypeId::Q2_0);
    let kind = match is_ternary {
        true => Kind::Ternary,
        false => Kind::Normal,
    };
    let mut bytes = vec![0u8; rows * row_bytes];
    encode_rows(kind, columns, row_bytes, encode, &mut random, &mut bytes);
    Ok(bytes)
}

/// The encoder of a type and the bytes of a row.
fn encoder(ty: TypeId, columns: usize) -> Result<(EncodeFn, usize)> {
    let info = ty.info();
    let parts = info.and_then(|t| Some((t.encode?, t.row_bytes(columns as u64)?)));
    let (encode, row_bytes) = parts.with_context(|| format!("trine cannot write {ty}"))?;
    Ok((encode, usize::try_from(row_bytes)?))
}

/// Fills `bytes`, whole rows, with random weights.
fn encode_rows(kind: Kind, columns: usize, row_bytes: usize, encode: EncodeFn, random: &mut Random, bytes: &mut [u8]) {
    let scale = scale(columns);
    let mut x = vec![0f32; columns];
    for out in bytes.chunks_exact_mut(row_bytes.max(1)) {
        for x in &mut x {
            *x = match kind {
                Kind::Normal => round(random.normal() * scale),
                Kind::Ternary => f32::from(code(random)) * scale,
                Kind::Norm => 1.0 + random.normal() * 0.05,
            };
        }
        encode(&x, None, out);
    }
}

/// The deviation that keeps activations at their size.
fn scale(columns: usize) -> f32 {
    round(1.0 / (columns as f32).sqrt())
}

fn code(random: &mut Random) -> i8 {
    ((random.next() >> 40) % 3) as i8 - 1
}

/// Distribution of a tensor's weights in a model that is `ternary` or not.
pub fn kind(row: &Row, ternary: bool) -> Kind {
    let ends = ["token_embd.weight", "output.weight"].contains(&row.name.as_str());
    match row.from {
        TypeId::F32 if row.shape.len() < 2 => Kind::Norm,
        // the matrix that scores experts
        TypeId::F32 => Kind::Normal,
        _ if ternary && !ends => Kind::Ternary,
        _ => Kind::Normal,
    }
}
