//! The plan of an output: tensors, each made by a method, and the trait of methods.

use std::any::Any;
use std::collections::BTreeMap;
use std::error::Error;
use std::fmt;
use std::ops::Range;
use std::path::{Path, PathBuf};

use trine_formats::gguf::write::Layout;
use trine_formats::gguf::{Metadata, ModelFile, split};
use trine_formats::types::TypeId;

use super::order::{self, Pruning};
use super::overrides::KvOverride;
use super::problem::Problem;
use super::row::{OutShard, Reason, Row, StoredTensor, unchanged};
use super::work::{Run, RunError};

/// Why a method cannot plan or make something: an error of its own, which is told as it is.
pub type Fault = Box<dyn Error + Send + Sync>;

/// A method of making tensors: a folder beside this file, and a line of the planner's list.
pub trait Method: Any + fmt::Debug + Send + Sync {
    /// The name that the rows have which it makes.
    fn name(&self) -> &'static str;

    /// Takes the rows that it will make, and says what becomes of them.
    ///
    /// # Errors
    /// A request that makes no sense for the model.
    fn plan(&mut self, draft: &mut Draft<'_>) -> Result<(), Fault>;

    /// Bytes of the input that are gone through before the first row is made.
    fn work_before(&self, _: &Plan) -> u64 {
        0
    }

    /// Begins the work on a plan. A method that lays out the file itself creates it here.
    ///
    /// # Errors
    /// I/O; input that makes no sense.
    fn begin(&mut self, _: &Plan, _: &mut Run<'_>) -> Result<(), Fault> {
        Ok(())
    }

    /// Makes neighbouring rows of a plan, all of them its own; one that only plans has none.
    ///
    /// # Errors
    /// I/O; input that makes no sense.
    fn make(&mut self, _rows: Range<usize>, _: &Plan, _: &mut Run<'_>) -> Result<(), Fault> {
        Ok(())
    }

    /// All rows are made.
    ///
    /// # Errors
    /// The result must not be kept.
    fn end(&mut self, _: &Plan, _: &mut Run<'_>) -> Result<(), Fault> {
        Ok(())
    }
}

/// Names and layout of the output files.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum OutputFiles {
    /// One file.
    One,
    /// The files of llama-quantize: one, or shards with numbers before their ending; tensors stand at multiples of 32
    /// whatever the keys say.
    Quantized { shards: bool },
    /// The files of llama-gguf-split: one, or shards whose names begin with the output's. A file without tensors ends
    /// where tensors would begin.
    Split { shards: bool },
}

/// The tensors and keys that will be written.
#[derive(Debug)]
pub struct Plan {
    /// The tensors, in output order.
    pub rows: Vec<Row>,
    /// The files: one, or one per input shard with `--keep-split`.
    pub shards: Vec<OutShard>,
    /// Requests that cannot be honoured; the rows then show what llama.cpp would do.
    pub problems: Vec<Problem>,
    /// Remarks worth a line.
    pub warnings: Vec<String>,
    /// Decisions that nobody asked for.
    pub notes: Vec<String>,
    /// Names and layout of the files.
    pub(super) files: OutputFiles,
    /// Methods that make the rows, with their reports about rows that are made.
    pub(super) methods: Vec<Box<dyn Method>>,
}

