//! Loading of a model, the first step of every tool that runs one.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use clap::{Args, ValueEnum};
use trine::kv::CacheTypes;
use trine::{Model, NumberPath, OpenOptions};
use trine_formats::gguf::ModelFile;
use trine_formats::types::TypeId;

use crate::adapters::AdapterArgs;
use crate::device::DeviceArgs;
use crate::overrides::OverrideArgs;
use crate::packing::PackingArgs;
use crate::{inputs, lock, threads};

/// The options that say which model runs, and on what.
#[derive(Args, Clone)]
pub struct ModelArgs {
    /// The model, a GGUF file; any shard of a split one
    #[arg(short, long, value_name = "FILE")]
    pub model: PathBuf,

    /// Threads; without it one per physical core, and never more than the processors this process may
    /// use. The result does not depend on it
    #[arg(short, long, value_name = "N", value_parser = thread_count, allow_negative_numbers = true)]
    pub threads: Option<usize>,

    /// Read the file into memory instead of mapping it: for files on network drives, and those that somebody may cut
    /// short meanwhile
    #[arg(long)]
    pub no_mmap: bool,

    /// Keep the loaded model in memory: the system does not move it to a disk
    #[arg(long)]
    pub mlock: bool,

    /// Use the weights where the file's bytes are instead of copying them into faster layouts; slower,
    /// starts sooner, the result is the same
    #[arg(long)]
    pub no_repack: bool,

    /// How models compute whose weights leave a choice, which decides the bits of the result. Any-precision models:
    /// i16, 16-bit integers with 8-bit activations, the fast way and the usual one, or f32. Models of architecture
    /// fairy2i: f32, exact and the usual one, or i8, 8-bit activations and integer sums, much faster. Layers on a GPU:
    /// fast, activations in half precision for F16, BF16, ternary weights and Q4_0, whose bits are not the processor's
    #[arg(long, value_name = "f32|i16|i8|fast", value_enum, hide_possible_values = true)]
    pub number_path: Option<PathArg>,

    #[command(flatten)]
    #[allow(missing_docs)]
    pub device: DeviceArgs,

    #[command(flatten)]
    #[allow(missing_docs)]
    pub packing: PackingArgs,

    #[command(flatten)]
    #[allow(missing_docs)]
    pub adapters: AdapterArgs,

    /// The type that keys are kept in, also -ctk: f32, f16, bf16, q8_0, q4_0, q4_1, q5_0 or q5_1. It decides the bits
    /// of the result
    #[arg(long, value_name = "TYPE", default_value = "f16", value_parser = cache_type)]
    pub cache_type_k: TypeId,

    /// The type that values are kept in, also -ctv. Those that are no floats give the bits of llama.cpp's -fa on, which
    /// it needs for them, all others those of -fa off
    #[arg(long, value_name = "TYPE", default_value = "f16", value_parser = cache_type)]
    pub cache_type_v: TypeId,

    #[command(flatten)]
    #[allow(missing_docs)]
    pub overrides: OverrideArgs,

    /// Load the model's heads for multi-token prediction; another option says that they draft.
    #[arg(skip)]
    pub mtp: bool,

    /// Load a drafter with the model; another option says that it drafts.
    #[arg(skip)]
    pub drafter: Option<PathBuf>,

    /// The widths of any-precision weights that a GPU needs, all without any; other options name them.
    #[arg(skip)]
    pub widths: Vec<u8>,
}

/// Names of [`NumberPath`] on the command line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
#[allow(missing_docs)]
pub enum PathArg {
    F32,
    I16,
    I8,
    Fast,
}

impl From<PathArg> for NumberPath {
    fn from(path: PathArg) -> NumberPath {
        match path {
            PathArg::F32 => NumberPath::F32,
            PathArg::I16 => NumberPath::I16,
            PathArg::I8 => NumberPath::I8,
            PathArg::Fast => NumberPath::Fast,
        }
    }
}

/// Most tokens, chunks or repetitions that can be asked for, as in llama.cpp. More are a typing error, and sums and
/// products of them would overflow.
const MAX_COUNT: usize = i32::MAX as usize;

