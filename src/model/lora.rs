//! Low-rank adapters (LoRA): what files of weights beside a model's add to its products.
//!
//! An adapter has two small matrices for each matrix that it changes: `y = W x` becomes `y = W x + scale * (B (A x))`.
//! Every step is rounded as an operation of its own, as in the reference: both products by the rules of their own
//! tensor types, then the factor, then the sum. The factor is `scale * alpha / rank`, and `scale` alone where the file
//! says no `alpha`. A pass may have a scale of its own for each adapter, and leaves out those whose scale is 0.
//!
//! The reference keeps adapters in a hash table, which it goes through from the one that was added last to the first.
//! That order decides the bits of the sum, so it is the order here.

use std::collections::{BTreeMap, HashSet};
use std::fmt;
use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;

use trine_formats::gguf::{Metadata, ModelFile, TensorView};

use super::{ModelError, Problem};
use crate::kernels::Isa;
use crate::ops::matmul::Matrix;

/// A file of what is added to a model, and how much of it is added.
#[derive(Clone)]
pub struct Adapter {
    /// The file as GGUF.
    pub file: Arc<ModelFile>,
    /// Factor on all that it adds, where a pass does not say another.
    pub scale: f32,
}

impl fmt::Debug for Adapter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} times {}", self.path().display(), self.scale)
    }
}

impl Adapter {
    pub(super) fn path(&self) -> PathBuf {
        self.file.shards()[0].path.clone()
    }
}

/// The two matrices of an adapter for one matrix of the model, and the factor on their product.
#[derive(Clone)]
pub struct LowRank {
    /// Inputs to `rank` numbers.
    pub a: Matrix,
    /// These to outputs.
    pub b: Matrix,
    /// The number of the adapter, in the order in which they were named.
    pub adapter: usize,
    /// The file's `alpha`; 0 where it says none.
    pub alpha: f32,
    /// The adapter's factor.
    pub scale: f32,
}

/// The low-rank weights of one tensor of the model.
struct Pair {
    a: TensorView,
    b: TensorView,
}

/// The pairs of one adapter, by the name of the model's tensor.
struct Pairs {
    path: PathBuf,
    /// The number of the adapter.
    number: usize,
    scale: f32,
    alpha: f32,
    pairs: BTreeMap<String, Pair>,
}

/// All adapters of a model, in the order of their sums.
#[derive(Default)]
pub struct Adapters {
    all: Vec<Pairs>,
    used: HashSet<String>,
}

/// Adapters change the rows of this tensor that tokens choose, so that its two matrices change places.
const EMBEDDING: &str = "token_embd.weight";

impl Adapters {
    /// Checks that every adapter is one of `model`.
    ///
    /// # Errors
    /// The first thing that is wrong, with the adapter's path and the tensor.
    pub fn read(adapters: &[Adapter], model: &ModelFile) -> Result<Adapters, ModelError> {
        let mut all = Vec::new();
        for (number, adapter) in adapters.iter().enumerate().rev() {
            let path = adapter.path();
            let wrong = |what| ModelError::Adapter { path: path.clone(), what };
            let (alpha, pairs) = pairs(adapter, model).map_err(wrong)?;
            all.push(Pairs { path, number, scale: adapter.scale, alpha, pairs });
        }
        Ok(Adapters { all, used: HashSet::new() })
    }

    /// True if nothing is added to the model.
    pub fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// The low-rank terms of the products with rows `range` of one matrix of the tensor `name`: of its only one, or of
    /// the expert of a number. A type that trine cannot multiply by is pushed to `problems`.
    pub fn of(
        &mut self,
        name: &str,
        expert: usize,
        range: Range<usize>,
        isa: Isa,
        problems: &mut Vec<Problem>,
    ) -> Vec<LowRank> {
        let mut found = Vec::new();
        for adapter in &self.all {
            let Some(pair) = adapter.pairs.get(name) else {
                continue;
            };
            self.used.insert(name.to_owned());
            let rank = extent(&pair.a, 1);
            let rows = extent(&pair.b, 1);
            let a = part(&pair.a, expert * rank..(expert + 1) * rank, isa);
            let from = expert * rows;
            let b = part(&pair.b, from + range.start..from + range.end, isa);
            match a.zip(b) {
                Some((a, b)) => {
                    let Pairs { number, scale, alpha, .. } = *adapter;
                    found.push(LowRank { a, b, adapter: number, alpha, scale });
                }
                None => {
                    let [a, b] = [&pair.a, &pair.b].map(|half| half.info.ty);
                    let what = format!("trine cannot multiply by {a} and {b}, the types of tensor {name}");
                    problems.push(Problem::Adapter { path: adapter.path.clone(), what });
                }
            }
        }
        found
    }

