//! rquantize: quantizes GGUF models into the files that llama-quantize writes.

use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Instant;

use anyhow::{Context, Result, anyhow, bail};
use clap::Parser;
use trine::Isa;
use trine::quant::{
    Fallback, Importance, KvOverride, Plan, Progress, QuantError, Recipe, Row, RunOptions,
    Selection, Target, TensorRule, anyprec, nearest, output_paths, parse_layers, parse_type, run,
};
use trine_formats::anyprec::AnyPrec;
use trine_formats::gguf::{PackingOptions, ShapeTiles};
use trine_formats::imatrix::Imatrix;
use trine_formats::types::TypeId;
use trine_formats::widely::Header as WidelyHeader;
use trine_tools::anyprec::{
    AnyPrecArgs, Job as AnyPrecJob, quantize as quantize_any_precision, take_width as take,
};
use trine_tools::goal::{Goal, long_help};
use trine_tools::gptq::{self, GptqArgs};
use trine_tools::packing::I2sLayout;
use trine_tools::progress::TensorBar;
use trine_tools::widely::{self, WidelyArgs};
use trine_tools::{
    args, exit, inputs, interrupt, load, note, quantize as show, signals, text, threads,
};

/// Quantize a GGUF model. The output is, byte for byte, the file that llama-quantize writes.
///
/// The file appears under its name only when it is complete; an interrupted run changes nothing.
/// What cannot be honoured is refused with every tensor named: rows that are not whole blocks (see
/// --fallback), ternary types for weights that are not ternary (see --force).
///
/// AP3-8 and its like make any-precision files for trine, from which a model runs at every width, and SQ4 a
/// single width: each row gets tables of its own.
///
/// Ternary weights are moved between F32, F16, BF16, TQ1_0, TQ2_0, Q2_0 and bitnet.cpp's I2_S, TL1 and TL2
/// without a change: what a type cannot hold exactly is refused, with every tensor named.
#[derive(Parser)]
#[command(version, after_help = SHORT_HELP, after_long_help = long_help())]
#[command(
    override_usage = "rquantize [OPTIONS] IN.gguf OUT.gguf TYPE [THREADS]\n       rquantize [OPTIONS] --dry-run IN.gguf TYPE\n       rquantize --width N IN.gguf OUT.gguf"
)]
struct Args {
    /// The model; of a split one any shard
    #[arg(value_name = "IN.gguf")]
    input: PathBuf,

    /// Output, type and number of threads; without OUT.gguf the file is ggml-model-TYPE.gguf beside
    /// the input, without THREADS every processor works
    #[arg(value_name = "OUT.gguf TYPE [THREADS]", required = true, num_args = 1..=3, hide_possible_values = true)]
    rest: Vec<String>,

    /// Allow tensors that are quantized already to be quantized again, at a loss
    #[arg(long)]
    allow_requantize: bool,

    /// Where a row is not whole blocks of its type, take the type that llama-quantize would take silently, whatever the
    /// type (such as tq2_0 to q4_0). For K-quants (such as q6_K to q8_0) this is done without being asked for
    #[arg(long)]
    fallback: bool,

    /// Make tensors ternary although they are not, or scales what the type can hold
    #[arg(long)]
    force: bool,

    /// Every tensor gets the type itself: no mixture
    #[arg(long)]
    pure: bool,

    /// Copy output.weight as it is
    #[arg(long)]
    leave_output_tensor: bool,

    /// Type of output.weight, and of token_embd.weight where it serves as output
    #[arg(long, value_name = "TYPE")]
    output_tensor_type: Option<String>,

    /// Type of token_embd.weight
    #[arg(long, value_name = "TYPE")]
    token_embedding_type: Option<String>,

    /// Type of the tensors whose name the regular expression is found in; the first that matches
    /// counts. May be repeated
    #[arg(long, value_name = "PATTERN=TYPE")]
    tensor_type: Vec<String>,

    /// A file of such rules, separated by white space
    #[arg(long, value_name = "FILE")]
    tensor_type_file: Option<PathBuf>,

    /// Importance matrix (GGUF or the older form): columns that matter get smaller errors
    #[arg(long, value_name = "FILE")]
    imatrix: Option<String>,

