//! The options of `rquantize`: llama-quantize's names, and those of what it does besides.

use std::path::PathBuf;

use anyhow::{Context, Result, anyhow, bail};
use clap::Parser;
use trine::Isa;
use trine::quant::{Encoder, Ftype, KvOverride, RunOptions, Selection, Target, nearest, parse_type};
use trine_formats::gguf::ShapeTiles;
use trine_formats::types::{REGISTRY, TypeId};

use super::size_args::{self, SizeArgs};
use super::tune_args::TuneArgs;
use crate::anyprec::AnyPrecArgs;
use crate::goal::{self, long_help};
use crate::gptq::GptqArgs;
use crate::packing::I2sLayout;
use crate::rotation::RotateArgs;
use crate::split::SplitArgs;
use crate::threads;
use crate::widely::WidelyArgs;

/// Quantize a GGUF model. The output is, byte for byte, the file that llama-quantize writes.
///
/// The file appears under its name only when it is complete; an interrupted run changes nothing.
/// A type that cannot be honoured is refused with every tensor named: rows that are not whole blocks (see
/// --fallback), ternary types for weights that are not ternary (see --force).
///
/// AP3-8 and its like make any-precision files for trine, from which a model runs at every width, and SQ4 a
/// single width: each row gets tables of its own.
///
/// Ternary weights are moved between F32, F16, BF16, TQ1_0, TQ2_0, Q2_0 and bitnet.cpp's I2_S, TL1 and TL2
/// without a change: what a type cannot hold exactly is refused, with every tensor named. PrismML's pq2_0 and
/// ptq1_0, Tencent's stq1_0 and ik_llama.cpp's iq1_bn and iq2_bn are read too, and written where --tensor-type asks for
/// them. The other types of ik_llama.cpp are read; interleaved rows become those that they were made of.
///
/// IQ2_KS to IQ6_K and IQ2_KL make files for ik_llama.cpp and trine: an eighth less error than llama.cpp's types of the
/// same size. --for ik and --for trine choose among them too.
#[derive(Parser)]
#[command(name = "rquantize", version, after_help = SHORT_HELP, after_long_help = long_help())]
#[command(
    override_usage = "rquantize [OPTIONS] IN.gguf OUT.gguf TYPE [THREADS]\n       rquantize [OPTIONS] --dry-run IN.gguf TYPE\n       rquantize --target-size SIZE IN.gguf OUT.gguf [THREADS]\n       rquantize --target-kld X --kld-text FILE IN.gguf OUT.gguf [THREADS]\n       rquantize --width N IN.gguf OUT.gguf\n       rquantize --rotate BLOCK[:signs] IN.gguf OUT.gguf [TYPE [THREADS]]\n       rquantize --tune TEXT --reference F16.gguf IN.gguf OUT.gguf [THREADS]\n       rquantize --split-max-size N(M|G) IN.gguf OUTPREFIX\n       rquantize --merge FIRST-00001-of-0000N.gguf OUT.gguf"
)]
pub struct Args {
    /// The model; of a split one any shard
    #[arg(value_name = "IN.gguf")]
    pub input: PathBuf,

    /// Output, type and number of threads; without OUT.gguf the file is ggml-model-TYPE.gguf beside
    /// the input, without THREADS every processor works
    #[arg(value_name = "OUT.gguf TYPE [THREADS]", required = true, num_args = 1..=4, hide_possible_values = true)]
    pub rest: Vec<String>,

    /// Allow tensors that are quantized already to be quantized again, at a loss
    #[arg(long)]
    pub allow_requantize: bool,

    /// Where a row is not whole blocks of its type, take the type that llama-quantize would take silently, whatever the
    /// type (such as tq2_0 to q4_0). For K-quants (such as q6_K to q8_0) this is done without being asked for
    #[arg(long)]
    pub fallback: bool,

    /// Make tensors ternary although they are not, or scales what the type can hold
    #[arg(long)]
    pub force: bool,

