//! What a folder becomes: metadata and one row per tensor, decided before anything is written.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde_json::Value;
use trine_formats::gguf::Metadata;
use trine_formats::safetensors::{Dtype, Tensor};
use trine_formats::types::TypeId;
use trine_formats::widely::ARCHITECTURE;

use super::error::{ConvertError, Problems};
use super::folder::{Files, Folder};
use super::hparams::HParams;
use super::outtype::OutType;
use super::rope::RopeScaling;
use super::row::{Content, Row};
use super::source::{Place, Source};
use super::values::{Rule, Stored, is_float};
use super::widely::{self, Widely};
use super::{general, params, vocab};
use crate::arch::{Role, Tensor as Described};
use crate::isolate::Isolate;

/// What the weights of attention and feed-forward matrices are.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Ternary {
    /// What `config.json` says; where it says nothing, [`Ternary::None`].
    #[default]
    Auto,
    /// Weights to be taken as they are.
    None,
    /// Latent weights of BitNet b1.58.
    Bitnet,
    /// Latent weights of TriLM and TriTera.
    Trilm,
}

/// How `weight_scale` of packed weights is meant.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum PackedScale {
    /// Multiply for `linear_class` "autobitlinear", divide otherwise.
    #[default]
    Auto,
    /// digit × scale.
    Multiply,
    /// digit / scale.
    Divide,
}

/// How to convert.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// Type of the weights; `None`: the type of the checkpoint.
    pub outtype: Option<OutType>,
    /// What the weights are.
    pub ternary: Ternary,
    /// Ranks a TriLM was trained on, each with its own scale; `None`: what `config.json` says, else 1.
    pub trilm_parts: Option<u32>,
    /// How packed scales are meant.
    pub packed_scale: PackedScale,
    /// `general.name`.
    pub name: Option<String>,
    /// `tokenizer.ggml.pre`.
    pub pre: Option<String>,
    /// Only the metadata.
    pub vocab_only: bool,
    /// Matrices that a ternary type cannot hold become F16 instead of an error.
    pub fallback: bool,
    /// Who runs the tokenizer of the checkpoint, if not this process.
    pub elsewhere: Option<Arc<dyn Isolate>>,
    /// Matrices become widely linear.
    pub widely: Option<Widely>,
}

/// A conversion, decided.
#[derive(Debug)]
pub struct Plan {
    /// `general.architecture`.
    pub arch: &'static str,
    /// Type of the weights.
    pub outtype: OutType,
    /// All keys, in file order.
    pub meta: Metadata,
    /// All tensors, in file order.
    pub rows: Vec<Row>,
    /// What was decided and what is unusual, a sentence each.
    pub notes: Vec<String>,
    /// Files that the output must not replace.
    pub(super) inputs: Vec<PathBuf>,
    pub(super) files: Files,
}

impl Plan {
    /// Files that the output must not replace.
    pub fn inputs(&self) -> &[PathBuf] {
        &self.inputs
    }

    /// Bytes that [`super::run`] reports as done when it is done.
    pub fn work(&self) -> u64 {
        let work = |r: &Row| match &r.content {
            Content::Stored(s) => s.work(),
            Content::Codes { stored, rule, .. } => widely::work(stored, rule),
            Content::Computed(_) | Content::Scales => 0,
        };
        self.rows.iter().map(work).sum()
    }

    /// Number of weights.
    pub fn parameters(&self) -> u64 {
        self.rows.iter().map(Row::parameters).sum()
    }
}

