//! Tensors by name and shape.

use std::collections::HashSet;
use std::ops::Range;

use trine_formats::anyprec::{AnyPrec, Part};
use trine_formats::gguf::{ModelFile, TensorView};
use trine_formats::widely::Header;

pub(super) use crate::arch::tensor::full_name;
use crate::arch::{Arch, Extent, Role, Sizes, Tensor};
use crate::model::config::Config;
use crate::model::layouts::Layouts;
use crate::model::lora::{Adapters, LowRank};
use crate::model::{LoadOptions, ModelError, Problem};
use crate::ops::apart::apart;
use crate::ops::matmul::Matrix;
use crate::ops::norm::{Kind, Norm};
use crate::ops::product::SharedArena;
use crate::ops::product::density::Dense;
use crate::ops::product::probe::{self, Probed};

/// Size up to which a model stays in the last-level cache of common processors, in bytes.
const CACHE: u64 = 24 << 20;

/// Headers of matrices that consist of several tensors.
#[derive(Clone, Copy)]
pub struct Special<'a> {
    /// Any-precision ones.
    pub anyprec: Option<&'a AnyPrec>,
    /// Widely linear ones.
    pub widely: Option<Header>,
}

/// Takes tensors out of a file. After a problem it returns an empty stand-in, so that one pass finds
/// all of them; [`Loader::finish`] must be asked before anything is used.
pub struct Loader<'a> {
    pub(super) file: &'a ModelFile,
    pub(super) special: Special<'a>,
    pub(super) options: &'a LoadOptions,
    pub(super) arch: &'static Arch,
    pub(super) sizes: Sizes,
    /// Per run of a block, the sizes of its tensors; empty where all blocks have those of the model.
    own_sizes: Vec<Sizes>,
    pub(super) norm: Kind,
    pub(super) eps: f32,
    /// Low-rank weights that are added to products.
    pub(super) adapters: Adapters,
    /// Per layer, whether it has experts.
    pub(super) expert_layers: Vec<bool>,
    /// Which run of a block is being loaded: its number, but in models whose blocks run several times.
    pub(super) slot: usize,
    /// True if a GPU runs the layer that is being loaded, which needs the file's bytes.
    pub(super) elsewhere: bool,
    /// The first run of a block that is offloaded; the number of runs plus one where nothing is offloaded.
    pub(super) first_elsewhere: usize,
    /// The first block that is a head for multi-token prediction.
    pub(super) first_head: usize,
    /// Blocks of the file, those that are not run included.
    pub(super) n_block: usize,
    pub(super) problems: Vec<Problem>,
    pub(super) used: HashSet<String>,
    pub(super) arena: SharedArena,
    /// Which layout matrices get that have two.
    dense: Dense,
    /// Layouts of the loaded matrices.
    pub(super) layouts: Layouts,
    /// Matrices for which a prefetch distance may be tuned.
    pub(super) probed: Vec<Box<dyn Probed>>,
}

