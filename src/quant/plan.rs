//! From the headers of a model and a recipe to the type of every output tensor. Pure: no data is read.

use std::collections::{BTreeMap, HashMap};

use thiserror::Error;
use trine_formats::gguf::{GgufError, Metadata, ModelFile, TensorInfo, packing};
use trine_formats::pruned::{self, PrunedError};
use trine_formats::types::TypeId;

use super::category::Category;
use super::choose::{TIED_OUTPUT, bytes_of, check_conversion, fit, is_quantized, requires_importance, wanted, weigh};
use super::encoder::Encoder;
use super::facts::Facts;
use super::ftype::{Ftype, Target, guessed_id};
use super::gptq;
use super::lossless::{self, Context};
use super::metadata::{self, Additions};
use super::mixture::{Mixture, MixtureError};
use super::order::{self, Pruning};
use super::packed::Packed;
use super::problem::{Problem, Refusal};
use super::recipe::Recipe;
use super::row::{OutShard, Reason, Row, sources, unchanged};

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
    /// What was decided that nobody asked for.
    pub notes: Vec<String>,
    /// Importance weights by source tensor, shared with the recipe.
    pub(super) importance: HashMap<String, Vec<f32>>,
    /// How rows are rounded.
    pub(super) encoder: Encoder,
    /// The tensors that are rounded with error feedback.
    pub(super) feedback: Option<gptq::Job>,
}

