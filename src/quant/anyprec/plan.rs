//! From the headers of a model and a recipe to the file: which matrices are quantized, at which widths,
//! where every part lies and how large each prefix is. Pure: no data is read.

use std::collections::HashMap;

use trine_formats::anyprec::{ALIGNMENT, AnyPrec, Header, Matrix, Part, file_order};
use trine_formats::gguf::write::{Layout, NewTensor};
use trine_formats::gguf::{Metadata, ModelFile, TensorInfo, Value};

use super::Method;
use super::cluster::Nesting;
use super::error::ApError;
use super::outliers::{Rule, Shares};
use super::target::Recipe;
use crate::arch::{DENSE_MATRICES, Tensor as Described};
use crate::quant::category::Category;
use crate::quant::choose::{bytes_of, can_read, can_write, is_quantized};
use crate::quant::metadata;
use crate::quant::method::RunError;
use crate::quant::order;
use crate::quant::row::{Reason, Row, sources, unchanged};
use crate::quant::ternary::is_ternary_type;

/// The matrices of a block that get codebooks.
pub(super) fn block_matrices() -> impl Iterator<Item = &'static Described> {
    DENSE_MATRICES.into_iter().flatten()
}

/// Whether a tensor is one of a block's matrices, `blk.N.attn_q.weight` to `blk.N.ffn_down.weight`.
pub fn is_block_matrix(name: &str, shape: &[u64]) -> bool {
    let matrix = || {
        let (number, rest) = name.strip_prefix("blk.")?.split_once('.')?;
        let counts = !number.is_empty() && number.bytes().all(|b| b.is_ascii_digit());
        Some(counts && block_matrices().any(|t| t.gguf == rest))
    };
    shape.len() <= 2 && !shape.contains(&0) && matrix().unwrap_or(false)
}

/// The widest parent whose tables rows of so many weights carry: at twice the row's planes they are no
/// longer small.
pub fn sensible_parent(columns: u64) -> u8 {
    match columns {
        4096.. => 8,
        2048.. => 6,
        _ => 5,
    }
}

/// Where everything lies in the file.
pub struct Places {
    /// The header and the offsets.
    pub layout: Layout,
    /// The number in the file of the tensor that a row becomes, for rows that stay one.
    pub copied: HashMap<usize, usize>,
    /// The number in the file of a part of a matrix, which is counted through [`Plan::quantized`].
    pub parts: HashMap<(usize, Part), usize>,
    /// For each width the bytes of the file up to its last part.
    pub prefixes: Vec<(u8, u64)>,
}

/// What will be written.
#[derive(Debug)]
pub struct Plan {
    /// All tensors of the model, in llama.cpp's order.
    pub rows: Vec<Row>,
    /// Which of them get codes; the others are copied, or encoded where their type changes.
    pub quantized: Vec<usize>,
    /// The keys of the output but for [`Plan::header`]'s.
    pub meta: Metadata,
    /// What the any-precision keys will say, as far as the headers tell.
    pub header: Header,
    /// How clusters are found.
    pub method: Method,
    /// Weights that are kept as they are.
    pub outliers: Option<(Rule, Shares)>,
    /// Remarks worth a line.
    pub warnings: Vec<String>,
    /// What was decided that nobody asked for.
    pub notes: Vec<String>,
}

