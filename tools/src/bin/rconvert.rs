//! `rconvert`: the folder of a Hugging Face checkpoint becomes a GGUF file.

use std::fmt::Write as _;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::{Result, anyhow, bail};
use clap::{Parser, ValueEnum};
use serde_json::{Value, json};
use trine::convert::{
    Options, OutType, PackedScale, Plan, Progress, Row, Ternary, Widely, known_classes, plan, run,
};
use trine_formats::gguf::Value as Meta;
use trine_tools::isolate::OtherProcess;
use trine_tools::load::thread_count;
use trine_tools::progress::{TensorBar, human_bytes};
use trine_tools::widely::WidelyArgs;
use trine_tools::{args, exit, inputs, interrupt, note, shown, signals, threads};

/// Convert the folder of a Hugging Face checkpoint (config.json, tokenizer, *.safetensors) into one
/// GGUF file.
///
/// Names, shapes and metadata are those of llama.cpp's converter. Weights are streamed: a few megabytes
/// are in memory at a time. The file appears under its name only when it is complete.
#[derive(Parser)]
#[command(name = "rconvert", version, after_help = "See --help for examples and for ternary models.", after_long_help = long_help())]
#[command(
    override_usage = "rconvert [OPTIONS] DIR OUT.gguf\n       rconvert [OPTIONS] --dry-run DIR"
)]
struct Args {
    /// The folder that holds config.json
    dir: PathBuf,

    /// The file to write
    #[arg(value_name = "OUT.gguf", required_unless_present = "dry_run")]
    out: Option<PathBuf>,

    /// Type of the matrices: auto takes the 16-bit float type of the checkpoint, else f16
    #[arg(long, value_name = "TYPE", default_value = "auto", value_parser = outtype)]
    outtype: Choice,

    /// What the matrices are: auto believes config.json, which cannot tell a TriLM from any other LLaMA
    #[arg(long, value_enum, default_value = "auto")]
    ternary: TernaryArg,

    /// Scales per matrix of a TriLM, one per rank that it was trained on; without it what config.json
    /// says (pretraining_model_parallel), else 1
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    trilm_parts: Option<u32>,

    /// How packed digits and weight_scale make a weight: auto multiplies for linear_class autobitlinear
    /// and divides otherwise
    #[arg(long, value_enum, default_value = "auto")]
    packed_scale: ScaleArg,

    /// With tq1_0 and tq2_0: matrices that the type cannot hold exactly become F16 instead of an error
    #[arg(long)]
    fallback: bool,

    /// Make the matrices widely linear: complex weights of +-1 and +-i in stages of one bit per weight. For the latent
    /// weights of Fairy2i, and at a loss for other LLaMA, Qwen 2 and Qwen 3 models
    #[arg(long, conflicts_with_all = ["vocab_only", "trilm_parts", "fallback"])]
    fairy2i: bool,

    /// general.name, in place of the name of the folder
    #[arg(long, value_name = "NAME")]
    model_name: Option<String>,

    /// tokenizer.ggml.pre, where the pre-tokenizer of tokenizer.json is not recognised
    #[arg(long, value_name = "NAME")]
    pre: Option<String>,

    /// Write the metadata and the vocabulary alone, no weights
    #[arg(long)]
    vocab_only: bool,

    /// Show what would be written and write nothing
    #[arg(long)]
    dry_run: bool,

    /// Print the result as JSON
    #[arg(long)]
    json: bool,

    /// Threads; without it one per processor. The result does not depend on it
    #[arg(short, long, value_name = "N", value_parser = thread_count, allow_negative_numbers = true)]
    threads: Option<usize>,

    /// A line per tensor on stderr
    #[arg(short, long)]
    verbose: bool,

    #[command(flatten)]
    widely: WidelyArgs,
}

/// `--outtype`; `None` is auto.
#[derive(Clone, Copy)]
struct Choice(Option<OutType>);

fn outtype(name: &str) -> Result<Choice, String> {
    if name.eq_ignore_ascii_case("auto") {
        return Ok(Choice(None));
    }
    let names = OutType::ALL.map(|t| t.name).join(", ");
    let found = OutType::from_name(name);
    found
        .map(|t| Choice(Some(t)))
        .ok_or(format!("known are auto, {names}"))
}

#[derive(Clone, Copy, ValueEnum)]
enum TernaryArg {
    /// Latent BitNet weights for BitNet models, plain weights for all others
    Auto,
    /// Plain weights, also those that are ternary already
    None,
    /// Latent weights of BitNet b1.58
    Bitnet,
    /// Latent weights of TriLM and TriTera
    Trilm,
}

#[derive(Clone, Copy, ValueEnum)]
enum ScaleArg {
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
        let _ = writeln!(text, "  {class:32}{arch}");
    }
    text.push_str("\nExit code 0: written; 1: error, one line on stderr, nothing written; 2: wrong arguments; 130: interrupted.");
    text
}

fn main() -> ExitCode {
    exit::run("rconvert", || convert(&args::parse::<Args>(&[])))
}

