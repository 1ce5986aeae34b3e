//! `rquantize --split` and `--merge`: what llama-gguf-split does.

use std::io::Write;
use std::path::Path;

use anyhow::{Result, bail};
use clap::Args;
use serde_json::json;
use trine::quant::split::{self, SplitLimit, SplitOptions};
use trine::quant::{Plan, RunOptions};
use trine_formats::gguf::write::Layout;

use crate::load::{self, positive};
use crate::progress::human_bytes;
use crate::provenance::Provenance;
use crate::runner::carry_out;
use crate::{inputs, shown, signals};

/// The options of splitting and merging.
#[derive(Args)]
pub struct SplitArgs {
    /// Split IN.gguf into files OUTPREFIX-00001-of-0000N.gguf of 128 tensors, byte for byte those of llama-gguf-split.
    /// The other --split options imply it
    #[arg(long, conflicts_with = "merge")]
    pub split: bool,

    /// Tensors of each file
    #[arg(long, value_name = "N", conflicts_with_all = ["merge", "split_max_size"], allow_negative_numbers = true, value_parser = positive)]
    pub split_max_tensors: Option<usize>,

    /// Bytes of the tensors of each file: N million (M) or thousand million (G)
    #[arg(long, value_name = "N(M|G)", conflicts_with = "merge", value_parser = bytes)]
    pub split_max_size: Option<u64>,

    /// The first file holds no tensors, only metadata
    #[arg(long, conflicts_with = "merge")]
    pub no_tensor_first_split: bool,

    /// Merge the files of a set, of which any is given, into one
    #[arg(long)]
    pub merge: bool,
}

/// Tensors of a file where nothing else is said.
const MAX_TENSORS: usize = 128;

/// Parses a size such as `500M` or `2G`.
///
/// # Errors
/// Anything else.
fn bytes(text: &str) -> Result<u64, String> {
    let wrong = || "give a whole number and M (million bytes) or G, such as 500M or 2G".to_owned();
    let (number, unit) = text.split_at(text.len() - usize::from(text.ends_with(['M', 'G'])));
    let unit = match unit {
        "M" => 1_000_000,
        "G" => 1_000_000_000,
        _ => return Err(wrong()),
    };
    let number = number.parse::<u32>().ok().filter(|&n| n > 0);
    number.map(|n| u64::from(n) * unit).ok_or_else(wrong)
}

impl SplitArgs {
    /// The option that was given, if one was.
    pub fn given(&self) -> Option<&'static str> {
        let given = [
            (self.merge, "--merge"),
            (self.split, "--split"),
            (self.split_max_tensors.is_some(), "--split-max-tensors"),
            (self.split_max_size.is_some(), "--split-max-size"),
            (self.no_tensor_first_split, "--no-tensor-first-split"),
        ];
        given.into_iter().find(|g| g.0).map(|g| g.1)
    }

    fn options(&self) -> SplitOptions {
        let limit = match (self.split_max_size, self.split_max_tensors) {
            (Some(bytes), _) => SplitLimit::Bytes(bytes),
            (None, tensors) => SplitLimit::Tensors(tensors.unwrap_or(MAX_TENSORS)),
        };
        SplitOptions { limit, no_tensor_first: self.no_tensor_first_split }
    }
}

/// A model to split or to merge.
pub struct SplitJob<'a> {
    /// The options.
    pub args: &'a SplitArgs,
    /// The model, or a file of its set.
    pub input: &'a Path,
    /// Prefix of the names, or the file to write.
    pub out: &'a str,
    /// True if the plan is shown and nothing is written.
    pub dry_run: bool,
    /// True if the report is JSON.
    pub json: bool,
    /// True if the report has a line per tensor.
    pub verbose: bool,
}

/// Splits or merges a model.
///
/// # Errors
/// Whatever is wrong with the files, in one line.
pub fn run(job: &SplitJob<'_>) -> Result<()> {
    let model = load::open(job.input, true)?;
    let merges = job.args.merge;
    let mut plan = match merges {
        true => split::merge(&model)?,
        false => split::split(&model, job.args.options())?,
    };
    let out = Path::new(job.out);
    let (paths, layouts) = (plan.paths(out), plan.layouts()?);
    for path in &paths {
        inputs::spare_output(path)?;
        if merges && path.exists() {
            bail!("'{}' exists already; --merge writes no file anew", path.display());
        }
    }
    let mut stdout = signals::stdout();
    if !merges && !job.json {
        writeln!(stdout, "n_split: {}", paths.len())?;
        for (i, file) in layouts.iter().enumerate() {
            // without the padding behind tensors, as llama-gguf-split counts
            let bytes = file.header().len() as u64 + file.tensors().iter().map(|t| t.bytes).sum::<u64>();
            let (no, millions, tensors) = (i + 1, bytes / 1_000_000, file.tensors().len());
            writeln!(stdout, "split {no:05}: n_tensors = {tensors}, total_size = {millions}M")?;
        }
        stdout.flush()?;
    }
    if !job.dry_run {
        let line = |plan: &Plan, i: usize| shown::name(&plan.rows[i].name);
        carry_out(&model, &mut plan, out, RunOptions::default(), job.verbose, line)??;
    }
    let bytes: u64 = layouts.iter().map(Layout::file_bytes).sum();
    if job.json {
        let files = layouts.iter().zip(&paths).map(|(file, path)| {
            let (tensors, bytes) = (file.tensors().len(), file.file_bytes());
            json!({ "path": path.display().to_string(), "tensors": tensors, "bytes": bytes })
        });
        let report = json!({
            "merged_from": merges.then_some(model.shards().len()),
            "dry_run": job.dry_run,
            "tensors": model.n_tensors(),
            "bytes": bytes,
            "files": files.collect::<Vec<_>>(),
        });
        let report = Provenance::of_files("rquantize.split/1", &model).before(report);
        writeln!(stdout, "{}", shown::json(&report, true))?;
    } else {
        let (files, tensors) = (model.shards().len(), model.n_tensors());
        let (size, would) = (human_bytes(bytes), if job.dry_run { "would be " } else { "" });
        if merges {
            writeln!(stdout, "{}: {would}merged from {files} files with {tensors} tensors, {size}", job.out)?;
        } else {
            writeln!(stdout, "{} files {would}written with {tensors} tensors, {size}", paths.len())?;
        }
    }
    Ok(stdout.flush()?)
}

#[cfg(test)]
mod tests {
    use super::bytes;

    #[test]
    fn sizes_have_a_unit() {
        assert_eq!(bytes("500M"), Ok(500_000_000));
        assert_eq!(bytes("2G"), Ok(2_000_000_000));
        for wrong in ["", "M", "0M", "-1G", "5", "5K", "1.5G", "5Mé", "5 G"] {
            assert!(bytes(wrong).is_err(), "{wrong}");
        }
    }
}
