//! Tensors by name and shape, with every problem collected before any is reported.

use std::collections::HashSet;
use std::fmt;

use trine_formats::anyprec::{AnyPrec, Part};
use trine_formats::gguf::{Blob, ModelFile, TensorView};
use trine_formats::types::TypeId;

use super::{Arch, Config, LoadOptions, ModelError};
use crate::kernels::Floats;
use crate::ops;
use crate::ops::matmul::{Activations, Matrix, matmul};
use crate::ops::product::SharedArena;

/// Models of so many bytes stay in the last-level cache of the processors that are common today.
const CACHE: u64 = 24 << 20;

/// Takes tensors out of a file. After a problem it returns an empty stand-in, so that one pass finds
/// all of them; [`Loader::finish`] must be asked before anything is used.
pub struct Loader<'a> {
    file: &'a ModelFile,
    anyprec: Option<&'a AnyPrec>,
    options: &'a LoadOptions,
    problems: Vec<String>,
    used: HashSet<String>,
    arena: SharedArena,
    in_cache: bool,
    /// What became of the matrices.
    layouts: Layouts,
}

impl<'a> Loader<'a> {
    /// Takes from `file`, of which `anyprec` is the description where it has one.
    pub fn new(
        file: &'a ModelFile,
        anyprec: Option<&'a AnyPrec>,
        options: &'a LoadOptions,
    ) -> Loader<'a> {
        let weights: u64 = file.tensors().map(|t| t.bytes).sum();
        Loader {
            file,
            anyprec,
            options,
            problems: Vec::new(),
            used: HashSet::new(),
            arena: SharedArena::default(),
            in_cache: weights <= CACHE,
            layouts: Layouts::default(),
        }
    }

    /// Ends the loading: no problem was found and no tensor is left over.
    pub fn finish(mut self) -> Result<Layouts, ModelError> {
        let mut unused: Vec<&str> = self
            .file
            .tensors()
            // the parts of an any-precision matrix count as it does
            .map(|t| match t.name.find(Part::INFIX) {
                Some(end) if self.anyprec.is_some() => &t.name[..end],
                _ => &t.name[..],
            })
            .filter(|n| !self.used.contains(*n))
            .collect();
        unused.dedup();
        if self.problems.is_empty() && !unused.is_empty() {
            let more = if unused.len() > 8 {
                format!(" and {} more", unused.len() - 8)
            } else {
                String::new()
            };
            self.problems.push(format!(
                "the architecture has no place for {}{more}",
                unused
                    .iter()
                    .take(8)
                    .copied()
                    .collect::<Vec<_>>()
                    .join(", ")
            ));
        }
        if self.problems.is_empty() {
            Ok(self.layouts)
        } else {
            Err(ModelError::Invalid(self.problems))
        }
    }

    fn take(&mut self, name: &str, shape: &[usize]) -> Option<TensorView> {
        let view = self.file.tensor(name)?;
        self.used.insert(name.to_owned());
        let found = &view.info.shape;
        let same = (0..found.len().max(shape.len())).all(|d| {
            found.get(d).copied().unwrap_or(1) == shape.get(d).copied().unwrap_or(1) as u64
        });
        if !same {
            self.problems.push(format!(
                "tensor {name} has shape {found:?}, expected {shape:?}"
            ));
            return None;
        }
        Some(view)
    }

    fn missing(&mut self, name: &str) {
        if !self.used.contains(name) {
            self.problems.push(format!("tensor {name} is missing"));
        }
    }

    /// A matrix that may be absent.
    pub fn optional_matrix(&mut self, name: &str, cols: usize, rows: usize) -> Option<Matrix> {
        if let Some(anyprec) = self.anyprec.filter(|a| a.tensor(name).is_some()) {
            return self.any_precision(anyprec, name, cols, rows);
        }
        let view = self.take(name, &[cols, rows])?;
        let info = view.info.ty.info();
        if info.is_some_and(|t| t.is_per_tensor()) {
            let source = view.ternary(self.file.meta(), &self.options.packing);
            if let Ok(s) = &source
                && !s.scale().is_finite()
            {
                let scale = s.scale();
                self.problems.push(format!(
                    "tensor {name}: its scale is {scale}, the data is damaged"
                ));
            }
            let matrix =
                source.and_then(|s| Matrix::ternary(&s).map_err(|e| view.ternary_error(e)));
            return matrix.map_err(|e| self.problems.push(e.to_string())).ok();
        }
        let ty = view.info.ty;
        let matrix = Matrix::new(ty, cols, rows, view.data, self.options.isa);
        if matrix.is_none() {
            self.problems
                .push(format!("tensor {name}: trine cannot multiply by {ty} yet"));
        }
        matrix
    }

    /// A matrix at all widths of the file.
    fn any_precision(
        &mut self,
        anyprec: &AnyPrec,
        name: &str,
        cols: usize,
        rows: usize,
    ) -> Option<Matrix> {
        self.used.insert(name.to_owned());
        let widths = anyprec.widths().iter();
        let views: Result<Vec<_>, _> = widths.map(|&b| anyprec.view(self.file, name, b)).collect();
        let views = views.map_err(|e| self.problems.push(e.to_string())).ok()?;
        let matrix = Matrix::any_precision(self.options.number_path, views)?;
        if (matrix.cols, matrix.rows) != (cols, rows) {
            self.problems.push(format!(
                "any-precision tensor {name} has {} columns and {} rows, expected {cols} and {rows}",
                matrix.cols, matrix.rows
            ));
            return None;
        }
        Some(matrix)
    }

    /// A required matrix.
    pub fn matrix(&mut self, name: &str, cols: usize, rows: usize) -> Matrix {
        self.optional_matrix(name, cols, rows).unwrap_or_else(|| {
            self.missing(name);
            Matrix::empty()
        })
    }

    /// The matrix in the layout it runs from.
    pub fn ready(&mut self, matrix: Matrix) -> Matrix {
        let rows = matrix.rows;
        let matrix = if self.options.repack && self.problems.is_empty() {
            let packed = matrix.packed(&self.arena, self.options.isa, self.in_cache);
            packed.unwrap_or_else(|e| {
                self.problems.push(format!(
                    "no memory for packed weights: {e}; try --no-repack"
                ));
                Matrix::empty()
            })
        } else {
            matrix
        };
        if rows > 0 {
            self.layouts.count(&matrix);
        }
        matrix
    }

    /// A vector that may be absent, widened to `f32`.
    pub fn optional_vector(&mut self, name: &str, n: usize) -> Option<Vec<f32>> {
        let view = self.take(name, &[n])?;
        let info = view.info.ty.info().filter(|t| !t.is_quantized());
        let Some(decode) = info.and_then(|t| t.decode) else {
            self.problems.push(format!(
                "tensor {name} has type {}, expected a float type",
                view.info.ty
            ));
            return None;
        };
        let mut out = vec![0f32; n];
        decode(&view.data, &mut out);
        Some(out)
    }

    /// A required vector.
    pub fn vector(&mut self, name: &str, n: usize) -> Vec<f32> {
        self.optional_vector(name, n).unwrap_or_else(|| {
            self.missing(name);
            Vec::new()
        })
    }

    /// `NAME.weight` with its optional `NAME.scale` and `NAME.bias`.
    pub fn linear(&mut self, name: &str, cols: usize, rows: usize) -> Linear {
        let linear = self.unready_linear(name, cols, rows);
        Linear {
            weight: self.ready(linear.weight),
            ..linear
        }
    }

    fn unready_linear(&mut self, name: &str, cols: usize, rows: usize) -> Linear {
        let tensor = format!("{name}.weight");
        Linear {
            weight: self.matrix(&tensor, cols, rows),
            tensor: Some(tensor),
            scale: self
                .optional_vector(&format!("{name}.scale"), 1)
                .map(|s| s[0]),
            bias: self.optional_vector(&format!("{name}.bias"), rows),
        }
    }

    /// The three projections of a layer, from separate tensors or one fused `attn_qkv`.
    pub fn qkv(&mut self, layer: usize, c: &Config) -> [Linear; 3] {
        let (q, kv) = (c.n_head * c.head_dim, c.n_head_kv * c.head_dim);
        let fused = format!("blk.{layer}.attn_qkv");
        let name = format!("{fused}.weight");
        let in_planes = self.anyprec.and_then(|a| a.tensor(&name)).is_some();
        if !in_planes && self.file.tensor_info(&name).is_none() {
            return [("attn_q", q), ("attn_k", kv), ("attn_v", kv)]
                .map(|(name, rows)| self.linear(&format!("blk.{layer}.{name}"), c.n_embd, rows));
        }
        let all = self.unready_linear(&fused, c.n_embd, q + 2 * kv);
        let parts = [("attn_q", 0, q), ("attn_k", q, kv), ("attn_v", q + kv, kv)];
        parts.map(|(name, from, rows)| {
            let separate = self.optional_vector(&format!("blk.{layer}.{name}.bias"), rows);
            let weight = all.weight.rows(from..from + rows);
            Linear {
                tensor: all.tensor.clone().filter(|_| from == 0),
                weight: self.ready(weight.unwrap_or_else(Matrix::empty)),
                scale: all.scale,
                bias: all
                    .bias
                    .as_ref()
                    .map(|b| b[from..from + rows].to_vec())
                    .or(separate),
            }
        })
    }
}

