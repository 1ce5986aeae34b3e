//! `--show-statistics`: what the activations of an importance matrix are like, in llama-imatrix's columns and digits.

use std::collections::BTreeMap;
use std::f64::consts::LN_2;
use std::io::{self, Write};

use trine::math::{log, log2f};
use trine_formats::imatrix::{Entry, Imatrix};

/// A mean square up to this is of a column that is never active.
const INACTIVE: f32 = 1e-5;

/// The statistics of one matrix: of the mean squares of what goes into its columns.
struct Statistics<'a> {
    /// The block's number, `-` outside of blocks.
    block: &'a str,
    /// The part of the name before `.weight`.
    name: &'a str,
    total: f32,
    mean: f32,
    min: f32,
    max: f32,
    deviation: f32,
    /// Share of columns that are ever active.
    active: f32,
    columns: usize,
    /// In bits, of the shares of the columns.
    entropy: f32,
    /// Share of columns more than a standard deviation above the mean.
    outliers: f32,
    /// How alike the sums are to those of the same matrix one block before: the cosine, 0 where there is none.
    cosine: f32,
}

/// Sums in single precision and in order, as the reference adds.
fn sum(numbers: impl Iterator<Item = f32>) -> f32 {
    numbers.fold(0.0, |sum, x| sum + x)
}

fn dot(a: &[f32], b: &[f32]) -> f32 {
    sum(a.iter().zip(b).map(|(x, y)| x * y))
}

impl<'a> Statistics<'a> {
    /// `None` where no token was seen.
    fn of(whole: &'a str, entry: &Entry, matrix: &Imatrix) -> Option<Statistics<'a>> {
        let columns = entry.sums.len() / entry.counts.len().max(1);
        let experts = entry.sums.chunks(columns.max(1)).zip(&entry.counts);
        let seen = experts.filter(|(_, count)| **count != 0);
        let squares = seen.flat_map(|(sums, &count)| sums.iter().map(move |s| s / count as f32));
        let squares: Vec<f32> = squares.collect();
        if squares.is_empty() {
            return None;
        }
        let n = squares.len() as f32;
        let total = sum(squares.iter().copied());
        let mean = total / n;
        let variance = dot(&squares, &squares) / n - mean * mean;
        let deviation = variance.max(0.0).sqrt();
        let idle = squares.iter().filter(|x| x.abs() <= INACTIVE).count();
        let above = squares.iter().filter(|x| (*x - mean) / deviation > 1.0);
        let parts: Vec<&str> = whole.split('.').collect();
        let before = |what: &str, step: isize| {
            let at = parts.iter().position(|p| *p == what)?;
            parts.get(at.checked_add_signed(step)?).copied()
        };
        Some(Statistics {
            block: before("blk", 1).unwrap_or("-"),
            name: before("weight", -1).unwrap_or(whole),
            total,
            mean,
            min: squares.iter().copied().fold(f32::INFINITY, f32::min),
            max: squares.iter().copied().fold(f32::NEG_INFINITY, f32::max),
            deviation,
            active: 1.0 - idle as f32 / n,
            columns: squares.len(),
            entropy: entropy(&squares, total),
            outliers: match deviation > 0.0 {
                true => above.count() as f32 / n,
                false => 0.0,
            },
            cosine: cosine(whole, entry, matrix),
        })
    }

    fn block_number(&self) -> i64 {
        self.block.parse().unwrap_or(-1)
    }

    fn write(&self, out: &mut dyn Write) -> io::Result<()> {
        let most = log(self.columns as f64) / LN_2;
        writeln!(
            out,
            "{:>5}\t{:<20}\t{:>10.2}\t{:>8.4}\t{:>11.4}\t{:>6.2}\t{:>6.2}\t{:>8.2}%\t{:>6}\t{:>10.4}\t{:>6.2}%\t{:>10.2}%\t{:>8.4}",
            self.block,
            self.name,
            self.total,
            self.min,
            self.max,
            self.mean,
            self.deviation,
            self.active * 100.0,
            self.columns,
            self.entropy,
            100.0 * (f64::from(self.entropy) / most),
            100.0 * self.outliers,
            self.cosine
        )
    }
}

fn entropy(squares: &[f32], total: f32) -> f32 {
    if total <= 0.0 {
        return 0.0;
    }
    let shares = squares.iter().map(|x| x / total).filter(|p| *p > 0.0);
    shares.fold(0.0, |bits, p| bits - p * log2f(p))
}

fn cosine(name: &str, entry: &Entry, matrix: &Imatrix) -> f32 {
    let before = || {
        let rest = name.split_once("blk.")?.1;
        let (number, rest) = rest.split_once('.')?;
        let before = number.parse::<u32>().ok()?.checked_sub(1)?;
        matrix.entries.get(&format!("blk.{before}.{rest}"))
    };
    before().map_or(0.0, |before| {
        let lengths = dot(&entry.sums, &entry.sums).sqrt() * dot(&before.sums, &before.sums).sqrt();
        dot(&entry.sums, &before.sums) / lengths
    })
}

/// Means over the matrices of a block, each weighted by its columns.
#[derive(Default)]
struct Block {
    total: f32,
    outliers: f32,
    cosine: f32,
    columns: usize,
}

/// Writes the table of all matrices of `file`, and that of all blocks.
///
/// # Errors
/// Write errors.
pub fn write(file: &str, matrix: &Imatrix, out: &mut dyn Write) -> io::Result<()> {
    let all = matrix.entries.iter();
    let all = all.filter_map(|(name, entry)| Statistics::of(name, entry, matrix));
    let mut all: Vec<Statistics<'_>> = all.collect();
    all.sort_by(|a, b| a.name.cmp(b.name).then(b.total.total_cmp(&a.total)));
    writeln!(out, "Computing statistics for {file} ({} tensors)", all.len())?;
    writeln!(
        out,
        "\n Layer\t       Tensor\t          Σ(Act²)\t  Min\t            Max\t           μ\t   σ\t % Active\tN\t   Entropy\tE (norm)\tZD\t  CosSim"
    )?;
    writeln!(out, "{}", "=".repeat(169))?;
    let mut blocks: BTreeMap<i64, Block> = BTreeMap::new();
    for one in &all {
        one.write(out)?;
        let block = blocks.entry(one.block_number()).or_default();
        let columns = one.columns as f32;
        block.total += columns * one.total;
        block.outliers += columns * one.outliers;
        block.cosine += columns * one.cosine;
        block.columns += one.columns;
    }
    blocks.retain(|number, _| *number >= 0);
    writeln!(out, "\nComputing weighted average statistics per layer ({} layers)", blocks.len())?;
    writeln!(out, "\n  Layer\t     μΣ(Act²)\t      μZD\tμCosSim")?;
    writeln!(out, "{}", "=".repeat(48))?;
    for (number, block) in &blocks {
        let columns = block.columns as f32;
        let (total, cosine) = (block.total / columns, block.cosine / columns);
        let outliers = 100.0 * (block.outliers / columns);
        writeln!(out, "{number:>5}\t{total:>14.2}\t{outliers:>10.4}%\t{cosine:>6.4}")?;
    }
    writeln!(out)
}