    /// Use the matrix only for tensors whose name contains this. May be repeated
    #[arg(
        long,
        value_name = "TEXT",
        requires = "imatrix",
        conflicts_with = "exclude_weights"
    )]
    include_weights: Vec<String>,

    /// Do not use the matrix for tensors whose name contains this. May be repeated
    #[arg(long, value_name = "TEXT", requires = "imatrix")]
    exclude_weights: Vec<String>,

    /// Leave these layers out and renumber the others
    #[arg(long, value_name = "N,N,...")]
    prune_layers: Option<String>,

    /// Write one file per input shard, OUT-00001-of-0000N.gguf
    #[arg(long)]
    keep_split: bool,

    /// Set metadata: KEY=int:N, KEY=float:X, KEY=bool:true, KEY=str:TEXT. May be repeated
    #[arg(long, value_name = "KEY=TYPE:VALUE")]
    override_kv: Vec<String>,

    /// Show what every tensor would become and write nothing; fails where the real run would refuse
    /// from the headers alone
    #[arg(long)]
    dry_run: bool,

    /// Print the plan or the summary as JSON
    #[arg(long)]
    json: bool,

    /// Tiles of TL1 and TL2 matrices of one shape in the output; may be repeated. Without it those of
    /// bitnet.cpp's published kernels, or else some that fit, which are recorded in the file
    #[arg(long, value_name = "ROWSxCOLUMNS=BM,BK,bm")]
    tl_tiles: Vec<ShapeTiles>,

    /// Layout of I2_S in the output
    #[arg(long, value_name = "LAYOUT", value_enum, default_value_t)]
    i2s_layout: I2sLayout,

    /// The same of the input, where the file does not say
    #[arg(long, value_name = "ROWSxCOLUMNS=BM,BK,bm")]
    input_tl_tiles: Vec<ShapeTiles>,

    /// Layout of I2_S in the input; arm64 for files that bitnet.cpp wrote on ARM since November 2025
    #[arg(long, value_name = "LAYOUT", value_enum, default_value_t)]
    input_i2s_layout: I2sLayout,

    /// Read both files again when done and compare every weight; fails where weights that should be
    /// the same are not
    #[arg(long, conflicts_with = "dry_run")]
    verify: bool,

    /// A line per tensor on stderr
    #[arg(short, long)]
    verbose: bool,

    #[command(flatten)]
    gptq: GptqArgs,

    #[command(flatten)]
    any_precision: AnyPrecArgs,

    #[command(flatten)]
    widely: WidelyArgs,
}

const SHORT_HELP: &str = "See --help for examples and the types.";

/// What the positional arguments after the input say.
struct Job {
    out: PathBuf,
    goal: Goal,
    threads: usize,
}

impl Job {
    fn new(args: &Args) -> Result<Job> {
        let rest: Vec<&str> = args.rest.iter().map(String::as_str).collect();
        let (out, name, threads) = match rest[..] {
            [ty] => (None, ty, None),
            // as in llama-quantize, a first word that is a type is the type
            [ty, threads] if Goal::parse(ty).is_some() => (None, ty, Some(threads)),
            [out, ty] => (Some(out), ty, None),
            [out, ty, threads] => (Some(out), ty, Some(threads)),
            _ => bail!("too many arguments; see --help"),
        };
        let goal = Goal::parse(name).ok_or_else(|| {
            let hint = nearest(name, Goal::names())
                .map_or(String::new(), |n| format!("; did you mean {n}?"));
            let names: Vec<&str> = Goal::names().collect();
            anyhow!("unknown type '{name}'{hint} (types: {})", names.join(" "))
        })?;
        let threads = match threads {
            None => 0,
            Some(text) => match text.parse::<u16>() {
                Ok(n) if n <= 1024 => usize::from(n),
                _ => bail!("'{text}' is not a number of threads (0 to 1024; 0: all processors)"),
            },
        };
        let out = out.map_or_else(
            || {
                args.input
                    .with_file_name(format!("ggml-model-{}.gguf", goal.name()))
            },
            PathBuf::from,
        );
        Ok(Job { out, goal, threads })
    }

    /// How many threads work, where 0 asks for all.
    fn threads(&self) -> usize {
        threads::count(Some(self.threads).filter(|&n| n > 0))
    }
}

/// Takes one width out of an any-precision file.
fn take_width(args: &Args, width: u8) -> Result<()> {
    let [out] = &args.rest[..] else {
        bail!("--width takes no type: rquantize --width {width} IN.gguf OUT.gguf");
    };
    let types = args.types_of_ends().into_iter().find(|t| t.1.is_some());
    let imatrix = args.imatrix.is_some().then_some("--imatrix");
    let given = args.any_precision.given().or(imatrix);
    let given = given.or_else(|| args.usual_option());
    if let Some(option) = given.or(types.map(|t| t.0)) {
        bail!("{option} has no meaning beside --width, which copies");
    }
    if args.dry_run || args.verify {
        bail!("--width knows neither --dry-run nor --verify; rinspect shows the widths of a file");
    }
    let model = load::open(&args.input, true)?;
    inputs::spare_output(Path::new(out))?;
    take(&model, width, Path::new(out), args.json)
}

