//! The options of `rquantize` for rounding with error feedback, and what it says of it.

use std::path::PathBuf;
use std::sync::Arc;

use anyhow::{Context, Result};
use clap::Args;
use serde_json::{Value, json};
use trine::quant::Plan;
use trine::quant::anyprec::Clusters;
use trine::quant::gptq::{DAMP, Feedback, FeedbackReport, Gptq, HessianFile, Options};

use crate::load;

/// Rounding with error feedback.
#[derive(Args)]
pub struct GptqArgs {
    /// Round with error feedback (GPTQ): FILE holds the Hessians that rimatrix --hessian made of this model. The result
    /// is an ordinary file of the type asked for, or an any-precision file (AP3-8) whose widths are all made with it.
    /// Tensors without a Hessian, such as embeddings and output, are quantized as they are without this option
    #[arg(long, help_heading = "Error feedback", value_name = "FILE", conflicts_with = "imatrix")]
    pub gptq: Option<PathBuf>,

    /// Columns of Q4_0 that share a scale: 32, or four blocks with the same scale as MARLIN's kernels want it
    #[arg(long, help_heading = "Error feedback", value_name = "32|128", value_parser = group, default_value = "32", requires = "gptq")]
    pub group: usize,

    /// Set two of every four neighbouring weights of Q4_0 to zero, those that cost least, and let the others make up
    /// for it too: the pattern of sparse tensor cores, which --number-path fast uses. The zeros cost quality and save
    /// nothing anywhere else
    #[arg(long, help_heading = "Error feedback", value_name = "2:4", value_parser = ["2:4"], requires = "gptq", conflicts_with = "gptq_compat")]
    pub sparse: Option<String>,

    /// The share of the mean of the Hessian's diagonal that is added to it; less follows the text more closely
    #[arg(long, help_heading = "Error feedback", value_name = "SHARE", value_parser = damp, default_value_t = DAMP, requires = "gptq")]
    pub damp: f64,

    /// Round to Q4_0 as MARLIN's gptq.py does, for comparison: columns in natural order, only positive scales, each
    /// found when its group is reached and rounded to half floats in the end; it adds --damp 0.1
    #[arg(long, help_heading = "Error feedback", requires = "gptq")]
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
    /// The part of a recipe; opens the file.
    ///
    /// # Errors
    /// A file that cannot be used.
    pub fn recipe(&self) -> Result<Option<Gptq>> {
        let Some(path) = &self.gptq else {
            return Ok(None);
        };
        let place = || format!("--gptq '{}'", path.display());
        let file = load::open(path, true)?;
        let hessians = HessianFile::new(path, file).with_context(place)?;
        Ok(Some(Gptq {
            hessians: Arc::new(hessians),
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
