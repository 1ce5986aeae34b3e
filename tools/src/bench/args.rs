//! The options of `rbench`: llama-bench's names, lists and defaults.

use std::path::PathBuf;
use std::str::FromStr;

use anyhow::{Result, bail};
use clap::{Parser, ValueEnum};
use trine::kv::CacheTypes;
use trine::model::LoadOptions;
use trine::{Isa, NumberPath};
use trine_formats::types::TypeId;

use super::kernel_type::KernelType;
use super::method::MethodArg;
use super::numbers::{self, Numbers};
use super::papers::Wanted;
use super::synth::Specs;
use crate::args::Short;
use crate::device::{self, Device, PlaceArgs};
use crate::load::{PathArg, SHORT_TYPES, cache_type, positive, thread_count};
use crate::packing::PackingArgs;

/// Options of several letters behind one dash.
pub const SHORT: Short = &[
    ("-pg", "--prompt-gen"),
    ("-ub", "--ubatch-size"),
    ("-mmp", "--mmap"),
    device::SHORT,
    device::SHORT_LAYERS,
    device::SHORT_SPLIT[0],
    device::SHORT_SPLIT[1],
    device::SHORT_SPLIT[2],
    SHORT_TYPES[0],
    SHORT_TYPES[1],
    // bitnet.cpp's e2e_benchmark.py
    ("--n-token", "--n-gen"),
    ("-npp", "--npp"),
    ("-ntg", "--ntg"),
    ("-npl", "--npl"),
    ("-pps", "--pps"),
    ("--output-format", "--output"),
];

/// Measure how fast models run
///
/// Every combination of the lists is run once to warm up and -r times for the record. Prompts and
/// texts are random tokens. The table goes to standard output, everything else to standard error.
#[derive(Parser)]
#[command(
    name = "rbench",
    version,
    args_override_self = true,
    after_help = "See --help for examples.",
    after_long_help = "\
Examples:
  rbench -m model.gguf                                  prompt of 512 tokens, 128 generated ones
  rbench -m a.gguf,b.gguf -t 1,2,4 -p 128,512 -n 0      prompts only, at several thread counts
  rbench -m model.gguf -p 0 -t 1-8*2                    at 1, 2, 4 and 8 threads; ranges are also 1-8 and 0-512+128
  rbench -m model.gguf --device cuda -ngl 10,20,all     with 10, 20 and all of its layers on a GPU
  rbench -m model.gguf -pg 512,64 -d 0,1024             prompt and text in one, also behind 1024 tokens
  rbench --synthetic llama:700m:TQ2_0                   a synthetic model in memory
  rbench --synthetic llama:700m:TQ2_0 --save m.gguf     kept as a file; llama.cpp can load it too
  rbench --batched -m model.gguf -npl 1,2,4,8           several texts at once, as a server runs them
  rbench --batched -m model.gguf -npp 8,128 -npl 1,8    and a step of 8 texts beside a prompt of 8 tokens
  rbench --compare-llama build/bin -m model.gguf        beside llama-bench of that build, in turns
  rbench --roofline -m model.gguf                       how near the speed is to what memory allows
  rbench --profile -m model.gguf -p 512 -n 32           where the time goes, operation by operation
  rbench --serve http://127.0.0.1:8080 --clients 1,4,16 a server with 1, 4 and 16 clients, each of which asks again
  rbench --serve http://127.0.0.1:8080 --rate 0.5,1,2   and with 0.5, 1 and 2 requests a second, at random times
  rbench --serve http://127.0.0.1:8080 --rate 0.5,1,2 --label rserve --plot load.svg --beside llama.json
  rbench --kernels                                      products of matrices and vectors, by type
  rbench --kernels --types I2_S --method mad,lut,bit    and by tables of sums beside multiplications

--batched has llama-batched-bench's options and columns: B prompts of PP tokens in one step (T_PP seconds, S_PP tokens per
second), then TG steps of one token of each of the B texts (T_TG, S_TG), and both together (T, S); N_KV positions are in the
cache at the end. Times are medians of -r repetitions; llama-batched-bench has one, -r 1.

--serve measures a server that speaks OpenAI's /v1/completions, rserve or llama-server. TTFT is the time to the first text, ITL that
between parts of it by the tokens of the later one (one that is no whole character waits for the next), TPOT that from the first
part to the last by the tokens after the first, each at the 50th, 90th and 99th of a hundred; t/s and req/s are of all clients together. Requests that were refused (429, 503) or failed are counted and
not timed. Prompts are random tokens, nothing is taken from the server's cache.

