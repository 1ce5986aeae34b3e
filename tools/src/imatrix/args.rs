//! The options of `rimatrix`: llama-imatrix's names and defaults.

use std::path::PathBuf;

use clap::{Parser, ValueEnum};
use trine_formats::imatrix::FileFormat;
use trine_formats::types::TypeId;

use crate::adapters::AdapterArgs;
use crate::args::Short;
use crate::device::DeviceArgs;
use crate::load::{ModelArgs, count, positive, thread_count};
use crate::memory;
use crate::overrides::OverrideArgs;
use crate::packing::PackingArgs;

/// Options of several letters behind one dash.
pub const SHORT: Short = &[("-ub", "--ubatch-size"), ("-ofreq", "--output-frequency")];

/// Measure which weights of a model matter
///
/// Runs a text through the model and sums up the squares of what is multiplied with each column of each
/// matrix of its blocks: the importance matrix that rquantize and llama-quantize take with --imatrix. The
/// file is the one llama-imatrix writes, bit for bit, on every machine and with any number of threads.
#[derive(Parser)]
#[command(
    name = "rimatrix",
    version,
    args_override_self = true,
    after_help = "See --help for examples.",
    after_long_help = "\
Examples:
  rimatrix -m model-F16.gguf -f calibration.txt -o imatrix.gguf
  rquantize --imatrix imatrix.gguf model-F16.gguf model-Q2_K_S.gguf Q2_K_S

  rimatrix -m model-F16.gguf -f calibration.txt --chunks 100     its first 100 chunks
  rimatrix -m model-F16.gguf -f calibration.txt --resume         go on after Ctrl-C or a power cut
  rimatrix --in-file a.gguf --in-file b.gguf -o sum.gguf         add up several
  rimatrix --in-file old.dat -o new.gguf                         convert the legacy form

Squared gradients of the loss, for every weight instead of every column (slower by far: forward and
backward, with the weights and as many sums in memory as 32-bit numbers):
  rimatrix --fisher -m model-F16.gguf -f c4.jsonl --documents jsonl -o fisher.safetensors
  rimatrix --fisher -m model-F16.gguf -f wiki.txt --samples 16 --seq-len 256

Hessians, sums of products of the inputs of every two columns, for rounding with error feedback:
  rimatrix -m model-F16.gguf -f calibration.txt --chunks 64 --hessian hessian.gguf
  rquantize --gptq hessian.gguf model-F16.gguf model-Q4_0.gguf Q4_0

The sums depend on -c, -b and -ub in their last bits, because llama-imatrix runs the chunks of a batch
side by side. The defaults are its own; threads and instruction sets change nothing."
)]
pub struct Args {
    /// The model, a GGUF file; any shard of a split one. Only adding up files needs none
    #[arg(short, long, value_name = "FILE", required_unless_present = "in_file")]
    pub model: Option<PathBuf>,

    /// Threads; without it one per physical core. The result does not depend on it
    #[arg(short, long, value_name = "N", value_parser = thread_count, allow_negative_numbers = true)]
    pub threads: Option<usize>,

    /// Read the model into memory instead of mapping it: for files on network drives, and those that somebody may cut
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

    #[command(flatten)]
    #[allow(missing_docs)]
    pub packing: PackingArgs,

    #[command(flatten)]
    #[allow(missing_docs)]
    pub overrides: OverrideArgs,

    /// The text; one line break at its end is left out
    #[arg(short, long, value_name = "FILE", required_unless_present = "in_file")]
    pub file: Option<PathBuf>,

    /// Where the result goes [default: imatrix.gguf; with --fisher fisher.safetensors, with --hessian hessian.gguf]
    #[arg(short, long, value_name = "FILE", visible_alias = "output-file")]
    pub output: Option<PathBuf>,

    /// Form of the file; dat is the older one of llama.cpp
    #[arg(long, value_name = "FORM", value_enum, default_value_t)]
    pub output_format: OutputFormat,

    /// Tokens per chunk
    #[arg(short, long, value_name = "N", default_value = "512", value_parser = positive)]
    pub ctx_size: usize,

    /// Tokens per batch; as many chunks as fit run side by side
    #[arg(short, long, value_name = "N", default_value = "2048", value_parser = positive)]
    pub batch_size: usize,

    /// Tokens that go through the model together, also -ub
    #[arg(long, value_name = "N", default_value = "512", value_parser = positive)]
    pub ubatch_size: usize,

    /// Evaluate only N chunks
    #[arg(long, value_name = "N", value_parser = positive)]
    pub chunks: Option<usize>,

    /// Leave out the first N chunks of the text
    #[arg(long, value_name = "N", default_value = "0", visible_alias = "chunk", value_parser = count)]
    pub from_chunk: usize,

    /// Also collect for output.weight
    #[arg(long)]
    pub process_output: bool,

    /// Do not measure the perplexity, which takes a little longer
    #[arg(long)]
    pub no_ppl: bool,

    /// Take the texts of control tokens in the text as these tokens
    #[arg(long)]
    pub parse_special: bool,

    /// Save what there is every N chunks or samples [default: 10; with --hessian, whose files are large, only at the
    /// end and when stopped]
    #[arg(long, value_name = "N", value_parser = positive)]
    pub output_frequency: Option<usize>,

