//! The options of widely linear matrices, and rquantize for `FAIRY2I` and back.

use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::time::Instant;

use anyhow::{Context, Result, bail};
use clap::{Args, ValueEnum};
use serde_json::json;
use trine::convert::Widely;
use trine::quant::widely::{Content, Plan, Progress, Recipe, Row, run};
use trine::quant::{KvOverride, RunOptions};
use trine_formats::gguf::{ModelFile, Value as Meta};
use trine_formats::temp_file::TempFile;
use trine_formats::widely::{OutputForm, Profile, Scope, TieRule, tile64};

use crate::progress::{TensorBar, human_bytes};

/// Heading of the options in help.
const HEADING: &str = "Widely linear matrices (Fairy2i)";

/// The options of widely linear matrices.
#[derive(Args, Clone, Debug, Default)]
#[command(next_help_heading = HEADING)]
pub struct WidelyArgs {
    /// Stages of every matrix, one bit per weight each [default: 2, the published model's]
    #[arg(long, value_name = "1-4", value_parser = clap::value_parser!(u8).range(1..=4))]
    pub wl_stages: Option<u8>,

    /// What has scales of its own: the whole matrix, a row, or a tile of 64 x 64 [default: tensor]
    #[arg(long, value_name = "tensor|row|tile64", value_enum, hide_possible_values = true)]
    pub wl_scope: Option<ScopeArg>,

    /// What is rounded: to bfloat16 after every step, as the training script does, or nothing [default: script-bf16
    /// where all matrices are BF16, else f32]
    #[arg(long, value_name = "script-bf16|f32", value_enum, hide_possible_values = true)]
    pub wl_profile: Option<ProfileArg>,

    /// Where elements go whose real and imaginary parts are of equal magnitude: as their phase says, or to the
    /// imaginary axis [default: phase]
    #[arg(long, value_name = "phase|tile64", value_enum, hide_possible_values = true)]
    pub wl_tie: Option<TieArg>,

    /// The output matrix: quantized too, dense as it is, or whichever gives the text of --wl-text the lower perplexity,
    /// which takes three conversions [default: wl]
    #[arg(long, value_name = "wl|dense|auto", value_enum, hide_possible_values = true)]
    pub wl_lm_head: Option<OutputArg>,

    /// The text for --wl-lm-head auto
    #[arg(long, value_name = "FILE")]
    pub wl_text: Option<PathBuf>,
}

macro_rules! names {
    ($($arg:ident = $ty:ident { $($value:ident = $is:ident, $name:literal;)+ })*) => { $(
        #[doc = concat!("Names of [`", stringify!($ty), "`] on the command line.")]
        #[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
        #[allow(missing_docs)]
        pub enum $arg {
            $(#[value(name = $name)] $value),+
        }

        impl From<$arg> for $ty {
            fn from(arg: $arg) -> $ty {
                match arg {
                    $($arg::$value => $ty::$is),+
                }
            }
        }
    )* };
}

names! {
    ScopeArg = Scope { Tensor = Tensor, "tensor"; Row = Row, "row"; Tile64 = Tile64, "tile64"; }
    ProfileArg = Profile { ScriptBf16 = ScriptBf16, "script-bf16"; F32 = F32, "f32"; }
    TieArg = TieRule { Phase = Phase, "phase"; Tile64 = Tile64, "tile64"; }
}

/// `--wl-lm-head`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
#[allow(missing_docs)]
pub enum OutputArg {
    Wl,
    Dense,
    Auto,
}

impl WidelyArgs {
    /// The first option that was given.
    pub fn given(&self) -> Option<&'static str> {
        let given = [
            (self.wl_stages.is_some(), "--wl-stages"),
            (self.wl_scope.is_some(), "--wl-scope"),
            (self.wl_profile.is_some(), "--wl-profile"),
            (self.wl_tie.is_some(), "--wl-tie"),
            (self.wl_lm_head.is_some(), "--wl-lm-head"),
            (self.wl_text.is_some(), "--wl-text"),
        ];
        given.into_iter().find(|g| g.0).map(|g| g.1)
    }

    /// As the converter takes them.
    pub fn options(&self) -> Widely {
        Widely {
            stages: self.wl_stages.unwrap_or(2).into(),
            scope: self.wl_scope.map(Scope::from).unwrap_or_default(),
            tie: self.wl_tie.map(TieRule::from).unwrap_or_default(),
            profile: self.wl_profile.map(Profile::from),
            output: match self.wl_lm_head {
                Some(OutputArg::Dense) => OutputForm::Dense,
                Some(OutputArg::Wl | OutputArg::Auto) | None => OutputForm::Widely,
            },
        }
    }

    /// Finds out which form of the output matrix `--wl-lm-head auto` means: `make` writes the file of a form to a path
    /// beside `out`, where its perplexity is measured. `None` where the form was said.
    ///
    /// # Errors
    /// `--wl-text` is missing, or the text too short; what `make` says.
    pub fn choose_output(
        &self,
        out: &Path,
        make: &mut dyn FnMut(OutputForm, &Path) -> Result<()>,
    ) -> Result<Option<Choice>> {
        let text = match (self.wl_lm_head, &self.wl_text) {
            (Some(OutputArg::Auto), Some(text)) => text,
            (Some(OutputArg::Auto), None) => {
                bail!("--wl-lm-head auto measures perplexities: give a text with --wl-text FILE")
            }
            (_, Some(_)) => bail!("--wl-text is for --wl-lm-head auto"),
            _ => return Ok(None),
        };
        let place = || format!("--wl-text '{}'", text.display());
        let text = std::fs::read_to_string(text).with_context(place)?;
        let mut ppl = [0.0; 2];
        for (form, ppl) in [OutputForm::Widely, OutputForm::Dense].into_iter().zip(&mut ppl) {
            let (temp, _) = TempFile::create(out)?;
            make(form, temp.path())?;
            let model = trine::open(temp.path())?;
            *ppl = model.perplexity(&text, CONTEXT).with_context(place)?.ppl();
            note!("output matrix {}: perplexity {ppl:.4}", form.name());
        }
        let [widely, dense] = ppl;
        Ok(Some(Choice { form: if widely <= dense { OutputForm::Widely } else { OutputForm::Dense }, ppl }))
    }

    fn recipe(&self) -> Recipe {
        let Widely { stages, scope, tie, profile, output } = self.options();
        Recipe { stages, scope, tie, profile, output, ..Recipe::default() }
    }
}

