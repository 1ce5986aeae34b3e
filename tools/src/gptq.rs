//! The options of `rquantize` for rounding with error feedback, and what it says of it.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, Result};
use clap::Args;
use serde_json::{Value, json};
use trine::quant::Plan;
use trine::quant::anyprec::Clusters;
use trine::quant::gptq::{Calibration, DAMP, Feedback, FeedbackReport, Gptq, HessianFile, Options};
use trine_formats::gguf::PackingOptions;

use crate::load::{self, positive};
use crate::sequential::{self, Text};

/// Rounding with error feedback.
#[derive(Args)]
pub struct GptqArgs {
    /// Round with error feedback (GPTQ): FILE holds the Hessians that rimatrix --hessian made of this model. The result
    /// is an ordinary file of the type asked for, or an any-precision file (AP3-8) whose widths are all made with it.
    /// Tensors without a Hessian, such as embeddings and output, are quantized as they are without this option
    #[arg(long, help_heading = "Error feedback", value_name = "FILE", group = "feedback", conflicts_with = "imatrix")]
    pub gptq: Option<PathBuf>,

    /// Round with error feedback, layer by layer: the Hessians of every matrix are measured on TEXT with all matrices
    /// before it rounded already
    ///
    /// It makes the file that --gptq makes, but that each matrix makes up for the errors of those before it too. One block
    /// is in memory at a time, its Hessians, and the states of the model for all of the text. The same model, text and options
    /// give the same bytes on any machine. Ctrl-C leaves nothing
    #[arg(long, help_heading = "Error feedback", value_name = "TEXT", group = "feedback", conflicts_with_all = ["imatrix", "prune_layers"])]
    pub sequential: Option<PathBuf>,

    /// Chunks of the text that --sequential measures on, each a sequence of its own
    #[arg(long, help_heading = "Error feedback", value_name = "N", default_value = "128", requires = "sequential", value_parser = positive)]
    pub chunks: usize,

    /// Tokens of a chunk
    #[arg(short, long, help_heading = "Error feedback", value_name = "N", default_value = "512", requires = "sequential", value_parser = positive)]
    pub ctx_size: usize,

    /// Columns of Q4_0 that share a scale: 32, or four blocks with the same scale as MARLIN's kernels want it
    #[arg(long, help_heading = "Error feedback", value_name = "32|128", value_parser = group, default_value = "32", requires = "feedback")]
    pub group: usize,

    /// Set two of every four neighbouring weights of Q4_0 to zero, those that cost least, and let the others make up
    /// for it too: the pattern of sparse tensor cores, which --number-path fast uses. The zeros cost quality and save
    /// nothing anywhere else
    #[arg(long, help_heading = "Error feedback", value_name = "2:4", value_parser = ["2:4"], requires = "feedback", conflicts_with = "gptq_compat")]
    pub sparse: Option<String>,

    /// The share of the mean of the Hessian's diagonal that is added to it; less follows the text more closely
    #[arg(long, help_heading = "Error feedback", value_name = "SHARE", value_parser = damp, default_value_t = DAMP, requires = "feedback")]
    pub damp: f64,

    /// Round to Q4_0 as MARLIN's gptq.py does, for comparison: columns in natural order, only positive scales, each
    /// found when its group is reached and rounded to half floats in the end; it adds --damp 0.1
    #[arg(long, help_heading = "Error feedback", requires = "feedback")]
    pub gptq_compat: bool,
}

fn group(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(n @ (32 | 128)) => Ok(n),
        _ => Err("give 32 or 128".to_owned()),
    }
}

fn damp(text: &str) -> Result<f64, String> {
    match text.parse() {
        Ok(share) if share > 0.0 && share <= 1.0 => Ok(share),
        _ => Err("give a number above 0 and up to 1".to_owned()),
    }
}

impl GptqArgs {
    /// The one of the options that was given and asks for error feedback.
    pub fn given(&self) -> Option<&'static str> {
        let file = self.gptq.is_some().then_some("--gptq");
        file.or_else(|| self.sequential.is_some().then_some("--sequential"))
    }

    /// The part of a recipe for `model`; opens the file, or the model and the text.
    ///
    /// # Errors
    /// A file that cannot be used; a model that cannot be taken layer by layer.
    pub fn recipe(&self, model: &Path, packing: &PackingOptions, threads: usize) -> Result<Option<Gptq>> {
        let hessians = match (&self.gptq, &self.sequential) {
            (Some(path), _) => {
                let place = || format!("--gptq '{}'", path.display());
                let file = load::open(path, true)?;
                Calibration::File(Arc::new(HessianFile::new(path, file).with_context(place)?))
            }
            (None, Some(path)) => {
                let text = Text { path, chunks: self.chunks, ctx_size: self.ctx_size };
                sequential::calibration(&text, model, packing, threads)?
            }
            (None, None) => return Ok(None),
        };
        Ok(Some(Gptq {
            hessians,
            options: Options {
                group: self.group,
                damp: self.damp,
                compat: self.gptq_compat,
                sparse: self.sparse.is_some(),
            },
        }))
    }
}

/// A line that says how many tensors are rounded with error feedback, and which are not.
pub fn line(plan: &Plan) -> Option<String> {
    let feedback = plan.find::<Feedback>()?;
    let (with, without) = feedback.tensors(plan);
    let experts = match feedback.report() {
        FeedbackReport { experts: 0, .. } => String::new(),
        FeedbackReport { experts, filled: 0, .. } => format!(", {experts} inputs of experts by their own tokens"),
        FeedbackReport { experts, filled, .. } => format!(
            "; {filled} of {experts} inputs of experts saw fewer tokens than they have columns, the mean of their layer's experts stands for the others"
        ),
    };
    let rest = match without[..] {
        [] => String::new(),
        [only] => format!("; without, because it has no Hessian: {only}"),
        [first, .., last] => {
            format!("; without, because they have no Hessian: {} from {first} to {last}", without.len())
        }
    };
    Some(format!("gptq: {with} tensors rounded with error feedback{rest}{experts}"))
}

/// The same for programs, with what was done where it `is_done`.
pub fn to_json(plan: &Plan, is_done: bool) -> Value {
    let Some(feedback) = plan.find::<Feedback>() else {
        return Value::Null;
    };
    let (with, without) = feedback.tensors(plan);
    let damped = feedback.report().damped.iter().map(|(name, damp)| json!({ "name": name, "damp": damp }));
    let damped = is_done.then(|| damped.collect::<Vec<_>>());
    let of_experts = |count: usize| is_done.then_some(count);
    json!({
        "tensors": with,
        "without": without,
        "damped": damped,
        "experts": of_experts(feedback.report().experts),
        "experts_filled": of_experts(feedback.report().filled),
    })
}

/// Warnings about the Hessians.
pub fn warn(plan: &Plan) {
    let own = plan.find::<Feedback>().map(Feedback::report);
    let reports = own.into_iter().chain(plan.find::<Clusters>().and_then(Clusters::feedback));
    for (name, damp) in reports.flat_map(|report| &report.damped) {
        note!(
            "warning: {name}: its Hessian is nearly singular; {damp} of the mean of its diagonal was added, more than was asked for"
        );
    }
}