    /// The low-rank terms of the embeddings: `a` has a row for every token.
    pub fn of_embedding(&mut self, isa: Isa, problems: &mut Vec<Problem>) -> Vec<LowRank> {
        let rows = self.all.iter().filter_map(|one| one.pairs.get(EMBEDDING));
        let rows: Vec<usize> = rows.map(|pair| extent(&pair.b, 1)).collect();
        match rows.first() {
            Some(&rows) => self.of(EMBEDDING, 0, 0..rows, isa, problems),
            None => Vec::new(),
        }
    }

    /// Tensors that an adapter changes and nobody asked for.
    pub fn unused(&self) -> impl Iterator<Item = Problem> {
        self.all.iter().flat_map(|adapter| {
            let unused = adapter.pairs.keys().filter(|name| !self.used.contains(*name));
            unused.map(|name| {
                let what = format!("it changes tensor {name}, to which adapters are not applied");
                Problem::Adapter { path: adapter.path.clone(), what }
            })
        })
    }
}

/// The extent of a tensor along dimension `d`, 1 where it has fewer.
fn extent(view: &TensorView, d: usize) -> usize {
    view.info.shape.get(d).map_or(1, |&n| n as usize)
}

/// Rows of a tensor of rows as a matrix.
fn part(view: &TensorView, range: Range<usize>, isa: Isa) -> Option<Matrix> {
    let (cols, ty) = (extent(view, 0), view.info.ty);
    let all = extent(view, 1) * extent(view, 2);
    let matrix = Matrix::new(ty, cols, all, view.data.clone(), isa)?;
    let decodes = ty.info().is_some_and(|t| t.decode.is_some());
    matrix.rows(range).filter(|_| decodes)
}

/// The `alpha` of an adapter's file, 0 where it says none, and its pairs.
fn pairs(adapter: &Adapter, model: &ModelFile) -> Result<(f32, BTreeMap<String, Pair>), String> {
    let meta = adapter.file.meta();
    let text = |meta: &Metadata, key: &str| match meta.get_str(key) {
        Ok(text) => Ok(text.unwrap_or_default().to_owned()),
        Err(e) => Err(e.to_string()),
    };
    for (key, wanted) in [("general.type", "adapter"), ("adapter.type", "lora")] {
        let found = text(meta, key)?;
        if found != wanted {
            return Err(format!(
                "{key} is '{found}' where an adapter has '{wanted}': give a file of llama.cpp's convert_lora_to_gguf.py"
            ));
        }
    }
    let architecture = "general.architecture";
    let (own, of_model) = (text(meta, architecture)?, text(model.meta(), architecture)?);
    if own != of_model {
        return Err(format!("it is for models of architecture '{own}', and this one is of '{of_model}'"));
    }
    let alpha = meta.get_f32("adapter.lora.alpha");
    let alpha = alpha.map_err(|e| e.to_string())?.unwrap_or_default();
    let mut halves: BTreeMap<String, [Option<TensorView>; 2]> = BTreeMap::new();
    for info in adapter.file.tensors() {
        let name = &info.name;
        let (base, half) = match name.strip_suffix(".lora_a") {
            Some(base) => (base, 0),
            None => match name.strip_suffix(".lora_b") {
                Some(base) => (base, 1),
                // the reference takes none of these either
                None if name.ends_with("_norm.weight") => continue,
                None => {
                    return Err(format!("tensor {name} is no part of an adapter: names end in .lora_a or .lora_b"));
                }
            },
        };
        halves.entry(base.to_owned()).or_default()[half] = adapter.file.tensor(name);
    }
    let mut pairs = BTreeMap::new();
    for (name, halves) in halves {
        let (a, b) = match halves {
            [Some(a), Some(b)] => (a, b),
            [a, _] => {
                let lacks = if a.is_some() { "lora_b" } else { "lora_a" };
                return Err(format!("tensor {name}.{lacks} is missing"));
            }
        };
        check_shapes(&name, [&a, &b], model)?;
        pairs.insert(name, Pair { a, b });
    }
    Ok((alpha, pairs))
}

/// Checks that the shapes of `a` and `b` fit to each other and to the model's tensor.
fn check_shapes(name: &str, [a, b]: [&TensorView; 2], model: &ModelFile) -> Result<(), String> {
    let Some(of_model) = model.tensor_info(name) else {
        return Err(format!("the model has no tensor {name}: is the adapter for another model?"));
    };
    let of_model = |d: usize| of_model.shape.get(d).map_or(1, |&n| n as usize);
    let shape = |view: &TensorView| [0, 1, 2].map(|d| extent(view, d));
    let rank = extent(b, 0);
    let expected = match name {
        EMBEDDING => [[rank, of_model(1), 1], [rank, of_model(0), 1]],
        _ => [[of_model(0), rank, of_model(2)], [rank, of_model(1), of_model(2)]],
    };
    let higher = [a, b].iter().any(|half| half.info.shape.len() > 3);
    if [shape(a), shape(b)] != expected || higher || rank == 0 {
        return Err(format!(
            "tensor {name} has adapters of shapes {:?} and {:?}, expected {:?} and {:?}: is the adapter for another model?",
            a.info.shape, b.info.shape, expected[0], expected[1]
        ));
    }
    Ok(())
}