--shared-tokens lets the server keep what all prompts begin with. --interrupt sends a long prompt meanwhile, again and again:
ITL then says how long the others wait for a token. --plot draws TPOT and TTFT, the 50th of a hundred as a line and the 99th as
a dashed one, of this run and of those of --beside.

--synthetic takes ARCH:SIZE:TYPE.
  ARCH   any architecture that trine runs, such as llama; a name that is none lists them
  SIZE   tiny, 700m (b1.58's), 1.1b (TinyLlama's), 1b, 3b, 8b, 405b (Llama 3's), 7b (Llama 2's), 2b (BitNet b1.58 2B-4T's),
         1.5b, 3.8b, 13b, 30b, 70b, 100b (bitnet.cpp's paper); hidden=4096,ffn=11008,layers=32 and, where they matter,
         heads, kv_heads, head_dim, vocab and context; or a size and what differs from it: 70b,layers=4;
         1b-8x2 has 8 experts in place of the feed-forward block, and a token goes to 2 of them
  TYPE   a file type of rquantize; each tensor gets the type that rquantize would give it. TQ1_0, TQ2_0,
         Q2_0, I2_S, TL1 and TL2 are made from ternary weights, others are when -ternary is added: F16-ternary;
         of fairy2i the number of stages, W1 to W4: fairy2i:7b:W2
TRINE_ISA=scalar|scalar4|avx2|avxvnni|avx512|amx, on ARM scalar|scalar4|neon|dotprod|i8mm, chooses the instruction set,
TRINE_PREFETCH=BYTES the prefetch distance of products of one token, TRINE_DENSE=0|1 whether ternary weights take fewer bytes in
memory for more instructions; without them both are measured while a model loads."
)]
pub struct Args {
    /// Models, GGUF files; any shard of split ones
    #[arg(short, long, value_name = "FILE,...", value_delimiter = ',')]
    pub model: Vec<PathBuf>,

    /// Synthetic models, as ARCH:SIZE:TYPE
    #[arg(long, value_name = "SPEC,...")]
    pub synthetic: Vec<Specs>,

    /// Keep the synthetic model as this file, and run it from there
    #[arg(long, value_name = "FILE", requires = "synthetic")]
    pub save: Option<PathBuf>,

