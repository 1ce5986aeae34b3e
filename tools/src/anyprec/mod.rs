//! rquantize for any-precision targets: `AP3-8`, `SQ4`, and one width out of such a file.

mod show;

use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};
use std::time::Instant;

use anyhow::{Context, Result, bail};
use clap::Args;
use sha2::{Digest, Sha256};
use trine::quant::anyprec::outliers::Shares;
use trine::quant::anyprec::{
    Method, Metrics, Plan, Progress, Recipe, RunOptions, Sensitivity, Target, WeightFiles, extract, run,
};
use trine::quant::gptq::Gptq;
use trine::quant::{Importance, KvOverride, Selection};
use trine_formats::anyprec::Calibration;
use trine_formats::gguf::ModelFile;
use trine_formats::imatrix::Imatrix;
use trine_formats::types::TypeId;

use crate::progress::{TensorBar, human_bytes};
use crate::text::{self, hex};
use crate::{gptq, inputs, shown, signals};

/// Heading of the options of this kind of target in help.
const HEADING: &str = "Any-precision targets (AP3-8, AP4, AP, SQ4 ...)";

/// The options of any-precision targets.
#[derive(Args, Debug)]
#[command(next_help_heading = HEADING)]
pub struct AnyPrecArgs {
    /// Bits of the clusters that are found first (AP3-8: 3); wider codes split them
    #[arg(long, value_name = "N")]
    pub seed_bits: Option<u8>,

    /// Bits of the widest code (AP3-8: 8; AP: 8, 6 or 5 by the length of the rows)
    #[arg(long, visible_alias = "upper", value_name = "N")]
    pub parent_bits: Option<u8>,

    /// Widths the model can run at; without it all from the seed's to the parent's. Each costs tables
    #[arg(long, value_name = "N,N,...", value_delimiter = ',')]
    pub widths: Option<Vec<u8>>,

    /// Groups of columns with tables of their own in each row
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub row_groups: u32,

    /// Sensitivities of all weights: safetensors files with squared gradients, in the names and the order
    /// of rows of the Hugging Face checkpoint or of the GGUF file. May be repeated, one per shard. Without
    /// it those of --imatrix count, and without that all weights alike
    #[arg(long, value_name = "FILE", conflicts_with = "imatrix")]
    pub sensitivity: Vec<PathBuf>,

    /// The files of --sensitivity hold gradients, which are to be squared
    #[arg(long, requires = "sensitivity")]
    pub sens_is_gradient: bool,

    /// Keep the most sensitive and the largest weights as they are: 0.05 % and 0.4 % (SQ: 0.45 %)
    #[arg(long)]
    pub outliers: bool,

    /// Share of the most sensitive in percent; implies --outliers
    #[arg(long, value_name = "PERCENT")]
    pub outlier_sensitive: Option<f64>,

    /// Share of the largest in percent; implies --outliers
    #[arg(long, value_name = "PERCENT")]
    pub outlier_magnitude: Option<f64>,

    /// Find the best clusters at N bits (without it at the narrowest width): wider codes split them, narrower ones
    /// join them in pairs. AP3-8 --best-at 4 is better at 4 bits and above and worse at 3
    #[arg(long, value_name = "N", conflicts_with = "compat")]
    pub best_at: Option<u8>,

    /// Cluster as the any-precision authors' program does, bit for bit: by chance, and a little worse. SEED
    /// is its random state
    #[arg(long, value_name = "SEED", num_args = 0..=1, default_missing_value = "0", require_equals = true)]
    pub compat: Option<u32>,

    /// Take one width out of an any-precision file: rquantize --width 4 IN.gguf OUT.gguf
    #[arg(long, value_name = "N")]
    pub width: Option<u8>,
}

impl AnyPrecArgs {
    /// The first option that was given, without `--width`.
    pub fn given(&self) -> Option<&'static str> {
        let given = [
            (self.seed_bits.is_some(), "--seed-bits"),
            (self.parent_bits.is_some(), "--parent-bits"),
            (self.widths.is_some(), "--widths"),
            (self.row_groups != 1, "--row-groups"),
            (!self.sensitivity.is_empty(), "--sensitivity"),
            (self.outliers, "--outliers"),
            (self.outlier_sensitive.is_some(), "--outlier-sensitive"),
            (self.outlier_magnitude.is_some(), "--outlier-magnitude"),
            (self.best_at.is_some(), "--best-at"),
            (self.compat.is_some(), "--compat"),
        ];
        given.into_iter().find(|g| g.0).map(|g| g.1)
    }

    fn recipe(&self, target: Target) -> Recipe {
        let mut recipe = Recipe::new(target);
        recipe.seed_bits = self.seed_bits;
        recipe.parent_bits = self.parent_bits;
        recipe.widths.clone_from(&self.widths);
        recipe.groups = self.row_groups;
        recipe.method = match (self.compat, self.best_at) {
            (Some(seed), _) => Method::Compat { seed },
            (None, Some(bits)) => Method::BestAt(bits),
            (None, None) => Method::Exact,
        };
        let usual = Shares::default_of(target.rule);
        let asked = self.outliers || self.outlier_sensitive.is_some() || self.outlier_magnitude.is_some();
        recipe.outliers = asked.then(|| Shares {
            sensitive: self.outlier_sensitive.unwrap_or(usual.sensitive),
            magnitude: self.outlier_magnitude.unwrap_or(usual.magnitude),
        });
        recipe
    }
}