/// Parses a number above 0.
///
/// # Errors
/// Anything else, and more than can be meant.
pub fn positive(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(n @ 1..=MAX_COUNT) => Ok(n),
        _ => Err(format!("give a whole number from 1 to {MAX_COUNT}")),
    }
}

/// Parses a number that may be 0.
///
/// # Errors
/// Anything else, and more than can be meant.
pub fn count(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(n @ 0..=MAX_COUNT) => Ok(n),
        _ => Err(format!("give a whole number from 0 to {MAX_COUNT}")),
    }
}

/// Most threads a command line may ask for: more are a typing error, and starting them takes minutes.
const MAX_THREADS: usize = 1024;

/// Parses a number of threads.
///
/// # Errors
/// 0, and more than a slip of the hand can mean.
pub fn thread_count(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(n @ 1..=MAX_THREADS) => Ok(n),
        _ => Err(format!("give a whole number from 1 to {MAX_THREADS}, or leave it out")),
    }
}

/// Options of several letters for types of keys and values.
pub const SHORT_TYPES: [(&str, &str); 2] = [("-ctk", "--cache-type-k"), ("-ctv", "--cache-type-v")];

/// Parses a type that keys and values can be kept in, by the name that ggml has for it.
///
/// # Errors
/// Anything else.
pub fn cache_type(text: &str) -> Result<TypeId, String> {
    let all = CacheTypes::ALL.into_iter().filter_map(TypeId::info);
    let found = all.clone().find(|t| t.name == text);
    found.map(|t| t.id).ok_or_else(|| {
        let names: Vec<_> = all.map(|t| t.name).collect();
        format!("it is one of {}", names.join(", "))
    })
}

impl ModelArgs {
    /// As the library takes them.
    fn options(&self) -> OpenOptions {
        OpenOptions {
            mmap: !self.no_mmap,
            threads: self.threads,
            isa: None,
            repack: !self.no_repack,
            number_path: self.number_path.map(NumberPath::from).unwrap_or_default(),
            packing: self.packing.options(),
            adapters: self.adapters.adapters.clone(),
            control_vectors: self.adapters.control_vectors.clone(),
            control_blocks: self.adapters.blocks,
            mtp: self.mtp,
            drafter: self.drafter.clone(),
            cache: CacheTypes { keys: self.cache_type_k, values: self.cache_type_v },
            offload: None,
        }
    }
}

/// Opens the file and loads what is in it.
///
/// # Errors
/// The device, the file, the model or the tokenizer cannot be used; TRINE_ISA cannot be followed.
pub fn load(args: &ModelArgs) -> Result<Model> {
    let options = args.options();
    let offload = args.device.offload(&args.widths)?;
    // Before the file is looked at, because it is cheap and has nothing to do with it.
    threads::start(args.threads)?;
    let isa = trine::Isa::from_env()?;
    let mut file = open(&args.model, options.mmap)?;
    args.overrides.apply(&mut file)?;
    args.adapters.files().for_each(inputs::add);
    let options = OpenOptions { isa: Some(isa), offload, ..options };
    let model = trine::open::load(file, &options)?;
    if args.mlock {
        lock::lock();
    }
    Ok(model)
}

/// As [`load`], for a tool that has a use only for models that take texts.
///
/// # Errors
/// As [`load`], and the model has no tokenizer that is known.
pub fn load_for_texts(args: &ModelArgs) -> Result<Model> {
    let model = load(args)?;
    let usable = model.tokenizer().check();
    usable.with_context(|| format!("'{}'", args.model.display()))?;
    Ok(model)
}

/// Opens a model without loading its weights, and remembers that its files are read.
///
/// # Errors
/// The file cannot be used.
pub fn open(path: &Path, mmap: bool) -> Result<ModelFile> {
    let model = trine::open_file(path, mmap)?;
    inputs::add_model(&model);
    Ok(model)
}

/// The most memory this process had resident, in bytes; `None` where the system does not tell.
pub fn peak_memory() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find(|l| l.starts_with("VmHWM:"))?;
    let kib: u64 = line.split_whitespace().nth(1)?.parse().ok()?;
    Some(kib * 1024)
}
