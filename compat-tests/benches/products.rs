//! Matrix products: trine against ggml, same process, same bytes, in turns.
//!
//! Both get f32 activations and encode them themselves. ggml's figure is the better one of its plain
//! path and, where it has it for the type, its repacked weights.

use std::process::ExitCode;

use anyhow::{Context, Result, bail};
use trine::Isa;
use trine::ops::matmul::{Activations, Matrix, matmul};
use trine::ops::product::SharedArena;
use trine::ops::product::density::Dense;
use trine::pool::Pool;
use trine_compat_tests::bench::{Args, Clock, Work, floats, in_turns, median, speedup};
use trine_compat_tests::ggml::{Ggml, Product};
use trine_compat_tests::{Unavailable, ggml};
use trine_formats::gguf::Blob;
use trine_formats::types::{REGISTRY, TypeInfo};

/// Weights per row.
const COLUMNS: usize = 4096;
/// Bytes of weights that come from memory.
const LARGE: usize = 96 << 20;
/// Bytes that stay in the second-level cache.
const SMALL: usize = 384 << 10;
/// Rows with many tokens.
const GEMM: usize = 512;
/// Many tokens.
const TOKENS: usize = 512;
/// Distinct rows.
const DISTINCT: usize = 64;

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            eprintln!("products: error: {e:#}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> Result<()> {
    let Some(args) = Args::parse()? else {
        return Ok(());
    };
    let ggml = match ggml::Ggml::open() {
        Ok(ggml) => ggml,
        Err(Unavailable::Machine(why)) => {
            println!("SKIPPED: {why}");
            return Ok(());
        }
        Err(Unavailable::Failed(e)) => return Err(e),
    };
    let isa = Isa::from_env()?;
    println!("trine {isa} against ggml in {}", ggml.dir().display());
    println!("{COLUMNS} columns, medians of {} runs in turns; ratio = ggml's time / trine's", args.runs);
    println!();
    println!("| type | threads | product | trine rows | trine packed | ggml plain | ggml repacked | unit | ratio |");
    println!("|---|--:|---|--:|--:|--:|--:|---|--:|");
    let wanted = |t: &&TypeInfo| t.dot_ref.is_some() && t.encode.is_some() && args.wants(t);
    for ty in REGISTRY.iter().filter(wanted) {
        let distinct = distinct_rows(ty)?;
        let rows = |bytes: usize| (bytes / distinct.len()).max(1) * DISTINCT;
        for &threads in &args.threads {
            ggml.set_threads(threads);
            let pool = Pool::new(threads).context("cannot start threads")?;
            for (name, in_cache, rows, tokens) in [
                ("GEMV, memory", false, rows(LARGE), 1),
                ("GEMV, cache", true, rows(SMALL), 1),
                ("GEMM", false, GEMM, TOKENS),
            ] {
                let case = Case { ty, isa, threads, name, in_cache, rows, tokens };
                pool.install(|| case.measure(&distinct, &ggml, args.runs))?;
            }
        }
    }
    Ok(())
}

/// Some encoded rows. Ternary types get ternary weights.
fn distinct_rows(ty: &TypeInfo) -> Result<Vec<u8>> {
    let (encode, row_bytes) = ty.encode.zip(ty.row_bytes(COLUMNS as u64)).context("no encoder")?;
    let is_ternary = ["tq1_0", "tq2_0", "q2_0"].contains(&ty.name);
    let mut bytes = vec![0u8; DISTINCT * row_bytes as usize];
    for (i, out) in bytes.chunks_exact_mut(row_bytes as usize).enumerate() {
        let mut x = floats(i as u64, COLUMNS);
        if is_ternary {
            x.iter_mut().for_each(|x| *x = (*x * 1.5).clamp(-1.0, 1.0).round() / 64.0);
        }
        encode(&x, None, out);
    }
    Ok(bytes)
}

struct Case {
    ty: &'static TypeInfo,
    isa: Isa,
    threads: usize,
    name: &'static str,
    /// True if the model would stay in the cache as a whole.
    in_cache: bool,
    rows: usize,
    tokens: usize,
}

