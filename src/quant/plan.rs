//! From the headers of a model and a recipe to the type of every output tensor. Pure: no data is read.

use std::collections::HashMap;
use std::fmt;
use std::ops::Range;

use thiserror::Error;
use trine_formats::gguf::{Metadata, ModelFile, TensorInfo, ggml_shape};
use trine_formats::types::TypeId;

use super::category::{self, Category};
use super::facts::Facts;
use super::ftype::{Ftype, Target, guessed_id};
use super::metadata::{self, Additions};
use super::mixture::{self, Mixture, MixtureError, replacement};
use super::order::{self, Pruning};
use super::problem::{Problem, Refusal};
use super::recipe::Recipe;

/// One tensor of the output.
#[derive(Clone, PartialEq, Debug)]
pub struct Row {
    /// Name in the output.
    pub name: String,
    /// Where it comes from.
    pub source: Source,
    /// Extents, fastest first, without trailing ones.
    pub shape: Vec<u64>,
    /// Type in the input.
    pub from: TypeId,
    /// Type in the output.
    pub to: TypeId,
    /// Bytes in the input.
    pub bytes_from: u64,
    /// Bytes in the output.
    pub bytes: u64,
    /// Why it gets this type.
    pub reason: Reason,
    /// Whether the importance matrix has weights for it.
    pub weighted: bool,
}

impl Row {
    /// Weights per row.
    pub fn columns(&self) -> u64 {
        self.shape.first().copied().unwrap_or(1)
    }

    /// Number of weights.
    pub fn weights(&self) -> u64 {
        self.shape.iter().product()
    }

    /// Whether the type changes; otherwise the bytes are copied.
    pub fn converts(&self) -> bool {
        self.from != self.to
    }
}

/// A tensor of the input.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Source {
    /// Name in the input.
    pub name: String,
    /// Index of its shard.
    pub shard: usize,
    /// Where its data starts in the shard's file.
    pub offset: u64,
}

/// Why a tensor gets its type.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Reason {
    /// It is not quantized, for this reason.
    Kept(&'static str),
    /// The file type's own.
    Default,
    /// The mixture gives it another.
    Mixture,
    /// The pattern of a rule names it.
    Rule(String),
    /// This option names it.
    Option(&'static str),
    /// A row is not whole blocks of the type it should have had.
    Fallback(TypeId),
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Reason::Kept(why) => f.write_str(why),
            Reason::Default => f.write_str("file type"),
            Reason::Mixture => f.write_str("mixture"),
            Reason::Rule(pattern) => write!(f, "--tensor-type {pattern}"),
            Reason::Option(option) => f.write_str(option),
            Reason::Fallback(wanted) => write!(f, "fallback from {wanted}"),
        }
    }
}

/// One output file.
#[derive(Clone, PartialEq, Debug)]
pub struct OutShard {
    /// Its keys.
    pub meta: Metadata,
    /// Its tensors, as a range of [`Plan::rows`].
    pub rows: Range<usize>,
}

/// What will be written.
#[derive(Debug)]
pub struct Plan {
    /// The tensors, in output order.
    pub rows: Vec<Row>,
    /// The files: one, or with `--keep-split` one per input shard.
    pub shards: Vec<OutShard>,
    /// Whether file names carry shard numbers.
    pub keep_split: bool,
    /// Requests that cannot be honoured; the rows then show what llama.cpp would do.
    pub problems: Vec<Problem>,
    /// Remarks worth a line.
    pub warnings: Vec<String>,
    /// Importance weights by source tensor, shared with the recipe.
    pub(super) importance: HashMap<String, Vec<f32>>,
}

/// A recipe that makes no sense for this model.
#[allow(missing_docs, reason = "the messages say what the fields are")]
#[derive(Error, Debug)]
pub enum PlanError {
    #[error("the model has no tensors")]
    NoTensors,
    #[error("{0}")]
    Mixture(#[from] MixtureError),
    #[error("--prune-layers: the model has no layer {0}")]
    NoLayer(u32),
    #[error("--prune-layers leaves no tensor of shard {0}: without --keep-split one file is written")]
    EmptyShard(usize),
    #[error("{0}")]
    Refused(Refusal),
}

impl Plan {
    /// Plans the output of `recipe` for `model`.
    ///
    /// # Errors
    /// A recipe that makes no sense for the model. Requests that cannot be honoured for some tensors
    /// are collected in [`Plan::problems`] instead, so that the plan can still be shown.
    pub fn new(model: &ModelFile, recipe: &Recipe) -> Result<Plan, PlanError> {
        let mut sources: Vec<(usize, u64, &TensorInfo)> = Vec::with_capacity(model.n_tensors());
        for (s, shard) in model.shards().iter().enumerate() {
            let data = shard.gguf.data_offset;
            sources.extend(shard.gguf.tensors.iter().map(|t| (s, data + t.offset, t)));
        }
        Plan::from_headers(model.meta(), sources, recipe)
    }