    /// Every tensor gets the type itself: no mixture
    #[arg(long)]
    pub pure: bool,

    /// Copy output.weight as it is
    #[arg(long)]
    pub leave_output_tensor: bool,

    /// Type of output.weight, and of token_embd.weight where it serves as output
    #[arg(long, value_name = "TYPE")]
    pub output_tensor_type: Option<String>,

    /// Type of token_embd.weight
    #[arg(long, value_name = "TYPE")]
    pub token_embedding_type: Option<String>,

    /// Type of the tensors whose name the regular expression is found in; the first that matches
    /// counts. May be repeated
    #[arg(long, value_name = "PATTERN=TYPE")]
    pub tensor_type: Vec<String>,

    /// A file of such rules, separated by white space
    #[arg(long, value_name = "FILE")]
    pub tensor_type_file: Option<PathBuf>,

    /// The method that rounds rows.
    #[arg(
        long,
        value_name = "NAME",
        conflicts_with = "feedback",
        value_parser = encoder,
        help = methods(),
        long_help = methods_in_full()
    )]
    pub method: Option<Encoder>,

    #[command(flatten)]
    #[allow(missing_docs)]
    pub size: SizeArgs,

    /// Importance matrix (GGUF or the older form): columns that matter get smaller errors
    #[arg(long, value_name = "FILE")]
    pub imatrix: Option<String>,

    /// Use the matrix only for tensors whose name contains this. May be repeated
    #[arg(long, value_name = "TEXT", requires = "imatrix", conflicts_with = "exclude_weights")]
    pub include_weights: Vec<String>,

    /// Do not use the matrix for tensors whose name contains this. May be repeated
    #[arg(long, value_name = "TEXT", requires = "imatrix")]
    pub exclude_weights: Vec<String>,

    /// Leave these layers out and renumber the others
    #[arg(long, value_name = "N,N,...")]
    pub prune_layers: Option<String>,

    /// Write one file per input shard, OUT-00001-of-0000N.gguf
    #[arg(long)]
    pub keep_split: bool,

    /// Set metadata: KEY=int:N, KEY=float:X, KEY=bool:true, KEY=str:TEXT. May be repeated
    #[arg(long, value_name = "KEY=TYPE:VALUE")]
    pub override_kv: Vec<String>,

    /// Show what every tensor would become and write nothing; fails where the real run would refuse
    /// from the headers alone
    #[arg(long)]
    pub dry_run: bool,

    /// Print the plan or the summary as JSON
    #[arg(long)]
    pub json: bool,

    /// Tiles of TL1 and TL2 matrices of one shape in the output; may be repeated. Without it those of
    /// bitnet.cpp's published kernels, or else some that fit, which are recorded in the file
    #[arg(long, value_name = "ROWSxCOLUMNS=BM,BK,bm")]
    pub tl_tiles: Vec<ShapeTiles>,

    /// Layout of I2_S in the output
    #[arg(long, value_name = "LAYOUT", value_enum, default_value_t)]
    pub i2s_layout: I2sLayout,

    /// The same of the input, where the file does not say
    #[arg(long, value_name = "ROWSxCOLUMNS=BM,BK,bm")]
    pub input_tl_tiles: Vec<ShapeTiles>,

    /// Layout of I2_S in the input; arm64 for files that bitnet.cpp wrote on ARM since November 2025
    #[arg(long, value_name = "LAYOUT", value_enum, default_value_t)]
    pub input_i2s_layout: I2sLayout,

    /// Read both files again when done and compare every weight; fails where weights that should be
    /// the same are not
    #[arg(long, conflicts_with = "dry_run")]
    pub verify: bool,

    /// A line per tensor on stderr
    #[arg(short, long)]
    pub verbose: bool,

    #[command(flatten)]
    #[allow(missing_docs)]
    pub split: SplitArgs,

    #[command(flatten)]
    #[allow(missing_docs)]
    pub gptq: GptqArgs,

    #[command(flatten)]
    #[allow(missing_docs)]
    pub any_precision: AnyPrecArgs,

    #[command(flatten)]
    #[allow(missing_docs)]
    pub widely: WidelyArgs,

    #[command(flatten)]
    #[allow(missing_docs)]
    pub rotation: RotateArgs,

    #[command(flatten)]
    #[allow(missing_docs)]
    pub tune: TuneArgs,
}

