//! Carries out a plan for the types of llama-quantize and bitnet.cpp.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use rayon::prelude::*;
use trine_formats::gguf::write::{Layout, NewTensor};
use trine_formats::gguf::{ModelFile, Value, split};

use super::error::{QuantError, blame_move};
use super::gptq::{self, Factor, FeedbackReport, Gptq};
use super::lossless::{MoveReport, carry};
use super::method::{Method, Run, RunError, RunOptions, run};
use super::plan::Plan;
use super::recipe::Recipe;
use super::round::Rounding;
use super::row::{Move, OutShard};
use super::ternary::TernaryReport;

/// Bytes of a moved tensor that one thread writes at a time.
const WRITE_BYTES: usize = 1 << 22;

/// What was done.
#[derive(Debug, Default)]
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

/// Problems of the plan, values that are not finite and ternary types for what is not ternary are errors.
impl Method for &Plan {
    type Report = Report;
    type Error = QuantError;

    fn work(&self) -> u64 {
        self.bytes_from()
    }

    fn make(self, run: &mut Run<'_>) -> Result<Report, QuantError> {
        self.check()?;
        let layouts = self.shards.iter().map(|s| layout(self, s)).collect::<Result<Vec<_>, _>>()?;
        let file_bytes = layouts.iter().map(Layout::file_bytes).sum();
        let files = output_paths(self, run.out);
        for (path, layout) in files.iter().zip(layouts) {
            run.create(path, layout, &[])?;
        }
        let report = Report { files, file_bytes, ..Report::default() };
        let places = self.shards.iter().enumerate();
        let places = places.flat_map(|(file, shard)| (0..shard.rows.len()).map(move |tensor| (file, tensor)));
        let mut work = Work { plan: self, places: places.collect(), measure_only: AtomicBool::new(false), report };
        work.run(run)?;
        let report = work.report;
        if !run.options.force && report.ternary.worst().is_some() {
            return Err(QuantError::NotTernary(report.ternary));
        }
        if !run.options.force && !report.moves.is_exact() {
            return Err(QuantError::NotExact(report.moves));
        }
        Ok(report)
    }
}

/// A plan on its way.
struct Work<'a> {
    plan: &'a Plan,
    /// The file of each row, and its number there.
    places: Vec<(usize, usize)>,
    /// Nothing will be kept: only find out how much is lost.
    measure_only: AtomicBool,
    report: Report,
}

impl Work<'_> {
    /// Makes all tensors: one that is moved is taken whole, by all threads together.
    fn run(&mut self, run: &mut Run<'_>) -> Result<(), QuantError> {
        let plan = self.plan;
        let apart = |i: usize| plan.rows[i].moves.is_some() || plan.feeds_back(i);
        let mut at = 0;
        while at < plan.rows.len() {
            let row = &plan.rows[at];
            if !apart(at) {
                let end = (at..plan.rows.len()).find(|&i| apart(i)).unwrap_or(plan.rows.len());
                let (places, importance, measure_only) = (&self.places[..], &plan.importance, &self.measure_only);
                let rounding = Rounding { rows: &plan.rows, places, importance, encoder: plan.encoder, measure_only };
                rounding.make(at..end, run, &mut self.report.ternary)?;
                at = end;
                continue;
            }
            let pool = run.pool;
            pool.install(|| match row.moves {
                Some(_) if row.bytes_from == 0 => Ok(()),
                Some(how) => self.move_tensor(at, how, run),
                None => self.feed_back(at, run),
            })?;
            run.news.tell(|i| &plan.rows[i].name, at, row.bytes_from);
            at += 1;
        }
        Ok(())
    }

    /// Moves a whole tensor, on the pool's threads.
    fn move_tensor(&mut self, index: usize, how: Move, run: &mut Run<'_>) -> Result<(), QuantError> {
        let row = &self.plan.rows[index];
        let data = run.readers[row.source.shard].read_whole(row).map_err(RunError::from)?;
        let (bytes, moved) = carry(row, how, &data).map_err(|fault| blame_move(row, fault))?;
        drop(data);
        if moved.inexact.is_some() && !run.options.force {
            self.measure_only.store(true, Ordering::Relaxed);
        }
        self.report.moves.tensors.push(moved);
        if !self.measure_only.load(Ordering::Relaxed) {
            let (file, tensor) = self.places[index];
            let writer = &run.files[file].writer;
            let chunks = bytes.par_chunks(WRITE_BYTES).enumerate();
            let written = chunks.try_for_each(|(i, bytes)| writer.write(tensor, (i * WRITE_BYTES) as u64, bytes));
            written.map_err(RunError::from)?;
        }
        Ok(())
    }

    /// Rounds the tensors that read the same input as tensor `index`, when that is the first of them, on the pool's
    /// threads: so the Hessian is factored once.
    fn feed_back(&mut self, index: usize, run: &mut Run<'_>) -> Result<(), QuantError> {
        let Some(job) = &self.plan.feedback else {
            return Ok(());
        };
        let mates = job.mates(index);
        if mates.first() != Some(&index) || self.measure_only.load(Ordering::Relaxed) {
            return Ok(());
        }
        let Gptq { hessians, options } = &job.gptq;
        let factor = Factor::read(hessians, job.inputs[&index], options, run.options.isa);
        let factor =
            factor.map_err(|fault| QuantError::Hessian { tensor: self.plan.rows[index].name.clone(), fault })?;
        for mate in mates {
            let row = &self.plan.rows[mate];
            let data = run.readers[row.source.shard].read_whole(row).map_err(RunError::from)?;
            let bytes = gptq::round(row, &data, &factor, options, run.options.isa).map_err(|fault| fault.of(row))?;
            let (file, tensor) = self.places[mate];
            run.files[file].writer.write(tensor, 0, &bytes).map_err(RunError::from)?;
            self.report.feedback.tensors += 1;
            if factor.damp() > options.damp {
                self.report.feedback.damped.push((row.name.clone(), factor.damp()));
            }
        }
        Ok(())
    }
}

/// The header of one output file. ggml's writer knows no alignment but 32.
fn layout(plan: &Plan, shard: &OutShard) -> Result<Layout, QuantError> {
    let tensors: Vec<NewTensor> = plan.rows[shard.rows.clone()]
        .iter()
        .map(|r| NewTensor { name: r.name.clone(), shape: r.shape.clone(), ty: r.to, bytes: Some(r.bytes) })
        .collect();
    let layout = Layout::new(&shard.meta, &tensors).map_err(RunError::from)?;
    let alignment = shard.meta.get_u64("general.alignment").map_err(RunError::from)?.unwrap_or(32);
    if alignment != 32 {
        let mut meta = shard.meta.clone();
        meta.set("general.alignment", Value::U32(32));
        let usual = Layout::new(&meta, &tensors).map_err(RunError::from)?;
        let same = usual.header().len() == layout.header().len()
            && usual.tensors() == layout.tensors()
            && usual.file_bytes() == layout.file_bytes();
        if !same {
            return Err(QuantError::Alignment(alignment));
        }
    }
    Ok(layout)
}
