//! Carries out a plan: see [`super::work`] for how the threads share it.

use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;

use trine_formats::gguf::write::{Layout, NewTensor};
use trine_formats::gguf::{Complete, ModelFile, ScatterWriter, Value, split};

use super::error::QuantError;
use super::gptq::FeedbackReport;
use super::lossless::MoveReport;
use super::options::RunOptions;
use super::plan::Plan;
use super::progress::Progress;
use super::recipe::Recipe;
use super::row::OutShard;
use super::source::ShardReader;
use super::ternary::TernaryReport;
use super::work::{Done, Work};

/// What was done.
#[derive(Debug)]
pub struct Report {
    /// The files written.
    pub files: Vec<PathBuf>,
    /// Their size, headers included.
    pub file_bytes: u64,
    /// What became of ternary tensors.
    pub ternary: TernaryReport,
    /// What became of weights that were ternary before and were moved.
    pub moves: MoveReport,
    /// What became of weights that were rounded with error feedback.
    pub feedback: FeedbackReport,
}

/// The files that a plan makes for the path `out`: with `--keep-split` their names are numbered.
pub fn output_paths(plan: &Plan, out: &Path) -> Vec<PathBuf> {
    if !plan.keep_split {
        return vec![out.to_owned()];
    }
    let prefix = out.to_string_lossy();
    let prefix = prefix.strip_suffix(".gguf").unwrap_or(&prefix);
    let count = plan.shards.len() as u32;
    (0..count).map(|no| split::shard_path(prefix, no, count)).collect()
}

/// Writes `model` as `recipe` says to `out`: [`Plan::new`] and [`run`] with every processor and no news, for callers
/// that do not want to look at the plan before.
///
/// ```no_run
/// use trine::{Recipe, Target};
///
/// let model = trine::open_file("model-F16.gguf", true)?;
/// let target = Target::parse("Q4_K_M").expect("a name that llama-quantize knows");
/// let report = trine::quantize(&model, &Recipe::new(target), "model-Q4_K_M.gguf")?;
/// println!("{} bytes", report.file_bytes);
/// # Ok::<(), trine::Error>(())
/// ```
///
/// # Errors
/// As [`Plan::new`] and [`run`].
pub fn quantize(model: &ModelFile, recipe: &Recipe, out: impl AsRef<Path>) -> Result<Report, QuantError> {
    let plan = Plan::new(model, recipe)?;
    run(model, &plan, out.as_ref(), RunOptions::default(), &mut ())
}

/// Carries out `plan` for the model it was made from. The files appear under their names when all of
/// them are complete; until then, and after any error, what was there stays.
///
/// # Errors
/// Problems of the plan, I/O, values that are not finite, ternary types for what is not ternary.
pub fn run(
    model: &ModelFile,
    plan: &Plan,
    out: &Path,
    options: RunOptions,
    progress: &mut dyn Progress,
) -> Result<Report, QuantError> {
    plan.check()?;
    let layouts = plan.shards.iter().map(|s| layout(plan, s)).collect::<Result<Vec<_>, _>>()?;
    let file_bytes = layouts.iter().map(Layout::file_bytes).sum();
    let files = output_paths(plan, out);
    let inputs: Vec<&Path> = model.shards().iter().map(|s| s.path.as_path()).collect();
    let mut writers = Vec::with_capacity(files.len());
    for (path, layout) in files.iter().zip(&layouts) {
        writers.push(ScatterWriter::create(path, layout.clone(), &inputs)?);
    }
    let readers: Vec<ShardReader> = model.shards().iter().map(ShardReader::new).collect();
    let pool = rayon::ThreadPoolBuilder::new()
        .num_threads(options.threads)
        .build()
        .map_err(|e| QuantError::Threads { threads: options.threads, why: e.to_string() })?;

    let work = Work { plan, readers: &readers, writers: &writers, options, measure_only: AtomicBool::new(false) };
    let Done { ternary, moves, feedback } = work.run(&pool, progress)?;
    if !options.force && ternary.worst().is_some() {
        return Err(QuantError::NotTernary(ternary));
    }
    if !options.force && !moves.is_exact() {
        return Err(QuantError::NotExact(moves));
    }
    readers.iter().try_for_each(ShardReader::unchanged)?;
    let complete = writers.into_iter().zip(&layouts);
    let complete = complete.map(|(writer, layout)| writer.complete(layout));
    Complete::keep_all(complete.collect::<Result<_, _>>()?)?;
    Ok(Report { files, file_bytes, ternary, moves, feedback })
}

/// The header of one output file. ggml's writer knows no alignment but 32.
fn layout(plan: &Plan, shard: &OutShard) -> Result<Layout, QuantError> {
    let tensors: Vec<NewTensor> = plan.rows[shard.rows.clone()]
        .iter()
        .map(|r| NewTensor { name: r.name.clone(), shape: r.shape.clone(), ty: r.to, bytes: Some(r.bytes) })
        .collect();
    let layout = Layout::new(&shard.meta, &tensors)?;
    let alignment = shard.meta.get_u64("general.alignment")?.unwrap_or(32);
    if alignment != 32 {
        let mut meta = shard.meta.clone();
        meta.set("general.alignment", Value::U32(32));
        let usual = Layout::new(&meta, &tensors)?;
        let same = usual.header().len() == layout.header().len()
            && usual.tensors() == layout.tensors()
            && usual.file_bytes() == layout.file_bytes();
        if !same {
            return Err(QuantError::Alignment(alignment));
        }
    }
    Ok(layout)
}
