//! The forms of quantized matrices, and how one is read.

use half::{bf16, f16};
use rayon::prelude::*;
use trine_formats::safetensors::{Dtype, decode};

use super::super::error::ConvertError;
use super::codes::{AWQ_PLACE, code, per_word};
use super::float8::{E2M1, e4m3, element};

/// A tensor of the checkpoint that is a part of a matrix.
#[derive(Clone, Debug)]
pub struct Raw {
    pub name: String,
    pub shard: usize,
    pub offset: u64,
    pub bytes: u64,
    pub dtype: Dtype,
    pub shape: Vec<u64>,
}

/// ParetoQ's levels of a row with the clip value `clip`, every step rounded to the checkpoint's type.
fn clip(bits: u32, clip: f32, dtype: Dtype, values: &mut [f32]) {
    let rounded = |v: f32| match dtype {
        Dtype::BF16 => bf16::from_f32(v).to_f32(),
        Dtype::F16 => f16::from_f32(v).to_f32(),
        _ => v,
    };
    let (least, bound) = (rounded(1e-5), rounded(0.99));
    let alpha = if clip > least { clip } else { least };
    for v in values {
        let x = rounded(*v / alpha);
        let level = match bits {
            1 if *v == 0.0 => 0.0,
            1 => v.signum(),
            0 => rounded(rounded(x.clamp(-bound, bound) * 1.5).round_ties_even() / 1.5),
            2 => {
                let shifted = rounded(rounded(x.clamp(-bound, bound) * 2.0) - 0.5).round_ties_even();
                rounded(rounded(shifted + 0.5) / 2.0)
            }
            _ => {
                let most = (1 << (bits - 1)) as f32;
                x.round_ties_even().clamp(-most, most - 1.0)
            }
        };
        *v = rounded(level * alpha) + 0.0;
    }
}

/// How codes, scales and zeros make values. A group is as many inputs as share a scale.
#[derive(Clone, Debug)]
pub enum Form {
    /// Floats or whole numbers of eight bits, times the scale of their block of `rows` by `columns`.
    Scaled { rows: u64, columns: u64 },
    /// GPTQ: words along the inputs, `[inputs / n][outputs]`; zeros along the outputs, `[groups][outputs / n]`, stored
    /// less `less`; scales `[groups][outputs]`; an input's group is said, or follows from `group`.
    Gptq { bits: u32, less: i32, group: u64 },
    /// AWQ: words along the outputs, whose columns are shuffled, `[inputs][outputs / 8]`; zeros and scales likewise.
    Awq { group: u64 },
    /// compressed-tensors: words along the inputs, `[outputs][inputs / n]`; scales `[outputs][groups]`; zeros along the
    /// outputs, `[outputs / n][groups]`, or the middle of the codes.
    Packed { bits: u32, group: u64 },
    /// MLX: words along the inputs, `[outputs][inputs / n]`; a value is code times scale plus bias,
    /// `[outputs][groups]`.
    Affine { bits: u32, group: u64 },
    /// ParetoQ: latent weights, which are stretched to the levels of a row's clip value; 0 bits are three levels.
    Clipped { bits: u32 },
    /// NVFP4: two E2M1 floats a byte, an E4M3 scale for every 16, and a scale of the matrix, or its inverse.
    Nvfp4 { inverse: bool },
}

/// A matrix and its tensors.
#[derive(Clone, Debug)]
pub struct Unpacked {
    /// Rows of all matrices, where there are several.
    pub rows: u64,
    pub columns: u64,
    /// Extents, outermost first.
    pub shape: Vec<u64>,
    pub form: Form,
    pub codes: Raw,
    pub scales: Raw,
    pub zeros: Option<Raw>,
    /// Groups of inputs, the scale of the matrix, or biases.
    pub more: Option<Raw>,
}

/// The tensors of one, in memory.
#[derive(Debug)]
pub struct Loaded {
    codes: Vec<u8>,
    scales: Vec<f32>,
    zeros: Vec<u8>,
    groups: Vec<u32>,
    biases: Vec<f32>,
    factor: f32,
}

impl Unpacked {
    /// Reads the tensors, each with `read`, which fills a buffer from an offset of a file on.
    ///
    /// # Errors
    /// An error of `read`; an input whose group has no scale.
    pub fn load(
        &self,
        read: impl Fn(usize, u64, &mut [u8]) -> Result<(), ConvertError>,
    ) -> Result<Loaded, ConvertError> {
        let bytes = |raw: &Raw| {
            let mut bytes = vec![0; raw.bytes as usize];
            read(raw.shard, raw.offset, &mut bytes).map(|()| bytes)
        };
        let floats = |raw: &Raw| {
            let bytes = bytes(raw)?;
            if let Some(element) = element(raw.dtype) {
                return Ok(bytes.into_iter().map(element).collect());
            }
            let mut floats = vec![0.0; bytes.len() / raw.dtype.bytes() as usize];
            decode(raw.dtype, &bytes, &mut floats);
            Ok::<Vec<f32>, ConvertError>(floats)
        };
        let mut loaded = Loaded {
            codes: bytes(&self.codes)?,
            scales: floats(&self.scales)?,
            zeros: self.zeros.as_ref().map_or(Ok(Vec::new()), bytes)?,
            groups: Vec::new(),
            biases: Vec::new(),
            factor: 1.0,
        };
        match (&self.form, &self.more) {
            (Form::Gptq { .. }, Some(raw)) => {
                let words = bytes(raw)?;
                loaded.groups = words.as_chunks().0.iter().map(|b| u32::from_le_bytes(*b)).collect();
                let groups = self.scales.shape[0];
                if let Some(group) = loaded.groups.iter().find(|g| u64::from(**g) >= groups) {
                    let name = &raw.name;
                    let what = format!("'{name}' names group {group}, and there are {groups}");
                    return Err(ConvertError::Damaged(what));
                }
            }
            (Form::Gptq { group, .. }, None) => {
                loaded.groups = (0..self.columns).map(|k| (k / group) as u32).collect();
            }
            (Form::Affine { .. }, Some(raw)) => loaded.biases = floats(raw)?,
            (Form::Nvfp4 { inverse }, Some(raw)) => {
                let factor = floats(raw)?[0];
                loaded.factor = if *inverse { 1.0 / factor } else { factor };
            }
            _ => {}
        }
        Ok(loaded)
    }