/// Where in an any-precision file each width's own planes and tables are.
pub fn sections(file: &ModelFile, anyprec: &AnyPrec) -> Vec<(u8, Blob)> {
    let mut from = 0;
    let section = |&width: &u8| {
        let planes = (from..width).map(Part::Plane);
        let parts: Vec<Part> = planes.chain([Part::Lut(width)]).collect();
        from = width;
        let names = anyprec.tensors().iter();
        let names = names.flat_map(|t| parts.iter().map(|p| p.name(&t.name)));
        let blobs = names.filter_map(|name| file.tensor(&name)).map(|v| v.data);
        let whole = blobs.reduce(|a, b| a.span(&b).unwrap_or(a))?;
        Some((width, whole))
    };
    anyprec.widths().iter().filter_map(section).collect()
}

/// The tensors before and after the blocks.
pub struct Ends {
    pub embedding: Matrix,
    pub output: Matrix,
    /// The name of the tensor that `output` is.
    pub output_tensor: &'static str,
    pub output_bias: Option<Vec<f32>>,
    pub output_norm: Vec<f32>,
}

/// Loads the ends; a model without `output.weight` projects with its embeddings.
pub fn ends(loader: &mut Loader<'_>, c: &Config) -> Ends {
    let embedding = loader.matrix("token_embd.weight", c.n_embd, c.n_vocab);
    if embedding.ty.info().is_none_or(|t| t.decode.is_none()) {
        loader.problems.push(format!(
            "token_embd.weight: trine cannot decode {} yet",
            embedding.ty
        ));
    }
    let output = match c.arch {
        arch if arch.is_bitnet() => None,
        Arch::Olmo2 => Some(loader.matrix("output.weight", c.n_embd, c.n_vocab)),
        _ => loader.optional_matrix("output.weight", c.n_embd, c.n_vocab),
    };
    let output_bias = match c.arch {
        Arch::Qwen2 => loader.optional_vector("output.bias", c.n_vocab),
        _ => None,
    };
    let output_tensor = match output {
        Some(_) => "output.weight",
        None => "token_embd.weight",
    };
    let output = output.unwrap_or_else(|| embedding.clone());
    Ends {
        output_tensor,
        output: loader.ready(output),
        output_bias,
        output_norm: loader.vector("output_norm.weight", c.n_embd),
        embedding,
    }
}

