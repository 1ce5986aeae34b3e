//! Carries out a plan: chooses the weights that are kept as they are, clusters the rows of every matrix and
//! writes each part to its place.
//!
//! A few million weights are in memory at once. Rows are clustered in parallel, each on its own, so that the
//! bytes do not depend on the number of threads. The files of the model are hashed meanwhile.

use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};

use sha2::{Digest, Sha256};
use trine_formats::anyprec::{Header, Part, SparseShares};
use trine_formats::gguf::ScatterWriter;
use trine_formats::limited::open_regular;

use super::codes::Codes;
use super::error::{ApError, check_finite};
use super::feedback::Feedback;
use super::footprint::Footprint;
use super::keep::{Choice, choose};
use super::opened::Opened;
use super::places::{Places, matrices};
use super::work::{Kept, Work, decode};
use crate::quant::plan::Plan;
use crate::quant::row::Row;
use crate::quant::source::ShardReader;
use crate::quant::work::{Run, RunError, go_on};

/// Weights that are clustered between two reads: enough work for many threads.
const CHUNK_WEIGHTS: u64 = 1 << 22;

/// The result.
#[derive(Debug)]
pub struct Report {
    /// Sizes by width.
    pub footprint: Footprint,
    /// The values of the keys.
    pub header: Header,
    /// Weights that are kept as they are.
    pub sparse: u64,
    /// For each width of the code the error `Σ s (w − c)² / Σ s w²`, with error feedback `(Q − W) H (Q − W)ᵀ / W H Wᵀ`:
    /// the mean of all matrices by their weights.
    pub errors: Vec<(u8, f64)>,
}

/// Hashes of the model's files, and of a single other one.
struct Hashes {
    model: Vec<String>,
    other: Option<String>,
}

/// The hashes, found by a thread of their own while matrices are clustered; after an error nobody waits for them.
#[derive(Debug)]
struct Hashing {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<Result<Hashes, ApError>>>,
}

impl Hashing {
    fn start(readers: &[ShardReader], others: Vec<PathBuf>) -> Result<Hashing, RunError> {
        let (readers, stop) = (readers.to_vec(), Arc::new(AtomicBool::new(false)));
        let stopped = stop.clone();
        let thread = thread::Builder::new().spawn(move || hash_all(&readers, &others, &stopped));
        let thread = thread.map_err(|e| RunError::Threads { threads: 1, why: e.to_string() })?;
        Ok(Hashing { stop, thread: Some(thread) })
    }

    fn wait(mut self) -> Result<Hashes, ApError> {
        let thread = self.thread.take().map(JoinHandle::join);
        let hashes = thread.unwrap_or_else(|| Ok(Ok(Hashes { model: Vec::new(), other: None })));
        hashes.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    }
}

impl Drop for Hashing {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
    }
}

/// The file of a plan on its way.
#[derive(Debug)]
pub(super) struct Making {
    choice: Choice,
    header: Header,
    places: Places,
    hashing: Hashing,
    /// Matrices that are done.
    done: usize,
    /// The mean error at each width so far.
    errors: Vec<f64>,
}

impl Making {
    /// Chooses the weights that are kept as they are, and starts the file.
    pub fn new(codes: &Codes, opened: &mut Opened, plan: &Plan, run: &mut Run<'_>) -> Result<Making, ApError> {
        // Inputs beside the model.
        let others = opened.files();
        let hashing = Hashing::start(run.readers, others.clone())?;
        let pool = run.pool;
        let choice = pool.install(|| choose(codes, plan, run.readers, opened, run.news.progress))?;
        let sensitivity = &codes.options.sensitivity;
        let mut header = codes.header.clone();
        header.sensitivity = sensitivity.name().to_owned();
        header.calibration = sensitivity.calibration();
        header.sparse = codes.outliers().map(|(_, shares)| SparseShares {
            sensitivity: shares.sensitive as f32,
            magnitude: choice.magnitude as f32,
        });
        // hashes have one length: the header has its size before they are known
        let unknown = "0".repeat(64);
        header.source_sha256 = vec![unknown.clone(); run.readers.len()];
        if others.len() == 1 {
            header.calibration.sha256 = Some(unknown);
        }
        let places = Places::new(plan, &header, &choice.counts)?;
        run.create(run.out, places.layout.clone(), &others)?;
        run.places = places.rows.iter().map(|&tensor| (0, tensor)).collect();
        let errors = vec![0.0; codes.nesting().widths().len()];
        Ok(Making { choice, header, places, hashing, done: 0, errors })
    }

