//! Rotates the matrices of a model by signs and the Walsh-Hadamard transform, and back: the keys are those of
//! [`trine_formats::rotated`], and the model computes what it did before.
//!
//! Everything is computed in f64 and rounded once, to the type of the tensor. A rotation that is undone gives the signs
//! back, and each weight within one rounding of its type plus one of the length of its block.

mod basis;
mod choose;
mod error;
mod named;

use std::collections::BTreeMap;
use std::ops::Range;

use rayon::prelude::*;
use trine_formats::gguf::Value;
use trine_formats::pruned;
use trine_formats::rotated::{Rotated, TABLE};
use trine_formats::types::{DecodeFn, EncodeFn, TypeId};

use self::basis::{Basis, round};
pub use self::error::RotateError;
use super::codec::{bytes_of, is_quantized};
use super::metadata;
use super::plan::{Draft, Fault, Method, Plan};
use super::row::{Reason, Row};
use super::source::ShardReader;
use super::validate::first_bad;
use super::work::{Output, Run, RunError};
use crate::kernels::{self, Isa};

/// The name that rows have which are rotated.
const NAME: &str = "rotation";

/// Bytes of the input that a thread rotates at a time.
const CHUNK: u64 = 1 << 19;

/// A rotation that is asked for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Rotation {
    /// The way.
    pub turn: Turn,
    /// Type of the matrices that are turned: F32, F16 or BF16; `None` where each keeps its own.
    pub ty: Option<TypeId>,
    /// True if matrices whose rows are no whole blocks stay as they are.
    pub partly: bool,
}

/// A way to turn.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Turn {
    /// Into the rotated basis.
    Rotate {
        /// Elements of a block, a power of two.
        block: usize,
        /// The seed of random signs; `None` for no signs.
        signs: Option<u64>,
    },
    /// Out of it.
    Unrotate,
}

impl Turn {
    /// The option that asks for it.
    fn option(self) -> &'static str {
        match self {
            Turn::Rotate { .. } => "--rotate",
            Turn::Unrotate => "--unrotate",
        }
    }
}

/// Rotates matrices row by row, or rotates them back.
#[derive(Debug)]
pub struct Rotating {
    rotation: Rotation,
    /// The changes of basis, by the width of rows and whether their heads are put in another order.
    bases: BTreeMap<(usize, bool), Basis>,
    /// The keys, of the output or of the input.
    rotated: Option<Rotated>,
}

impl Rotating {
    pub(super) fn new(rotation: Rotation) -> Rotating {
        Rotating { rotation, bases: BTreeMap::new(), rotated: None }
    }

    /// Takes a row, whose new type is that of the rotation.
    fn take(&mut self, row: &mut Row, basis: (usize, bool), make: impl FnOnce() -> Basis) {
        self.bases.entry(basis).or_insert_with(make);
        row.to = self.rotation.ty.unwrap_or(row.from);
        row.bytes = bytes_of(row.to, &row.shape);
        row.method = NAME;
        row.reason = Reason::Option(self.rotation.turn.option());
    }

    /// The change of basis of a row that was taken.
    fn basis(&self, row: &Row) -> Option<&Basis> {
        let grouped = self.rotated.as_ref().is_some_and(|rotated| rotated.is_grouped(&row.name));
        self.bases.get(&(row.columns() as usize, grouped))
    }
}

