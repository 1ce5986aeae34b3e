//! The plan for a folder: metadata and one row per tensor, decided before anything is written.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde_json::Value;
use trine_formats::gguf::{Metadata, Value as Meta};
use trine_formats::types::TypeId;
use trine_formats::widely::ARCHITECTURE;

use super::beside::Beside;
use super::dense::{self, Dense};
use super::drafters::Target;
use super::error::{ConvertError, Problems};
use super::folder::{Files, Folder};
use super::hparams::HParams;
use super::outtype::OutType;
use super::packed::{FILE_TYPE, Packed};
use super::reading::{Reader, Weights};
use super::rope::{Kind, RopeScaling};
use super::row::{Content, Row, Size};
use super::rows::Rows;
use super::source::Source;
use super::ternary::{PackedScale, Ternary};
use super::vocab::Tokens;
use super::{general, ngrams, numbers, params, prove, quantized, vocab, widely};
use crate::arch::Key;
use crate::isolate::Isolate;
use crate::model::{Config, Header};
use crate::widely::Options as Widely;

/// How to convert.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// Type of the weights; `None`: the type of the checkpoint.
    pub outtype: Option<OutType>,
    /// Kind of the weights.
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
    /// Folder of the model that a drafter drafts for.
    pub target: Option<PathBuf>,
    /// True if projections of vectors in folders of their own become a part of the file.
    pub dense_modules: bool,
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
    /// Decisions and unusual findings, a sentence each.
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
            Content::Mxfp4(experts) => experts.work(),
            Content::Codes { stored, rule, .. } => widely::work(stored, rule),
            Content::Computed(_) | Content::Longs(_) | Content::Ints(_) | Content::Scales => 0,
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
    let config = folder.json("config.json")?.ok_or_else(|| ConvertError::Missing {
        folder: path.to_owned(),
        file: "config.json".into(),
        hint: "give the folder of a checkpoint, the one that holds config.json",
    })?;
    let h = HParams::new(config.clone())?;
    let mut source = Source::new(&h)?;
    let rope = RopeScaling::new(&h, &source)?;
    if !options.vocab_only {
        folder.find_tensors()?;
    }
    let mut notes = source.notes.clone();
    let dense = projections(&mut folder, options, &source, &mut notes)?;
    let (pre, elsewhere) = (options.pre.as_deref(), options.elsewhere.as_deref());
    let target = Target::open(options.target.as_deref(), &folder, &mut source)?;
    let here =
        Tokens { folder: &folder, h: &h, beside: &h, checkpoint: source.checkpoint, vocab: source.sizes.vocab as u32 };
    let tokens = match &target {
        Some(target) => target.tokens(here),
        None => here,
    };
    let mut vocab = vocab::convert(&tokens, pre, elsewhere, &mut notes)?;
    if target.is_some() {
        vocab.extend(vocab::of_drafter(source.checkpoint, &folder, &h)?);
    }
    let mut outtype = options.outtype.unwrap_or_else(|| {
        let matrices = folder.tensors.iter().filter(|s| s.tensor.shape.len() > 1);
        OutType::of_matrices(matrices.map(|s| s.tensor.dtype))
    });
    // the type of the weights is that of the tensors that are stored
    let packed = Packed::take(&mut folder, &h, &source)?;
    if packed.any() {
        notes.push("experts keep their codes and scales of MXFP4".to_owned());
    }
    if packed.beside {
        notes.extend(quantized::all(&mut folder, &h)?);
    }
    let beside = Beside::read(&folder, dense)?;
    let (mut keys, mut of_tensors) = (Metadata::default(), Metadata::default());
    let of_target = target.as_ref().map(|target| &target.h);
    params::write([&mut of_tensors, &mut keys], (&h, of_target), &source, &rope, outtype, &beside)?;
    if !options.vocab_only {
        numbers::keys(&folder, &source, &mut of_tensors)?;
    }
    let described = describe(&folder, &source, [&of_tensors, &keys], &vocab)?;
    source.describe(&described);
    let mut work = Planner { folder: &folder, h: &h, source: &source, options, outtype, notes };
    let mut rows = Vec::new();
    if !options.vocab_only {
        for (name, factors) in rope.factors() {
            rows.push(Row {
                name: (*name).into(),
                source: "config.json".into(),
                from: "F32",
                shape: vec![factors.len() as u64],
                ty: TypeId::F32,
                content: Content::Computed(factors.clone()),
            });
        }
        rows.extend(packed.rows(&source)?);
        work.rows(&mut rows)?;
        outtype = prove::held(&mut rows, &folder.shards, outtype, options.fallback, &mut work.notes)?;
        if keys.get("general.file_type").is_some() {
            let file_type = if packed.any() { FILE_TYPE } else { outtype.ftype };
            keys.put("general.file_type", Meta::U32(file_type));
        }
    }
    let mut notes = work.notes;
    if options.widely.is_some() && source.sizes.experts > 0 {
        return Err(ConvertError::Config("models with experts cannot be made widely linear".into()));
    }
    let header = match &options.widely {
        Some(options) => Some(widely::replace(&mut rows, source.arch, options, &mut notes)?),
        None => None,
    };
    let mut meta = Metadata::default();
    let name = source.arch.name;
    meta.set("general.architecture", Meta::str(name));
    if let (Kind::ByContext { attention }, false) = (&rope.kind, options.vocab_only) {
        let key = format!("{name}.rope.scaling.attn_factor");
        meta.set(&key, Meta::F32(*attention));
    }
    of_tensors.iter().for_each(|(key, value)| meta.put(key, value.clone()));
    let size = Size::of(&rows);
    general::write(&mut meta, &folder, &config, &size, options.name.as_deref())?;
    keys.iter().for_each(|(key, value)| meta.put(key, value.clone()));
    vocab.into_iter().for_each(|(key, value)| meta.put(&key, value));
    // a place for a template that the folder lacks
    if meta.get_str(TEMPLATE).is_ok_and(|text| text == Some("")) {
        meta.remove(TEMPLATE);
    }
    let mut inputs = folder.inputs();
    inputs.extend(target.iter().flat_map(|target| target.folder.inputs()));
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