    /// Makes the next matrix, which is row number `index`.
    pub fn matrix(
        &mut self,
        codes: &Codes,
        opened: &mut Opened,
        index: usize,
        plan: &Plan,
        run: &mut Run<'_>,
    ) -> Result<(), ApError> {
        let (number, row) = (self.done, &plan.rows[index]);
        self.done += 1;
        let (kept, sparse) = (&self.choice.kept[number], self.choice.counts[number]);
        let matrix = MatrixWork { codes, plan, number, index, row, kept, sparse, places: &self.places };
        let pool = run.pool;
        let relative = pool.install(|| matrix.make(run, opened))?;
        let all: u64 = matrices(plan).map(Row::weights).sum();
        let share = row.weights() as f64 / all as f64;
        self.errors.iter_mut().zip(relative).for_each(|(sum, e)| *sum += e * share);
        Ok(())
    }

    /// Completes the header.
    pub fn end(self, codes: &Codes, opened: &Opened, plan: &Plan, run: &mut Run<'_>) -> Result<Report, ApError> {
        let Making { choice, mut header, places, hashing, errors, .. } = self;
        let footprint = Footprint::new(plan, &header, &places, &choice.counts);
        let hashes = hashing.wait()?;
        header.source_sha256 = hashes.model;
        if hashes.other.is_some() {
            header.calibration.sha256 = hashes.other;
        }
        opened.unchanged()?;
        run.files[0].layout = Places::new(plan, &header, &choice.counts)?.layout;
        let errors = codes.nesting().widths().zip(errors).collect();
        Ok(Report { footprint, header, sparse: choice.counts.iter().sum(), errors })
    }
}

/// A matrix to be clustered and written.
struct MatrixWork<'a> {
    codes: &'a Codes,
    plan: &'a Plan,
    /// Its number among the matrices, and among all rows.
    number: usize,
    index: usize,
    row: &'a Row,
    kept: &'a Kept,
    /// Weights that are kept as they are.
    sparse: u64,
    places: &'a Places,
}

