//! The options of `rconvert`.

use std::fmt::Write as _;
use std::path::PathBuf;
use std::sync::Arc;

use clap::{Parser, ValueEnum};
use trine::convert::{Options, OutType, PackedScale, Ternary, known_classes};

use crate::args::Short;
use crate::isolate::OtherProcess;
use crate::load::thread_count;
use crate::widely::WidelyArgs;

/// Convert the folder of a Hugging Face checkpoint (config.json, tokenizer, *.safetensors) into one
/// GGUF file.
///
/// Names, shapes and metadata are those of llama.cpp's converter. Weights are streamed: a few megabytes
/// are in memory at a time. The file appears under its name only when it is complete.
#[derive(Parser)]
#[command(name = "rconvert", version, after_help = "See --help for examples and for ternary models.", after_long_help = long_help())]
#[command(override_usage = "rconvert [OPTIONS] DIR [OUT.gguf]\n       rconvert [OPTIONS] --dry-run DIR")]
pub struct Args {
    /// The folder that holds config.json
    pub dir: PathBuf,

    /// The file to write; without it ggml-model-TYPE.gguf in the folder
    #[arg(value_name = "OUT.gguf")]
    out: Option<PathBuf>,

    /// The same, as convert_hf_to_gguf.py has it
    #[arg(long, value_name = "OUT.gguf", conflicts_with = "out")]
    outfile: Option<PathBuf>,

    /// Type of the matrices: auto takes the 16-bit float type of the checkpoint, else f16; ternary and those of codes and
    /// scales take matrices that they hold without rounding
    #[arg(long, value_name = "TYPE", default_value = "auto", value_parser = outtype)]
    pub outtype: Choice,

    /// Kind of matrices: auto believes config.json, which cannot tell a TriLM from any other LLaMA
    #[arg(long, value_enum, default_value = "auto")]
    pub ternary: TernaryArg,

    /// Scales per matrix of a TriLM, one per rank that it was trained on; without it what config.json
    /// says (pretraining_model_parallel), else 1
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub trilm_parts: Option<u32>,

    /// How packed digits and weight_scale make a weight: auto multiplies for linear_class autobitlinear
    /// and divides otherwise
    #[arg(long, value_enum, default_value = "auto")]
    pub packed_scale: ScaleArg,

    /// With tq1_0 and tq2_0: matrices that the type cannot hold exactly become F16 instead of an error
    #[arg(long)]
    pub fallback: bool,

    /// Make the matrices widely linear: complex weights of +-1 and +-i in stages of one bit per weight. For the latent
    /// weights of Fairy2i, and at a loss for other LLaMA, Qwen 2 and Qwen 3 models
    #[arg(long, conflicts_with_all = ["vocab_only", "trilm_parts", "fallback"])]
    pub fairy2i: bool,

    /// general.name, in place of the name of the folder
    #[arg(long, value_name = "NAME")]
    pub model_name: Option<String>,

    /// tokenizer.ggml.pre, where the pre-tokenizer of tokenizer.json is not recognised
    #[arg(long, value_name = "NAME")]
    pub pre: Option<String>,

    /// The folder of the model that a drafter (EAGLE-3, DFlash) drafts for: its tokenizer and config.json are read
    #[arg(long, value_name = "DIR")]
    pub target_model_dir: Option<PathBuf>,

    /// Take the projections of vectors that an embedding model has in folders of their own (2_Dense, 3_Dense)
    #[arg(long)]
    pub sentence_transformers_dense_modules: bool,

    /// Write the metadata and the vocabulary alone, no weights
    #[arg(long)]
    pub vocab_only: bool,

    /// Show what would be written and write nothing
    #[arg(long)]
    pub dry_run: bool,

    /// Print the result as JSON
    #[arg(long)]
    pub json: bool,

    /// Threads; without it one per processor. The result does not depend on it
    #[arg(short, long, value_name = "N", value_parser = thread_count, allow_negative_numbers = true)]
    pub threads: Option<usize>,

    /// A line per tensor on stderr
    #[arg(short, long)]
    pub verbose: bool,

    #[command(flatten)]
    #[allow(missing_docs)]
    pub widely: WidelyArgs,
}

/// Options of several letters behind one dash: bitnet.cpp's setup_env.py.
pub const SHORT: Short = &[("-q", "--outtype"), ("--quant-type", "--outtype")];

impl Args {
    /// The file to write, where it was named.
    pub fn out(&self) -> Option<&PathBuf> {
        self.out.as_ref().or(self.outfile.as_ref())
    }

    /// The file to write: the one that was named, or the name that llama.cpp's documents and bitnet.cpp's setup_env.py
    /// have.
    pub fn out_of(&self, outtype: OutType) -> PathBuf {
        let usual = || self.dir.join(format!("ggml-model-{}.gguf", outtype.name));
        self.out().cloned().unwrap_or_else(usual)
    }
}

