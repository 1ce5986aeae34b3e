//! Which tensors are moved, and to what: the part of the plan that concerns ternary weights.

use trine_formats::gguf::{Metadata, packing};
use trine_formats::types::TypeId;
use trine_formats::types::ternary::Packing;

use super::tiles;
use super::types::{MOVES, is_float, is_packed, is_ternary, moves};
use crate::quant::category::{Category, kept_because};
use crate::quant::codec::{bytes_of, is_quantized};
use crate::quant::packed::Packed;
use crate::quant::problem::Problem;
use crate::quant::recipe::Recipe;
use crate::quant::row::{Move, Reason, Row};

/// The facts beside the row that decide about a move.
#[derive(Clone, Copy)]
pub struct Context<'a> {
    pub meta: &'a Metadata,
    pub recipe: &'a Recipe,
}

/// The type a tensor should have in a file of bitnet.cpp.
pub fn choose_packed(row: &Row, arch: &str, to: Packed, recipe: &Recipe) -> (TypeId, Reason) {
    let name = row.name.as_str();
    if let Some(why) = kept_because(name, row.shape.len(), arch) {
        return (row.from, Reason::Kept(why));
    }
    let category = Category::of(name);
    if recipe.leave_output && category == Category::Output {
        return (row.from, Reason::Kept("--leave-output-tensor"));
    }
    match (category, recipe.embedding_type, recipe.output_type) {
        (Category::TokenEmbd, Some(ty), _) => (ty, Reason::Option("--token-embedding-type")),
        (Category::Output, _, Some(ty)) => (ty, Reason::Option("--output-tensor-type")),
        (Category::TokenEmbd | Category::Output, ..) if is_float(row.from) => {
            (TypeId::F16, Reason::Kept("f16 as in bitnet.cpp"))
        }
        (Category::TokenEmbd | Category::Output, ..) => {
            (row.from, Reason::Kept("embeddings and output stay as they are"))
        }
        _ => match recipe.rules.iter().find(|r| r.matches(name)) {
            Some(rule) => (rule.ty, Reason::Rule(rule.pattern.clone())),
            None => (to.type_id(), Reason::Default),
        },
    }
}

/// True if embeddings or output of a ternary model stay as they are: a move is to change nothing, and
/// requantizing them has to be asked for.
pub fn keeps(row: &Row, to: TypeId, reason: &Reason, recipe: &Recipe) -> bool {
    let unasked = matches!(reason, Reason::Default | Reason::Mixture);
    let at_the_ends = matches!(Category::of(&row.name), Category::TokenEmbd | Category::Output);
    unasked && at_the_ends && !recipe.allow_requantize && row.from != to && (is_quantized(row.from) || is_quantized(to))
}

/// Plans the move of `row`, whose types are set. Problems are noted.
pub fn plan_move(row: &mut Row, context: Context<'_>, problems: &mut Vec<Problem>) {
    debug_assert!(moves(row.from, row.to), "only moves are planned here");
    let tensor = || row.name.clone();
    let (from, to) = (row.from, row.to);
    let recipe = context.recipe;
    if !is_float(from) && !is_ternary(from) {
        if from.info().is_none_or(|t| t.decode.is_none()) {
            let tensor = tensor();
            return problems.push(Problem::Unreadable { tensor, ty: from });
        }
        if !recipe.allow_requantize {
            let tensor = tensor();
            return problems.push(Problem::Requantize { tensor, from, to });
        }
    }
    let source = is_packed(from).then(|| packing(&row.info(), context.meta, &recipe.input_packing));
    let source = match source.transpose() {
        Ok(source) => source,
        Err(e) => {
            let why = e.to_string();
            return problems.push(Problem::Layout { tensor: tensor(), why });
        }
    };
    let Some(target) = target(row, source, recipe, problems) else {
        return;
    };
    row.bytes = bytes_of(row.to, &row.shape);
    if row.from == row.to && source == target {
        row.reason = Reason::Kept("packed like this already");
        return;
    }
    row.method = MOVES;
    row.moves = Some(Move { from: source, to: target });
}

/// The layout of the output, or `None` after a problem. Falls back from TL1 and TL2 to I2_S where that
/// is allowed.
fn target(
    row: &mut Row,
    source: Option<Packing>,
    recipe: &Recipe,
    problems: &mut Vec<Problem>,
) -> Option<Option<Packing>> {
    if !is_packed(row.to) {
        let block = row.to.info().map_or(1, |t| t.block as u64);
        if row.columns().is_multiple_of(block) {
            return Some(None);
        }
        problems.push(Problem::misfit(row, block, None));
        return None;
    }
    let refusal = match tiles::choose(row, row.to, source, recipe) {
        Ok(packing) => return Some(Some(packing)),
        Err(why) => why,
    };
    let instead = (row.to != TypeId::I2_S).then(|| tiles::choose(row, TypeId::I2_S, source, recipe).ok()).flatten();
    match instead {
        Some(packing) if recipe.fallback.takes(row.to) => {
            row.reason = Reason::Fallback(row.to);
            row.to = TypeId::I2_S;
            Some(Some(packing))
        }
        _ => {
            problems.push(Problem::Unpackable {
                tensor: row.name.clone(),
                wanted: row.to,
                why: refusal,
                instead: instead.map(Packing::type_id),
            });
            None
        }
    }
}