/// The key of the chat template.
const TEMPLATE: &str = "tokenizer.chat_template";

/// The projections of vectors that are to be a part of the file; those that are not are noted.
fn projections(
    folder: &mut Folder,
    options: &Options,
    source: &Source,
    notes: &mut Vec<String>,
) -> Result<Vec<Dense>, ConvertError> {
    let dense = dense::modules(folder)?;
    match (options.dense_modules, dense.is_empty()) {
        (true, true) => Err(ConvertError::Missing {
            folder: folder.path.clone(),
            file: "modules.json with modules of type Dense and their model.safetensors".into(),
            hint: "--sentence-transformers-dense-modules is for models that have them",
        }),
        (true, false) => {
            if !options.vocab_only {
                folder.find_projections(dense.iter().map(|d| (d.path.as_str(), d.name)))?;
            }
            Ok(dense)
        }
        (false, _) => {
            if !dense.is_empty() && source.checkpoint.more_keys.contains(&Key::Dense) {
                notes.push(
                    "projections of vectors left out: --sentence-transformers-dense-modules takes them".to_owned(),
                );
            }
            Ok(Vec::new())
        }
    }
}

/// The header of the file as far as the sizes of the model follow from it.
struct Described<'a> {
    meta: Metadata,
    /// Rows of the checkpoint's tensors, by the names of those that are made of them.
    found: BTreeMap<String, u64>,
    source: &'a Source,
}

impl Header for Described<'_> {
    fn meta(&self) -> &Metadata {
        &self.meta
    }

    fn rows(&self, tensor: &str) -> Option<u64> {
        let rows = *self.found.get(tensor)?;
        let of_tokens = !(tensor.starts_with("blk.") || self.source.arch.ngrams && tensor == ngrams::TABLE);
        // tables of tokens may have more rows than tokens
        Some(if of_tokens { self.source.sizes.vocab } else { rows })
    }
}

/// Configuration that the engine will read in the keys of the file: a file that it refuses is not written.
fn describe(
    folder: &Folder,
    source: &Source,
    keys: [&Metadata; 2],
    vocab: &vocab::Keys,
) -> Result<Config, ConvertError> {
    let mut meta = Metadata::default();
    meta.set("general.architecture", Meta::str(source.arch.name));
    keys.iter().flat_map(|k| k.iter()).for_each(|(key, value)| meta.put(key, value.clone()));
    vocab.iter().for_each(|(key, value)| meta.put(key, value.clone()));
    let mut found: BTreeMap<String, u64> = BTreeMap::new();
    for s in &folder.tensors {
        let rows = s.tensor.shape.first().copied().unwrap_or(1);
        for name in source.made_of(&s.tensor.name) {
            let before = found.get(&name).copied().filter(|_| source.arch.ngrams && name == ngrams::TABLE);
            found.insert(name, before.unwrap_or(0).saturating_add(rows));
        }
    }
    let described = Described { meta, found, source };
    Config::read_or_drafter(&described).map_err(|e| ConvertError::Config(format!("a file of it would not run: {e}")))
}