/// Tokens of the chunks whose perplexity is measured.
const CONTEXT: usize = 512;

/// The choice that `--wl-lm-head auto` made.
#[derive(Clone, Copy, Debug)]
pub struct Choice {
    /// The form with the lower perplexity.
    pub form: OutputForm,
    /// The perplexities of the quantized and of the dense form.
    pub ppl: [f64; 2],
}

impl Choice {
    /// The keys that record it.
    pub fn keys(&self) -> [(&'static str, f32); 2] {
        let [widely, dense] = self.ppl.map(|ppl| ppl as f32);
        [("fairy2i.wl.lm_head_ppl.wl", widely), ("fairy2i.wl.lm_head_ppl.dense", dense)]
    }
}

/// The kind of result.
#[derive(Clone, Copy)]
pub enum Goal<'a> {
    /// Widely linear matrices.
    Widely(&'a WidelyArgs),
    /// Dense ones again, of the type of this name.
    Dense(&'a str),
}

/// A model, a goal and the options that all targets share.
pub struct Job<'a> {
    /// The model.
    pub model: &'a ModelFile,
    /// The kind of result.
    pub goal: Goal<'a>,
    /// `--allow-requantize`.
    pub allow_requantize: bool,
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

/// Quantizes or makes dense, or shows what would be done.
///
/// # Errors
/// Requests that make no sense for the model; I/O; weights that are not finite.
pub fn quantize(job: Job<'_>) -> Result<()> {
    let start = Instant::now();
    let plan = match job.goal {
        Goal::Widely(args) => plan_widely(&job, args)?,
        Goal::Dense(name) => {
            let ty = trine::quant::parse_type(name)?;
            Plan::dense(job.model, ty, &job.overrides)?
        }
    };
    for note in &plan.notes {
        note!("note: {note}");
    }
    let mut out = io::stdout().lock();
    let bytes = plan.layout()?.file_bytes();
    if job.dry_run {
        if !job.json {
            for row in &plan.rows {
                writeln!(out, "{}", line(row))?;
            }
        }
    } else {
        let mut bar = TensorBar::new(plan.work(), job.verbose);
        let done = run(job.model, &plan, job.out, job.options, &mut bar);
        bar.finish();
        done?;
    }
    let file = job.out.display().to_string();
    let (weights, bits) = plan.bits();
    if job.json {
        let mut value = description(&plan);
        value["file"] = if job.dry_run { json!(null) } else { json!(file) };
        value["file_bytes"] = json!(bytes);
        value["seconds"] = json!(start.elapsed().as_secs_f64());
        return Ok(writeln!(out, "{value:#}")?);
    }
    let verb = if job.dry_run { "would write " } else { "" };
    let rule = &plan.header.rule;
    writeln!(
        out,
        "{verb}{file}: {}, {weights} weights in widely linear form, {bits:.4} bits each ({} stages, scales by {}, profile {}, ties by {}, output {})",
        human_bytes(bytes),
        rule.stages,
        rule.scope.name(),
        rule.profile.name(),
        rule.tie.name(),
        plan.header.output.name(),
    )?;
    if matches!(job.goal, Goal::Widely(_)) {
        writeln!(out, "loaded by: trine alone")?;
    }
    if matches!(job.goal, Goal::Widely(_)) && !job.dry_run && !tile64::is_in(job.model.meta()) {
        writeln!(
            out,
            "a model that was not trained for this form loses most of its quality: compare perplexities with rperplexity"
        )?;
    }
    Ok(writeln!(out, "time: {:.1} s", start.elapsed().as_secs_f64())?)
}

/// The plan of a widely linear model; what `auto` means is found out first.
fn plan_widely(job: &Job<'_>, args: &WidelyArgs) -> Result<Plan> {
    if tile64::is_in(job.model.meta()) {
        if let Some(option) = args.given() {
            bail!("{option} has no meaning here: the file's matrices are codes and scales already");
        }
        return Ok(Plan::translated(job.model, &job.overrides)?);
    }
    let recipe = Recipe { allow_requantize: job.allow_requantize, overrides: job.overrides.clone(), ..args.recipe() };
    let with = |output| Recipe { output, ..recipe.clone() };
    if job.dry_run && args.wl_lm_head == Some(OutputArg::Auto) {
        bail!("--wl-lm-head auto converts and measures: it knows no --dry-run");
    }
    let make = &mut |form, path: &Path| {
        let plan = Plan::new(job.model, &with(form))?;
        run(job.model, &plan, path, job.options, &mut ())?;
        Ok(())
    };
    let Some(choice) = args.choose_output(job.out, make)? else {
        return Ok(Plan::new(job.model, &recipe)?);
    };
    let mut plan = Plan::new(job.model, &with(choice.form))?;
    for (key, ppl) in choice.keys() {
        plan.meta.set(key, Meta::F32(ppl));
    }
    Ok(plan)
}

fn description(plan: &Plan) -> serde_json::Value {
    let rule = &plan.header.rule;
    let (weights, bits) = plan.bits();
    let row = |r: &Row| {
        json!({
            "name": r.name, "source": r.source, "from": r.from.to_string(), "to": r.to.to_string(), "shape": r.shape,
        })
    };
    json!({
        "architecture": plan.meta.get_str("general.architecture").ok().flatten(),
        "stages": rule.stages,
        "scale_scope": rule.scope.name(),
        "numeric_profile": rule.profile.name(),
        "tie_rule": rule.tie.name(),
        "lm_head": plan.header.output.name(),
        "weights": weights,
        "bits_per_weight": bits,
        "notes": plan.notes,
        "tensors": plan.rows.iter().map(row).collect::<Vec<_>>(),
    })
}

fn line(row: &Row) -> String {
    let shape: Vec<String> = row.shape.iter().map(u64::to_string).collect();
    let what = match row.content {
        Content::Copied { head: None } => "as it is",
        Content::Copied { head: Some(_) } => "rows of heads in another order",
        Content::Codes { .. } => "codes",
        Content::Scales => "scales",
        Content::Tiles { .. } => "codes of another layout",
        Content::Embeddings => "pairs of bfloat16, taken apart",
        Content::Dense { .. } => "the sum of the stages",
    };
    let (from, to) = (row.from.to_string(), row.to.to_string());
    format!("{:<36} {from:>5} -> {to:<5} [{}]  {what}", row.name, shape.join(", "))
}

impl Progress for TensorBar {
    fn tensor(&mut self, row: &Row) {
        TensorBar::tensor(self, &row.name, || line(row));
    }

    fn advance(&mut self, bytes: u64) {
        TensorBar::advance(self, bytes);
    }
}

/// The name of the target.
pub const TARGET: &str = "FAIRY2I";

/// Refuses an option that was given and has no meaning here.
///
/// # Errors
/// It was given.
pub fn refuse(option: Option<&str>) -> Result<()> {
    match option {
        Some(option) => bail!("{option} has no meaning for widely linear matrices"),
        None => Ok(()),
    }
}

/// Refuses options of widely linear matrices for other targets.
///
/// # Errors
/// One was given.
pub fn refuse_elsewhere(args: &WidelyArgs) -> Result<()> {
    match args.given() {
        Some(option) => bail!("{option} is for widely linear matrices: the type {TARGET}"),
        None => Ok(()),
    }
}
