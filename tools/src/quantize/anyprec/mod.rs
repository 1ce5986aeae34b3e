//! rquantize for any-precision targets: `AP3-8`, `SQ4`, and one width out of such a file.

mod show;

use std::io::{BufWriter, Write};
use std::path::Path;
use std::time::Instant;

use anyhow::{Context, Result, bail};
use sha2::{Digest, Sha256};
use trine::quant::Importance;
use trine::quant::anyprec::{Job as Clustering, Metrics, Plan, Sensitivity, Target, WeightFiles, WidthPlan};
use trine_formats::anyprec::Calibration;
use trine_formats::gguf::ModelFile;
use trine_formats::imatrix::Imatrix;

use super::args::{Args, Job};
use crate::progress::human_bytes;
use crate::runner::{carry_out, remark};
use crate::text::{self, hex};
use crate::{gptq, inputs, load, shown, signals};

/// Quantizes, or shows what would be done.
///
/// # Errors
/// Requests that make no sense for the model, I/O, weights that cannot be clustered.
pub fn quantize(args: &Args, job: &Job, target: Target) -> Result<()> {
    let model = load::open(&args.input, true)?;
    let gptq = args.gptq.recipe()?;
    let start = Instant::now();
    let mut recipe = args.any_precision.recipe(target);
    recipe.allow_requantize = args.allow_requantize;
    recipe.embedding_type = args.embedding_type()?;
    recipe.output_type = args.output_type()?;
    recipe.overrides = args.overrides()?;
    let plan = Plan::new(&model, &recipe)?;
    let mut sensitivity = match gptq {
        Some(_) if !args.any_precision.sensitivity.is_empty() => {
            bail!("--sensitivity has no meaning beside --gptq, whose Hessians hold the same importance")
        }
        Some(gptq) => Sensitivity::Hessians(Metrics::new(gptq)),
        None => sensitivity(&model, &plan, args)?,
    };
    let remarks = sensitivity.check(&plan)?;
    remark(plan.warnings.iter().chain(&remarks), &plan.notes);
    let mut out = BufWriter::new(signals::stdout());
    if args.dry_run {
        show::write_plan(&plan, target, &sensitivity, args.json, &mut out)?;
        return Ok(out.flush()?);
    }
    let clustering = Clustering { plan: &plan, sensitivity: &mut sensitivity };
    let line = |i: usize| shown::name(&plan.rows[i].name);
    let report = carry_out(&model, clustering, &job.out, job.options(args)?, args.verbose, line)??;
    if let Sensitivity::Hessians(metrics) = &sensitivity {
        gptq::warn(metrics.report());
    }
    let done = show::Done { report: &report, out: &job.out, time: start.elapsed() };
    show::write_report(&plan, target, &done, args.json, &mut out)?;
    Ok(out.flush()?)
}

/// Takes one width out of an any-precision file.
///
/// # Errors
/// Not such a file, or not such a width; I/O.
pub fn take_width(model: &ModelFile, width: u8, out: &Path, json: bool) -> Result<()> {
    let plan = WidthPlan::new(model, width)?;
    let bits = plan.bits();
    let file_bytes = carry_out(model, plan, out, Default::default(), false, |_| String::new())??;
    let mut stdout = signals::stdout();
    if json {
        let value = serde_json::json!({
            "files": [out.display().to_string()],
            "width": width,
            "file_bytes": file_bytes,
            "bits_per_weight": bits,
        });
        return Ok(writeln!(stdout, "{}", shown::json(&value, true))?);
    }
    Ok(writeln!(
        stdout,
        "{}: {width} bits, {}; {bits:.4} bits per weight in the matrices",
        out.display(),
        human_bytes(file_bytes),
    )?)
}

fn sensitivity(model: &ModelFile, plan: &Plan, args: &Args) -> Result<Sensitivity> {
    let options = &args.any_precision;
    if !options.sensitivity.is_empty() {
        options.sensitivity.iter().for_each(|p| inputs::add(p));
        let files = WeightFiles::open(&options.sensitivity, options.sens_is_gradient, model.meta(), plan);
        return Ok(Sensitivity::Weights(files.context("--sensitivity")?));
    }
    let Some(file) = &args.imatrix else {
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
    match Importance::from_file(&matrix, file, &args.selection())? {
        Some(importance) => Ok(Sensitivity::Columns(importance, calibration)),
        None => bail!("no weights of '{file}' are selected: leave --imatrix out, or the selection"),
    }
}
