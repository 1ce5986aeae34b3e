//! Products with widely linear matrices: fused against sixteen separate ones, exact against 8-bit activations, many
//! tokens against one, and all of them against products with the same matrix in F32 and in BF16. Everything comes from
//! memory, on the same threads, in turns.

use std::process::ExitCode;

use anyhow::{Context, Result};
use trine::ops::matmul::{Activations, Matrix, matmul};
use trine::ops::product::density::Dense;
use trine::ops::product::{SharedArena, probe};
use trine::pool::{self, Pool};
use trine::{Isa, Level};
use trine_compat_tests::bench::{Args, Clock, Work, floats, in_turns, median, speedup};
use trine_formats::gguf::Blob;
use trine_formats::types::TypeId;
use trine_formats::widely::{CHUNK, Profile, Rule, Scope, Shape, TieRule, WidelyMatrix};
use trine_kernels::widely::{CodeLayout, Path, sums_of};

/// Real columns.
const COLUMNS: usize = 4096;
/// Real rows: codes of 67 MB.
const ROWS: usize = 65_536;
/// Many tokens.
const TOKENS: usize = 16;
/// Rows of the matrix that many tokens are multiplied with.
const BATCH_ROWS: usize = 8192;

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            eprintln!("widely: error: {e:#}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> Result<()> {
    let Some(args) = Args::parse()? else {
        return Ok(());
    };
    let isa = Isa::from_env()?;
    println!("trine {isa}: {ROWS} rows, {COLUMNS} columns, two stages; medians of {} runs in turns", args.runs);
    println!("| threads | product | ms | GB/s of weights | ratio | of what |");
    println!("|--:|---|--:|--:|--:|---|");
    for &threads in &args.threads {
        let pool = Pool::new(threads).context("cannot start threads")?;
        pool.install(|| measure(isa, threads, args.runs))?;
    }
    Ok(())
}

fn shape(rows: usize) -> Result<Shape> {
    let rule = Rule { stages: 2, scope: Scope::Tensor, profile: Profile::F32, tie: TieRule::Phase };
    rule.shape(rows, COLUMNS).context("odd sides")
}

fn random(rows: usize) -> Result<WidelyMatrix> {
    let shape = shape(rows)?;
    let mut state = 1u64;
    let words = 0..shape.rows * shape.row_words() / 2;
    let codes = words.flat_map(|_| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state.to_le_bytes()
    });
    Ok(WidelyMatrix {
        shape,
        codes: Blob::from_vec(codes.collect()),
        scales: [0.02f32, 0.021, 0.01, 0.011, 0.02, 0.021, 0.01, 0.011].into(),
    })
}

/// A matrix as a model has it.
fn ready(matrix: &WidelyMatrix, path: Path, isa: Isa) -> Result<Matrix> {
    let matrix = Matrix::widely_linear(path, matrix.clone(), isa);
    Ok(matrix.packed(&SharedArena::default(), isa, Dense::Always)?)
}

fn measure(isa: Isa, threads: usize, runs: usize) -> Result<()> {
    let source = random(ROWS)?;
    let dense = |ty: TypeId, size: usize| {
        let weights = Blob::from_vec(vec![0x3c; size * ROWS * COLUMNS]);
        let matrix = Matrix::new(ty, COLUMNS, ROWS, weights, isa).context("a dense matrix")?;
        anyhow::Ok(matrix.packed(&SharedArena::default(), isa, Dense::Always)?)
    };
    let (f32s, bf16s) = (dense(TypeId::F32, 4)?, dense(TypeId::BF16, 2)?);
    let (exact, int8) = (ready(&source, Path::Exact, isa)?, ready(&source, Path::Int8, isa)?);
    let probed = [&exact, &int8].map(|w| w.probed(isa).context("a matrix to measure"));
    let probed = probed.into_iter().collect::<Result<Vec<_>>>()?;
    let chosen = probe::choose(&probed).map_err(anyhow::Error::msg)?;
    println!("{chosen}");
    let streams = streams(&source);
    let planes = isa.has(Level::Avx512).then(|| planes(&source));
    let x = floats(1, COLUMNS);
    let product = |w: &Matrix| {
        let acts = Activations::new(&x, COLUMNS, isa);
        std::hint::black_box(matmul([w], &acts));
    };
    let mut works: Vec<Work<'_>> = vec![
        Box::new(|| product(&exact)),
        Box::new(|| product(&f32s)),
        Box::new(|| product(&int8)),
        Box::new(|| separate(isa, &source.shape, &streams, &x)),
        Box::new(|| rows(isa, CodeLayout::Words, &source.shape, &source.codes, &x)),
        Box::new(|| product(&bf16s)),
    ];
    if let Some(planes) = &planes {
        works.push(Box::new(|| rows(isa, CodeLayout::Planes, &source.shape, planes, &x)));
    }
    let times = in_turns(&mut works, runs, Clock::new(threads));
    drop(works);
    let row = |name: &str, i: usize, bytes: usize, ratio: f64, of: &str| {
        let ms = median(times[i].clone()) * 1e3;
        let rate = bytes as f64 / ms / 1e6;
        println!("| {threads} | {name} | {ms:.2} | {rate:.2} | {ratio:.2} | {of} |");
    };
    let codes = source.codes.len();
    let ratio = |a: usize, b: usize| speedup(&times[a], &times[b]);
    let of_words = match isa.has(Level::Avx512) {
        true => "exact, fused, by pext",
        false => "exact, fused, from the file's words",
    };
    row("F32", 1, 4 * ROWS * COLUMNS, 1.0, "itself");
    row("BF16", 5, 2 * ROWS * COLUMNS, ratio(5, 1), "F32's speed");
    row("exact, fused", 0, codes, ratio(0, 1), "F32's speed");
    row(of_words, 4, codes, ratio(4, 1), "F32's speed");
    if planes.is_some() {
        row("exact, fused, by planes", 6, codes, ratio(6, 4), "pext's speed");
        row("exact, fused", 0, codes, ratio(0, 4), "pext's speed");
    }
    row("exact, sixteen separate", 3, codes, ratio(0, 3), "times as long as fused");
    row("8-bit activations", 2, codes, ratio(2, 0), "exact's speed");
    batches(isa, threads, runs)
}