    /// The same from the headers alone: shard, place in its file, and table row of every tensor.
    ///
    /// # Errors
    /// As [`Plan::new`].
    pub fn from_headers(
        meta: &Metadata,
        mut sources: Vec<(usize, u64, &TensorInfo)>,
        recipe: &Recipe,
    ) -> Result<Plan, PlanError> {
        if sources.is_empty() {
            return Err(PlanError::NoTensors);
        }
        sources.sort_by(|a, b| order::compare(&a.2.name, &b.2.name));
        let facts = Facts::new(meta, &recipe.overrides);
        let file_type = match recipe.target {
            Target::Ftype(ftype) => ftype as u32,
            Target::Copy => copied_file_type(meta, &sources, recipe),
        };

        let mut pruning = Pruning::new(&recipe.prune);
        let mut rows: Vec<Row> = sources
            .iter()
            .filter_map(|&source| Some(unchanged(pruning.rename(&source.2.name)?, source)))
            .collect();
        if let Some(&layer) = recipe.prune.iter().find(|&&l| !pruning.met(l)) {
            return Err(PlanError::NoLayer(layer));
        }
        if recipe.keep_split {
            rows.sort_by_key(|r| (r.source.shard, r.source.offset));
        }

        let shards = out_shards(
            metadata::output(
                meta,
                &Additions {
                    file_type,
                    overrides: &recipe.overrides,
                    importance: recipe.importance.as_ref(),
                    block_count: (!recipe.prune.is_empty())
                        .then(|| (format!("{}.block_count", facts.arch), pruning.n_layers())),
                },
            ),
            &rows,
            recipe.keep_split,
        )?;
        let mut plan = Plan {
            rows,
            shards,
            keep_split: recipe.keep_split,
            problems: Vec::new(),
            warnings: recipe.overrides.iter().filter_map(|o| o.warning()).collect(),
            importance: HashMap::new(),
        };
        match recipe.target {
            Target::Ftype(ftype) => plan.choose_types(&facts, ftype, recipe)?,
            Target::Copy => plan.rows.iter_mut().for_each(|r| r.reason = Reason::Kept("COPY")),
        }
        plan.warn_of_idle_options(recipe);
        Ok(plan)
    }

    /// Whether everything asked for can be done.
    ///
    /// # Errors
    /// All problems, in groups.
    pub fn check(&self) -> Result<(), PlanError> {
        match Refusal::new(&self.problems) {
            Some(refusal) => Err(PlanError::Refused(refusal)),
            None => Ok(()),
        }
    }

    /// Bytes of tensor data in the input, without padding.
    pub fn bytes_from(&self) -> u64 {
        self.rows.iter().map(|r| r.bytes_from).sum()
    }

    /// Bytes of tensor data in the output, without padding.
    pub fn bytes(&self) -> u64 {
        self.rows.iter().map(|r| r.bytes).sum()
    }

    /// Number of weights.
    pub fn weights(&self) -> u64 {
        self.rows.iter().map(Row::weights).sum()
    }

    /// Tensors whose rows are not whole blocks of the type they should have had.
    pub fn n_fallback(&self) -> usize {
        self.rows.iter().filter(|r| matches!(r.reason, Reason::Fallback(_))).count()
    }

    fn choose_types(
        &mut self,
        facts: &Facts,
        ftype: Ftype,
        recipe: &Recipe,
    ) -> Result<(), PlanError> {
        let names: Vec<String> = self.rows.iter().map(|r| r.name.clone()).collect();
        let mut mixture = Mixture::new(
            facts,
            ftype,
            recipe.importance.is_some(),
            recipe.output_type,
            names.iter().map(String::as_str),
        );
        for row in &mut self.rows {
            let (wanted, reason) = wanted(row, facts, ftype, recipe, &mut mixture)?;
            let shape_rule = matches!(reason, Reason::Default | Reason::Mixture | Reason::Rule(_))
                || reason == TIED_OUTPUT;
            (row.to, row.reason) = (wanted, reason);
            fit(row, shape_rule && is_quantized(ftype.default_type()), recipe, &mut self.problems);
            row.bytes = bytes_of(row.to, &row.shape);
            check_conversion(row, recipe, &mut self.problems);
            let kept = matches!(row.reason, Reason::Kept(_));
            let needs = !kept && requires_importance(&row.name, row.to, ftype);
            let weights = weigh(row, needs, recipe, &mut self.problems);
            if let Some(weights) = weights {
                row.weighted = true;
                self.importance.insert(row.source.name.clone(), weights);
            }
        }
        Ok(())
    }