    /// Lengths of prompts; 0 for none
    #[arg(
        short = 'p',
        long,
        value_name = "N,...",
        value_delimiter = ',',
        value_parser = many_tokens,
        default_value = "512"
    )]
    pub n_prompt: Vec<Numbers>,

    /// Lengths of generated texts; 0 for none
    #[arg(
        short,
        long,
        value_name = "N,...",
        value_delimiter = ',',
        value_parser = many_tokens,
        default_value = "128"
    )]
    pub n_gen: Vec<Numbers>,

    /// -pg PROMPT,TEXT: a prompt and a text timed together; can be repeated
    #[arg(long, value_name = "PP,TG")]
    pub prompt_gen: Vec<Pair>,

    /// Tokens in the context before the test; they are not timed
    #[arg(
        short = 'd',
        long,
        value_name = "N,...",
        value_delimiter = ',',
        value_parser = many_tokens,
        default_value = "0"
    )]
    pub n_depth: Vec<Numbers>,

    /// Tokens handed to the model at once
    #[arg(short, long, value_name = "N,...", value_delimiter = ',', default_value = "2048", value_parser = many)]
    pub batch_size: Vec<Numbers>,

    /// -ub N: tokens computed at once
    #[arg(long, value_name = "N,...", value_delimiter = ',', default_value = "512", value_parser = many)]
    pub ubatch_size: Vec<Numbers>,

    /// Types that keys are kept in, also -ctk: f32, f16, bf16, q8_0, q4_0, q4_1, q5_0 or q5_1
    #[arg(long, value_name = "TYPE,...", value_delimiter = ',', default_value = "f16", value_parser = cache_type)]
    pub cache_type_k: Vec<TypeId>,

    /// Types that values are kept in, also -ctv
    #[arg(long, value_name = "TYPE,...", value_delimiter = ',', default_value = "f16", value_parser = cache_type)]
    pub cache_type_v: Vec<TypeId>,

    /// Threads; without it one per physical core
    #[arg(short, long, value_name = "N,...", value_delimiter = ',', value_parser = many_threads)]
    pub threads: Vec<Numbers>,

    /// Repetitions of every test
    #[arg(short, long, value_name = "N", default_value = "5", value_parser = repetitions)]
    pub repetitions: usize,

    /// Form of the result
    #[arg(short, long, value_name = "FORM", default_value = "md")]
    pub output: Format,

    /// -mmp 0: read files into memory instead of mapping them, such as those on network drives
    #[arg(long, value_name = "0|1", default_value = "1", value_parser = switch, action = clap::ArgAction::Set)]
    pub mmap: bool,

    /// Use the weights where the file's bytes are instead of copying them into faster layouts
    #[arg(long)]
    pub no_repack: bool,

    /// Leave out the run before the timed ones
    #[arg(long)]
    pub no_warmup: bool,

    /// Seconds to wait between two tests
    #[arg(long, value_name = "N", default_value = "0", value_parser = seconds)]
    pub delay: u64,

    /// Say what is running
    #[arg(long)]
    pub progress: bool,

    /// Set each speed beside what memory and multipliers of this machine allow
    #[arg(long)]
    pub roofline: bool,

    /// Show where the time goes: each kind of operation with its time, the bytes of its matrices and its share of what
    /// the machine reads or multiplies
    #[arg(long, conflicts_with_all = ["roofline", "batched", "kernels", "serve", "compare_llama"])]
    pub profile: bool,

    /// Run llama-bench of this build of llama.cpp in turns, on the same file with the same settings, and set the speeds
    /// side by side: their medians, that of the ratios of each turn, and their range. -r is the number of turns
    #[arg(long, value_name = "DIR", conflicts_with_all = ["roofline", "batched", "kernels", "serve", "no_warmup"])]
    pub compare_llama: Option<PathBuf>,

    /// Like --compare-llama, beside a build of ik_llama.cpp with flash attention and repacked weights (-fa 1 -rtr 1)
    #[arg(
        long,
        value_name = "DIR",
        conflicts_with_all = ["roofline", "batched", "kernels", "serve", "no_warmup", "profile", "compare_llama"]
    )]
    pub compare_ik: Option<PathBuf>,

    /// Measure the table of a paper again with models made up: bitnet-table7, trilm-fig10 or fairyfuse-fig4, of which
    /// bitnet-table7:700m,7b takes some rows. Each speed is also set beside that of the first type, here and in the paper;
    /// models for which there is no memory are computed from few of their layers
    #[arg(
        long,
        value_name = "TABLE",
        conflicts_with_all = ["model", "synthetic", "roofline", "batched", "kernels", "serve", "profile", "compare_llama",
                              "compare_ik", "n_prompt", "n_gen", "prompt_gen", "n_depth", "batch_size", "ubatch_size"]
    )]
    pub reproduce: Option<Wanted>,

    /// Run several texts at once: -npl of them, each with a prompt of -npp tokens and -ntg tokens after it
    #[arg(long, conflicts_with_all = ["roofline", "n_prompt", "n_gen", "prompt_gen", "n_depth"])]
    pub batched: bool,

    /// -npp N,...: with --batched, tokens of each prompt; 0 for none
    #[arg(
        long,
        value_name = "N,...",
        value_delimiter = ',',
        value_parser = many_tokens,
        default_value = "128",
        requires = "batched"
    )]
    pub npp: Vec<Numbers>,

    /// -ntg N,...: with --batched, tokens generated after each prompt; 0 for none
    #[arg(
        long,
        value_name = "N,...",
        value_delimiter = ',',
        value_parser = many_tokens,
        default_value = "32",
        requires = "batched"
    )]
    pub ntg: Vec<Numbers>,

    /// -npl N,...: with --batched, texts that run at once
    #[arg(long, value_name = "N,...", value_delimiter = ',', default_value = "1,2,4,8,16,32", value_parser = many_sequences, requires = "batched")]
    pub npl: Vec<Numbers>,

    /// -pps: with --batched, all texts go on from one prompt, whose keys and values they share
    #[arg(long, requires = "batched")]
    pub pps: bool,

    /// Measure a server at this URL instead of a model
    #[arg(long, value_name = "URL", conflicts_with_all = ["model", "synthetic", "roofline", "batched", "kernels", "n_prompt", "n_gen", "prompt_gen", "n_depth"])]
    pub serve: Option<String>,

    /// With --serve, clients each of which asks again when it has its answer
    #[arg(long, value_name = "N,...", value_delimiter = ',', value_parser = sequences, requires = "serve")]
    pub clients: Vec<usize>,

    /// With --serve, requests a second that come at random times, whatever the server does
    #[arg(long, value_name = "R,...", value_delimiter = ',', value_parser = rate, requires = "serve")]
    pub rate: Vec<f64>,

    /// With --serve, requests of each row
    #[arg(long, value_name = "N", default_value = "64", value_parser = sequences, requires = "serve")]
    pub requests: usize,

    /// With --serve, tokens of each prompt
    #[arg(long, value_name = "N", default_value = "256", value_parser = length, requires = "serve")]
    pub prompt_tokens: usize,

    /// With --serve, tokens that are asked for
    #[arg(long, value_name = "N", default_value = "64", value_parser = length, requires = "serve")]
    pub new_tokens: usize,

    /// With --serve, tokens that all prompts begin with, of those of --prompt-tokens; the server may then use its cache
    #[arg(long, value_name = "N", default_value = "0", requires = "serve")]
    pub shared_tokens: usize,

    /// With --serve, the name of the model to ask for, such as NAME:4bit; of several each request takes the next
    #[arg(long, value_name = "NAME,...", value_delimiter = ',', requires = "serve")]
    pub model_name: Vec<String>,

    /// With --clients, a prompt of N tokens comes again and again while the clients hear their texts; ITL is that
    /// of the texts meanwhile
    #[arg(long, value_name = "N", value_parser = length, requires = "clients", conflicts_with = "rate")]
    pub interrupt: Option<usize>,

    /// With --serve, what the server is called in the plot; without it its URL
    #[arg(long, value_name = "NAME", requires = "serve")]
    pub label: Option<String>,

    /// With --serve, draw the times against clients and against requests a second, as SVG
    #[arg(long, value_name = "FILE", requires = "serve")]
    pub plot: Option<PathBuf>,

    /// With --plot, results of earlier runs (-o json or jsonl) that are drawn too, such as another server's
    #[arg(long, value_name = "FILE,...", value_delimiter = ',', requires = "plot")]
    pub beside: Vec<PathBuf>,

    /// With --serve, the key to show; also OPENAI_API_KEY
    #[arg(long, value_name = "KEY", env = "OPENAI_API_KEY", hide_env_values = true)]
    pub key: Option<String>,

    /// Measure kernels instead of models: products of matrices by type and instruction set
    #[arg(long, conflicts_with_all = ["model", "synthetic", "roofline", "batched"])]
    pub kernels: bool,

    /// Types for --kernels, without it all: tensor types, AP3 to AP8 for widths of any-precision codes, W1 to W4 for stages of
    /// widely linear ones
    #[arg(long, value_name = "TYPE,...", value_delimiter = ',', requires = "kernels")]
    pub types: Vec<KernelType>,

    /// Methods for --kernels: mad multiplies and adds, as models do; lut looks sums of a few activations up by the values
    /// of their weights, as bitnet.cpp's TL1 and TL2 do; bit by a bit of each, as T-MAC does
    #[arg(
        long,
        value_name = "mad|lut|bit,...",
        value_delimiter = ',',
        requires = "kernels",
        default_value = "mad",
        value_enum,
        hide_possible_values = true
    )]
    pub method: Vec<MethodArg>,

    /// How models compute whose weights leave a choice: any-precision models in i16 or f32, those of architecture
    /// fairy2i in f32 or i8
    #[arg(long, value_name = "f32|i16|i8|fast", value_enum, hide_possible_values = true)]
    pub number_path: Option<PathArg>,

    /// Bits per weight of any-precision models, one of the widths in each file; without it the widest
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u8).range(1..=8), conflicts_with_all = ["kernels", "serve", "reproduce", "compare_llama", "compare_ik"])]
    pub bits: Option<u8>,

    #[command(flatten)]
    #[allow(missing_docs)]
    pub device: PlaceArgs,

    /// How many layers the GPU runs, also -ngl: the last N, where the logits count as one and all is every one. The
    /// others run on the processor. The result has the same bits
    #[arg(long, value_name = "N|all,...", value_delimiter = ',', value_parser = many_layers, alias = "gpu-layers", allow_hyphen_values = true)]
    pub n_gpu_layers: Vec<Numbers>,

    #[command(flatten)]
    #[allow(missing_docs)]
    pub packing: PackingArgs,
}