    /// Save a copy as OUTPUT.at_CHUNK every N chunks; 0 for none
    #[arg(long, value_name = "N", default_value = "0", value_parser = count)]
    pub save_frequency: usize,

    /// Start with the sums of FILE, of either form; may be repeated
    #[arg(long, value_name = "FILE", value_delimiter = ',')]
    pub in_file: Vec<PathBuf>,

    /// Show what the activations of the file of --in-file are like, by matrix and by block, and write nothing
    #[arg(long, requires = "in_file", conflicts_with_all = ["file", "output", "json"])]
    pub show_statistics: bool,

    /// Go on from the output file, if it is there; all other options must be as before. The result is
    /// that of a run that was not interrupted
    #[arg(long, requires = "file")]
    pub resume: bool,

    /// Print one JSON object at the end
    #[arg(long)]
    pub json: bool,

    /// Add up the squared gradients of the loss of whole sequences instead, and write them as safetensors
    /// under the names of the model's tensors. Dense models and mixtures of experts have them, recurrent ones do not
    /// (docs/models.md)
    #[arg(long, help_heading = "Squared gradients", requires = "file", conflicts_with_all = [
        "ctx_size", "batch_size", "ubatch_size", "chunks", "from_chunk", "process_output", "no_ppl",
        "output_format", "save_frequency", "in_file", "no_repack", "mlock",
    ])]
    pub fisher: bool,

    /// Add up the products of every two columns of what goes into the matrices of the blocks instead: the Hessians that
    /// rquantize takes with --gptq. They need memory, and a file, of 4 bytes for the square of every input's width, and every
    /// expert of a mixture has inputs of its own
    #[arg(long, help_heading = "Hessians", value_name = "FILE", num_args = 0..=1, requires = "file", conflicts_with_all = [
        "ubatch_size", "process_output", "no_ppl", "output_format", "save_frequency", "in_file", "fisher",
    ])]
    pub hessian: Option<Option<PathBuf>>,

    /// Hold sums of SIZE at most in memory, such as 8G; without it of what is free. Where all are more than that, the
    /// text is gone through several times, each time for some of the inputs
    #[arg(long, help_heading = "Hessians", value_name = "SIZE", requires = "hessian", value_parser = memory::size)]
    pub hessian_memory: Option<usize>,

    /// Sequences to look at, chosen at random
    #[arg(long, help_heading = "Squared gradients", value_name = "N", default_value = "100", value_parser = positive, requires = "fisher")]
    pub samples: usize,

    /// Tokens per sequence
    #[arg(long, help_heading = "Squared gradients", value_name = "N", default_value = "512", value_parser = sequence_length, requires = "fisher")]
    pub seq_len: usize,

    /// Which random choice
    #[arg(long, short, help_heading = "Squared gradients", value_name = "N", default_value_t = 0, requires = "fisher")]
    pub seed: u32,

    /// Take the first --seq-len tokens of random documents that have that many, one document a line.
    /// Without it the text is one long document, cut into sequences
    #[arg(long, help_heading = "Squared gradients", value_name = "FORM", value_enum, requires = "fisher")]
    pub documents: Option<Documents>,
}

/// Chunks or samples after which is saved what there is, where the command line does not say.
const OUTPUT_FREQUENCY: usize = 10;

/// Longest sequence: its gradients would not fit into any memory.
const MAX_SEQUENCE: usize = 1 << 24;

/// A sequence must have something to predict.
fn sequence_length(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(n @ 2..=MAX_SEQUENCE) => Ok(n),
        _ => Err(format!("give a whole number from 2 to {MAX_SEQUENCE}")),
    }
}

/// `--documents`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum Documents {
    /// A line is a document.
    Lines,
    /// A line is a JSON object whose "text" is a document.
    Jsonl,
}

impl Documents {
    /// The name in the output's metadata.
    pub fn name(self) -> &'static str {
        match self {
            Documents::Lines => "lines",
            Documents::Jsonl => "jsonl",
        }
    }
}

/// `--output-format`.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug, ValueEnum)]
pub enum OutputFormat {
    /// Sums and counts in a GGUF file.
    #[default]
    Gguf,
    /// The legacy form: mean squares times chunks.
    Dat,
}

impl OutputFormat {
    /// The file format of the library.
    pub fn form(self) -> FileFormat {
        match self {
            OutputFormat::Gguf => FileFormat::Gguf,
            OutputFormat::Dat => FileFormat::Legacy,
        }
    }
}

impl Args {
    /// Chunks or samples after which is saved what there is; Hessians are saved more rarely.
    pub(super) fn save_after(&self) -> usize {
        self.output_frequency.unwrap_or(OUTPUT_FREQUENCY)
    }

    /// The options of the model, where one is given.
    pub(super) fn model_args(&self) -> Option<ModelArgs> {
        Some(ModelArgs {
            model: self.model.clone()?,
            threads: self.threads,
            no_mmap: self.no_mmap,
            mlock: self.mlock,
            no_repack: self.no_repack,
            number_path: None,
            device: DeviceArgs::default(),
            packing: self.packing.clone(),
            mtp: false,
            drafter: None,
            widths: Vec::new(),
            overrides: self.overrides.clone(),
            adapters: AdapterArgs::default(),
            cache_type_k: TypeId::F16,
            cache_type_v: TypeId::F16,
        })
    }
}