impl<'a> Loader<'a> {
    /// Takes from `file`, which says `special` of its matrices, what a model of configuration `c` has, and from
    /// `adapters` what is added to it.
    pub fn new(
        file: &'a ModelFile,
        special: Special<'a>,
        options: &'a LoadOptions,
        adapters: Adapters,
        c: &Config,
    ) -> Loader<'a> {
        let layers = options.offload.as_ref().map_or(0, |o| o.layers);
        let weights: u64 = file.tensors().map(|t| t.bytes).sum();
        let (dense, problems) = match Dense::of(weights <= CACHE) {
            Ok(dense) => (dense, Vec::new()),
            Err(what) => (Dense::Never, vec![Problem::Environment(what)]),
        };
        Loader {
            file,
            special,
            options,
            arch: c.arch,
            sizes: c.sizes(),
            own_sizes: (0..c.own_layers()).map(|layer| c.layer_sizes(layer)).collect(),
            norm: c.norm,
            eps: c.eps,
            adapters,
            expert_layers: (0..c.n_layer).map(|layer| c.layer_experts(layer).is_some()).collect(),
            slot: 0,
            elsewhere: layers > 0,
            first_elsewhere: (c.n_layer + 1).saturating_sub(layers),
            first_head: c.n_layer,
            n_block: c.n_block,
            problems,
            used: HashSet::new(),
            arena: SharedArena::default(),
            dense,
            layouts: Layouts::default(),
            probed: Vec::new(),
        }
    }

    /// From now on run number `slot` is being loaded.
    pub fn enter(&mut self, slot: usize) {
        self.slot = slot;
        self.elsewhere = slot >= self.first_elsewhere;
        self.sizes = self.own_sizes.get(slot).copied().unwrap_or(self.sizes);
    }

    /// From now on the head in block `block` is being loaded, whose configuration is `c`. It runs on the processor.
    pub fn enter_head(&mut self, block: usize, c: &Config) {
        self.slot = block;
        self.elsewhere = false;
        self.sizes = c.layer_sizes(block);
        self.expert_layers = (0..=block).map(|layer| c.layer_experts(layer).is_some()).collect();
    }

    /// From now on the encoder of configuration `c` is being loaded, or again the model beside it. Both run on the
    /// processor.
    pub fn enter_part(&mut self, c: &Config) {
        self.arch = c.arch;
        self.sizes = c.sizes();
        self.own_sizes = (0..c.own.len()).map(|layer| c.layer_sizes(layer)).collect();
        self.expert_layers = vec![false; c.n_layer];
        (self.elsewhere, self.first_elsewhere, self.first_head) = (false, usize::MAX, c.n_layer);
    }

    /// Which run of a block is being loaded.
    pub fn slot(&self) -> usize {
        self.slot
    }

    /// Ends the loading: no problem was found and no tensor is left over.
    pub fn finish(mut self) -> Result<Layouts, ModelError> {
        self.check_unused_factors();
        // the parts of an any-precision matrix count as it does
        let names = self.file.tensors().map(|t| match t.name.find(Part::INFIX) {
            Some(end) if self.special.anyprec.is_some() => &t.name[..end],
            _ => &t.name[..],
        });
        if self.problems.is_empty() {
            let leftover = self.arch.leftover(names, &self.used, self.expert_layers.len()..self.n_block);
            self.problems.extend(leftover.map(Problem::Leftover));
        }
        if self.problems.is_empty() {
            self.problems.extend(self.adapters.unused());
        }
        if self.problems.is_empty() {
            match probe::choose(&self.probed) {
                Ok(chosen) => self.layouts.prefetch = chosen,
                Err(what) => self.problems.push(Problem::Environment(what)),
            }
        }
        if self.problems.is_empty() { Ok(self.layouts) } else { Err(ModelError::Invalid(self.problems)) }
    }

    pub(super) fn take(&mut self, name: &str, shape: &[usize]) -> Option<TensorView> {
        let view = self.file.tensor(name)?;
        self.used.insert(name.to_owned());
        let found = &view.info.shape;
        let same = (0..found.len().max(shape.len()))
            .all(|d| found.get(d).copied().unwrap_or(1) == shape.get(d).copied().unwrap_or(1) as u64);
        if !same {
            self.problem(Problem::Shape { tensor: name.to_owned(), found: found.clone(), expected: shape.to_vec() });
            return None;
        }
        apart(view).map_err(|what| self.problem(Problem::tensor(name, what))).ok()
    }

    pub(super) fn missing(&mut self, name: &str) {
        if !self.used.contains(name) {
            self.problem(Problem::MissingTensor(name.to_owned()));
        }
    }

    /// A matrix that may be absent.
    pub(super) fn optional_matrix(&mut self, name: &str, cols: usize, rows: usize) -> Option<Matrix> {
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
                self.problem(Problem::tensor(name, format!("its scale is {scale}, the data is damaged")));
            }
            let matrix = source.and_then(|s| Matrix::ternary(&s).map_err(|e| view.ternary_error(e)));
            return matrix.map_err(|e| self.problem(e.into())).ok();
        }
        let ty = view.info.ty;
        let matrix = Matrix::new(ty, cols, rows, view.data, self.options.isa);
        if matrix.is_none() {
            self.problem(Problem::tensor(name, format!("trine cannot multiply by {ty} yet")));
        }
        matrix
    }

    /// A matrix at all widths of the file.
    pub(super) fn any_precision(&mut self, anyprec: &AnyPrec, name: &str, cols: usize, rows: usize) -> Option<Matrix> {
        self.used.insert(name.to_owned());
        let widths = anyprec.widths().iter();
        let views: Result<Vec<_>, _> = widths.map(|&b| anyprec.view(self.file, name, b)).collect();
        let views = views.map_err(|e| self.problem(e.into())).ok()?;
        let path = self.options.number_path.bitplane();
        let matrix = Matrix::any_precision(path, views)?;
        if (matrix.cols, matrix.rows) != (cols, rows) {
            let found = vec![matrix.cols as u64, matrix.rows as u64];
            self.problem(Problem::Shape { tensor: name.to_owned(), found, expected: vec![cols, rows] });
            return None;
        }
        Some(matrix)
    }

    /// A matrix; an empty one stands in where it is missing.
    pub(super) fn matrix(&mut self, name: &str, cols: usize, rows: usize) -> Matrix {
        let found = self.optional_matrix(name, cols, rows);
        if found.is_none() && !self.used.contains(name) {
            let codes = self.codes_name(name);
            self.missing(codes.as_deref().unwrap_or(name));
        }
        found.unwrap_or_else(Matrix::empty)
    }

    /// The matrix in the layout it runs from.
    pub fn ready(&mut self, matrix: Matrix) -> Matrix {
        let rows = matrix.rows;
        let packs = self.options.repack && !self.elsewhere;
        let matrix = if packs && self.problems.is_empty() {
            let packed = matrix.packed(&self.arena, self.options.isa, self.dense);
            packed.unwrap_or_else(|e| {
                self.problem(Problem::Memory(e));
                Matrix::empty()
            })
        } else {
            matrix
        };
        if rows > 0 {
            self.layouts.count(&matrix);
            self.probed.extend(matrix.probed(self.options.isa));
        }
        matrix
    }

    /// The low-rank terms that adapters have for rows `range` of the tensor `name`, or of the matrix of one expert in
    /// it.
    pub(super) fn low_rank(&mut self, name: &str, expert: usize, range: Range<usize>) -> Vec<LowRank> {
        let isa = self.options.isa;
        let found = self.adapters.of(name, expert, range, isa, &mut self.problems);
        let ready = |one: LowRank| LowRank { a: self.ready(one.a), b: self.ready(one.b), ..one };
        found.into_iter().map(ready).collect()
    }

    /// The architecture's description of the tensor in place `name`: of several candidates the one that the file has,
    /// or the first.
    pub(super) fn described(&self, layer: Option<usize>, name: &str) -> Option<&'static Tensor> {
        let experts = layer.is_some_and(|layer| self.expert_layers[layer]);
        let at_place = |t: &&'static Tensor| t.place() == name;
        let mut all: Vec<&'static Tensor> = match layer {
            Some(layer) => self
                .arch
                .block_tensors(experts)
                .chain(self.arch.mtp_tensors(layer >= self.first_head))
                .filter(at_place)
                .collect(),
            None => self.arch.end_tensors().filter(at_place).collect(),
        };
        // where there is no shared expert, and no vector of tokens for blocks, nothing of these is missing
        let shared = |t: &Tensor| {
            let of_shared = |e: &Extent| matches!(e, Extent::SharedFf | Extent::TwiceSharedFf);
            t.shape.iter().any(of_shared)
        };
        let of_input = |t: &Tensor| t.shape.iter().any(|e| matches!(e, Extent::LayerInput | Extent::LayerInputs));
        all.retain(|t| self.sizes.shared_ff > 0 || !shared(t));
        all.retain(|t| self.sizes.layer_input[0] > 0 || !of_input(t));
        let there = all.iter().find(|t| self.has(&full_name(layer, t.gguf)));
        there.or(all.first()).copied()
    }

    /// True if adapters are added to the model.
    pub fn has_adapters(&self) -> bool {
        !self.adapters.is_empty()
    }

    /// True if the file has the matrix `name`.
    pub fn has(&self, name: &str) -> bool {
        let anyprec = self.special.anyprec;
        let in_planes = anyprec.is_some_and(|a| a.tensor(name).is_some());
        in_planes || self.file.tensor_info(name).is_some()
    }

    /// Floats that may be absent, widened to `f32`; the extents as in GGUF.
    pub(super) fn optional_floats(&mut self, name: &str, shape: &[usize]) -> Option<Vec<f32>> {
        self.decoded(name, shape, false)
    }

    /// [`Loader::optional_floats`], which may be `quantized`.
    fn decoded(&mut self, name: &str, shape: &[usize], quantized: bool) -> Option<Vec<f32>> {
        let n = shape.iter().product();
        let view = self.take(name, shape)?;
        let info = view.info.ty.info().filter(|t| quantized || !t.is_quantized());
        let Some(decode) = info.and_then(|t| t.decode) else {
            let what = format!("it has type {}, expected a float type", view.info.ty);
            self.problem(Problem::tensor(name, what));
            return None;
        };
        let mut out = vec![0f32; n];
        decode(&view.data, &mut out);
        Some(out)
    }

    /// A vector, where the architecture has one; absent too where it is optional and the file has none.
    pub fn vector(&mut self, layer: Option<usize>, name: &str) -> Option<Vec<f32>> {
        let tensor = self.described(layer, name)?;
        let shape = self.sizes.gguf_shape(tensor);
        let shape: Vec<usize> = shape.iter().map(|&n| n as usize).collect();
        if tensor.role == Role::PlainNorm {
            return Some(vec![1.0; shape.iter().product()]);
        }
        let name = full_name(layer, tensor.gguf);
        let mut shape = shape;
        if tensor.shape.first() == Some(&Extent::Streams)
            && self.file.tensor_info(&name).is_some_and(|t| t.shape.len() == 1)
        {
            // gains of all streams may be one row
            shape = vec![shape.iter().product()];
        }
        // rows of a table are decoded like those of the embeddings
        let found = self.decoded(&name, &shape, tensor.role == Role::Positions);
        if found.is_none() && tensor.required {
            self.missing(&name);
            return Some(Vec::new());
        }
        found
    }

    /// A norm, where the architecture and the file have it: `NAME.weight` and, where there is one, `NAME.bias`.
    pub fn norm(&mut self, layer: Option<usize>, name: &str) -> Option<Norm> {
        let weight = format!("{name}.weight");
        let tensor = self.described(layer, &weight)?;
        let mut gains = self.vector(layer, &weight)?;
        let head = self.sizes.head_dim as usize;
        let row = match tensor.shape {
            [.., Extent::One] => {
                gains = gains.iter().flat_map(|&g| vec![g; head]).collect();
                head
            }
            [.., row] => self.sizes.extent(*row) as usize,
            [] => 1,
        };
        let bias = self.vector(layer, &format!("{name}.bias"));
        Some(Norm {
            kind: self.norm,
            eps: self.eps,
            row: row.max(1),
            bias: bias.filter(|b| b.len() == gains.len()),
            gains,
        })
    }

    /// A vector that decides between experts: its numbers have to be finite.
    pub fn finite_vector(&mut self, layer: usize, name: &str) -> Option<Vec<f32>> {
        let found = self.vector(Some(layer), name)?;
        let place = self.described(Some(layer), name)?;
        self.is_finite(&full_name(Some(layer), place.gguf), &found);
        Some(found)
    }

    /// True if the values of a tensor are finite; if not, the problem is noted.
    pub(super) fn is_finite(&mut self, name: &str, values: &[f32]) -> bool {
        let finite = values.iter().all(|v| v.is_finite());
        if !finite {
            self.problem(Problem::tensor(name, "it holds NaN or infinity, the data is damaged"));
        }
        finite
    }

    /// The token that the file spells so.
    pub fn token(&self, text: &str) -> Option<usize> {
        let tokens = self.file.meta().get_strs("tokenizer.ggml.tokens").ok()??;
        tokens.iter().position(|token| token == text.as_bytes())
    }

    /// Notes a problem.
    pub fn problem(&mut self, problem: Problem) {
        self.problems.push(problem);
    }
}
