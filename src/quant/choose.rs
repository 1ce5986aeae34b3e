//! The type of one tensor: options, rules and mixture first, then whether its shape and types allow it.

use trine_formats::types::TypeId;

use super::category::{self, Category};
use super::codec::{can_read, can_write, is_quantized};
use super::facts::Facts;
use super::ftype::Ftype;
use super::gptq::Gptq;
use super::mixture::{self, Mixture, MixtureError, replacement};
use super::problem::Problem;
use super::recipe::Recipe;
use super::row::{Reason, Row};

/// Tied embeddings take `--output-tensor-type` by way of the mixture.
pub(super) const TIED_OUTPUT: Reason = Reason::Option("--output-tensor-type (tied)");

/// The type a tensor should have, before its shape is looked at.
pub(super) fn wanted(
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
        (Category::TokenEmbd, Some(ty), _) if rule.is_none() || name != "per_layer_token_embd.weight" => {
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
        return Ok((rule.ty, rule.reason()));
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
pub(super) fn fit(row: &mut Row, replaceable: bool, recipe: &Recipe, problems: &mut Vec<Problem>) {
    let block = row.to.info().map_or(1, |t| t.block as u64);
    if !row.converts() || row.columns().is_multiple_of(block) {
        return;
    }
    let instead = if replaceable { replacement(row.to, row.columns()) } else { None };
    if !(recipe.fallback.takes(row.to) && instead.is_some()) {
        problems.push(Problem::misfit(row, block, instead));
    }
    if let Some(ty) = instead {
        row.reason = Reason::Fallback(row.to);
        row.to = ty;
    }
}

/// True if trine can read the one type and write the other, and is allowed to.
pub(super) fn check_conversion(row: &Row, recipe: &Recipe, problems: &mut Vec<Problem>) {
    if !row.converts() {
        return;
    }
    if !can_read(row.from) {
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

/// Types that are useless without an importance matrix. Embeddings and output, of which a matrix mostly knows nothing,
/// are excepted but for the types that ggml does not encode without one at all.
pub(super) fn requires_importance(name: &str, ty: TypeId, ftype: Ftype) -> bool {
    let excepted = matches!(Category::of(name), Category::TokenEmbd | Category::Output);
    match ty {
        TypeId::IQ1_S | TypeId::IQ2_XXS | TypeId::IQ2_XS => true,
        TypeId::IQ1_M | TypeId::IQ2_S | TypeId::IQ3_XXS => !excepted,
        TypeId::Q2_K => ftype == Ftype::Q2_K_S && !excepted,
        _ => false,
    }
}

/// True if a tensor has importance weights: one per column, for each of its stacked matrices. A Hessian, which has them
/// on its diagonal, is none, but serves where they are needed.
pub(super) fn weigh(row: &Row, needs: bool, recipe: &Recipe, problems: &mut Vec<Problem>) -> bool {
    let missing = || Problem::NoImportance { tensor: row.name.clone(), ty: row.to };
    let Some(importance) = &recipe.importance else {
        let has_hessian = |gptq: &Gptq| gptq.hessians.header().weights.contains_key(&row.source.name);
        if needs && !recipe.gptq.as_ref().is_some_and(has_hessian) {
            problems.push(missing());
        }
        return false;
    };
    if !row.converts() {
        return false;
    }
    let expected = row.columns().saturating_mul(row.shape.get(2).copied().unwrap_or(1));
    match importance.get(&row.source.name).map(|w| w.len() as u64) {
        Some(found) if found == expected => return true,
        // llama.cpp leaves embeddings unweighted then
        Some(_) if Category::of(&row.name) == Category::TokenEmbd => {}
        Some(found) => {
            let tensor = row.name.clone();
            problems.push(Problem::WrongImportance { tensor, found, expected });
        }
        None if needs => problems.push(missing()),
        None => {}
    }
    false
}