/// Makes an any-precision file.
fn any_precision(args: &Args, job: &Job, target: anyprec::Target) -> Result<()> {
    if let Some(option) = args.usual_option() {
        bail!("{option} has no meaning for {}", target.name());
    }
    if args.verify {
        bail!(
            "--verify is for weights that do not change: {} changes them",
            target.name()
        );
    }
    let model = load::open(&args.input, true)?;
    quantize_any_precision(AnyPrecJob {
        model: &model,
        target,
        args: &args.any_precision,
        imatrix: args.imatrix.as_deref().map(|file| (file, args.selection())),
        allow_requantize: args.allow_requantize,
        embedding_type: args.embedding_type()?,
        output_type: args.output_type()?,
        overrides: args.overrides()?,
        out: &job.out,
        options: anyprec::RunOptions {
            isa: Isa::from_env()?,
            threads: job.threads(),
        },
        dry_run: args.dry_run,
        json: args.json,
        verbose: args.verbose,
    })
}

/// Makes matrices widely linear, or dense again.
fn widely_linear(args: &Args, job: &Job, goal: widely::Goal<'_>) -> Result<()> {
    let imatrix = args.imatrix.is_some().then_some("--imatrix");
    let types = args.types_of_ends().into_iter().find(|t| t.1.is_some());
    let given = args.any_precision.given().or(args.usual_option());
    let given = given.or(imatrix).or(types.map(|t| t.0));
    widely::refuse(given.or(args.verify.then_some("--verify")))?;
    let model = trine::open_file(&args.input, true)?;
    widely::quantize(widely::Job {
        model: &model,
        goal,
        allow_requantize: args.allow_requantize,
        overrides: args.overrides()?,
        out: &job.out,
        options: RunOptions {
            isa: Isa::from_env()?,
            threads: job.threads,
            force: args.force,
        },
        dry_run: args.dry_run,
        json: args.json,
        verbose: args.verbose,
    })
}

impl Args {
    /// The first option that was given and is only for what llama-quantize or bitnet.cpp make.
    fn usual_option(&self) -> Option<&'static str> {
        let given = [
            (self.fallback, "--fallback"),
            (self.force, "--force"),
            (self.pure, "--pure"),
            (self.leave_output_tensor, "--leave-output-tensor"),
            (!self.tensor_type.is_empty(), "--tensor-type"),
            (self.tensor_type_file.is_some(), "--tensor-type-file"),
            (self.prune_layers.is_some(), "--prune-layers"),
            (self.keep_split, "--keep-split"),
            (self.gptq.given().is_some(), "--gptq"),
            (!self.tl_tiles.is_empty(), "--tl-tiles"),
            (!self.input_tl_tiles.is_empty(), "--input-tl-tiles"),
        ];
        given.into_iter().find(|g| g.0).map(|g| g.1)
    }

    /// The options for the types of the output and the embeddings, as given.
    fn types_of_ends(&self) -> [(&'static str, Option<&str>); 2] {
        [
            ("--output-tensor-type", self.output_tensor_type.as_deref()),
            (
                "--token-embedding-type",
                self.token_embedding_type.as_deref(),
            ),
        ]
    }

    fn output_type(&self) -> Result<Option<TypeId>> {
        type_of(self.types_of_ends()[0])
    }

    fn embedding_type(&self) -> Result<Option<TypeId>> {
        type_of(self.types_of_ends()[1])
    }

    fn selection(&self) -> Selection {
        Selection {
            include: self.include_weights.clone(),
            exclude: self.exclude_weights.clone(),
        }
    }

    fn overrides(&self) -> Result<Vec<KvOverride>> {
        let all = self.override_kv.iter().map(|text| KvOverride::parse(text));
        all.collect::<Result<_, _>>().context("--override-kv")
    }
}

fn type_of((option, text): (&str, Option<&str>)) -> Result<Option<TypeId>> {
    let ty = text.map(parse_type).transpose();
    ty.with_context(|| option.to_owned())
}

fn recipe(args: &Args, target: Target) -> Result<Recipe> {
    let mut recipe = Recipe::new(target);
    recipe.pure = args.pure;
    recipe.allow_requantize = args.allow_requantize;
    recipe.leave_output = args.leave_output_tensor;
    recipe.keep_split = args.keep_split;
    recipe.fallback = match args.fallback {
        true => Fallback::Always,
        false => Fallback::Mixtures,
    };
    recipe.input_packing = PackingOptions {
        interleave: args.input_i2s_layout.interleave(),
        tiles: args.input_tl_tiles.clone(),
    };
    recipe.output_packing = PackingOptions {
        interleave: args.i2s_layout.interleave(),
        tiles: args.tl_tiles.clone(),
    };
    recipe.output_type = args.output_type()?;
    recipe.embedding_type = args.embedding_type()?;
    for rule in &args.tensor_type {
        recipe
            .rules
            .push(TensorRule::parse(rule).context("--tensor-type")?);
    }
    if let Some(path) = &args.tensor_type_file {
        let place = || format!("--tensor-type-file '{}'", path.display());
        let bytes = text::read_small(path).with_context(place)?;
        let text = text::utf8(bytes, "its text").with_context(place)?;
        recipe
            .rules
            .extend(TensorRule::parse_file(&text).with_context(place)?);
    }
    recipe.overrides = args.overrides()?;
    if let Some(text) = &args.prune_layers {
        recipe.prune = parse_layers(text).context("--prune-layers")?;
    }
    recipe.gptq = args.gptq.recipe()?;
    if let Some(file) = &args.imatrix {
        recipe.importance = importance(file, args)?;
    }
    Ok(recipe)
}