/// The option that rotations know too.
pub(super) const FALLBACK: &str = "--fallback";

const SHORT_HELP: &str = "See --help for examples and the types.";

/// The positional arguments after the input.
pub(super) struct Positionals {
    /// The file to write.
    pub out: PathBuf,
    /// The type.
    pub target: Target,
    /// Threads; 0 for all processors.
    pub threads: usize,
}

impl Positionals {
    pub fn new(args: &Args) -> Result<Positionals> {
        let rest: Vec<&str> = args.rest.iter().map(String::as_str).collect();
        if let Some((_, option)) = args.size.given() {
            let (out, threads) = size_args::words(&rest, option)?;
            // The type that most weights will have is not known yet.
            return Ok(Positionals {
                out: out.into(),
                target: Target::Ftype(Ftype::Q8_0),
                threads: threads_of(threads)?,
            });
        }
        let (out, name, threads) = match rest[..] {
            [ty] => (None, ty, None),
            // as in llama-quantize, a first word that is a type is the type
            [ty, threads] if Target::parse(ty).is_some() => (None, ty, Some(threads)),
            [out, ty] => (Some(out), ty, None),
            [out, ty, threads] => (Some(out), ty, Some(threads)),
            // bitnet.cpp's setup_env.py: whether embeddings are quantized, which their own option says
            [out, ty, threads, "0" | "1"] => {
                note!(
                    "note: the word behind the threads changes nothing here: embeddings have the type of --token-embedding-type"
                );
                (Some(out), ty, Some(threads))
            }
            _ => bail!("too many arguments; see --help"),
        };
        let target = Target::parse(name).ok_or_else(|| {
            let hint = nearest(name, goal::names()).map_or(String::new(), |n| format!("; did you mean {n}?"));
            let names: Vec<&str> = goal::names().collect();
            anyhow!("unknown type '{name}'{hint} (types: {})", names.join(" "))
        })?;
        let threads = threads_of(threads)?;
        let out =
            out.map_or_else(|| args.input.with_file_name(format!("ggml-model-{}.gguf", target.name())), PathBuf::from);
        Ok(Positionals { out, target, threads })
    }

    /// How many threads work, where 0 asks for all.
    pub fn threads(&self) -> usize {
        threads::count(Some(self.threads).filter(|&n| n > 0))
    }

    /// Options of the run.
    pub fn options(&self, args: &Args) -> Result<RunOptions> {
        Ok(RunOptions { isa: Isa::from_env()?, threads: self.threads(), force: args.force, ..RunOptions::default() })
    }
}

/// Reads the number of threads; 0, all processors, where there is none.
pub(super) fn threads_of(text: Option<&str>) -> Result<usize> {
    match text.map(|text| (text, text.parse::<u16>())) {
        None => Ok(0),
        Some((_, Ok(n))) if n <= 1024 => Ok(usize::from(n)),
        Some((text, _)) => bail!("'{text}' is not a number of threads (0 to 1024; 0: all processors)"),
    }
}

