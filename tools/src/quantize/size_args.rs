//! The options of `rquantize --target-bpw`, `--target-size` and `--target-kld`.

use std::path::{Path, PathBuf};

use anyhow::{Result, bail};
use clap::Args;
use trine::quant::Target;
use trine::quant::allocate::Size;
use trine_formats::gguf::Program;

use crate::load::positive;
use crate::memory;

/// The options of files of a given size or divergence.
#[derive(Args)]
pub struct SizeArgs {
    /// Choose the type of every tensor so that the file has N bits for each weight at most and least is lost
    ///
    /// Each tensor is encoded in every type that its rows allow; bits go where they save most of the error of products,
    /// with --imatrix weighed by importance and with --gptq after error
    /// feedback. How much an error counts depends on the tensor's role, as it was found on other
    /// models, or with --kld-text on this one. OUT.gguf is followed by no TYPE. Tensors that --tensor-type and the like name
    /// have the type that they name. The same model and options give the same file on any machine
    #[arg(long, value_name = "N", group = "goal", conflicts_with_all = ["target_size", "pure", "sequential"], value_parser = bits)]
    pub target_bpw: Option<f64>,

    /// The same for a file of SIZE bytes at most, such as 90M (million) or 8GiB
    #[arg(long, value_name = "SIZE", visible_alias = "fit", group = "goal", conflicts_with_all = ["pure", "sequential"], value_parser = memory::file_size)]
    pub target_size: Option<usize>,

    /// Choose the type of every tensor so that the file is as small as it can be and its predictions diverge by X at most
    ///
    /// X is the mean Kullback-Leibler divergence from IN.gguf in nats, as rperplexity --kl-divergence measures it, over the
    /// text of --kld-text: 0.01 is about that of Q6_K, 0.05 of Q4_K_M for models of a billion weights and more. A few files
    /// are made and measured beside OUT.gguf, each predicted from those before it, and the smallest one that keeps to X is
    /// written. OUT.gguf is followed by no TYPE
    #[arg(long, value_name = "X", requires = "kld_text", group = "goal", conflicts_with_all = ["target_bpw", "target_size", "pure", "feedback", "dry_run"], value_parser = nats)]
    pub target_kld: Option<f64>,

    /// The text that divergence is measured on. Take another one than that of the importance matrix
    ///
    /// For --target-kld; with --target-bpw and --target-size it is measured how much the tensors of each role count in this
    /// model, by making and measuring a file beside OUT.gguf for each, some eight of nearly the size of IN.gguf one after
    /// the other
    #[arg(long, value_name = "FILE", requires = "goal", conflicts_with_all = ["dry_run", "feedback"])]
    pub kld_text: Option<PathBuf>,

    /// Chunks of 512 tokens of it
    #[arg(long, value_name = "N", default_value = "16", requires = "kld_text", value_parser = positive)]
    pub kld_chunks: usize,

    /// Program that the file is for: the types to choose from are those that it loads
    ///
    /// llama.cpp, ik (ik_llama.cpp, which has types of its own, IQ2_KS to IQ6_K) or trine, which loads all of them
    #[arg(long = "for", value_name = "PROGRAM", default_value = "llama.cpp", requires = "goal", value_parser = reader)]
    pub reader: Reader,

    /// Write the types that were chosen to FILE, which --tensor-type-file reads, llama-quantize's too
    #[arg(long, value_name = "FILE")]
    pub recipe: Option<PathBuf>,
}

impl SizeArgs {
    /// The goal that types are chosen for, where there is one, and its option.
    pub fn given(&self) -> Option<(Goal<'_>, &'static str)> {
        let bits = self.target_bpw.map(|bits| (Goal::Size(Size::BitsPerWeight(bits)), "--target-bpw"));
        let bytes = self.target_size.map(|bytes| (Goal::Size(Size::File(bytes as u64)), "--target-size"));
        let text = self.kld_text.as_deref();
        let divergence =
            self.target_kld.zip(text).map(|(wanted, text)| (Goal::Divergence(wanted, text), "--target-kld"));
        bits.or(bytes).or(divergence)
    }
}

/// The program that a file is for; `None` for trine.
#[derive(Clone, Copy, Debug)]
pub struct Reader(pub Option<Program>);

/// Programs by the names that `--for` takes.
const READERS: [(&str, Option<Program>); 4] = [
    ("llama.cpp", Some(Program::LlamaCpp)),
    ("ik", Some(Program::IkLlamaCpp)),
    ("ik_llama.cpp", Some(Program::IkLlamaCpp)),
    ("trine", None),
];

fn reader(text: &str) -> Result<Reader, String> {
    let found = READERS.iter().find(|(name, _)| name.eq_ignore_ascii_case(text));
    found.map(|(_, program)| Reader(*program)).ok_or_else(|| "write llama.cpp, ik or trine".to_owned())
}

/// The goal that types are chosen for.
#[derive(Clone, Copy)]
pub enum Goal<'a> {
    /// The size of the file.
    Size(Size),
    /// Its divergence in nats over the text of a file.
    Divergence(f64, &'a Path),
}

fn nats(text: &str) -> Result<f64, String> {
    let nats = text.parse().ok().filter(|nats: &f64| (1e-6..=100.0).contains(nats));
    nats.ok_or_else(|| "write a number of nats such as 0.05".to_owned())
}

fn bits(text: &str) -> Result<f64, String> {
    let bits = text.parse().ok().filter(|bits: &f64| bits.is_finite() && *bits > 0.0 && *bits <= 64.0);
    bits.ok_or_else(|| "write a number of bits such as 4.5".to_owned())
}

/// The words behind the input: output and threads.
pub(super) fn words<'a>(rest: &[&'a str], option: &str) -> Result<(&'a str, Option<&'a str>)> {
    if let Some(ty) = rest.iter().find(|word| Target::parse(word).is_some() && word.parse::<u32>().is_err()) {
        bail!("{option} chooses the types: leave {ty} out");
    }
    match *rest {
        [out] => Ok((out, None)),
        [out, threads] => Ok((out, Some(threads))),
        _ => bail!("{option} takes IN.gguf OUT.gguf [THREADS]"),
    }
}
