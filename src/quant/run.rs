//! The runner: makes the files of a plan, whoever makes their tensors.

use std::mem;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;

use trine_formats::gguf::write::Layout;
use trine_formats::gguf::{Complete, Metadata, ModelFile, Value};

use super::error::QuantError;
use super::plan::{Method, OutputFiles, Plan};
use super::recipe::Recipe;
use super::source::ShardReader;
use super::work::{News, Run, RunError, RunOptions};
use crate::progress::Progress;

/// The output. The results for the rows are known to the [methods](Plan::find).
#[derive(Debug)]
pub struct Report {
    /// The files written.
    pub files: Vec<PathBuf>,
    /// Their size, headers included.
    pub file_bytes: u64,
    /// The threads that worked.
    pub threads: usize,
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
    run(model, &mut Plan::new(model, recipe)?, out.as_ref(), RunOptions::default(), &mut ())
}

/// Carries out a plan for the model it was made from. The files appear under their names when all of them are complete;
/// until then, and after any error, what was there stays. The bytes depend on no option.
///
/// # Errors
/// Problems of the plan; I/O; a model that changed meanwhile; values that are not finite; weights that must not be
/// lost; what else the methods say.
pub fn run(
    model: &ModelFile,
    plan: &mut Plan,
    out: &Path,
    options: RunOptions,
    progress: &mut dyn Progress,
) -> Result<Report, QuantError> {
    let pool = options.pool()?;
    let readers: Vec<ShardReader> = model.shards().iter().map(ShardReader::new).collect();
    plan.check()?;
    let mut run = Run {
        model,
        options,
        pool: &pool,
        readers: &readers,
        out,
        files: Vec::new(),
        places: Vec::new(),
        measure_only: AtomicBool::new(false),
        news: News::new(progress),
    };
    // They change while they work, and the plan that they belong to does not.
    let mut methods = mem::take(&mut plan.methods);
    let made = make(plan, &mut methods, &mut run);
    plan.methods = methods;
    made?;
    readers.iter().try_for_each(ShardReader::unchanged).map_err(RunError::from)?;
    let file_bytes = run.files.iter().map(|file| file.layout.file_bytes()).sum();
    let complete = run.files.into_iter().map(|file| file.writer.complete(&file.layout));
    let complete = complete.collect::<Result<_, _>>().and_then(Complete::keep_all);
    complete.map_err(RunError::from)?;
    Ok(Report { files: plan.paths(out), file_bytes, threads: pool.current_num_threads() })
}

/// Makes all rows, in order.
fn make(plan: &Plan, methods: &mut [Box<dyn Method>], run: &mut Run<'_>) -> Result<(), QuantError> {
    for method in &mut *methods {
        method.begin(plan, run)?;
    }
    if run.files.is_empty() {
        create(plan, run)?;
    }
    let mut rest = &plan.rows[..];
    while let Some(first) = rest.first() {
        let start = plan.rows.len() - rest.len();
        let n = rest.iter().take_while(|row| row.method == first.method).count();
        rest = &rest[n..];
        if let Some(method) = methods.iter_mut().find(|m| m.name() == first.method) {
            method.make(start..start + n, plan, run)?;
        }
    }
    for method in methods {
        method.end(plan, run)?;
    }
    Ok(())
}

/// Starts the files of a plan whose rows are a tensor each.
fn create(plan: &Plan, run: &mut Run<'_>) -> Result<(), QuantError> {
    let layouts = plan.layouts()?;
    if matches!(plan.files, OutputFiles::Quantized { .. }) {
        for (shard, layout) in plan.shards.iter().zip(&layouts) {
            check_alignment(&shard.meta, layout)?;
        }
    }
    for (path, layout) in plan.paths(run.out).iter().zip(layouts) {
        let file = run.files.len();
        run.places.extend((0..layout.tensors().len()).map(|tensor| (file, tensor)));
        run.create(path, layout, &[])?;
    }
    Ok(())
}

/// ggml's writer knows no alignment but 32: refuses a file that it would place otherwise.
fn check_alignment(meta: &Metadata, layout: &Layout) -> Result<(), QuantError> {
    let alignment = meta.get_u64("general.alignment").map_err(RunError::from)?.unwrap_or(32);
    if alignment == 32 {
        return Ok(());
    }
    let usual = || {
        let mut meta = meta.clone();
        meta.set("general.alignment", Value::U32(32));
        let tensors: Vec<_> = layout.tensors().iter().map(Into::into).collect();
        Layout::new(&meta, &tensors)
    };
    let usual = usual().map_err(RunError::from)?;
    let same = usual.header().len() == layout.header().len()
        && usual.tensors() == layout.tensors()
        && usual.file_bytes() == layout.file_bytes();
    if same { Ok(()) } else { Err(QuantError::Alignment(alignment)) }
}