fn convert(args: &Args) -> Result<()> {
    if args.vocab_only && args.outtype.0.is_some_and(|t| t.ternary) {
        bail!("--vocab-only writes no weights; leave --outtype out");
    }
    if let (Some(option), false) = (args.widely.given(), args.fairy2i) {
        bail!("{option} is for --fairy2i");
    }
    let ternary = matches!(args.ternary, TernaryArg::Bitnet | TernaryArg::Trilm);
    if args.fairy2i && (ternary || args.outtype.0.is_some_and(|t| t.ternary)) {
        bail!(
            "--fairy2i makes weights that are not ternary; leave --ternary and ternary types out"
        );
    }
    interrupt::writes_files();
    threads::start(args.threads)?;
    let plan = planned(args)?;
    for note in &plan.notes {
        note!("rconvert: {note}");
    }
    let layout = plan.layout()?;
    if !args.dry_run {
        let out = args
            .out
            .as_ref()
            .ok_or_else(|| anyhow!("the name of the file to write is missing"))?;
        plan.inputs().iter().for_each(|p| inputs::add(p));
        inputs::spare_output(out)?;
        let mut progress = Display {
            bar: TensorBar::new(plan.work(), args.verbose),
            total: plan.rows.len(),
        };
        run(&plan, out, &mut progress)?;
        progress.bar.finish();
    }
    let mut stdout = signals::stdout();
    if args.json {
        let report = report(&plan, layout.file_bytes(), args);
        writeln!(stdout, "{}", shown::json(&report, true))?;
        return Ok(());
    }
    if args.dry_run {
        for row in &plan.rows {
            writeln!(stdout, "{}", line(row))?;
        }
    }
    let verb = match &args.out {
        Some(out) if !args.dry_run => format!("wrote {}", out.display()),
        _ => "would write".to_owned(),
    };
    writeln!(
        stdout,
        "{verb}: {} of {}, {} tensors, {} weights, {}",
        plan.arch,
        plan.outtype.name.to_uppercase(),
        plan.rows.len(),
        plan.parameters(),
        human_bytes(layout.file_bytes())
    )?;
    Ok(())
}

/// The plan; what `--wl-lm-head auto` means is found out first.
fn planned(args: &Args) -> Result<Plan> {
    let options = options(args);
    let (Some(out), Some(widely), false) = (&args.out, options.widely, args.dry_run) else {
        return Ok(plan(&args.dir, &options)?);
    };
    let with = |output| Options {
        widely: Some(Widely { output, ..widely }),
        ..options.clone()
    };
    let make = &mut |form, path: &Path| {
        run(&plan(&args.dir, &with(form))?, path, &mut ())?;
        Ok(())
    };
    let Some(choice) = args.widely.choose_output(out, make)? else {
        return Ok(plan(&args.dir, &options)?);
    };
    let mut plan = plan(&args.dir, &with(choice.form))?;
    for (key, ppl) in choice.keys() {
        plan.meta.set(key, Meta::F32(ppl));
    }
    Ok(plan)
}

fn options(args: &Args) -> Options {
    Options {
        outtype: args.outtype.0,
        ternary: match args.ternary {
            TernaryArg::Auto => Ternary::Auto,
            TernaryArg::None => Ternary::None,
            TernaryArg::Bitnet => Ternary::Bitnet,
            TernaryArg::Trilm => Ternary::Trilm,
        },
        trilm_parts: args.trilm_parts,
        packed_scale: match args.packed_scale {
            ScaleArg::Auto => PackedScale::Auto,
            ScaleArg::Multiply => PackedScale::Multiply,
            ScaleArg::Divide => PackedScale::Divide,
        },
        name: args.model_name.clone(),
        pre: args.pre.clone(),
        vocab_only: args.vocab_only,
        fallback: args.fallback,
        elsewhere: Some(Arc::new(OtherProcess)),
        widely: args.fairy2i.then(|| args.widely.options()),
    }
}

fn line(row: &Row) -> String {
    let shape: Vec<String> = row.shape.iter().map(u64::to_string).collect();
    format!(
        "{:32} {:>5} -> {:6} [{}]  {}",
        shown::name(&row.name),
        row.from,
        row.ty.to_string(),
        shape.join(", "),
        shown::name(&row.source)
    )
}

fn report(plan: &Plan, bytes: u64, args: &Args) -> Value {
    let tensors: Vec<Value> = plan
        .rows
        .iter()
        .map(|r| {
            json!({
                "name": r.name, "source": r.source, "from": r.from, "type": r.ty.to_string(), "shape": r.shape,
            })
        })
        .collect();
    json!({
        "file": args.out.as_ref().filter(|_| !args.dry_run),
        "architecture": plan.arch,
        "outtype": plan.outtype.name,
        "bytes": bytes,
        "weights": plan.parameters(),
        "notes": plan.notes,
        "keys": plan.meta.iter().map(|(key, _)| key).collect::<Vec<_>>(),
        "tensors": tensors,
    })
}

/// Shows the work on stderr.
struct Display {
    bar: TensorBar,
    total: usize,
}

impl Progress for Display {
    fn tensor(&mut self, index: usize, row: &Row) {
        let line = || format!("[{:4}/{:4}] {}", index + 1, self.total, line(row));
        self.bar.tensor(&row.name, line);
    }

    fn advance(&mut self, bytes: u64) {
        self.bar.advance(bytes);
    }
}