/// Reads the folder's JSON files and headers and decides everything. Weights are read only where a
/// ternary type has to be proved to hold them.
///
/// # Errors
/// Everything that is wrong with the folder; problems of tensors all at once.
pub fn plan(path: &Path, options: &Options) -> Result<Plan, ConvertError> {
    let mut folder = Folder::open(path)?;
    let config = folder
        .json("config.json")?
        .ok_or_else(|| ConvertError::Missing {
            folder: path.to_owned(),
            file: "config.json".into(),
            hint: "give the folder of a checkpoint, the one that holds config.json",
        })?;
    let h = HParams::new(config.clone())?;
    let source = Source::new(&h)?;
    let rope = RopeScaling::new(&h, &source)?;
    if !options.vocab_only {
        folder.find_tensors()?;
    }
    let mut notes = Vec::new();
    let (pre, elsewhere) = (options.pre.as_deref(), options.elsewhere.as_deref());
    let vocab = vocab::convert(&folder, &h, &source, pre, elsewhere, &mut notes)?;
    let outtype = options.outtype.unwrap_or_else(|| {
        let matrices = folder.tensors.iter().filter(|s| s.tensor.shape.len() > 1);
        OutType::of_matrices(matrices.map(|s| s.tensor.dtype))
    });
    let mut work = Planner {
        folder: &folder,
        h: &h,
        source: &source,
        options,
        outtype,
        notes,
    };
    let mut rows = Vec::new();
    if !options.vocab_only {
        if let Some(factors) = rope.factors() {
            rows.push(Row {
                name: "rope_freqs.weight".into(),
                source: "config.json".into(),
                from: "F32",
                shape: vec![factors.len() as u64],
                ty: TypeId::F32,
                content: Content::Computed(factors),
            });
        }
        work.rows(&mut rows)?;
        work.prove_ternary(&mut rows)?;
    }
    let mut notes = work.notes;
    let header = match &options.widely {
        Some(options) => Some(widely::replace(
            &mut rows,
            source.arch,
            options,
            &mut notes,
        )?),
        None => None,
    };
    let parameters = rows.iter().map(Row::parameters).sum();
    let mut meta = Metadata::default();
    general::write(
        &mut meta,
        &folder,
        &config,
        source.arch,
        parameters,
        options.name.as_deref(),
    )?;
    params::write(&mut meta, &h, &source, &rope, outtype)?;
    vocab
        .into_iter()
        .for_each(|(key, value)| meta.set(&key, value));
    let inputs = folder.inputs();
    if let Some(header) = &header {
        meta = widely::metadata(&meta, source.arch, header);
    }
    Ok(Plan {
        arch: header.map_or(source.arch.name, |_| ARCHITECTURE),
        outtype,
        meta,
        rows,
        notes,
        inputs,
        files: folder.shards,
    })
}

struct Planner<'a> {
    folder: &'a Folder,
    h: &'a HParams,
    source: &'a Source,
    options: &'a Options,
    outtype: OutType,
    notes: Vec<String>,
}

/// What the matrices of a checkpoint are.
struct Weights {
    rule: Ternary,
    parts: u64,
    multiply: bool,
}