impl Method for Rotating {
    fn name(&self) -> &'static str {
        NAME
    }

    fn plan(&mut self, draft: &mut Draft<'_>) -> Result<(), Fault> {
        let Rotation { turn, ty, partly } = self.rotation;
        if let Some(ty) = ty.filter(|&ty| is_quantized(ty)) {
            return Err(RotateError::Type(ty).into());
        }
        let rows = &draft.plan.rows;
        let rotated = match turn {
            Turn::Rotate { block, signs } => choose::rotation(draft.model()?, rows, (block, signs, partly))?,
            Turn::Unrotate => choose::present(draft.meta, rows)?,
        };
        let turned = |row: &Row| rotated.weights.contains(&row.name) || rotated.table && row.name == TABLE;
        choose::check_types(rows.iter().filter(|row| turned(row)), ty)?;
        for row in &mut draft.plan.rows {
            if !turned(row) {
                row.keep_together();
                continue;
            }
            let (width, grouped) = (row.columns() as usize, rotated.is_grouped(&row.name));
            let fault = |why: String| RotateError::Rows { tensor: row.name.clone(), why };
            let signs = rotated.signs_of(width).map_err(|e| fault(e.to_string()))?;
            let heads = match grouped {
                true => Some(choose::heads(draft.meta, width).map_err(fault)?),
                false => None,
            };
            let back = turn == Turn::Unrotate;
            let basis = || Basis { block: rotated.block, signs: signs.to_vec(), heads, back };
            self.take(row, (width, grouped), basis);
        }
        let mut meta = metadata::of_one_file(draft.meta);
        match turn {
            Turn::Rotate { .. } => rotated.write(&mut meta),
            Turn::Unrotate => Rotated::remove(&mut meta),
        }
        let pruned = pruned::read(&meta)?.into_iter().filter(|name| !rotated.weights.contains(name));
        pruned::write(&mut meta, &pruned.collect());
        if let Some(file_type) = ty.and_then(choose::file_type) {
            meta.set("general.file_type", Value::U32(file_type));
        }
        metadata::set(&mut meta, draft.asked.overrides);
        draft.one_file(meta);
        draft.plan.warnings.extend(draft.asked.warnings());
        self.rotated = Some(rotated);
        Ok(())
    }

    fn make(&mut self, rows: Range<usize>, plan: &Plan, run: &mut Run<'_>) -> Result<(), Fault> {
        for index in rows {
            let row = &plan.rows[index];
            let codec = Codec::of(row, run.options.isa);
            let (Some(basis), Some(codec)) = (self.basis(row), codec) else {
                return Err(RotateError::Codec { tensor: row.name.clone(), ty: row.from }.into());
            };
            let chunks = codec.rows.div_ceil(codec.at_once);
            let (reader, output) = (&run.readers[row.source.shard], run.output(index));
            let each = |i| codec.turn(row, basis, i, (reader, output));
            let made: Vec<Result<(), RunError>> = run.pool.install(|| (0..chunks).into_par_iter().map(each).collect());
            made.into_iter().collect::<Result<(), _>>()?;
            run.news.tell(|i| &plan.rows[i].name, index, row.bytes_from);
        }
        Ok(())
    }
}

/// Reading and writing of a tensor's rows.
struct Codec {
    decode: DecodeFn,
    encode: EncodeFn,
    columns: usize,
    rows: u64,
    /// Rows of a chunk.
    at_once: u64,
    /// Bytes of a row in the input and in the output.
    bytes: (u64, u64),
}

impl Codec {
    fn of(row: &Row, isa: Isa) -> Option<Codec> {
        let rows = row.shape.iter().skip(1).product::<u64>().max(1);
        let bytes = (row.bytes_from / rows, row.bytes / rows);
        Some(Codec {
            decode: kernels::decode_rows(row.from, isa)?,
            encode: kernels::encode_rows(row.to, isa)?,
            columns: usize::try_from(row.columns()).ok()?,
            rows,
            at_once: (CHUNK / bytes.0.max(1)).max(1),
            bytes,
        })
    }

    /// Reads, turns and writes chunk `i` of a row.
    fn turn(
        &self,
        row: &Row,
        basis: &Basis,
        i: u64,
        (reader, output): (&ShardReader, Output<'_>),
    ) -> Result<(), RunError> {
        let first = i * self.at_once;
        let n = self.at_once.min(self.rows - first) as usize;
        let mut buffer = Vec::new();
        let (from, to) = (self.bytes.0 as usize, self.bytes.1 as usize);
        let data = reader.read_chunk(row, first * self.bytes.0, n * from, &mut buffer)?;
        let block_at = |block: usize, ty: TypeId| {
            let per_row = self.columns / ty.info().map_or(1, |t| t.block);
            first * per_row as u64 + block as u64
        };
        let tensor = || row.name.clone();
        if let Some((block, what)) = first_bad(row.from, self.columns, data) {
            let block = block_at(block, row.from);
            return Err(RunError::BadInput { tensor: tensor(), ty: row.from, block, what });
        }
        let (mut x, mut wide, mut out) = (vec![0f32; self.columns], Vec::new(), vec![0u8; n * to]);
        for (data, out) in data.chunks_exact(from).zip(out.chunks_exact_mut(to)) {
            (self.decode)(data, &mut x);
            wide.clear();
            wide.extend(x.iter().map(|&v| f64::from(v)));
            basis.turn(&mut wide);
            x.iter_mut().zip(&wide).for_each(|(x, &wide)| *x = round(wide, row.to));
            (self.encode)(&x, None, out);
        }
        if let Some((block, what)) = first_bad(row.to, self.columns, &out) {
            let (block, option) = (block_at(block, row.to), "the TYPE behind the output");
            return Err(RunError::BadOutput { tensor: tensor(), ty: row.to, block, what, option });
        }
        output.write(first * self.bytes.1, &out)
    }
}
