//! The tensors of a model that a request concerns, and the reasons against it.

use trine_formats::anyprec::MAX_TABLES;

use super::cluster::{Method, Nesting};
use super::error::ApError;
use super::target::Options;
use crate::quant::category::Category;
use crate::quant::codec::{bytes_of, can_read, can_write, is_quantized};
use crate::quant::plan::Asked;
use crate::quant::row::{Reason, Row};
use crate::quant::ternary::is_ternary_type;

/// The width in bits of the widest parent whose tables are small beside the planes of rows of `columns` weights: at
/// twice the row's planes they are no longer.
pub fn sensible_parent(columns: u64) -> u8 {
    match columns {
        4096.. => 8,
        2048.. => 6,
        _ => 5,
    }
}

/// Gives embeddings and output the types that were asked for.
pub(super) fn retype(rows: &mut [Row], asked: &Asked<'_>) -> Result<(), ApError> {
    let category = |row: &Row| Category::of(&row.name);
    let tied = !rows.iter().any(|r| category(r) == Category::Output);
    for row in rows {
        let (ty, option) = match (category(row), asked.embedding_type, asked.output_type) {
            (Category::TokenEmbd, Some(ty), _) => (ty, "--token-embedding-type"),
            (Category::TokenEmbd, None, Some(ty)) if tied => (ty, "--output-tensor-type"),
            (Category::Output, _, Some(ty)) => (ty, "--output-tensor-type"),
            _ => continue,
        };
        if ty == row.from {
            continue;
        }
        let refused = |why| {
            let tensor = row.name.clone();
            Err(ApError::TensorType { option, tensor, ty, why })
        };
        let block = ty.info().map_or(1, |t| t.block as u64);
        if !can_write(ty) || is_ternary_type(ty) {
            return refused(format!("{ty} is not for them"));
        }
        if !can_read(row.from) {
            return refused(format!("trine cannot decode its type {}", row.from));
        }
        if is_quantized(row.from) && !asked.allow_requantize {
            let (count, first, ty) = (1, row.name.clone(), row.from);
            return Err(ApError::Requantize { count, first, ty });
        }
        if !row.columns().is_multiple_of(block) {
            let columns = row.columns();
            return refused(format!("rows of {columns} weights are not whole blocks of {block}"));
        }
        row.to = ty;
        row.bytes = bytes_of(ty, &row.shape);
        row.reason = Reason::Option(option);
    }
    Ok(())
}

/// Makes sure that codebooks can be made of the matrices.
pub(super) fn check_rows(matrices: &[&Row], options: &Options, asked: &Asked<'_>) -> Result<(), ApError> {
    if matrices.is_empty() {
        return Err(ApError::NoMatrices);
    }
    let quantized: Vec<&&Row> = matrices.iter().filter(|r| is_quantized(r.from)).collect();
    if let (Some(first), false) = (quantized.first(), asked.allow_requantize) {
        return Err(ApError::Requantize { count: quantized.len(), first: first.name.clone(), ty: first.from });
    }
    for row in matrices {
        let (tensor, columns) = (row.name.clone(), row.columns());
        if !can_read(row.from) {
            let ty = row.from;
            return Err(ApError::Unreadable { tensor, ty });
        }
        if i32::try_from(columns).is_err() {
            return Err(ApError::TooWide { tensor, columns });
        }
        let groups = options.groups;
        if groups == 0 || !columns.is_multiple_of(groups.into()) {
            return Err(ApError::Groups { groups, columns, tensor });
        }
    }
    if let Some(tables) = options.tables {
        if !(1..=MAX_TABLES).contains(&tables) {
            return Err(ApError::Tables { tables });
        }
        let unfit = [
            (options.outliers.is_some(), "--outliers"),
            (options.groups != 1, "--row-groups"),
            (options.method != Method::Exact, "--best-at and --compat"),
        ];
        if let Some((_, option)) = unfit.into_iter().find(|u| u.0) {
            return Err(ApError::TablesWith { option });
        }
    }
    let shares = options.outliers.map_or([0.0; 2], |s| [s.sensitive, s.magnitude]);
    let options = ["--outlier-sensitive", "--outlier-magnitude"];
    match options.into_iter().zip(shares).find(|(_, p)| !(0.0..=50.0).contains(p)) {
        Some((option, percent)) => Err(ApError::Share { option, percent }),
        None => Ok(()),
    }
}

/// The widths of a code and those that get tables.
pub(super) fn widths(
    matrices: &[&Row],
    range: Option<Nesting>,
    options: &Options,
    notes: &mut Vec<String>,
) -> Result<(Nesting, Vec<u8>), ApError> {
    let seed = options.seed_bits.or(range.map(|n| n.seed_bits)).unwrap_or(3);
    let named = options.parent_bits.or(range.map(|n| n.parent_bits));
    let parent = named.unwrap_or_else(|| {
        if options.tables.is_some() {
            return Nesting::MAX_BITS;
        }
        let columns = matrices.iter().map(|r| r.columns()).min().unwrap_or(0);
        let group = columns / u64::from(options.groups);
        let parent = sensible_parent(group).max(seed);
        notes.push(format!("{seed} to {parent} bits: rows have as few as {group} weights to a table"));
        parent
    });
    if Nesting::new(seed, parent).is_none() {
        return Err(ApError::Range { seed, parent });
    }
    let widths = options.widths.clone().unwrap_or_else(|| (seed..=parent).collect());
    let inside = widths.iter().all(|w| (seed..=parent).contains(w));
    match widths.last() {
        Some(&last) if inside && widths.is_sorted_by(|a, b| a < b) => {
            if last < parent {
                notes.push(format!("no plane after the {last} that the widest kept width needs is stored"));
            }
            let nesting = Nesting { seed_bits: seed, parent_bits: last };
            Ok((nesting, widths))
        }
        _ => Err(ApError::Widths { widths, seed, parent }),
    }
}
