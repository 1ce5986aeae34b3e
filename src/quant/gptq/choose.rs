//! Which tensors of a plan are rounded with error feedback.

use std::collections::HashMap;

use trine_formats::types::TypeId;

use super::{Gptq, Job};
use crate::quant::problem::Problem;
use crate::quant::row::Row;

/// The tensors that become a quantized type and whose input has a Hessian. What cannot be honoured is added to
/// `problems`.
pub fn choose(rows: &[Row], gptq: &Gptq, problems: &mut Vec<Problem>) -> Job {
    let header = gptq.hessians.header();
    let mut inputs = HashMap::new();
    for (index, row) in rows.iter().enumerate() {
        let Some(&input) = header.weights.get(&row.source.name) else {
            continue;
        };
        if !row.is_encoded() || row.shape.len() != 2 {
            continue;
        }
        let (found, expected) = (header.inputs[input].columns, row.columns());
        if found != expected {
            let tensor = row.name.clone();
            problems.push(Problem::WrongHessian { tensor, found, expected });
        } else if row.to.grid().is_none() {
            let (tensor, ty) = (row.name.clone(), row.to);
            problems.push(Problem::NoFeedback { tensor, ty });
        } else if gptq.options.sparse && row.to != TypeId::Q4_0 {
            let (tensor, ty) = (row.name.clone(), row.to);
            problems.push(Problem::NotPruned { tensor, ty });
        } else {
            inputs.insert(index, input);
        }
    }
    Job { gptq: gptq.clone(), inputs }
}