/// `y = W x`, with the per-tensor scale and the bias some models have.
pub struct Linear {
    /// The weight's name in the file; the later parts of a fused one have none, to be observed once.
    tensor: Option<String>,
    weight: Matrix,
    scale: Option<f32>,
    bias: Option<Vec<f32>>,
}

impl Linear {
    /// `(W x) * scale + bias` for every row of `x`.
    pub fn apply(&self, x: &Activations<'_>) -> Floats {
        let [y] = Linear::apply_all([self], x);
        y
    }

    /// [`Linear::apply`] of several projections of the same rows.
    pub fn apply_all<const N: usize>(all: [&Linear; N], x: &Activations<'_>) -> [Floats; N] {
        let mut ys = Linear::products(all, x);
        for (l, y) in all.iter().zip(&mut ys) {
            l.multiply_scale(y);
            l.add_bias(y);
        }
        ys
    }

    /// `(W x + bias) * scale`: the order of the feed-forward projections.
    pub fn apply_bias_first(&self, x: &Activations<'_>) -> Floats {
        let [y] = Linear::apply_all_bias_first([self], x);
        y
    }

    /// [`Linear::apply_bias_first`] of several projections of the same rows.
    pub fn apply_all_bias_first<const N: usize>(
        all: [&Linear; N],
        x: &Activations<'_>,
    ) -> [Floats; N] {
        let mut ys = Linear::products(all, x);
        for (l, y) in all.iter().zip(&mut ys) {
            l.add_bias(y);
            l.multiply_scale(y);
        }
        ys
    }

    fn products<const N: usize>(all: [&Linear; N], x: &Activations<'_>) -> [Floats; N] {
        let tensors = all.iter().filter_map(|l| l.tensor.as_deref());
        tensors.for_each(|tensor| x.observe(tensor));
        matmul(all.map(|l| &l.weight), x)
    }

    fn multiply_scale(&self, y: &mut [f32]) {
        if let Some(s) = self.scale {
            ops::scale(y, s);
        }
    }

    fn add_bias(&self, y: &mut [f32]) {
        if let Some(b) = &self.bias {
            ops::add_rows(y, b);
        }
    }
}

/// In which layouts the matrices of a model are.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Layouts {
    /// Name of the packed layout and tensor type, number of matrices, bytes; `None` for rows as in the file.
    pub kinds: Vec<(TypeId, Option<&'static str>, usize, usize)>,
}

impl Layouts {
    fn count(&mut self, matrix: &Matrix) {
        let (name, bytes) = matrix.layout();
        let same = self
            .kinds
            .iter_mut()
            .find(|k| k.0 == matrix.ty && k.1 == name);
        match same {
            Some((_, _, count, total)) => {
                *count += 1;
                *total += bytes;
            }
            None => self.kinds.push((matrix.ty, name, 1, bytes)),
        }
    }
}

impl fmt::Display for Layouts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, (ty, name, count, bytes)) in self.kinds.iter().enumerate() {
            let mb = *bytes as f64 / 1e6;
            let name = name.unwrap_or("rows as in the file");
            let comma = if i > 0 { ", " } else { "" };
            write!(f, "{comma}{count} {ty} as {name} ({mb:.1} MB)")?;
        }
        Ok(())
    }
}