impl Args {
    /// Number path of the library.
    pub fn number_path(&self) -> NumberPath {
        self.number_path.map(NumberPath::from).unwrap_or_default()
    }

    /// All ways to load a model that the lists span.
    pub fn loadings(&self) -> Vec<Loading> {
        let counts = numbers::all(&self.n_gpu_layers);
        self.device.say_if_unused(&counts);
        let counts = match self.device.device {
            Device::Cuda(_) if !counts.is_empty() => counts.into_iter().map(Some).collect(),
            _ => vec![None],
        };
        let mut all = Vec::new();
        for layers in counts {
            for &keys in &self.cache_type_k {
                let types = self.cache_type_v.iter();
                let caches = types.map(|&values| CacheTypes { keys, values });
                all.extend(caches.map(|cache| Loading { layers, cache }));
            }
        }
        all
    }

    /// The one way to load a model of `what`.
    ///
    /// # Errors
    /// There are several, or the KV cache is not f16, for which alone `what` is computed.
    pub fn only_loading(&self, what: &str) -> Result<Loading> {
        match self.loadings()[..] {
            [one] if one.cache == CacheTypes::default() => Ok(one),
            [_] => bail!("{what} measures keys and values as F16; leave -ctk and -ctv out"),
            _ => bail!("{what} measures one way to load a model; give -ngl one number, and leave -ctk and -ctv out"),
        }
    }