/// A model, a target and the options that all targets share.
pub struct Job<'a> {
    /// The model.
    pub model: &'a ModelFile,
    /// The target.
    pub target: Target,
    /// The options of any-precision targets.
    pub args: &'a AnyPrecArgs,
    /// `--imatrix`, and for which tensors.
    pub imatrix: Option<(&'a str, Selection)>,
    /// `--gptq`.
    pub gptq: Option<Gptq>,
    /// `--allow-requantize`.
    pub allow_requantize: bool,
    /// `--token-embedding-type`.
    pub embedding_type: Option<TypeId>,
    /// `--output-tensor-type`.
    pub output_type: Option<TypeId>,
    /// `--override-kv`.
    pub overrides: Vec<KvOverride>,
    /// The output.
    pub out: &'a Path,
    /// How it is done.
    pub options: RunOptions,
    /// Only show what would be done.
    pub dry_run: bool,
    /// As JSON.
    pub json: bool,
    /// A line per tensor.
    pub verbose: bool,
}

/// Quantizes, or shows what would be done.
///
/// # Errors
/// Requests that make no sense for the model, I/O, weights that cannot be clustered.
pub fn quantize(job: Job<'_>) -> Result<()> {
    let start = Instant::now();
    let mut recipe = job.args.recipe(job.target);
    recipe.allow_requantize = job.allow_requantize;
    recipe.embedding_type = job.embedding_type;
    recipe.output_type = job.output_type;
    recipe.overrides = job.overrides;
    let plan = Plan::new(job.model, &recipe)?;
    let mut sensitivity = match job.gptq {
        Some(_) if !job.args.sensitivity.is_empty() => {
            bail!("--sensitivity has no meaning beside --gptq, whose Hessians hold the same importance")
        }
        Some(gptq) => Sensitivity::Hessians(Metrics::new(gptq)),
        None => sensitivity(job.model, &plan, job.args, job.imatrix)?,
    };
    let remarks = sensitivity.check(&plan)?;
    for warning in plan.warnings.iter().chain(&remarks) {
        note!("warning: {warning}");
    }
    for line in &plan.notes {
        note!("note: {line}");
    }
    let mut out = BufWriter::new(signals::stdout());
    if job.dry_run {
        show::write_plan(&plan, job.target, &sensitivity, job.json, &mut out)?;
        return Ok(out.flush()?);
    }
    inputs::spare_output(job.out)?;
    let mut bar = TensorBar::new(plan.bytes_from(), job.verbose);
    let report = run(job.model, &plan, &mut sensitivity, job.out, job.options, &mut bar);
    bar.finish();
    let report = report?;
    if let Sensitivity::Hessians(metrics) = &sensitivity {
        gptq::warn(metrics.report());
    }
    let done = show::Done { report: &report, out: job.out, time: start.elapsed() };
    show::write_report(&plan, job.target, &done, job.json, &mut out)?;
    Ok(out.flush()?)
}

/// Takes one width out of an any-precision file.
///
/// # Errors
/// Not such a file, or not such a width; I/O.
pub fn take_width(model: &ModelFile, width: u8, out: &Path, json: bool) -> Result<()> {
    let mut bar = TensorBar::new(model.tensors().map(|t| t.bytes).sum(), false);
    let done = extract(model, width, out, &mut bar);
    bar.finish();
    let done = done?;
    let mut stdout = signals::stdout();
    if json {
        let value = serde_json::json!({
            "files": [out.display().to_string()],
            "width": width,
            "file_bytes": done.file_bytes,
            "bits_per_weight": done.bits,
        });
        return Ok(writeln!(stdout, "{}", shown::json(&value, true))?);
    }
    Ok(writeln!(
        stdout,
        "{}: {width} bits, {}; {:.4} bits per weight in the matrices",
        out.display(),
        human_bytes(done.file_bytes),
        done.bits
    )?)
}

fn sensitivity(
    model: &ModelFile,
    plan: &Plan,
    args: &AnyPrecArgs,
    imatrix: Option<(&str, Selection)>,
) -> Result<Sensitivity> {
    if !args.sensitivity.is_empty() {
        args.sensitivity.iter().for_each(|p| inputs::add(p));
        let files = WeightFiles::open(&args.sensitivity, args.sens_is_gradient, model.meta(), plan);
        return Ok(Sensitivity::Weights(files.context("--sensitivity")?));
    }
    let Some((file, selection)) = imatrix else {
        return Ok(Sensitivity::Uniform);
    };
    let place = || format!("--imatrix '{file}'");
    let bytes = text::read_file(Path::new(file)).with_context(place)?;
    let matrix = Imatrix::parse(&bytes).with_context(place)?;
    let known = |n: u32| Some(n).filter(|&n| n > 0);
    let calibration = Calibration {
        dataset: matrix.datasets.first().cloned(),
        samples: known(matrix.chunk_count),
        seq_len: known(matrix.chunk_size),
        sha256: Some(hex(&Sha256::digest(&bytes))),
    };
    match Importance::from_file(&matrix, file, &selection)? {
        Some(importance) => Ok(Sensitivity::Columns(importance, calibration)),
        None => bail!("no weights of '{file}' are selected: leave --imatrix out, or the selection"),
    }
}

impl Progress for TensorBar {
    fn tensor(&mut self, name: &str) {
        TensorBar::tensor(self, name, || shown::name(name));
    }

    fn advance(&mut self, bytes: u64) {
        TensorBar::advance(self, bytes);
    }
}