/// A recipe that makes no sense for this model.
#[allow(missing_docs, reason = "the messages say what the fields are")]
#[derive(Error, Debug)]
#[non_exhaustive]
pub enum PlanError {
    #[error("the model has no tensors")]
    NoTensors,
    #[error(transparent)]
    Mixture(#[from] MixtureError),
    #[error("--prune-layers: the model has no layer {0}")]
    NoLayer(u32),
    #[error("--prune-layers leaves no tensor of shard {0}: without --keep-split one file is written")]
    EmptyShard(usize),
    #[error(transparent)]
    Pruned(Box<PrunedError>),
    #[error("--method {0} knows none of the types that the tensors get; rquantize --help names those that it knows")]
    NoneEncoded(&'static str),
    #[error("--gptq is for quantized types, which {0} is not made of")]
    NothingToRound(&'static str),
    #[error("--gptq: none of the tensors that are quantized has a Hessian in the file; was it made of another model?")]
    NoHessian,
    #[error("{0}")]
    Refused(Refusal),
    #[error(transparent)]
    Gguf(#[from] GgufError),
}

impl Plan {
    /// Plans the output of `recipe` for `model`.
    ///
    /// # Errors
    /// A recipe that makes no sense for the model. Requests that cannot be honoured for some tensors
    /// are collected in [`Plan::problems`] instead, so that the plan can still be shown.
    pub fn new(model: &ModelFile, recipe: &Recipe) -> Result<Plan, PlanError> {
        Plan::from_headers(model.meta(), sources(model), recipe)
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
            Target::Packed(packed) => packed.file_type(),
            Target::Copy => copied_file_type(meta, &sources, recipe),
        };

        let mut pruning = Pruning::new(&recipe.prune);
        let mut rows: Vec<Row> =
            sources.iter().filter_map(|&source| Some(unchanged(pruning.rename(&source.2.name)?, source))).collect();
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
                    gptq: recipe.gptq.as_ref(),
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
            notes: Vec::new(),
            importance: HashMap::new(),
            encoder: recipe.encoder,
            feedback: None,
        };
        let context = Context { meta, recipe };
        match recipe.target {
            Target::Ftype(ftype) => plan.choose_types(&facts, ftype, context)?,
            Target::Packed(packed) => plan.choose_packed(&facts, packed, context),
            Target::Copy => plan.rows.iter_mut().for_each(|r| r.reason = Reason::Kept("COPY")),
        }
        if let Some(gptq) = &recipe.gptq {
            plan.choose_feedback(gptq, recipe.target)?;
        }
        if let Some((name, 0)) = plan.method() {
            return Err(PlanError::NoneEncoded(name));
        }
        if recipe.target != Target::Copy {
            plan.notes = lossless::record(&plan.rows, &mut plan.shards, context)?;
        }
        plan.rows.iter_mut().for_each(Row::keep_together);
        let infos: HashMap<&str, &TensorInfo> = sources.iter().map(|s| (s.2.name.as_str(), s.2)).collect();
        let copied = plan.rows.iter_mut().filter(|r| !r.converts());
        for row in copied.filter(|r| lossless::is_packed(r.from)) {
            let info = infos.get(row.source.name.as_str());
            // Of a layout that nobody knows less can be checked; the copy is as good as the original.
            row.packing = info.and_then(|info| packing(info, meta, &recipe.input_packing).ok());
        }
        plan.name_pruned(meta, recipe)?;
        plan.warn_of_idle_options(recipe);
        Ok(plan)
    }

    /// Says which matrices have two of four weights: those that this run prunes, and those that the source calls so and
    /// that are copied.
    fn name_pruned(&mut self, meta: &Metadata, recipe: &Recipe) -> Result<(), PlanError> {
        let before = pruned::read(meta).map_err(|why| PlanError::Pruned(why.into()))?;
        let prunes = recipe.gptq.as_ref().is_some_and(|g| g.options.sparse);
        let rows = self.rows.iter().enumerate().filter(|(i, row)| {
            let copied = !row.converts() && before.contains(&row.source.name);
            copied || prunes && self.feeds_back(*i)
        });
        let names = rows.map(|(_, row)| row.name.clone()).collect();
        if let Some(first) = self.shards.first_mut() {
            pruned::write(&mut first.meta, &names);
        }
        Ok(())
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

    /// The same by the type they should have had, the one that they got, and the width of their rows; with their
    /// number.
    pub fn fallbacks(&self) -> BTreeMap<(TypeId, TypeId, u64), usize> {
        let mut kinds = BTreeMap::new();
        for row in &self.rows {
            if let Reason::Fallback(wanted) = row.reason {
                *kinds.entry((wanted, row.to, row.columns())).or_default() += 1;
            }
        }
        kinds
    }

    fn choose_types(&mut self, facts: &Facts, ftype: Ftype, context: Context<'_>) -> Result<(), PlanError> {
        let recipe = context.recipe;
        let ternary = lossless::is_ternary_model(self.rows.iter().map(|r| (r.name.as_str(), r.from)));
        let names: Vec<String> = self.rows.iter().map(|r| r.name.clone()).collect();
        let mut mixture = Mixture::new(
            facts,
            ftype,
            // Hessians hold what an importance matrix does: the mixture is that of a file with one. It has Q4_1 among
            // Q4_0, which sparse kernels do not take.
            recipe.importance.is_some() || recipe.gptq.as_ref().is_some_and(|g| !g.options.sparse),
            recipe.output_type,
            names.iter().map(String::as_str),
        );
        for row in &mut self.rows {
            let (wanted, reason) = wanted(row, facts, ftype, recipe, &mut mixture)?;
            let shape_rule =
                matches!(reason, Reason::Default | Reason::Mixture | Reason::Rule(_)) || reason == TIED_OUTPUT;
            if ternary && lossless::keeps(row, wanted, &reason, recipe) {
                row.reason = Reason::Kept("embeddings and output stay as they are");
                continue;
            }
            (row.to, row.reason) = (wanted, reason);
            if lossless::moves(row.from, row.to) {
                lossless::plan_move(row, context, &mut self.problems);
                continue;
            }
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

    /// The tensors that are rounded with error feedback.
    fn choose_feedback(&mut self, gptq: &gptq::Gptq, target: Target) -> Result<(), PlanError> {
        let known = self.problems.len();
        match target {
            Target::Ftype(ftype) if is_quantized(ftype.default_type()) => {}
            other => return Err(PlanError::NothingToRound(other.name())),
        }
        let job = gptq::choose(&self.rows, gptq, &mut self.problems);
        if job.inputs.is_empty() && self.problems.len() == known {
            return Err(PlanError::NoHessian);
        }
        self.feedback = Some(job);
        Ok(())
    }

    /// The method that rounds rows where it is not the usual one, and how many tensors it rounds.
    pub fn method(&self) -> Option<(&'static str, usize)> {
        let encoder = self.encoder;
        let own = self.rows.iter().filter(|r| r.is_encoded() && encoder.knows(r.to));
        (encoder.name != Encoder::default().name).then(|| (encoder.name, own.count()))
    }

    /// Whether tensor number `index` is rounded with error feedback.
    pub fn feeds_back(&self, index: usize) -> bool {
        let job = self.feedback.as_ref();
        job.is_some_and(|job| job.inputs.contains_key(&index))
    }

    /// How many tensors are rounded with error feedback, and which are quantized without, because they have no Hessian.
    /// `None` when it was not asked for.
    pub fn feedback(&self) -> Option<(usize, Vec<&str>)> {
        let job = self.feedback.as_ref()?;
        let rows = self.rows.iter().enumerate();
        let without = rows.filter(|(i, r)| r.is_encoded() && !job.inputs.contains_key(i));
        Some((job.inputs.len(), without.map(|(_, r)| r.name.as_str()).collect()))
    }

    /// The types of a file of bitnet.cpp.
    fn choose_packed(&mut self, facts: &Facts, packed: Packed, context: Context<'_>) {
        let recipe = context.recipe;
        for row in &mut self.rows {
            let (to, reason) = lossless::choose_packed(row, &facts.arch, packed, recipe);
            (row.to, row.reason) = (to, reason);
            if lossless::moves(row.from, row.to) {
                lossless::plan_move(row, context, &mut self.problems);
                continue;
            }
            fit(row, false, recipe, &mut self.problems);
            row.bytes = bytes_of(row.to, &row.shape);
            check_conversion(row, recipe, &mut self.problems);
        }
    }

    /// Options that llama-quantize, and therefore trine, does not apply to such a target.
    fn warn_of_idle_options(&mut self, recipe: &Recipe) {
        let idle = match recipe.target {
            Target::Copy => true,
            Target::Packed(_) => false,
            Target::Ftype(ftype) => !is_quantized(ftype.default_type()),
        };
        let target = recipe.target.name();
        if idle && !recipe.rules.is_empty() {
            self.warnings.push(format!("--tensor-type has no effect on {target}"));
        }
        let unweighted = |r: &&Row| {
            let rare = matches!(Category::of(&r.name), Category::TokenEmbd | Category::Output);
            r.converts() && !r.weighted && !rare
        };
        if recipe.importance.is_some() && !idle {
            let n = self.rows.iter().filter(unweighted).count();
            if let Some(first) = self.rows.iter().find(unweighted) {
                let first = &first.name;
                self.warnings
                    .push(format!("the importance matrix has no weights for {n} tensors, the first is {first}"));
            }
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

/// `general.file_type` of a copy: the source's own, or a guess from its types.
fn copied_file_type(meta: &Metadata, sorted: &[(usize, u64, &TensorInfo)], recipe: &Recipe) -> u32 {
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
