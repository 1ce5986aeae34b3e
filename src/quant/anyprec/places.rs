//! Where every part lies in the file.

use std::collections::HashMap;

use trine_formats::anyprec::{Header, MatrixExtents, Part, file_order};
use trine_formats::gguf::write::Layout;

use super::error::ApError;
use super::matrices::NAME;
use crate::quant::plan::Plan;
use crate::quant::row::Row;
use crate::quant::work::RunError;

/// Where everything lies in the file.
#[derive(Debug)]
pub struct Places {
    /// The header and the offsets.
    pub layout: Layout,
    /// The number in the file of each row; 0 of those that become several tensors.
    pub rows: Vec<usize>,
    /// The number in the file of a part of a matrix, which is counted through the matrices.
    pub parts: HashMap<(usize, Part), usize>,
    /// For each width the bytes of the file up to its last part.
    pub prefixes: Vec<(u8, u64)>,
}

impl Places {
    /// Lays out the file: `sparse` has the number of weights of each matrix that are kept as they are.
    ///
    /// # Errors
    /// Names and sizes that GGUF cannot hold, such as a name that is too long.
    pub fn new(plan: &Plan, header: &Header, sparse: &[u64]) -> Result<Places, ApError> {
        let rows = |row: &Row| row.weights() / row.columns().max(1);
        let matrix = |(row, &sparse): (&Row, &u64)| MatrixExtents {
            name: row.name.clone(),
            columns: row.columns(),
            rows: rows(row),
            groups: header.groups.into(),
            tables: header.shared_by(rows(row)),
            sparse,
        };
        let matrices: Vec<MatrixExtents> = matrices(plan).zip(sparse).map(matrix).collect();
        let mut tensors = Vec::new();
        let rows = plan.rows.iter().map(|row| {
            if row.method == NAME {
                return 0;
            }
            tensors.push(row.tensor());
            tensors.len() - 1
        });
        let rows = rows.collect();
        let (mut parts, mut ends) = (HashMap::new(), Vec::new());
        for section in file_order(&matrices, &header.bits) {
            for (i, part) in section.parts {
                parts.insert((i, part), tensors.len());
                tensors.push(matrices[i].tensor(part));
            }
            ends.extend(section.width.map(|w| (w, tensors.len())));
        }
        let mut meta = plan.shards[0].meta.clone();
        header.write(&mut meta);
        let layout = Layout::new(&meta, &tensors).map_err(RunError::from)?;
        let start = layout.header().len() as u64;
        let end = |tensors: usize| {
            let last = tensors.checked_sub(1).and_then(|i| layout.tensors().get(i));
            last.map_or(start, |t| start + t.offset + t.bytes)
        };
        Ok(Places { prefixes: ends.into_iter().map(|(w, n)| (w, end(n))).collect(), rows, parts, layout })
    }
}

/// The rows of a plan that get codebooks.
pub fn matrices(plan: &Plan) -> impl Iterator<Item = &Row> {
    plan.rows_of(NAME).map(|i| &plan.rows[i])
}