/// `--outtype`; `None` is auto.
#[derive(Clone, Copy)]
pub struct Choice(pub Option<OutType>);

/// Types of bitnet.cpp that hold whole matrices, which no row of a checkpoint can be written as.
const PACKED: [&str; 3] = ["i2_s", "tl1", "tl2"];

fn outtype(name: &str) -> Result<Choice, String> {
    if name.eq_ignore_ascii_case("auto") {
        return Ok(Choice(None));
    }
    let names = OutType::ALL.map(|t| t.name).join(", ");
    if PACKED.iter().any(|packed| packed.eq_ignore_ascii_case(name)) {
        return Err(format!(
            "it is made in a second step, as bitnet.cpp does: rconvert DIR OUT.gguf --outtype f32, then rquantize --token-embedding-type f16 OUT.gguf SMALL.gguf {}",
            name.to_uppercase()
        ));
    }
    let found = OutType::from_name(name);
    found.map(|t| Choice(Some(t))).ok_or(format!("known are auto, {names}; rquantize makes all others of the file"))
}

/// Names of [`Ternary`] on the command line.
#[derive(Clone, Copy, ValueEnum)]
pub enum TernaryArg {
    /// Latent BitNet weights for BitNet models, plain weights for all others
    Auto,
    /// Plain weights, also those that are ternary already
    None,
    /// Latent weights of BitNet b1.58
    Bitnet,
    /// Latent weights of TriLM and TriTera
    Trilm,
}

/// Names of [`PackedScale`] on the command line.
#[derive(Clone, Copy, ValueEnum)]
pub enum ScaleArg {
    /// By config.json
    Auto,
    /// digit x weight_scale
    Multiply,
    /// digit / weight_scale
    Divide,
}

fn long_help() -> String {
    let mut text = String::from(
        "Examples:
  rconvert Llama-3.2-1B llama-1b.gguf                       the type of the checkpoint (here BF16)
  rconvert bitnet-b1.58-2B-4T-bf16 bitnet.gguf --outtype tq2_0
  rconvert TriLM_99M trilm.gguf --ternary trilm --outtype tq1_0
  rconvert TriLM_99M_Unpacked trilm.gguf --outtype f16      ternary already: plain weights
  rconvert Fairy2i-W2 fairy2i.gguf --fairy2i                masters to codes of 2 bits per weight
  rconvert --dry-run model --json | jq '.tensors[] | .name'
then
  rquantize llama-1b.gguf llama-1b-Q4_K_M.gguf Q4_K_M

Ternary models:
  Checkpoints for training hold latent weights, floats that the model rounds to digits -1, 0, +1 times
  a scale each time it runs. GGUF holds the rounded ones:
    bitnet   s = 1 / max(mean|W|, 1e-5), weights clamp(round(W s), -1, 1) / s, one scale per matrix
    trilm    g = 1e-5 + mean|W|, weights round(clip(W / g, -1, 1)) g, one scale per matrix and rank
  Packed checkpoints (uint8 with weight_scale) hold the digits; two conventions of the scale are in use,
  see --packed-scale. f16 keeps 11 bits of a scale and bf16 8; tq1_0 and tq2_0 hold the digits
  exactly with the scale as f16, the embedding as f16, and refuse matrices that are not ternary.

Model classes (in config.json) and their architecture:
",
    );
    for (class, arch) in known_classes() {
        let _ = writeln!(text, "  {class:40}{arch}");
    }
    text.push_str(
        "\nExit code 0: written; 1: error, one line on stderr, nothing written; 2: wrong arguments; 130: interrupted.",
    );
    text
}

impl Args {
    /// Options of the library.
    pub(super) fn options(&self) -> Options {
        Options {
            outtype: self.outtype.0,
            ternary: match self.ternary {
                TernaryArg::Auto => Ternary::Auto,
                TernaryArg::None => Ternary::None,
                TernaryArg::Bitnet => Ternary::Bitnet,
                TernaryArg::Trilm => Ternary::Trilm,
            },
            trilm_parts: self.trilm_parts,
            packed_scale: match self.packed_scale {
                ScaleArg::Auto => PackedScale::Auto,
                ScaleArg::Multiply => PackedScale::Multiply,
                ScaleArg::Divide => PackedScale::Divide,
            },
            name: self.model_name.clone(),
            pre: self.pre.clone(),
            vocab_only: self.vocab_only,
            fallback: self.fallback,
            elsewhere: Some(Arc::new(OtherProcess)),
            widely: self.fairy2i.then(|| self.widely.options()),
            target: self.target_model_dir.clone(),
            dense_modules: self.sentence_transformers_dense_modules,
        }
    }
}