impl Case {
    fn measure(&self, distinct: &[u8], ggml: &Ggml, runs: usize) -> Result<()> {
        let Case { ty, isa, rows, tokens, .. } = *self;
        let weights: Vec<u8> = distinct.repeat(rows / DISTINCT);
        let x = floats(99, COLUMNS * tokens);
        let shape = [COLUMNS, rows, tokens];
        let plain = ggml.product(ty, shape, &weights, &x, false);
        let repacked = ggml.product(ty, shape, &weights, &x, true);
        let theirs: Vec<&Product<'_>> = [&plain, &repacked].into_iter().flatten().collect();

        let matrix = Matrix::new(ty.id, COLUMNS, rows, Blob::from_vec(weights), isa);
        let by_rows = matrix.with_context(|| format!("trine cannot multiply by {}", ty.name))?;
        let arena = SharedArena::default();
        let dense = if self.in_cache { Dense::Never } else { Dense::Measured };
        let packed = by_rows.clone().packed(&arena, isa, dense)?;
        let packed = packed.layout().0.is_some().then_some(packed);
        let ours: Vec<&Matrix> = [Some(&by_rows), packed.as_ref()].into_iter().flatten().collect();
        for product in &theirs {
            product.run();
            compare(ty, &self.product(ours[0], &x), &product.outputs())?;
        }

        // Small products are repeated, or the clock would be measured.
        let repeats = (100_000_000 / (rows * tokens * COLUMNS)).clamp(1, 100);
        let times = {
            let mut works: Vec<Work<'_>> = Vec::new();
            for &matrix in &ours {
                works.push(Box::new(|| {
                    (0..repeats).for_each(|_| drop(self.product(matrix, &x)));
                }));
            }
            for product in &theirs {
                works.push(Box::new(|| (0..repeats).for_each(|_| product.run())));
            }
            in_turns(&mut works, runs, Clock::new(self.threads))
        };
        let (ours, theirs) = times.split_at(ours.len());
        self.report(ours, theirs, plain.is_some(), repeats);
        Ok(())
    }

    fn product(&self, matrix: &Matrix, x: &[f32]) -> Vec<f32> {
        let acts = Activations::new(x, COLUMNS, self.isa);
        let [y] = matmul([matrix], &acts);
        std::hint::black_box(y.to_vec())
    }

    fn report(&self, ours: &[Vec<f64>], theirs: &[Vec<f64>], plain: bool, repeats: usize) {
        let bytes = self.ty.tensor_bytes(COLUMNS as u64, self.rows as u64).unwrap_or(0) as f64;
        let macs = (self.rows * self.tokens * COLUMNS) as f64;
        let (work, unit) = match self.tokens {
            1 => (bytes, "GB/s"),
            _ => (macs, "GMAC/s"),
        };
        let rate = |times: Option<&Vec<f64>>| {
            times.map_or("-".to_owned(), |t| format!("{:.1}", work * repeats as f64 / median(t.clone()) / 1e9))
        };
        let theirs = match plain {
            true => [theirs.first(), theirs.get(1)],
            false => [None, theirs.first()],
        };
        let best = |list: [Option<&'_ Vec<f64>>; 2]| -> Option<Vec<f64>> {
            let found = list.into_iter().flatten();
            found.min_by(|a, b| median(a.to_vec()).total_cmp(&median(b.to_vec()))).cloned()
        };
        let ratio = best([ours.first(), ours.get(1)])
            .zip(best(theirs))
            .map_or("-".to_owned(), |(o, t)| format!("{:.2}", speedup(&o, &t)));
        println!(
            "| {} | {} | {} | {} | {} | {} | {} | {unit} | {ratio} |",
            self.ty.name,
            self.threads,
            self.name,
            rate(ours.first()),
            rate(ours.get(1)),
            rate(theirs[0]),
            rate(theirs[1]),
        );
    }
}

/// Makes sure that both multiply the same things. The library's SIMD kernels round otherwise than the
/// portable C code, so a difference in the last bits is theirs.
fn compare(ty: &TypeInfo, ours: &[f32], theirs: &[f32]) -> Result<()> {
    let norm = |x: &mut dyn Iterator<Item = f64>| x.map(|v| v * v).sum::<f64>().sqrt();
    let size = norm(&mut ours.iter().map(|&v| f64::from(v)));
    let both = ours.iter().zip(theirs);
    let apart = norm(&mut both.map(|(a, b)| f64::from(*a) - f64::from(*b)));
    if apart.is_nan() || apart > size * 0.01 {
        bail!("{}: ggml's product is another: {apart:e} apart at a size of {size:e}", ty.name);
    }
    Ok(())
}