struct Planner<'a> {
    folder: &'a Folder,
    h: &'a HParams,
    source: &'a Source,
    options: &'a Options,
    outtype: OutType,
    notes: Vec<String>,
}

impl Planner<'_> {
    fn rows(&mut self, rows: &mut Vec<Row>) -> Result<(), ConvertError> {
        let (scales, mut wrong) = self.scales()?;
        let weights = self.weights(scales)?;
        let reader = Reader {
            h: self.h,
            source: self.source,
            weights: &weights,
            // widely linear models keep the order of the checkpoint
            keep_order: self.options.widely.is_some(),
            files: self.folder.shards.count(),
        };
        let mut work = Rows::new(self.folder, reader, self.outtype, &mut self.notes, rows);
        std::mem::swap(&mut work.problems, &mut wrong);
        let problems = work.all();
        if problems.is_empty() { Ok(()) } else { Err(ConvertError::Tensors(problems)) }
    }

    /// Scales of packed matrices, by the names of those.
    fn scales(&self) -> Result<(BTreeMap<String, f32>, Problems), ConvertError> {
        let mut scales = BTreeMap::new();
        let mut problems = Problems::default();
        let names: BTreeSet<&str> = self.folder.tensors.iter().map(|s| &*s.tensor.name).collect();
        for (i, s) in self.folder.tensors.iter().enumerate() {
            let base = s.tensor.name.strip_suffix("_scale");
            let Some(base) = base.filter(|b| b.ends_with(".weight")) else {
                continue;
            };
            if !names.contains(base) {
                problems.push(format!("'{}' has no '{base}'", s.tensor.name));
            }
            match numbers::scale(self.folder, i)? {
                Ok(scale) => {
                    scales.insert(base.to_owned(), scale);
                }
                Err(what) => {
                    problems.push(what);
                    scales.insert(base.to_owned(), 1.0);
                }
            }
        }
        Ok((scales, problems))
    }

    /// Decides how matrices are read, and says so.
    fn weights(&mut self, scales: BTreeMap<String, f32>) -> Result<Weights, ConvertError> {
        let quant = self.h.get("quantization_config");
        let say = |key: &str| quant.and_then(|q| q.get(key)).and_then(Value::as_str);
        let method = say("quant_method");
        self.input_norms(quant)?;
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
            return Err(ConvertError::Config("'pretraining_model_parallel' is 0".into()));
        }
        if !scales.is_empty() {
            let verb = if multiply { "multiplied" } else { "divided" };
            self.notes.push(format!("packed ternary weights: digits are {verb} by weight_scale"));
        } else {
            self.notes.push(match rule {
                Ternary::Bitnet => format!("latent weights are made ternary by the rule of BitNet b1.58 ({why})"),
                Ternary::Trilm => {
                    format!("latent weights are made ternary by the rule of TriLM, {parts} scale(s) per matrix ({why})")
                }
                _ if stated => "weights are taken as they are (--ternary)".into(),
                _ => "weights are taken as they are (config.json does not call them latent; see --ternary)".into(),
            });
        }
        Ok(Weights { rule, parts: parts.into(), multiply, scales })
    }

    /// Refuses norms of projections' inputs with an epsilon of their own, which a file cannot say.
    fn input_norms(&self, quant: Option<&Value>) -> Result<(), ConvertError> {
        let says = |key: &str| quant.and_then(|q| q.get(key));
        if says("use_rms_norm").and_then(Value::as_bool) != Some(true) {
            return Ok(());
        }
        let own = says("rms_norm_eps").and_then(Value::as_f64).unwrap_or(1e-6);
        let model = self.h.f64("rms_norm_eps")?.unwrap_or(1e-6);
        if own == model {
            return Ok(());
        }
        Err(ConvertError::Config(format!(
            "'rms_norm_eps' of 'quantization_config' is {own:e} and that of the model {model:e}, and a file has one for all norms"
        )))
    }
}