/// Many tokens at once, and one after the other.
fn batches(isa: Isa, threads: usize, runs: usize) -> Result<()> {
    let source = random(BATCH_ROWS)?;
    let xs = floats(2, TOKENS * COLUMNS);
    for (path, name) in [(Path::Exact, "exact"), (Path::Int8, "8-bit activations")] {
        let w = ready(&source, path, isa)?;
        let product = |xs: &[f32]| {
            let acts = Activations::new(xs, COLUMNS, isa);
            std::hint::black_box(matmul([&w], &acts));
        };
        let mut works: Vec<Work<'_>> =
            vec![Box::new(|| product(&xs)), Box::new(|| xs.chunks(COLUMNS).for_each(&product))];
        let times = in_turns(&mut works, runs, Clock::new(threads));
        let ms = median(times[0].clone()) * 1e3;
        let ratio = speedup(&times[0], &times[1]);
        println!(
            "| {threads} | {name}, {TOKENS} tokens, {BATCH_ROWS} rows | {ms:.2} | | {ratio:.2} | single tokens' rate |"
        );
    }
    Ok(())
}

/// The words sorted into planes.
fn planes(w: &WidelyMatrix) -> Vec<u8> {
    let mut planes = vec![0; w.codes.len()];
    let row = CodeLayout::Planes.unit_bytes(&w.shape);
    for (words, out) in w.codes.chunks(row).zip(planes.chunks_mut(row)) {
        CodeLayout::Planes.pack(&w.shape, words, out);
    }
    planes
}

/// The sums of rows in a form that has them one by one: the file's words, which on AVX-512 are taken apart by pext as
/// FairyFuse does it, or planes.
fn rows(isa: Isa, form: CodeLayout, shape: &Shape, weights: &[u8], x: &[f32]) {
    let mut acts = trine_kernels::AlignedBytes::new(Path::Exact.act_bytes(shape));
    Path::Exact.arrange(isa, shape, x, &mut acts);
    let (re, im) = acts.split_at(acts.len() / 2);
    let (sums, streams) = (sums_of(isa, form), shape.streams());
    let bytes = 4 * shape.row_words();
    pool::for_each(shape.rows.div_ceil(64), |task| {
        for row in 64 * task..shape.rows.min(64 * (task + 1)) {
            let mut out = [[0.0; 4]; 8];
            let words = &weights[row * bytes..(row + 1) * bytes];
            sums(streams, words, re, im, &mut out[..streams]);
            std::hint::black_box(out);
        }
    });
}

/// The words of each stream by themselves, `[row][chunk]`.
fn streams(w: &WidelyMatrix) -> Vec<Vec<u8>> {
    let words = |stream: usize| {
        let words = w.codes.as_chunks::<4>().0[stream..].iter();
        words.step_by(w.shape.streams()).flatten().copied().collect()
    };
    (0..w.shape.streams()).map(words).collect()
}

/// Sixteen products with ternary matrices, each of which reads the words of its stream, all rows of one before the
/// next.
fn separate(isa: Isa, shape: &Shape, streams: &[Vec<u8>], x: &[f32]) {
    let mut acts = trine_kernels::AlignedBytes::new(Path::Exact.act_bytes(shape));
    Path::Exact.arrange(isa, shape, x, &mut acts);
    let half = acts.len() / 2;
    let parts = [&acts[..half], &acts[half..]];
    let chunks = shape.chunks();
    for words in streams {
        for imaginary in [false, true] {
            for part in parts {
                let x: Vec<f32> = part.as_chunks().0.iter().map(|&b| f32::from_le_bytes(b)).collect();
                pool::for_each(shape.rows.div_ceil(64), |task| {
                    for row in 64 * task..shape.rows.min(64 * (task + 1)) {
                        let words = &words[4 * row * chunks..4 * (row + 1) * chunks];
                        std::hint::black_box(ternary::dot(isa, words, chunks, imaginary, &x));
                    }
                });
            }
        }
    }
    const { assert!(CHUNK == 16) };
}

