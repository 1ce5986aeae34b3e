//! Tensors by name and shape, with every problem collected before any is reported.

use std::collections::HashSet;

use trine_formats::anyprec::{AnyPrec, Part};
use trine_formats::gguf::{Blob, ModelFile, TensorView};
use trine_formats::widely::{self, OutputForm};

use super::linear::Linear;
use super::{Config, Layouts, LoadOptions, ModelError};
use crate::arch::{Arch, Sizes};
use crate::ops::matmul::Matrix;
use crate::ops::product::SharedArena;

/// Models of so many bytes stay in the last-level cache of the processors that are common today.
const CACHE: u64 = 24 << 20;

/// What a file says of matrices that are no single tensor.
#[derive(Clone, Copy)]
pub struct Special<'a> {
    /// Any-precision ones.
    pub anyprec: Option<&'a AnyPrec>,
    /// Widely linear ones.
    pub widely: Option<widely::Header>,
}

/// Takes tensors out of a file. After a problem it returns an empty stand-in, so that one pass finds
/// all of them; [`Loader::finish`] must be asked before anything is used.
pub struct Loader<'a> {
    file: &'a ModelFile,
    special: Special<'a>,
    options: &'a LoadOptions,
    arch: &'static Arch,
    sizes: Sizes,
    problems: Vec<String>,
    used: HashSet<String>,
    arena: SharedArena,
    in_cache: bool,
    /// What became of the matrices.
    layouts: Layouts,
}