impl MatrixWork<'_> {
    /// Clusters and writes the matrix. Returns the relative error at each width of the code.
    fn make(&self, run: &mut Run<'_>, opened: &mut Opened) -> Result<Vec<f64>, ApError> {
        let (codes, row, header) = (self.codes, self.row, &self.codes.header);
        let (isa, writer) = (run.options.isa, &run.files[0].writer);
        let columns = row.columns();
        let rows = row.weights() / columns.max(1);
        let metric = opened.metric(row, isa)?;
        let feedback = |m| Feedback::new(m, codes.nesting(), &header.bits, isa);
        let work = Work {
            nesting: codes.nesting(),
            bits: header.bits.clone(),
            method: codes.options.method,
            columns: columns as usize,
            groups: header.groups as usize,
            kept: self.kept,
            feedback: metric.as_deref().map(feedback),
        };
        let shared = header.shared_by(rows);
        // Rows that share tables are taken together.
        let step = if shared > 0 { rows.max(1) } else { (CHUNK_WEIGHTS / columns.max(1)).max(1) };
        let (row_bytes, mut buffer) = (row.bytes_from / rows.max(1), Vec::new());
        let mut sparse = Sparse::default();
        let mut errors = vec![0.0; work.nesting.widths().len()];
        let mut energy = 0.0;
        for first_row in (0..rows).step_by(step as usize) {
            go_on(&run.options.cancel)?;
            let count = step.min(rows - first_row);
            let reader = &run.readers[row.source.shard];
            let (start, len) = (first_row * row_bytes, (count * row_bytes) as usize);
            let data = reader.read_chunk(row, start, len, &mut buffer).map_err(RunError::from)?;
            check_finite(row, first_row, data)?;
            let weights = decode(row.from, work.columns, data);
            let own = opened.rows(row, first_row, count)?;
            let done = match shared {
                0 => work.run(first_row, &weights, &own),
                tables => work.run_shared(tables as usize, &weights, own),
            };
            let done = done.map_err(|source| ApError::Cluster { tensor: row.name.clone(), source })?;
            let planes = (0..).map(Part::Plane).zip(&done.planes);
            let luts = work.nesting.widths().map(Part::Lut).zip(&done.luts);
            let scales = work.nesting.widths().map(Part::Scale).zip(&done.scales);
            let classes = [(Part::Class, &done.classes)];
            for (part, bytes) in planes.chain(luts).chain(scales).chain(classes) {
                // widths that are not kept have no tables in the file
                if let Some(&tensor) = self.places.parts.get(&(self.number, part)) {
                    let per_row = bytes.len() as u64 / count;
                    writer.write(tensor, first_row * per_row, bytes).map_err(RunError::from)?;
                }
            }
            for n in done.kept {
                sparse.ends.push(sparse.ends.last().unwrap_or(&0) + n);
            }
            sparse.columns.extend(done.columns);
            sparse.values.extend(done.values);
            let sums = errors.iter_mut().zip(done.errors);
            sums.for_each(|(sum, e)| *sum += e);
            energy += done.energy;
            run.news.tell(|i| &self.plan.rows[i].name, self.index, data.len() as u64);
        }
        self.write_sparse(sparse, writer)?;
        let relative = |e: f64| if energy > 0.0 { e / energy } else { 0.0 };
        Ok(errors.into_iter().map(relative).collect())
    }

    fn write_sparse(&self, sparse: Sparse, writer: &ScatterWriter) -> Result<(), ApError> {
        if self.sparse == 0 {
            return Ok(());
        }
        let count = sparse.ends.last().copied().unwrap_or(0);
        if i32::try_from(count).is_err() {
            let tensor = self.row.name.clone();
            return Err(ApError::TooManySparse { tensor, count });
        }
        let ends = [0].into_iter().chain(sparse.ends);
        let ptr: Vec<u8> = ends.flat_map(|n| (n as i32).to_le_bytes()).collect();
        for (part, bytes) in
            [(Part::SparsePtr, ptr), (Part::SparseCol, sparse.columns), (Part::SparseVal, sparse.values)]
        {
            if let Some(&tensor) = self.places.parts.get(&(self.number, part)) {
                writer.write(tensor, 0, &bytes).map_err(RunError::from)?;
            }
        }
        Ok(())
    }
}

/// The weights of a matrix that are kept as they are.
#[derive(Default)]
struct Sparse {
    /// Where the entries of each row end.
    ends: Vec<usize>,
    columns: Vec<u8>,
    values: Vec<u8>,
}

fn hash_all(readers: &[ShardReader], others: &[PathBuf], stop: &AtomicBool) -> Result<Hashes, ApError> {
    let go_on = || !stop.load(Ordering::Relaxed);
    let model = readers.iter().map(|reader| {
        let mut sha = Sha256::new();
        let read = reader.read_all(|bytes| {
            sha.update(bytes);
            go_on()
        });
        read.map_err(|source| ApError::Hash { path: reader.path().to_owned(), source })?;
        Ok(hex(&sha.finalize()))
    });
    Ok(Hashes {
        model: model.collect::<Result<_, ApError>>()?,
        other: match others {
            [path] => Some(hash(path, stop).map_err(|source| ApError::Hash { path: path.clone(), source })?),
            _ => None,
        },
    })
}

/// SHA-256 of a file, in hexadecimal; nothing when told to stop.
fn hash(path: &Path, stop: &AtomicBool) -> io::Result<String> {
    let mut file = open_regular(path)?;
    let mut sha = Sha256::new();
    let mut buffer = vec![0; 1 << 20];
    loop {
        match file.read(&mut buffer) {
            Ok(0) => return Ok(hex(&sha.finalize())),
            Ok(_) if stop.load(Ordering::Relaxed) => return Ok(String::new()),
            Ok(n) => sha.update(&buffer[..n]),
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) => return Err(e),
        }
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|b| format!("{b:02x}")).collect()
}