impl Planner<'_> {
    fn rows(&mut self, rows: &mut Vec<Row>) -> Result<(), ConvertError> {
        let folder = self.folder;
        let arch = self.source.arch.name;
        let mut problems = Problems::default();
        let mut scales: BTreeMap<&str, usize> = BTreeMap::new();
        for (i, s) in folder.tensors.iter().enumerate() {
            if let Some(base) = s.tensor.name.strip_suffix("_scale")
                && base.ends_with(".weight")
            {
                scales.insert(base, i);
            }
        }
        let weights = self.weights(!scales.is_empty())?;
        let files = &folder.shards;
        let mut found = BTreeMap::new();
        for s in &folder.tensors {
            let t = &s.tensor;
            let scale = t
                .name
                .strip_suffix("_scale")
                .filter(|b| scales.contains_key(b));
            if let Some(base) = scale {
                if !folder.tensors.iter().any(|s| s.tensor.name == base) {
                    problems.push(format!("'{}' has no '{base}'", t.name));
                }
                continue;
            }
            let (prefix, described) = match self.source.place(&t.name) {
                Place::Ignored => continue,
                Place::Unknown => {
                    problems.push(format!(
                        "'{}' has no place in a {} model of {} blocks",
                        t.name, arch, self.source.layers
                    ));
                    continue;
                }
                Place::TiedOutput if self.source.tied => {
                    self.notes
                        .push("lm_head.weight left out: the embedding serves as output".into());
                    continue;
                }
                Place::TiedOutput => {
                    problems.push(format!(
                        "'lm_head.weight' is separate, and {arch} models use the embedding as output"
                    ));
                    continue;
                }
                Place::End(tensor) => (String::new(), tensor),
                Place::Block(n, tensor) => (format!("blk.{n}."), tensor),
            };
            let name = format!("{prefix}{}", described.gguf);
            if let Some(other) = found.insert(name.clone(), t.name.clone()) {
                problems.push(format!("'{other}' and '{}' are the same tensor", t.name));
                continue;
            }
            let scale = match scales.get(t.name.as_str()) {
                Some(&i) => match read_scale(folder, i, files)? {
                    Ok(scale) => Some(scale),
                    Err(what) => {
                        problems.push(what);
                        continue;
                    }
                },
                None => None,
            };
            match self.stored(t, s.shard, described, &weights, scale) {
                Ok(stored) => rows.push(self.row(name, t, described, stored)),
                Err(problem) => problems.push(problem),
            }
        }
        self.missing(&found, &mut problems);
        if problems.is_empty() {
            Ok(())
        } else {
            Err(ConvertError::Tensors(problems))
        }
    }

    fn missing(&self, found: &BTreeMap<String, String>, problems: &mut Problems) {
        let ends = self
            .source
            .ends()
            .map(|t| (t, t.gguf.to_owned(), t.hf.to_owned()));
        let blocks = (0..self.source.layers).flat_map(|n| {
            self.source.block().map(move |t| {
                let (gguf, hf) = (t.gguf, t.hf);
                (
                    t,
                    format!("blk.{n}.{gguf}"),
                    format!("model.layers.{n}.{hf}"),
                )
            })
        });
        for (t, gguf, hf) in ends.chain(blocks) {
            let required = t.required || (t.role == Role::Output && !self.source.tied);
            if required && !found.contains_key(&gguf) {
                problems.push(format!("'{hf}' is missing"));
            }
        }
    }

    /// Decides how matrices are read, and says so.
    fn weights(&mut self, packed: bool) -> Result<Weights, ConvertError> {
        let quant = self.h.get("quantization_config");
        let say = |key: &str| quant.and_then(|q| q.get(key)).and_then(Value::as_str);
        let method = say("quant_method");
        if let Some(method) = method.filter(|m| *m != "bitnet") {
            return Err(ConvertError::Config(format!(
                "weights quantized by '{method}' are not supported; convert the checkpoint that they were made from"
            )));
        }
        let latent = self.source.checkpoint.latent || method == Some("bitnet");
        let rule = match self.options.ternary {
            Ternary::Auto if latent => Ternary::Bitnet,
            Ternary::Auto => Ternary::None,
            other => other,
        };
        let stated = self.options.ternary != Ternary::Auto;
        let why = if stated { "--ternary" } else { "config.json" };
        let multiply = match self.options.packed_scale {
            PackedScale::Multiply => true,
            PackedScale::Divide => false,
            PackedScale::Auto => say("linear_class") == Some("autobitlinear"),
        };
        let parts = match self.options.trilm_parts {
            Some(n) => n,
            None => self.h.u32("pretraining_model_parallel")?.unwrap_or(1),
        };
        if parts == 0 {
            return Err(ConvertError::Config(
                "'pretraining_model_parallel' is 0".into(),
            ));
        }
        if packed {
            let verb = if multiply { "multiplied" } else { "divided" };
            self.notes.push(format!(
                "packed ternary weights: digits are {verb} by weight_scale"
            ));
        } else {
            self.notes.push(match rule {
                Ternary::Bitnet => format!("latent weights are made ternary by the rule of BitNet b1.58 ({why})"),
                Ternary::Trilm => format!("latent weights are made ternary by the rule of TriLM, {parts} scale(s) per matrix ({why})"),
                _ if stated => "weights are taken as they are (--ternary)".into(),
                _ => "weights are taken as they are (config.json does not call them latent; see --ternary)".into(),
            });
        }
        Ok(Weights {
            rule,
            parts: parts.into(),
            multiply,
        })
    }

    fn stored(
        &self,
        t: &Tensor,
        shard: usize,
        described: &Described,
        weights: &Weights,
        scale: Option<f32>,
    ) -> Result<Stored, String> {
        let name = &t.name;
        let mut shape = t.shape.clone();
        let matrix = matches!(described.role, Role::ByRows | Role::ByColumns);
        let mut rule = Rule::Plain;
        if t.dtype == Dtype::U8 && matrix {
            let Some(scale) = scale else {
                return Err(format!("'{name}' is packed and has no '{name}_scale'"));
            };
            let unit = if weights.multiply { scale } else { 1.0 / scale };
            rule = Rule::Packed { unit };
            if let Some(rows) = shape.first_mut() {
                *rows = rows.saturating_mul(4);
            }
        } else if !is_float(t.dtype) {
            return Err(format!(
                "'{name}' is of type {}, expected floats",
                t.dtype.name()
            ));
        } else if scale.is_some() {
            return Err(format!(
                "'{name}' has a weight_scale and is not packed (type {})",
                t.dtype.name()
            ));
        } else if matrix {
            let by_columns = described.role == Role::ByColumns;
            rule = match weights.rule {
                Ternary::Bitnet => Rule::Bitnet,
                Ternary::Trilm => Rule::Trilm {
                    parts: weights.parts,
                    by_columns,
                },
                _ => Rule::Plain,
            };
            let extent = shape.get(usize::from(by_columns)).copied().unwrap_or(1);
            if weights.rule == Ternary::Trilm && !extent.is_multiple_of(weights.parts) {
                return Err(format!(
                    "'{name}' of shape {shape:?} cannot be split into {} parts",
                    weights.parts
                ));
            }
        } else if described.role == Role::Norm && self.source.checkpoint.norms_plus_one {
            rule = Rule::PlusOne;
        }
        let expected = self.source.sizes.shape(described);
        let padded = described.role == Role::Embedding
            && self.source.checkpoint.padded_embedding
            && shape.len() == 2
            && shape[1] == expected[1]
            && shape[0] > expected[0];
        if shape != expected && !padded {
            return Err(format!(
                "'{name}' has shape {shape:?}, config.json makes it {expected:?}"
            ));
        }
        // widely linear models keep the order of the checkpoint
        let pair_heads = self.source.paired_heads(described);
        let pair_heads = pair_heads.filter(|_| self.options.widely.is_none());
        let (rows, columns) = match (&expected[..], pair_heads) {
            (&[rows, columns], _) => (rows, columns),
            // elements that change places
            (&[n], Some(_)) => (n, 1),
            (&[n], None) => (1, n),
            _ => return Err(format!("'{name}' is neither matrix nor vector")),
        };
        Ok(Stored {
            shard,
            offset: t.offset,
            dtype: t.dtype,
            rows,
            columns,
            pair_heads,
            rule,
        })
    }

    fn row(&self, name: String, t: &Tensor, described: &Described, stored: Stored) -> Row {
        let ty = match described.role {
            Role::Embedding | Role::Output => self.outtype.embedding,
            Role::ByRows | Role::ByColumns => self.outtype.matrix,
            _ => TypeId::F32,
        };
        Row {
            name,
            source: t.name.clone(),
            from: t.dtype.name(),
            shape: self.source.sizes.gguf_shape(described),
            ty,
            content: Content::Stored(stored),
        }
    }

    /// For ternary types: that every matrix is held exactly, its scale rounded to f16 at most.
    fn prove_ternary(&mut self, rows: &mut [Row]) -> Result<(), ConvertError> {
        if !self.outtype.ternary {
            return Ok(());
        }
        let files = &self.folder.shards;
        let mut problems = Problems::default();
        for row in rows.iter_mut().filter(|r| r.ty == self.outtype.matrix) {
            let Content::Stored(stored) = &row.content else {
                continue;
            };
            let columns = stored.columns;
            let problem = if !columns.is_multiple_of(256) {
                Some(format!(
                    "'{}' has rows of {columns} weights, no multiple of 256",
                    row.source
                ))
            } else {
                match stored.rule {
                    Rule::Trilm {
                        parts,
                        by_columns: true,
                    } if !(columns / parts).is_multiple_of(256) => Some(format!(
                        "in '{}' a scale reaches over {} columns, no multiple of 256",
                        row.source,
                        columns / parts
                    )),
                    Rule::Plain => stored
                        .not_ternary(files, &mut |_| {})
                        .map_err(|fault| fault.blame(&row.source))?
                        .map(|(r, c)| {
                            format!(
                                "'{}' is not ternary in row {r} from column {c} on",
                                row.source
                            )
                        }),
                    _ => None,
                }
            };
            if let Some(problem) = problem {
                problems.push(problem);
                row.ty = TypeId::F16;
            }
        }
        if problems.is_empty() {
            return Ok(());
        }
        if self.options.fallback {
            self.notes.push(format!("kept as F16: {problems}"));
            return Ok(());
        }
        Err(ConvertError::NotTernary {
            ty: self.outtype.name.to_uppercase(),
            problems,
        })
    }
}

/// The one value of a `weight_scale`, or what is wrong with it.
fn read_scale(
    folder: &Folder,
    index: usize,
    files: &Files,
) -> Result<Result<f32, String>, ConvertError> {
    let source = &folder.tensors[index];
    let t = &source.tensor;
    let elements: u64 = t.shape.iter().product();
    if elements != 1 || !is_float(t.dtype) {
        return Ok(Err(format!(
            "'{}' is of shape {:?} and type {}, expected one float",
            t.name,
            t.shape,
            t.dtype.name()
        )));
    }
    let stored = Stored {
        shard: source.shard,
        offset: t.offset,
        dtype: t.dtype,
        rows: 1,
        columns: 1,
        pair_heads: None,
        rule: Rule::Plain,
    };
    let (mut raw, mut out) = (Vec::new(), Vec::new());
    stored
        .fetch(files, 0..1, &mut raw, &mut out)
        .map_err(|fault| fault.blame(&t.name))?;
    let scale = out[0];
    if scale > 0.0 && (1.0 / scale).is_finite() {
        Ok(Ok(scale))
    } else {
        Ok(Err(format!(
            "'{}' is {scale:e}, expected a scale above 0",
            t.name
        )))
    }
}
