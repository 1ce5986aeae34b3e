//! The plan of a file of llama-quantize or bitnet.cpp: the type of every tensor, and the keys.

use std::collections::{BTreeSet, HashMap};

use trine_formats::gguf::{Metadata, Program, packing};
use trine_formats::pruned;
use trine_formats::types::TypeId;

use super::category::Category;
use super::choose::{TIED_OUTPUT, check_conversion, fit, requires_importance, wanted, weigh};
use super::codec::{bytes_of, is_quantized};
use super::error::PlanError;
use super::facts::{Facts, overridden};
use super::ftype::{Ftype, Target, guessed_id};
use super::gptq;
use super::lossless::{self, Context};
use super::metadata::{self, Additions};
use super::mixture::Mixture;
use super::overrides::KvValue;
use super::packed::Packed;
use super::plan::{Draft, OutputFiles, Plan};
use super::recipe::Recipe;
use super::row::{OutShard, Reason, Row, StoredTensor};

/// Chooses the types of all rows, and puts them into files.
pub fn choose(draft: &mut Draft<'_>, recipe: &Recipe) -> Result<(), PlanError> {
    let facts = Facts::new(draft.meta, &recipe.overrides);
    let file_type = match recipe.target {
        Target::Ftype(ftype) => ftype as u32,
        Target::Packed(packed) => packed.file_type(),
        _ => copied_file_type(draft.meta, &draft.sources, recipe),
    };
    let plan = &mut draft.plan;
    if recipe.keep_split {
        plan.rows.sort_by_key(|r| (r.source.shard, r.source.offset));
    }
    let additions = Additions {
        file_type,
        overrides: &recipe.overrides,
        importance: recipe.importance.as_ref(),
        method: recipe.gptq.as_ref().map(gptq::Gptq::keys).unwrap_or_default(),
        block_count: draft.n_layers.map(|n| (format!("{}.block_count", facts.arch), n)),
    };
    plan.files = OutputFiles::Quantized { shards: recipe.keep_split };
    plan.shards = out_shards(metadata::output(draft.meta, &additions), &plan.rows, recipe.keep_split)?;
    plan.warnings.extend(draft.asked.warnings());
    let context = Context { meta: draft.meta, recipe };
    match recipe.target {
        Target::Ftype(ftype) => plan.choose_types(&facts, ftype, context)?,
        Target::Packed(packed) => plan.choose_packed(&facts, packed, context),
        _ => plan.rows.iter_mut().for_each(|r| r.reason = Reason::Kept("COPY")),
    }
    match recipe.target {
        Target::Ftype(ftype) if is_quantized(ftype.default_type()) => Ok(()),
        target if recipe.gptq.is_some() => Err(PlanError::NothingToRound(target.name())),
        _ => Ok(()),
    }
}

/// Completes a plan whose methods have taken their rows.
pub fn finish(draft: &mut Draft<'_>, recipe: &Recipe) -> Result<(), PlanError> {
    let (meta, plan) = (draft.meta, &mut draft.plan);
    if let Some((name, 0)) = recipe.encoder.rows_of(&plan.rows).filter(|_| !recipe.encoder.is_for_any()) {
        return Err(PlanError::NoneEncoded(name));
    }
    plan.rows.iter_mut().for_each(Row::keep_together);
    for row in plan.rows.iter_mut().filter(|r| !r.converts() && lossless::is_packed(r.from)) {
        // Of a layout that nobody knows less can be checked; the copy is as good as the original.
        row.packing = packing(&row.info(), meta, &recipe.input_packing).ok();
    }
    plan.name_pruned(meta, recipe)?;
    plan.warn_of_idle_options(recipe);
    plan.warn_of_readers();
    Ok(())
}

impl Plan {
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
            row.weighted = weigh(row, needs, recipe, &mut self.problems);
        }
        Ok(())
    }

    /// The types of a file of bitnet.cpp.
    fn choose_packed(&mut self, facts: &Facts, packed: Packed, context: Context<'_>) {
        let recipe = context.recipe;
        for row in &mut self.rows {
            (row.to, row.reason) = lossless::choose_packed(row, &facts.arch, packed, recipe);
            if lossless::moves(row.from, row.to) {
                lossless::plan_move(row, context, &mut self.problems);
                continue;
            }
            fit(row, false, recipe, &mut self.problems);
            row.bytes = bytes_of(row.to, &row.shape);
            check_conversion(row, recipe, &mut self.problems);
        }
    }

    /// Says which matrices have two of four weights: those that this run prunes, and those that the source calls so and
    /// that are copied.
    fn name_pruned(&mut self, meta: &Metadata, recipe: &Recipe) -> Result<(), PlanError> {
        let before = pruned::read(meta).map_err(|why| PlanError::Pruned(why.into()))?;
        let prunes = recipe.gptq.as_ref().is_some_and(|g| g.options.sparse);
        let pruned = |row: &&Row| match row.method {
            gptq::NAME => prunes,
            _ => !row.converts() && before.contains(&row.source.name),
        };
        let names = self.rows.iter().filter(pruned).map(|row| row.name.clone()).collect();
        if let Some(first) = self.shards.first_mut() {
            pruned::write(&mut first.meta, &names);
        }
        Ok(())
    }

    /// Options that llama-quantize, and therefore trine, does not apply to such a target.
    /// Says which types a file has that llama.cpp does not read, though other programs for such files do.
    fn warn_of_readers(&mut self) {
        let of_ik = |r: &&Row| r.is_encoded() && Program::IkLlamaCpp.loads(r.to) && !Program::LlamaCpp.loads(r.to);
        let types: BTreeSet<TypeId> = self.rows.iter().filter(of_ik).map(|r| r.to).collect();
        if !types.is_empty() {
            let types: Vec<String> = types.iter().map(TypeId::to_string).collect();
            let types = types.join(", ");
            self.warnings.push(format!("llama.cpp cannot read this file: it has types of ik_llama.cpp ({types})"));
        }
    }

    fn warn_of_idle_options(&mut self, recipe: &Recipe) {
        let idle = match recipe.target {
            Target::Ftype(ftype) => !is_quantized(ftype.default_type()),
            target => target == Target::Copy,
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
fn copied_file_type(meta: &Metadata, sorted: &[StoredTensor<'_>], recipe: &Recipe) -> u32 {
    let key = "general.file_type";
    if let Some(KvValue::Int(n)) = overridden(&recipe.overrides, key) {
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