impl Args {
    /// The options that were given and are only for what llama-quantize or bitnet.cpp make.
    fn usual_options(&self) -> impl Iterator<Item = &'static str> + use<> {
        let given = [
            (self.fallback, FALLBACK),
            (self.force, "--force"),
            (self.pure, "--pure"),
            (self.size.target_bpw.is_some(), "--target-bpw"),
            (self.size.target_size.is_some(), "--target-size"),
            (self.size.target_kld.is_some(), "--target-kld"),
            (self.leave_output_tensor, "--leave-output-tensor"),
            (!self.tensor_type.is_empty(), "--tensor-type"),
            (self.tensor_type_file.is_some(), "--tensor-type-file"),
            (self.prune_layers.is_some(), "--prune-layers"),
            (self.keep_split, "--keep-split"),
            (self.method.is_some(), "--method"),
            (self.gptq.group != 32, "--group"),
            (self.gptq.gptq_compat, "--gptq-compat"),
            (self.gptq.sparse.is_some(), "--sparse"),
            (!self.tl_tiles.is_empty(), "--tl-tiles"),
            (!self.input_tl_tiles.is_empty(), "--input-tl-tiles"),
        ];
        given.into_iter().filter(|g| g.0).map(|g| g.1)
    }

    /// The options that were given and say how weights are quantized.
    pub(super) fn all_options(&self) -> impl Iterator<Item = &'static str> + use<> {
        let others = [
            (self.imatrix.is_some(), "--imatrix"),
            (self.output_tensor_type.is_some(), "--output-tensor-type"),
            (self.token_embedding_type.is_some(), "--token-embedding-type"),
        ];
        let others = others.into_iter().filter(|o| o.0).map(|o| o.1);
        self.any_precision.given().into_iter().chain(self.gptq.given()).chain(self.usual_options()).chain(others)
    }

    /// The first of those that are only for what llama-quantize or bitnet.cpp make.
    pub(super) fn usual_option(&self) -> Option<&'static str> {
        self.usual_options().next()
    }

    /// The first of all that say how weights are quantized.
    pub(super) fn any_option(&self) -> Option<&'static str> {
        self.all_options().next()
    }

    pub(super) fn output_type(&self) -> Result<Option<TypeId>> {
        type_of("--output-tensor-type", self.output_tensor_type.as_deref())
    }

    pub(super) fn embedding_type(&self) -> Result<Option<TypeId>> {
        type_of("--token-embedding-type", self.token_embedding_type.as_deref())
    }

    pub(super) fn selection(&self) -> Selection {
        Selection { include: self.include_weights.clone(), exclude: self.exclude_weights.clone() }
    }

    pub(super) fn overrides(&self) -> Result<Vec<KvOverride>> {
        let all = self.override_kv.iter().map(|text| KvOverride::parse(text));
        all.collect::<Result<_, _>>().context("--override-kv")
    }
}

/// The methods of rounding by their names, for `-h`.
fn methods() -> String {
    let all: Vec<String> = Encoder::ALL.iter().map(|e| format!("{}, {}", e.name, e.about)).collect();
    format!("How rows are rounded: {}", all.join(", or "))
}

/// The methods for `--help`, with the types that hqq knows.
fn methods_in_full() -> String {
    let hqq = Encoder::named("hqq").expect("a method");
    let known = REGISTRY.iter().filter(|info| hqq.knows(info.id));
    let types: Vec<String> = known.map(|info| info.name.to_uppercase()).collect();
    let (last, others) = types.split_last().expect("types of other methods");
    format!(
        "{}\n\nhqq fits the scales of {} and {last} to most weights rather than to the largest, without any text; other types are rounded as usual. unbiased is for all types whose scales are floats, and what --target-bpw and its like take where no method is named; no other bits but those of scales differ from llama-quantize's then",
        methods(),
        others.join(", ")
    )
}

fn encoder(name: &str) -> Result<Encoder, String> {
    let names: Vec<&str> = Encoder::ALL.iter().map(|e| e.name).collect();
    Encoder::named(name).ok_or_else(|| format!("the methods are {}", names.join(", ")))
}

fn type_of(option: &'static str, text: Option<&str>) -> Result<Option<TypeId>> {
    let ty = text.map(parse_type).transpose();
    ty.context(option)
}