/// One product of a row with a ternary matrix, as FairyFuse's separate kernels compute it: what is positive is added,
/// what is negative is subtracted.
mod ternary {
    use trine::{Isa, Level};

    /// The sum of one row.
    pub fn dot(isa: Isa, words: &[u8], chunks: usize, imaginary: bool, x: &[f32]) -> f32 {
        assert!(words.len() >= 4 * chunks && x.len() >= 16 * chunks);
        #[cfg(target_arch = "x86_64")]
        if isa.has(Level::Avx512) {
            // SAFETY: `isa` proves AVX-512, and with it BMI2; the lengths were compared.
            return unsafe { avx512(words, chunks, imaginary, x) };
        }
        #[cfg(target_arch = "x86_64")]
        if isa.has(Level::Avx2) {
            // SAFETY: `isa` proves AVX2; the lengths were compared.
            return unsafe { avx2(words, chunks, imaginary, x) };
        }
        let mut sum = 0.0;
        for c in 0..chunks {
            let word = &words[4 * c..][..4];
            let word = u32::from_le_bytes([word[0], word[1], word[2], word[3]]);
            for j in 0..16 {
                let code = word >> (2 * j) & 3;
                if (code & 2 != 0) == imaginary {
                    let x = x[16 * c + j as usize];
                    sum += if code & 1 != 0 { x } else { -x };
                }
            }
        }
        sum
    }

    /// # Safety
    /// The processor has AVX-512 F, BW, VL and DQ, and BMI2; `words` has four bytes and `x` sixteen floats for each
    /// chunk.
    #[cfg(target_arch = "x86_64")]
    #[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,bmi2")]
    unsafe fn avx512(words: &[u8], chunks: usize, imaginary: bool, x: &[f32]) -> f32 {
        use std::arch::x86_64::*;
        let mut sum = _mm512_setzero_ps();
        for c in 0..chunks {
            // SAFETY: the caller says that the words and the floats of all chunks are there.
            let (word, x) = unsafe {
                let word = words.as_ptr().add(4 * c);
                (word.cast::<u32>().read_unaligned(), _mm512_loadu_ps(x.as_ptr().add(16 * c)))
            };
            let positive = _pext_u32(word, 0x5555_5555) as __mmask16;
            let axis = _pext_u32(word, 0xAAAA_AAAA) as __mmask16;
            let axis = if imaginary { axis } else { !axis };
            sum = _mm512_mask_add_ps(sum, axis & positive, sum, x);
            sum = _mm512_mask_sub_ps(sum, axis & !positive, sum, x);
        }
        _mm512_reduce_add_ps(sum)
    }

    /// # Safety
    /// The processor has AVX2; `words` has four bytes and `x` sixteen floats for each chunk.
    #[cfg(target_arch = "x86_64")]
    #[target_feature(enable = "avx2")]
    unsafe fn avx2(words: &[u8], chunks: usize, imaginary: bool, x: &[f32]) -> f32 {
        use std::arch::x86_64::*;
        let bits = |shift: i32| {
            [0, 8].map(|first: i32| {
                let b = |l: i32| 1i32.wrapping_shl((2 * (first + l) + shift) as u32);
                _mm256_setr_epi32(b(0), b(1), b(2), b(3), b(4), b(5), b(6), b(7))
            })
        };
        let (positive, axis) = (bits(0), bits(1));
        let zero = _mm256_setzero_si256();
        let wanted = if imaginary { axis } else { [zero; 2] };
        let mut sums = [_mm256_setzero_ps(); 2];
        for c in 0..chunks {
            for h in 0..2 {
                // SAFETY: the caller says that the words and the floats of all chunks are there.
                let (word, x) = unsafe {
                    let word = words.as_ptr().add(4 * c);
                    (
                        _mm256_set1_epi32(word.cast::<i32>().read_unaligned()),
                        _mm256_loadu_ps(x.as_ptr().add(16 * c + 8 * h)),
                    )
                };
                let on_axis = _mm256_cmpeq_epi32(_mm256_and_si256(word, axis[h]), wanted[h]);
                let plus = _mm256_cmpeq_epi32(_mm256_and_si256(word, positive[h]), positive[h]);
                let plus_x = _mm256_castsi256_ps(_mm256_and_si256(on_axis, plus));
                let minus_x = _mm256_castsi256_ps(_mm256_andnot_si256(plus, on_axis));
                sums[h] = _mm256_add_ps(sums[h], _mm256_and_ps(plus_x, x));
                sums[h] = _mm256_sub_ps(sums[h], _mm256_and_ps(minus_x, x));
            }
        }
        let all = _mm256_add_ps(sums[0], sums[1]);
        let mut out = [0.0f32; 8];
        // SAFETY: eight floats.
        unsafe { _mm256_storeu_ps(out.as_mut_ptr(), all) };
        out.iter().sum()
    }
}