impl Plan {
    /// Rows that are in no file yet and that nobody makes.
    pub(super) fn of(rows: Vec<Row>) -> Plan {
        Plan {
            rows,
            shards: Vec::new(),
            problems: Vec::new(),
            warnings: Vec::new(),
            notes: Vec::new(),
            files: OutputFiles::One,
            methods: Vec::new(),
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

    /// Bytes that are gone through when the plan is carried out.
    pub fn work(&self) -> u64 {
        self.bytes_from() + self.methods.iter().map(|m| m.work_before(self)).sum::<u64>()
    }

    /// Tensors whose rows are not whole blocks of the type they should have had.
    pub fn n_fallback(&self) -> usize {
        self.fallbacks().into_values().sum()
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

    /// The method of this kind, where the plan has one: how it is set, and what became of its rows once they are made.
    pub fn find<M: Any>(&self) -> Option<&M> {
        let mut methods = self.methods.iter().map(|m| &**m as &dyn Any);
        methods.find_map(<dyn Any>::downcast_ref)
    }

    /// The numbers of the rows that a method makes.
    pub(super) fn rows_of(&self, name: &str) -> impl Iterator<Item = usize> {
        let rows = self.rows.iter().enumerate();
        rows.filter(move |(_, row)| row.method == name).map(|(i, _)| i)
    }

    /// The files that the plan makes for the path `out`.
    pub fn paths(&self, out: &Path) -> Vec<PathBuf> {
        let name = out.to_string_lossy();
        let prefix = match self.files {
            OutputFiles::Quantized { shards: true } => name.strip_suffix(".gguf").unwrap_or(&name),
            OutputFiles::Split { shards: true } => &name,
            _ => return vec![out.to_owned()],
        };
        let count = self.shards.len() as u32;
        (0..count).map(|no| split::shard_path(prefix, no, count)).collect()
    }

    /// The headers of the files, and the places of all tensors.
    ///
    /// # Errors
    /// Names and sizes that GGUF cannot hold, such as a name that is too long.
    pub fn layouts(&self) -> Result<Vec<Layout>, RunError> {
        let layout = |shard: &OutShard| {
            let tensors: Vec<_> = self.rows[shard.rows.clone()].iter().map(Row::tensor).collect();
            let layout = Layout::new(&shard.meta, &tensors)?;
            Ok(if matches!(self.files, OutputFiles::Split { .. }) { layout.padded() } else { layout })
        };
        self.shards.iter().map(layout).collect()
    }
}

/// A plan on its way, and what it is made from.
pub struct Draft<'a> {
    /// The plan so far: every tensor as it is, in llama.cpp's order, with the new numbers of the layers that stay.
    pub plan: Plan,
    /// The model, where there is more of it than headers.
    pub model: Option<&'a ModelFile>,
    /// Its keys.
    pub meta: &'a Metadata,
    /// All its tensors, in llama.cpp's order.
    pub sources: Vec<StoredTensor<'a>>,
    /// The user's requests to every method.
    pub asked: Asked<'a>,
    /// The new number of layers, where some are left out.
    pub n_layers: Option<u32>,
}

/// Requests to every method.
#[derive(Clone, Copy, Default)]
pub struct Asked<'a> {
    /// Quantized tensors may be quantized again.
    pub allow_requantize: bool,
    /// Type of the token embeddings.
    pub embedding_type: Option<TypeId>,
    /// Type of `output.weight`, and of tied embeddings.
    pub output_type: Option<TypeId>,
    /// Metadata set in the output.
    pub overrides: &'a [KvOverride],
}

impl<'a> Asked<'a> {
    /// The parts of the request that the file will not hold.
    pub fn warnings(&self) -> impl Iterator<Item = String> + use<'a> {
        self.overrides.iter().filter_map(|o| o.warning())
    }
}

impl<'a> Draft<'a> {
    /// All tensors of a model but those of the layers `prune`; the last of these that the model does not have is the
    /// error.
    pub fn new(
        model: Option<&'a ModelFile>,
        meta: &'a Metadata,
        mut sources: Vec<StoredTensor<'a>>,
        prune: &[u32],
        asked: Asked<'a>,
    ) -> Result<Draft<'a>, u32> {
        sources.sort_by(|a, b| order::compare(&a.2.name, &b.2.name));
        let mut pruning = Pruning::new(prune);
        let rows = sources.iter().filter_map(|&source| Some(unchanged(pruning.rename(&source.2.name)?, source)));
        let rows: Vec<Row> = rows.collect();
        if let Some(&layer) = prune.iter().find(|&&l| !pruning.met(l)) {
            return Err(layer);
        }
        let plan = Plan::of(rows);
        let n_layers = (!prune.is_empty()).then(|| pruning.n_layers());
        Ok(Draft { plan, model, meta, sources, asked, n_layers })
    }

    /// The model, for what its headers do not say.
    ///
    /// # Errors
    /// The plan has headers alone, and no model.
    pub fn model(&self) -> Result<&'a ModelFile, Fault> {
        self.model.ok_or_else(|| "such a file is planned for a model, not for headers alone".into())
    }

    /// Makes it the plan of one file with these keys.
    pub fn one_file(&mut self, meta: Metadata) {
        self.plan.shards = vec![OutShard { meta, rows: 0..self.plan.rows.len() }];
    }
}