impl Plan {
    /// Plans the output of `recipe` for `model`.
    ///
    /// # Errors
    /// What the recipe asks for makes no sense for the model.
    pub fn new(model: &ModelFile, recipe: &Recipe) -> Result<Plan, ApError> {
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
    ) -> Result<Plan, ApError> {
        if AnyPrec::is(meta) {
            return Err(ApError::Already);
        }
        if sources.is_empty() {
            return Err(ApError::NoTensors);
        }
        sources.sort_by(|a, b| order::compare(&a.2.name, &b.2.name));
        let mut rows: Vec<Row> = sources.into_iter().map(|source| unchanged(source.2.name.clone(), source)).collect();
        retype(&mut rows, recipe)?;
        let quantized: Vec<usize> =
            (0..rows.len()).filter(|&i| is_block_matrix(&rows[i].name, &rows[i].shape)).collect();
        let matrices: Vec<&Row> = quantized.iter().map(|&i| &rows[i]).collect();
        check_rows(&matrices, recipe)?;
        let mut notes = Vec::new();
        let (nesting, bits) = widths(&matrices, recipe, &mut notes)?;
        if let Method::BestAt(best) = recipe.method
            && !nesting.widths().any(|w| w == best)
        {
            let (seed, parent) = (nesting.seed_bits, nesting.parent_bits);
            return Err(ApError::BestAt { best, seed, parent });
        }
        let mut plan = Plan {
            meta: output_meta(meta, recipe),
            header: Header {
                seed_bits: nesting.seed_bits,
                parent_bits: nesting.parent_bits,
                bits,
                groups: recipe.groups,
                tensors: matrices.iter().map(|r| r.name.clone()).collect(),
                columns: matrices.iter().map(|r| r.columns()).collect(),
                seed_method: match recipe.method {
                    Method::Exact => "dp".to_owned(),
                    Method::BestAt(bits) => format!("dp:{bits}"),
                    Method::Compat { seed } => format!("kmeans++:{seed}"),
                },
                ..Header::default()
            },
            quantized,
            rows,
            method: recipe.method,
            outliers: recipe.outliers.map(|s| (recipe.target.rule, s)),
            warnings: recipe.overrides.iter().filter_map(|o| o.warning()).collect(),
            notes,
        };
        plan.warn_of_tables()?;
        Ok(plan)
    }

    /// The widths of a code.
    pub fn nesting(&self) -> Nesting {
        Nesting { seed_bits: self.header.seed_bits, parent_bits: self.header.parent_bits }
    }

    /// The rows that are quantized.
    pub fn matrices(&self) -> impl ExactSizeIterator<Item = &Row> {
        self.quantized.iter().map(|&i| &self.rows[i])
    }

    /// Weights of all matrices that are quantized.
    pub fn quantized_weights(&self) -> u64 {
        self.matrices().map(Row::weights).sum()
    }

    /// Bytes of the input that are gone through, as [`Progress::advance`](crate::quant::Progress::advance) counts them: the
    /// matrices twice where outliers are chosen first.
    pub fn bytes_from(&self) -> u64 {
        let all: u64 = self.rows.iter().map(|r| r.bytes_from).sum();
        let again = self.matrices().filter(|_| self.outliers.is_some());
        all + again.map(|r| r.bytes_from).sum::<u64>()
    }

    /// Lays out the file: `sparse` has the number of weights of each matrix that are kept as they are.
    ///
    /// # Errors
    /// What GGUF cannot hold, such as a name that is too long.
    pub fn places(&self, header: &Header, sparse: &[u64]) -> Result<Places, ApError> {
        let matrices: Vec<Matrix> = self
            .matrices()
            .zip(sparse)
            .map(|(row, &sparse)| Matrix {
                name: row.name.clone(),
                columns: row.columns(),
                rows: row.weights() / row.columns().max(1),
                groups: header.groups.into(),
                sparse,
            })
            .collect();
        let mut tensors = Vec::new();
        let mut copied = HashMap::new();
        for (i, row) in self.rows.iter().enumerate() {
            if self.quantized.binary_search(&i).is_err() {
                copied.insert(i, tensors.len());
                let mut tensor = NewTensor::new(row.name.clone(), row.shape.clone(), row.to);
                tensor.bytes = Some(row.bytes);
                tensors.push(tensor);
            }
        }
        let mut parts = HashMap::new();
        let mut ends = Vec::new();
        for section in file_order(&matrices, &header.bits) {
            for (i, part) in section.parts {
                parts.insert((i, part), tensors.len());
                tensors.push(matrices[i].tensor(part));
            }
            ends.extend(section.width.map(|w| (w, tensors.len())));
        }
        let mut meta = self.meta.clone();
        header.write(&mut meta);
        let layout = Layout::new(&meta, &tensors).map_err(RunError::from)?;
        let start = layout.header().len() as u64;
        let end = |tensors: usize| {
            let last = tensors.checked_sub(1).and_then(|i| layout.tensors().get(i));
            last.map_or(start, |t| start + t.offset + t.bytes)
        };
        Ok(Places { prefixes: ends.into_iter().map(|(w, n)| (w, end(n))).collect(), copied, parts, layout })
    }