    /// Bytes from `offset` on of the matrix as little-endian floats, row after row.
    pub fn read(&self, loaded: &Loaded, offset: u64, into: &mut [u8]) {
        let columns = self.columns;
        let (first, elements) = (offset / 4, into.len() as u64 / 4);
        // whole rows at a time, but for the ends
        let mut rest = into;
        let mut pieces = Vec::new();
        let mut at = first;
        while at < first + elements {
            let (row, column) = (at / columns, at % columns);
            let n = (columns - column).min(first + elements - at);
            let (now, later) = rest.split_at_mut(n as usize * 4);
            pieces.push((row, column, now));
            rest = later;
            at += n;
        }
        pieces.into_par_iter().for_each_init(Vec::new, |values: &mut Vec<f32>, (row, column, bytes)| {
            values.clear();
            values.resize(columns as usize, 0.0);
            self.row(loaded, row as usize, values);
            for (b, v) in bytes.as_chunks_mut::<4>().0.iter_mut().zip(&values[column as usize..]) {
                *b = v.to_le_bytes();
            }
        });
    }

    /// The values of a row.
    fn row(&self, loaded: &Loaded, r: usize, values: &mut [f32]) {
        let columns = self.columns as usize;
        let Loaded { codes, scales, zeros, groups, biases, factor } = loaded;
        match self.form {
            Form::Scaled { rows, columns: width } => {
                let value = element(self.codes.dtype).unwrap_or(e4m3);
                let (rows, width) = (rows as usize, width as usize);
                let scales = &scales[r / rows * columns.div_ceil(width)..];
                let row = &codes[r * columns..(r + 1) * columns];
                for (k, (v, code)) in values.iter_mut().zip(row).enumerate() {
                    *v = value(*code) * scales[k / width];
                }
            }
            Form::Gptq { bits, less, .. } => {
                let (n, outputs) = (per_word(bits) as usize, self.rows as usize);
                for (k, v) in values.iter_mut().enumerate() {
                    let g = groups[k] as usize;
                    let q = code(codes, k / n * outputs + r, (k % n) as u32, bits);
                    let zero = code(zeros, (g * outputs + r) / n, (r % n) as u32, bits) + less;
                    *v = scales[g * outputs + r] * (q - zero) as f32;
                }
            }
            Form::Awq { group } => {
                let (outputs, group) = (self.rows as usize, group as usize);
                let place = AWQ_PLACE[r % 8];
                for (k, v) in values.iter_mut().enumerate() {
                    let at = |row: usize| (row * outputs + r) / 8;
                    let (q, zero) = (code(codes, at(k), place, 4), code(zeros, at(k / group), place, 4));
                    *v = (q - zero) as f32 * scales[k / group * outputs + r];
                }
            }
            Form::Packed { bits, group } => {
                let (n, group) = (per_word(bits) as usize, group as usize);
                let (words, groups) = (columns.div_ceil(n), columns / group);
                let middle = 1 << (bits - 1);
                for (k, v) in values.iter_mut().enumerate() {
                    let g = k / group;
                    let zero = match zeros.is_empty() {
                        true => middle,
                        false => code(zeros, r / n * groups + g, (r % n) as u32, bits),
                    };
                    let q = code(codes, r * words + k / n, (k % n) as u32, bits);
                    *v = (q - zero) as f32 * scales[r * groups + g];
                }
            }
            Form::Affine { bits, group } => {
                let (n, group) = (per_word(bits) as usize, group as usize);
                for (k, v) in values.iter_mut().enumerate() {
                    let q = code(codes, r * columns / n + k / n, (k % n) as u32, bits);
                    let g = r * columns / group + k / group;
                    *v = q as f32 * scales[g] + biases[g];
                }
            }
            Form::Clipped { bits } => {
                let size = self.codes.dtype.bytes() as usize;
                decode(self.codes.dtype, &codes[r * columns * size..(r + 1) * columns * size], values);
                clip(bits, scales[r], self.codes.dtype, values);
            }
            Form::Nvfp4 { .. } => {
                let (half, sixteenth) = (columns / 2, columns / 16);
                let row = &codes[r * half..(r + 1) * half];
                for (k, v) in values.iter_mut().enumerate() {
                    let level = E2M1[usize::from(row[k / 2] >> (4 * (k % 2)) & 15)];
                    *v = level * scales[r * sixteenth + k / 16] * factor;
                }
            }
        }
    }
}
