//! The proof that types hold matrices exactly.

use trine_formats::types::{TypeId, exact};

use super::error::{ConvertError, Problems};
use super::folder::Files;
use super::outtype::OutType;
use super::row::{Content, Row};
use super::values::{Rule, Stored};

/// For ternary types, and those of whole numbers and scales: that every matrix is held exactly, the scale of a latent
/// one rounded to f16 at most. Returns the type, which is
/// found out where any will do.
///
/// # Errors
/// Matrices that the type cannot hold, unless `fallback` makes F16 of them.
pub(super) fn held(
    rows: &mut [Row],
    files: &Files,
    outtype: OutType,
    fallback: bool,
    notes: &mut Vec<String>,
) -> Result<OutType, ConvertError> {
    if !outtype.ternary && !outtype.exact {
        return Ok(outtype);
    }
    let known = [outtype];
    let choices = if outtype == OutType::TERNARY { &OutType::WIDTHS[..] } else { &known };
    let matrices: Vec<usize> = (0..rows.len()).filter(|n| rows[*n].ty == outtype.matrix).collect();
    let mut first = None;
    for choice in choices {
        let wrong = wrong(rows, &matrices, files, choice.matrix)?;
        if wrong.is_empty() {
            matrices.iter().for_each(|n| rows[*n].ty = choice.matrix);
            if outtype == OutType::TERNARY {
                let block = choice.matrix.info().map_or(0, |t| t.block);
                notes.push(format!(
                    "every {block} weights are -a, 0 and a: matrices become {}",
                    choice.name.to_uppercase()
                ));
            }
            return Ok(OutType { name: outtype.name, ..*choice });
        }
        first.get_or_insert(wrong);
    }
    let mut problems = Problems::default();
    for (n, problem) in first.unwrap_or_default() {
        problems.push(problem);
        rows[n].ty = TypeId::F16;
    }
    if fallback {
        notes.push(format!("kept as F16: {problems}"));
        return Ok(outtype);
    }
    let ty = outtype.name.to_uppercase();
    Err(if outtype.exact { ConvertError::NotExact { ty, problems } } else { ConvertError::NotTernary { ty, problems } })
}

/// The matrices that a type cannot hold, and why.
fn wrong(rows: &[Row], matrices: &[usize], files: &Files, ty: TypeId) -> Result<Vec<(usize, String)>, ConvertError> {
    let mut wrong = Vec::new();
    for &n in matrices {
        if let Content::Stored(stored) = &rows[n].content
            && stored.ty.is_none()
            && let Some(why) = why_not(&rows[n].source, stored, files, ty)?
        {
            wrong.push((n, why));
        }
    }
    Ok(wrong)
}

fn why_not(source: &str, stored: &Stored, files: &Files, ty: TypeId) -> Result<Option<String>, ConvertError> {
    let (columns, block) = (stored.columns, ty.info().map_or(1, |t| t.block as u64));
    if !columns.is_multiple_of(block) {
        return Ok(Some(format!("'{source}' has rows of {columns} weights, no multiple of {block}")));
    }
    if exact::knows(ty) {
        let found = stored.not_held(files, ty).map_err(|fault| fault.blame(stored))?;
        return Ok(found.map(|(r, c)| format!("'{source}' is not in row {r} from column {c} on")));
    }
    Ok(match stored.rule {
        Rule::Trilm { parts, by_columns: true } if !(columns / parts).is_multiple_of(block) => {
            let reach = columns / parts;
            Some(format!("in '{source}' a scale reaches over {reach} columns, no multiple of {block}"))
        }
        Rule::Plain => stored
            .not_ternary(files, block as usize, ty != TypeId::Q1_0)
            .map_err(|fault| fault.blame(stored))?
            .map(|(r, c)| format!("'{source}' is not ternary in row {r} from column {c} on")),
        _ => None,
    })
}