    /// Says so when the tables of a width that was asked for are no longer small beside the planes.
    fn warn_of_tables(&mut self) -> Result<(), ApError> {
        let parent = self.header.parent_bits;
        let Some(narrowest) = self.matrices().min_by_key(|r| r.columns()) else {
            return Ok(());
        };
        let group = narrowest.columns() / u64::from(self.header.groups);
        let sensible = sensible_parent(group).max(self.header.seed_bits);
        if parent <= sensible {
            return Ok(());
        }
        let footprint = self.footprint()?;
        if let Some(last) = footprint.widths.last() {
            self.warnings.push(format!(
                "rows have as few as {group} weights to a table: the matrices take {:.2} bits per weight with all their tables, and {:.2} to run at {parent} bits; up to {sensible} bits the tables stay small",
                last.stored_bits, last.run_bits
            ));
        }
        Ok(())
    }
}

/// Gives embeddings and output the types that were asked for.
fn retype(rows: &mut [Row], recipe: &Recipe) -> Result<(), ApError> {
    let category = |row: &Row| Category::of(&row.name);
    let tied = !rows.iter().any(|r| category(r) == Category::Output);
    for row in rows {
        let (ty, option) = match (category(row), recipe.embedding_type, recipe.output_type) {
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
        if is_quantized(row.from) && !recipe.allow_requantize {
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

fn check_rows(matrices: &[&Row], recipe: &Recipe) -> Result<(), ApError> {
    if matrices.is_empty() {
        return Err(ApError::NoMatrices);
    }
    let quantized: Vec<&&Row> = matrices.iter().filter(|r| is_quantized(r.from)).collect();
    if let (Some(first), false) = (quantized.first(), recipe.allow_requantize) {
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
        let groups = recipe.groups;
        if groups == 0 || !columns.is_multiple_of(groups.into()) {
            return Err(ApError::Groups { groups, columns, tensor });
        }
    }
    let shares = recipe.outliers.map_or([0.0; 2], |s| [s.sensitive, s.magnitude]);
    let options = ["--outlier-sensitive", "--outlier-magnitude"];
    match options.into_iter().zip(shares).find(|(_, p)| !(0.0..=50.0).contains(p)) {
        Some((option, percent)) => Err(ApError::Share { option, percent }),
        None => Ok(()),
    }
}

/// The widths of a code and those that get tables.
fn widths(matrices: &[&Row], recipe: &Recipe, notes: &mut Vec<String>) -> Result<(Nesting, Vec<u8>), ApError> {
    let range = recipe.target.range;
    let seed = recipe.seed_bits.or(range.map(|n| n.seed_bits)).unwrap_or(3);
    let named = recipe.parent_bits.or(range.map(|n| n.parent_bits));
    let parent = named.unwrap_or_else(|| {
        let columns = matrices.iter().map(|r| r.columns()).min().unwrap_or(0);
        let group = columns / u64::from(recipe.groups);
        let parent = sensible_parent(group).max(seed);
        notes.push(format!("{seed} to {parent} bits: rows have as few as {group} weights to a table"));
        parent
    });
    if Nesting::new(seed, parent).is_none() {
        return Err(ApError::Range { seed, parent });
    }
    let widths = recipe.widths.clone().unwrap_or_else(|| (seed..=parent).collect());
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

/// The model's keys without what no longer holds.
fn output_meta(source: &Metadata, recipe: &Recipe) -> Metadata {
    let mut meta = metadata::of_one_file(source);
    meta.remove("general.file_type");
    meta.set("general.alignment", Value::U32(ALIGNMENT));
    metadata::set(&mut meta, &recipe.overrides);
    meta
}