    /// How the models that are measured are loaded.
    ///
    /// # Errors
    /// The device cannot be used.
    pub fn load_options(&self, isa: Isa, loading: Loading) -> Result<LoadOptions> {
        Ok(LoadOptions {
            offload: self.device.offload(loading.layers, self.bits.as_slice())?,
            cache: loading.cache,
            isa,
            repack: !self.no_repack,
            packing: self.packing.options(),
            number_path: self.number_path(),
            ..LoadOptions::default()
        })
    }
}

/// One way to load a model, of those that the lists span.
#[derive(Clone, Copy)]
pub struct Loading {
    /// Layers that a GPU runs; `None` for all, and where there is no GPU.
    pub layers: Option<usize>,
    /// The types of keys and values.
    pub cache: CacheTypes,
}

/// Forms of the result.
#[allow(missing_docs, reason = "the names say it")]
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Format {
    Md,
    Json,
    Jsonl,
    Csv,
    Sql,
}

/// Lengths of a prompt and of the text after it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pair(pub usize, pub usize);

impl FromStr for Pair {
    type Err = String;

    fn from_str(text: &str) -> Result<Pair, String> {
        let parse = || {
            let (p, g) = text.split_once(',')?;
            Some(Pair(tokens(p).ok()?, tokens(g).ok()?))
        };
        parse()
            .ok_or_else(|| format!("'{text}' is not PROMPT,TEXT, such as 512,128, both of at most {MAX_TOKENS} tokens"))
    }
}

/// Longest prompt, text or context.
const MAX_TOKENS: usize = 1 << 24;
/// Most texts at once.
const MAX_SEQUENCES: usize = 4096;
/// Most repetitions.
const MAX_REPETITIONS: usize = 1_000_000;

fn tokens(text: &str) -> Result<usize, String> {
    at_most(text, 0, MAX_TOKENS)
}

fn sequences(text: &str) -> Result<usize, String> {
    at_most(text, 1, MAX_SEQUENCES)
}

fn many_tokens(text: &str) -> Result<Numbers, String> {
    Numbers::parse(text, tokens)
}

fn many_sequences(text: &str) -> Result<Numbers, String> {
    Numbers::parse(text, sequences)
}

fn many_layers(text: &str) -> Result<Numbers, String> {
    Numbers::parse(text, device::layers)
}

fn many_threads(text: &str) -> Result<Numbers, String> {
    Numbers::parse(text, thread_count)
}

fn many(text: &str) -> Result<Numbers, String> {
    Numbers::parse(text, positive)
}

fn repetitions(text: &str) -> Result<usize, String> {
    at_most(text, 1, MAX_REPETITIONS)
}

fn length(text: &str) -> Result<usize, String> {
    at_most(text, 1, MAX_TOKENS)
}

fn seconds(text: &str) -> Result<u64, String> {
    at_most(text, 0, 3600).map(|n| n as u64)
}

fn rate(text: &str) -> Result<f64, String> {
    let rate = text.parse().ok().filter(|r| (0.001..=10_000.0).contains(r));
    rate.ok_or_else(|| "give a number from 0.001 to 10000".to_owned())
}

fn at_most(text: &str, least: usize, most: usize) -> Result<usize, String> {
    let n = text.parse().ok().filter(|n| (least..=most).contains(n));
    n.ok_or_else(|| format!("give a whole number from {least} to {most}"))
}

fn switch(text: &str) -> Result<bool, String> {
    match text {
        "0" => Ok(false),
        "1" => Ok(true),
        _ => Err("give 0 or 1".to_owned()),
    }
}
