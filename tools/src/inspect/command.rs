//! The command line of `rinspect`.

use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};

use anyhow::{Result, bail};
use clap::Parser;
use trine_formats::gguf::ModelFile;

use super::{Diff, Report, TextOptions, program, write_json, write_text};
use crate::load::{self, thread_count};
use crate::packing::PackingArgs;
use crate::provenance::Provenance;
use crate::{shown, signals, threads};

/// Show what is in a GGUF model: metadata, tensors, sizes, and which matrices are ternary.
///
/// Give any shard of a split model to see all of it. Every tensor's place is checked, so a file that
/// was cut off by an interrupted download is found out.
#[derive(Parser)]
#[command(
    name = "rinspect",
    version,
    after_help = "\
Examples:
  rinspect model.gguf                      metadata, totals per type, ternary summary
  rinspect model.gguf --tensors            and the tensor table
  rinspect model.gguf --hash               and the SHA-256 of every tensor's data
  rinspect model.gguf --check-tensors      and whether any float or scale is infinite or no number
  rinspect model.gguf --program            the forward pass, operation by operation
  rinspect model.gguf --dot 0 | dot -Tsvg  one block of it as a picture (dot is part of Graphviz)
  rinspect --diff a.gguf b.gguf            what two files have in common, and whether b has all weights of a
  rinspect model.gguf --json | jq '.total.bits_per_weight'

\"ternary by\" says how far one scale s reaches in a matrix whose values are all -s, 0 or +s:
the tensor, each row, or blocks of 32 to 256 weights of a row. Vectors are not judged."
)]
pub struct Args {
    /// The model; any shard of a split one
    pub model: PathBuf,

    /// Write everything as JSON, arrays in full
    #[arg(long)]
    pub json: bool,

    /// Compare with this file, the first of the two: metadata, types, and every weight
    #[arg(long, value_name = "FIRST", conflicts_with_all = ["tensors", "hash", "check_tensors"])]
    pub diff: Option<PathBuf>,

    /// Show the forward pass instead: every operation with its operands, sizes and matrices
    #[arg(long, conflicts_with_all = ["diff", "tensors", "hash", "check_tensors"])]
    pub program: bool,

    /// Show block number N of the forward pass as a graph in the DOT language
    #[arg(long, value_name = "N", conflicts_with_all = ["diff", "tensors", "hash", "check_tensors", "json"])]
    pub dot: Option<usize>,

    /// Show the table of tensors
    #[arg(long)]
    pub tensors: bool,

    /// Show the SHA-256 of every tensor's data (implies --tensors)
    #[arg(long)]
    pub hash: bool,

    /// Look at all floats and scales of all tensors, and fail where one is infinite or no number
    #[arg(long)]
    pub check_tensors: bool,

    /// Read the file into memory instead of mapping it: for files on network drives, and those that somebody may cut
    /// short meanwhile
    #[arg(long)]
    pub no_mmap: bool,

    /// Threads that read the tensors; without it one per processor
    #[arg(short, long, value_name = "N", value_parser = thread_count, allow_negative_numbers = true)]
    pub threads: Option<usize>,

    #[command(flatten)]
    #[allow(missing_docs)]
    pub packing: PackingArgs,
}

/// Runs the tool.
///
/// # Errors
/// Whatever is wrong with the files, in one line.
pub fn run(args: &Args) -> Result<()> {
    threads::start(args.threads)?;
    let model = load::open(&args.model, !args.no_mmap)?;
    if let Some(first) = &args.diff {
        return compare(args, first, &model);
    }
    if args.program || args.dot.is_some() {
        return forward_pass(args, &model);
    }
    let report = Report::new(&model, args.hash, args.check_tensors, &args.packing.options());
    let mut out = BufWriter::new(signals::stdout());
    if args.json {
        write_json(&report, &mut out)?;
    } else {
        let options = TextOptions { tensors: args.tensors || args.hash, hash: args.hash };
        write_text(&report, options, &mut out)?;
    }
    out.flush()?;
    let damage: Vec<&str> = report.damage().collect();
    match damage[..] {
        [] => Ok(()),
        [only] => bail!("{only}"),
        [first, ..] => {
            damage.iter().for_each(|d| note!("  {d}"));
            bail!("{} tensors cannot be read, the first: {first}", damage.len())
        }
    }
}

/// Shows the forward pass.
fn forward_pass(args: &Args, file: &ModelFile) -> Result<()> {
    let model = program::load(file, &args.packing.options())?;
    let mut out = BufWriter::new(signals::stdout());
    match args.dot {
        Some(block) => program::write_dot(model.program(), block, &mut out)?,
        None if args.json => program::write_json(model.program(), file, &mut out)?,
        None => program::write_text(model.program(), &mut out)?,
    }
    Ok(out.flush()?)
}

/// Compares two files.
fn compare(args: &Args, first: &Path, second: &ModelFile) -> Result<()> {
    let first = load::open(first, !args.no_mmap)?;
    let diff = Diff::new(&first, second, &args.packing.options());
    let mut out = BufWriter::new(signals::stdout());
    if args.json {
        let report = Provenance::of("rinspect.diff/1").before(diff.json());
        writeln!(out, "{}", shown::json(&report, true))?;
    } else {
        diff.write(&mut out)?;
    }
    Ok(out.flush()?)
}