fn importance(file: &str, args: &Args) -> Result<Option<Importance>> {
    let place = || format!("--imatrix '{file}'");
    let bytes = text::read_file(Path::new(file)).with_context(place)?;
    let matrix = Imatrix::parse(&bytes).with_context(place)?;
    let importance = Importance::from_file(&matrix, file, &args.selection())?;
    if importance.is_none() {
        note!("warning: no weights of '{file}' are selected: quantizing without");
    }
    Ok(importance)
}

/// Shows the work on stderr.
struct Display {
    bar: TensorBar,
    total: usize,
}

impl Progress for Display {
    fn tensor(&mut self, index: usize, row: &Row) {
        let line = || format!("[{:>4}/{}] {}", index + 1, self.total, show::line(row));
        self.bar.tensor(&row.name, line);
    }

    fn advance(&mut self, bytes: u64) {
        self.bar.advance(bytes);
    }
}

/// Shows the tensors that the one line of an error only counts.
fn list(error: &QuantError) {
    for line in show::details(error) {
        note!("  {line}");
    }
}

fn quantize(args: &Args) -> Result<()> {
    let start = Instant::now();
    if let Some(width) = args.any_precision.width {
        return take_width(args, width);
    }
    let job = Job::new(args)?;
    let target = match job.goal {
        Goal::Usual(target) => target,
        Goal::AnyPrecision(target) => {
            widely::refuse_elsewhere(&args.widely)?;
            return any_precision(args, &job, target);
        }
        Goal::WidelyLinear => {
            return widely_linear(args, &job, widely::Goal::Widely(&args.widely));
        }
    };
    widely::refuse_elsewhere(&args.widely)?;
    if let Some(option) = args.any_precision.given() {
        bail!("{option} is for any-precision targets such as AP3-8 or SQ4");
    }
    let recipe = recipe(args, target)?;
    let model = load::open(&args.input, true)?;
    if AnyPrec::is(model.meta()) {
        bail!(
            "the model is any-precision: take one of its widths with --width, or start from the model it was made from"
        );
    }
    if WidelyHeader::is_in(model.meta()) {
        let name = target.name();
        return widely_linear(args, &job, widely::Goal::Dense(name));
    }
    let plan = Plan::new(&model, &recipe)?;
    for warning in &plan.warnings {
        note!("warning: {warning}");
    }
    for note in &plan.notes {
        note!("note: {note}");
    }
    let mut out = BufWriter::new(signals::stdout());
    if args.dry_run {
        show::write_plan(&plan, target, args.json, &mut out)?;
        out.flush()?;
        plan.check().map_err(QuantError::from).inspect_err(list)?;
        return Ok(());
    }
    for file in output_paths(&plan, &job.out) {
        inputs::spare_output(&file)?;
    }
    let mut display = Display {
        bar: TensorBar::new(plan.bytes_from(), args.verbose),
        total: plan.rows.len(),
    };
    let options = RunOptions {
        isa: Isa::from_env()?,
        threads: job.threads(),
        force: args.force,
    };
    let report = run(&model, &plan, &job.out, options, &mut display);
    display.bar.finish();
    let report = report.inspect_err(list)?;
    show::write_report(&plan, &report, target, start.elapsed(), args.json, &mut out)?;
    if args.verbose {
        for t in report.ternary.lossy() {
            note!("  {}: {}", t.name, t.loss);
        }
    }
    gptq::warn(&report.feedback);
    for (name, inexact) in report.moves.inexact() {
        note!("warning: {name}: {inexact}");
    }
    if args.verify {
        threads::start(Some(job.threads()))?;
        let verified = show::verify(&model, &recipe, &plan, &report)?;
        // standard output is one JSON document
        if args.json {
            note!("{verified}");
        } else {
            writeln!(out, "{verified}")?;
        }
    }
    Ok(out.flush()?)
}

fn main() -> ExitCode {
    exit::run("rquantize", || {
        let args = args::parse::<Args>(&[]);
        interrupt::writes_files();
        quantize(&args)
    })
}