impl<'a> Loader<'a> {
    /// Takes from `file`, which says `special` of its matrices, what a model of configuration `c` has.
    pub fn new(
        file: &'a ModelFile,
        special: Special<'a>,
        options: &'a LoadOptions,
        c: &Config,
    ) -> Loader<'a> {
        let weights: u64 = file.tensors().map(|t| t.bytes).sum();
        Loader {
            file,
            special,
            options,
            arch: c.arch,
            sizes: c.sizes(),
            problems: Vec::new(),
            used: HashSet::new(),
            arena: SharedArena::default(),
            in_cache: weights <= CACHE,
            layouts: Layouts::default(),
        }
    }

    /// Ends the loading: no problem was found and no tensor is left over.
    pub fn finish(mut self) -> Result<Layouts, ModelError> {
        // the parts of an any-precision matrix count as it does
        let names = self.file.tensors().map(|t| match t.name.find(Part::INFIX) {
            Some(end) if self.special.anyprec.is_some() => &t.name[..end],
            _ => &t.name[..],
        });
        if self.problems.is_empty() {
            self.problems.extend(self.arch.leftover(names, &self.used));
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
    fn optional_matrix(&mut self, name: &str, cols: usize, rows: usize) -> Option<Matrix> {
        let anyprec = self.special.anyprec;
        if let Some(anyprec) = anyprec.filter(|a| a.tensor(name).is_some()) {
            return self.any_precision(anyprec, name, cols, rows);
        }
        if let Some(found) = self.widely_linear(name, cols, rows) {
            return found;
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
        let path = self.options.number_path.bitplane();
        let matrix = Matrix::any_precision(path, views)?;
        if (matrix.cols, matrix.rows) != (cols, rows) {
            self.problems.push(format!(
                "any-precision tensor {name} has {} columns and {} rows, expected {cols} and {rows}",
                matrix.cols, matrix.rows
            ));
            return None;
        }
        Some(matrix)
    }

    /// A widely linear matrix; nothing where the file does not have `name` in this form, `None` after a problem.
    fn widely_linear(&mut self, name: &str, cols: usize, rows: usize) -> Option<Option<Matrix>> {
        let (header, base) = (self.special.widely?, name.strip_suffix(".weight")?);
        match widely::find(self.file, &header.rule, base, rows, cols) {
            Ok(None) => None,
            Ok(Some(matrix)) => {
                let parts = widely::Part::ALL.map(|part| part.name(base));
                self.used.extend(parts);
                let (path, isa) = (self.options.number_path.widely(), self.options.isa);
                Some(Some(Matrix::widely_linear(path, matrix, isa)))
            }
            Err(e) => {
                self.problems.push(e.to_string());
                // what is wrong with it was said
                self.used.insert(name.to_owned());
                Some(None)
            }
        }
    }

    /// Checks that the output matrix is there in the form that the keys say.
    fn check_output(&mut self) {
        let stated = self.special.widely.map(|header| header.output);
        let name = widely::Part::Codes.name("output");
        if stated == Some(OutputForm::Widely) && self.file.tensor_info(&name).is_none() {
            self.problems.push(format!(
                "tensor {name} is missing, and key 'fairy2i.wl.lm_head' is 'wl'"
            ));
        }
    }

    /// A matrix; an empty one stands in where it is missing.
    fn matrix(&mut self, name: &str, cols: usize, rows: usize) -> Matrix {
        let found = self.optional_matrix(name, cols, rows);
        if found.is_none() && !self.used.contains(name) {
            // a matrix may be missing in either form; files of such a kind have the codes
            let base = name.strip_suffix(".weight");
            let base = base.filter(|b| self.special.widely.is_some() && b.starts_with("blk."));
            let codes = base.map(|base| widely::Part::Codes.name(base));
            self.missing(codes.as_deref().unwrap_or(name));
        }
        found.unwrap_or_else(Matrix::empty)
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
    fn optional_vector(&mut self, name: &str, n: usize) -> Option<Vec<f32>> {
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

    /// A vector, where the architecture has one; absent too where it is optional and the file has none.
    pub fn vector(&mut self, layer: Option<usize>, name: &str) -> Option<Vec<f32>> {
        let tensor = self
            .arch
            .tensor(layer.is_some(), self.sizes.experts > 0, name)?;
        let n = self.sizes.shape(tensor).iter().product::<u64>() as usize;
        let name = full_name(layer, name);
        let found = self.optional_vector(&name, n);
        if found.is_none() && tensor.required {
            self.missing(&name);
            return Some(Vec::new());
        }
        found
    }

    /// A norm's gains, where the architecture has the norm.
    pub fn norm(&mut self, layer: usize, name: &str) -> Option<Vec<f32>> {
        self.vector(Some(layer), &format!("{name}.weight"))
    }

    /// A required end matrix, or an optional one that is there; not yet in the layout that it runs from.
    pub fn end_matrix(&mut self, name: &str) -> Option<Matrix> {
        let tensor = self.arch.tensor(false, self.sizes.experts > 0, name)?;
        let [rows, cols] = self.sizes.shape(tensor)[..] else {
            return None;
        };
        let (cols, rows) = (cols as usize, rows as usize);
        if tensor.required {
            return Some(self.matrix(name, cols, rows));
        }
        self.optional_matrix(name, cols, rows)
    }

    /// Notes a problem.
    pub fn problem(&mut self, what: String) {
        self.problems.push(what);
    }

    /// `NAME.weight` of a block with its `NAME.scale` and `NAME.bias`, where there are any.
    pub fn linear(&mut self, layer: usize, name: &str, cols: usize, rows: usize) -> Linear {
        let linear = self.unready_linear(layer, name, cols, rows);
        Linear {
            weight: self.ready(linear.weight),
            ..linear
        }
    }

    fn unready_linear(&mut self, layer: usize, name: &str, cols: usize, rows: usize) -> Linear {
        let at = |part: &str| format!("blk.{layer}.{name}.{part}");
        let tensor = at("weight");
        Linear {
            weight: self.matrix(&tensor, cols, rows),
            tensor: Some(tensor),
            scale: self.factors(name, &at("scale"), 1).map(|s| s[0]),
            bias: self.vector(Some(layer), &format!("{name}.bias")),
        }
    }

    /// The factors on a projection's outputs, where the graph applies them.
    fn factors(&mut self, projection: &str, name: &str, n: usize) -> Option<Vec<f32>> {
        self.optional_vector(name, n)
            .filter(|_| self.arch.applies_factors(projection))
    }

    /// Rows `range` of an unpacked projection as one of their own. Only that of the first rows is observed.
    fn part(&mut self, all: &Linear, range: std::ops::Range<usize>) -> Linear {
        let weight = all.weight.rows(range.clone());
        Linear {
            tensor: all.tensor.clone().filter(|_| range.start == 0),
            weight: self.ready(weight.unwrap_or_else(Matrix::empty)),
            scale: all.scale,
            bias: all.bias.as_ref().map(|b| b[range].to_vec()),
        }
    }

    fn has(&self, name: &str) -> bool {
        let anyprec = self.special.anyprec;
        let in_planes = anyprec.is_some_and(|a| a.tensor(name).is_some());
        in_planes || self.file.tensor_info(name).is_some()
    }

    /// The three projections of a layer, from separate tensors or one fused `attn_qkv`.
    pub fn qkv(&mut self, layer: usize, c: &Config) -> [Linear; 3] {
        let (q, kv) = (c.n_head * c.head_dim, c.n_head_kv * c.head_dim);
        if !self.has(&format!("blk.{layer}.attn_qkv.weight")) {
            return [("attn_q", q), ("attn_k", kv), ("attn_v", kv)]
                .map(|(name, rows)| self.linear(layer, name, c.n_embd, rows));
        }
        let mut all = self.unready_linear(layer, "attn_qkv", c.n_embd, q + 2 * kv);
        let fused_bias = format!("blk.{layer}.attn_qkv.bias");
        if all.bias.is_none() {
            all.bias = self.optional_vector(&fused_bias, q + 2 * kv);
        }
        let parts = [("attn_q", 0, q), ("attn_k", q, kv), ("attn_v", q + kv, kv)];
        parts.map(|(name, from, rows)| {
            let mut linear = self.part(&all, from..from + rows);
            if linear.bias.is_none() && self.has(&format!("blk.{layer}.{name}.bias")) {
                linear.bias = self.vector(Some(layer), &format!("{name}.bias"));
            }
            linear
        })
    }

    /// The matrix that scores experts.
    pub fn router(&mut self, layer: usize, name: &str, cols: usize, rows: usize) -> Matrix {
        let matrix = self.matrix(&full_name(Some(layer), name), cols, rows);
        self.ready(matrix)
    }

    /// The matrices of all experts, `[experts][rows][columns]` in one tensor, and the factors on their outputs where
    /// there are any.
    pub fn experts(
        &mut self,
        layer: usize,
        name: &str,
        [cols, rows, experts]: [usize; 3],
    ) -> (Vec<Matrix>, Option<Vec<f32>>) {
        let weight = full_name(Some(layer), &format!("{name}.weight"));
        let all = match self.file.tensor_info(&weight).map(|t| t.shape.len()) {
            Some(3) | None => self.stacked(&weight, [cols, rows, experts]),
            Some(_) => {
                let found = self.file.tensor_info(&weight).map(|t| t.shape.clone());
                self.used.insert(weight.clone());
                self.problems.push(format!(
                    "tensor {weight} has shape {:?}, expected [{cols}, {rows}, {experts}]",
                    found.unwrap_or_default()
                ));
                None
            }
        };
        let scales = full_name(Some(layer), &format!("{name}.scale"));
        let scales = self.factors(name, &scales, experts);
        let Some(all) = all else {
            self.missing(&weight);
            return (vec![Matrix::empty(); experts], scales);
        };
        let one = |e: usize| all.rows(e * rows..(e + 1) * rows);
        let matrices: Option<Vec<Matrix>> = (0..experts).map(one).collect();
        let matrices = matrices.unwrap_or_else(|| vec![Matrix::empty(); experts]);
        let ready = matrices.into_iter().map(|m| self.ready(m)).collect();
        (ready, scales)
    }

    /// A stack of matrices as one of all their rows.
    fn stacked(&mut self, name: &str, shape: [usize; 3]) -> Option<Matrix> {
        let [cols, rows, experts] = shape;
        let view = self.take(name, &shape)?;
        let ty = view.info.ty;
        let matrix = Matrix::new(ty, cols, rows * experts, view.data, self.options.isa);
        if matrix.is_none() {
            self.problems.push(format!(
                "tensor {name}: trine cannot multiply by experts of {ty} yet"
            ));
        }
        matrix
    }
}

/// The name of a tensor in the file.
fn full_name(layer: Option<usize>, name: &str) -> String {
    match layer {
        Some(layer) => format!("blk.{layer}.{name}"),
        None => name.to_owned(),
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
    /// Divisors of RoPE's frequencies in all layers.
    pub rope_factors: Option<Vec<f32>>,
}

/// Loads the ends; a model without `output.weight` projects with its embeddings.
pub fn ends(loader: &mut Loader<'_>) -> Ends {
    let embedding = loader.end_matrix("token_embd.weight");
    let embedding = embedding.unwrap_or_else(Matrix::empty);
    if embedding.ty.info().is_none_or(|t| t.decode.is_none()) {
        loader.problem(format!(
            "token_embd.weight: trine cannot decode {} yet",
            embedding.ty
        ));
    }
    let output = loader.end_matrix("output.weight");
    loader.check_output();
    let output_tensor = match output {
        Some(_) => "output.weight",
        None => "token_embd.weight",
    };
    let output = output.unwrap_or_else(|| embedding.clone());
    Ends {
        output_tensor,
        output: loader.ready(output),
        output_bias: loader.vector(None, "output.bias"),
        output_norm: loader
            .vector(None, "output_norm.weight")
            .unwrap_or_default(),
        rope_factors: loader.vector(None, "rope_freqs.weight"),
        embedding,
    }
}