    /// Options that llama-quantize, and therefore trine, does not apply to such a target.
    fn warn_of_idle_options(&mut self, recipe: &Recipe) {
        let idle = match recipe.target {
            Target::Copy => true,
            Target::Ftype(ftype) => !is_quantized(ftype.default_type()),
        };
        let target = recipe.target.name();
        if idle && !recipe.rules.is_empty() {
            self.warnings.push(format!("--tensor-type has no effect on {target}"));
        }
        if idle && recipe.pure {
            self.warnings.push(format!("--pure has no effect on {target}"));
        }
        if !idle {
            for rule in &recipe.rules {
                if !self.rows.iter().any(|r| rule.matches(&r.name)) {
                    let pattern = &rule.pattern;
                    self.warnings.push(format!("--tensor-type {pattern}: no tensor has such a name"));
                }
            }
        }
    }
}

/// Tied embeddings take `--output-tensor-type` by way of the mixture.
const TIED_OUTPUT: Reason = Reason::Option("--output-tensor-type (tied)");

/// The row of a tensor that stays as it is.
fn unchanged(name: String, (shard, offset, info): (usize, u64, &TensorInfo)) -> Row {
    Row {
        name,
        source: Source { name: info.name.clone(), shard, offset },
        shape: ggml_shape(&info.shape).to_vec(),
        from: info.ty,
        to: info.ty,
        bytes_from: info.bytes,
        bytes: info.bytes,
        reason: Reason::Default,
        weighted: false,
    }
}

fn is_quantized(ty: TypeId) -> bool {
    ty.info().is_some_and(|t| t.is_quantized())
}

/// Bytes of a tensor in type `ty`, a last partial block of a row counted whole. A tensor of this many
/// weights exists in the input with a checked size, and no type takes more than 8 bytes a weight.
fn bytes_of(ty: TypeId, shape: &[u64]) -> u64 {
    let Some(info) = ty.info() else { return 0 };
    let columns = shape.first().copied().unwrap_or(1);
    let rows: u64 = shape.iter().skip(1).product();
    rows.saturating_mul(columns.div_ceil(info.block as u64)).saturating_mul(info.bytes as u64)
}

/// `general.file_type` of a copy: the source's own, or a guess from its types.
fn copied_file_type(
    meta: &Metadata,
    sorted: &[(usize, u64, &TensorInfo)],
    recipe: &Recipe,
) -> u32 {
    let key = "general.file_type";
    if let Some(super::recipe::KvValue::Int(n)) = super::facts::overridden(&recipe.overrides, key) {
        return *n as u32;
    }
    if let Ok(Some(own)) = meta.get_u32(key) {
        return own;
    }
    let mut counts: HashMap<TypeId, usize> = HashMap::new();
    let (mut most, mut frequent) = (0, TypeId::F32);
    for &(_, _, info) in sorted {
        let count = counts.entry(info.ty).or_default();
        *count += 1;
        if *count > most {
            (most, frequent) = (*count, info.ty);
        }
    }
    guessed_id(frequent)
}

fn out_shards(meta: Metadata, rows: &[Row], keep_split: bool) -> Result<Vec<OutShard>, PlanError> {
    let last = rows.last().ok_or(PlanError::NoTensors)?.source.shard;
    if !keep_split || last == 0 {
        return Ok(vec![OutShard { meta, rows: 0..rows.len() }]);
    }
    let count = last + 1;
    let mut shards = Vec::with_capacity(count);
    let mut first = Some(meta);
    let mut at = 0;
    for no in 0..count {
        let end = at + rows[at..].iter().take_while(|r| r.source.shard == no).count();
        if end == at {
            return Err(PlanError::EmptyShard(no + 1));
        }
        let mut meta = first.take().unwrap_or_default();
        metadata::add_split(&mut meta, no as u16, count as u16, rows.len());
        shards.push(OutShard { meta, rows: at..end });
        at = end;
    }
    Ok(shards)
}

/// The type a tensor should have, before its shape is looked at.
fn wanted(
    row: &Row,
    facts: &Facts,
    ftype: Ftype,
    recipe: &Recipe,
    mixture: &mut Mixture,
) -> Result<(TypeId, Reason), MixtureError> {
    let name = row.name.as_str();
    if let Some(why) = category::kept_because(name, row.shape.len(), &facts.arch) {
        return Ok((row.from, Reason::Kept(why)));
    }
    let category = Category::of(name);
    if recipe.leave_output && category == Category::Output {
        return Ok((row.from, Reason::Kept("--leave-output-tensor")));
    }
    let rule = recipe.rules.iter().find(|r| r.matches(name));
    match (category, recipe.embedding_type, recipe.output_type) {
        (Category::TokenEmbd, Some(ty), _)
            if rule.is_none() || name != "per_layer_token_embd.weight" =>
        {
            return Ok((ty, Reason::Option("--token-embedding-type")));
        }
        (Category::Output, _, Some(ty)) => {
            return Ok((ty, Reason::Option("--output-tensor-type")));
        }
        _ => {}
    }
    let base = ftype.default_type();
    if !is_quantized(base) {
        return Ok((base, Reason::Default));
    }
    if let Some(rule) = rule {
        return Ok((rule.ty, Reason::Rule(rule.pattern.clone())));
    }
    if recipe.pure {
        return Ok((base, Reason::Default));
    }
    let stacked = row.shape.get(2).is_some_and(|&n| n > 1);
    let tensor = mixture::Tensor { name, category, columns: row.columns(), stacked };
    let ty = mixture.next(tensor, base)?;
    let by_option = category == Category::TokenEmbd && mixture.tied() && recipe.output_type.is_some();
    Ok(match ty {
        _ if by_option => (ty, TIED_OUTPUT),
        _ if ty == base => (ty, Reason::Default),
        _ => (ty, Reason::Mixture),
    })
}

/// Takes llama.cpp's replacement where rows are not whole blocks, and records that it was needed.
/// Types named for one tensor have no replacement in llama.cpp, which then crashes.
fn fit(row: &mut Row, replaceable: bool, recipe: &Recipe, problems: &mut Vec<Problem>) {
    let block = row.to.info().map_or(1, |t| t.block as u64);
    if !row.converts() || row.columns().is_multiple_of(block) {
        return;
    }
    let instead = if replaceable { replacement(row.to, row.columns()) } else { None };
    if !(recipe.fallback && instead.is_some()) {
        problems.push(Problem::misfit(row, block, instead));
    }
    if let Some(ty) = instead {
        row.reason = Reason::Fallback(row.to);
        row.to = ty;
    }
}

/// Whether trine can read the one type and write the other, and is allowed to.
fn check_conversion(row: &Row, recipe: &Recipe, problems: &mut Vec<Problem>) {
    if !row.converts() {
        return;
    }
    if row.from != TypeId::F32 && row.from.info().is_none_or(|t| t.decode.is_none()) {
        problems.push(Problem::Unreadable { tensor: row.name.clone(), ty: row.from });
    }
    if !can_write(row.to) {
        problems.push(Problem::Unwritable { tensor: row.name.clone(), ty: row.to });
    }
    if row.shape.len() > 3 {
        problems.push(Problem::FourDimensions { tensor: row.name.clone() });
    }
    if is_quantized(row.from) && !recipe.allow_requantize {
        let (from, to) = (row.from, row.to);
        problems.push(Problem::Requantize { tensor: row.name.clone(), from, to });
    }
}

/// Whether a file may hold tensors of this type that trine encoded. `q8_1` and `q8_K` are for
/// activations.
pub fn can_write(ty: TypeId) -> bool {
    !matches!(ty, TypeId::Q8_1 | TypeId::Q8_K) && ty.info().is_some_and(|t| t.encode.is_some())
}

/// Types that are useless without an importance matrix, embeddings and output excepted.
fn requires_importance(name: &str, ty: TypeId, ftype: Ftype) -> bool {
    if matches!(Category::of(name), Category::TokenEmbd | Category::Output) {
        return false;
    }
    match ty {
        TypeId::IQ1_S
        | TypeId::IQ1_M
        | TypeId::IQ2_XXS
        | TypeId::IQ2_XS
        | TypeId::IQ2_S
        | TypeId::IQ3_XXS => true,
        TypeId::Q2_K => ftype == Ftype::Q2_K_S,
        _ => false,
    }
}

/// The importance weights of a tensor: one per column, for each of its stacked matrices.
fn weigh(
    row: &Row,
    needs: bool,
    recipe: &Recipe,
    problems: &mut Vec<Problem>,
) -> Option<Vec<f32>> {
    let missing = || Problem::NoImportance { tensor: row.name.clone(), ty: row.to };
    let Some(importance) = &recipe.importance else {
        if needs {
            problems.push(missing());
        }
        return None;
    };
    if !row.converts() {
        return None;
    }
    let weights = importance.get(&row.source.name);
    let expected = row.columns().saturating_mul(row.shape.get(2).copied().unwrap_or(1));
    match weights {
        Some(w) if w.len() as u64 == expected => Some(w.to_vec()),
        // llama.cpp leaves embeddings unweighted then
        Some(_) if Category::of(&row.name) == Category::TokenEmbd => None,
        Some(w) => {
            let (tensor, found) = (row.name.clone(), w.len() as u64);
            problems.push(Problem::WrongImportance { tensor, found, expected });
            None
        }
        None if needs => {
            problems.push(missing());
            None
        }
        None => None,
    }
}
