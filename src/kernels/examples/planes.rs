//! How fast products of any-precision rows are, from bit planes and from packed codes, in turns.
//!
//! ```sh
//! cargo run --release -p trine-kernels --example planes -- avx2,avx512 3,4,6,8 1,4,120 [COLUMNS]
//! ```
//!
//! 64 rows of `COLUMNS` (4096) columns, which stay in the cache, with 16-bit centroids and in single precision. Prints billions of
//! multiplications per second: the median of many pieces of time and, after the slash, what a tenth of them was faster than.

use std::error::Error;
use std::hint::black_box;
use std::time::{Duration, Instant};

use trine_kernels::bitplane::packed::{self, Kind, PackedRows, Shape};
use trine_kernels::bitplane::{Arrangement, NumberPath, Rows, multiply};
use trine_kernels::testing::Random;
use trine_kernels::{AlignedBytes, Isa, Level};

/// Rows of the matrix.
const ROWS: usize = 64;
/// Turns of every product.
const TURNS: usize = 60;
/// About how long one turn is.
const PIECE: Duration = Duration::from_micros(400);

/// A matrix at one width, as planes and packed, and tokens.
struct Matrix {
    isa: Isa,
    shape: Shape,
    width: usize,
    planes: Vec<Vec<u8>>,
    lut: Vec<u8>,
    lines: [AlignedBytes; 3],
    tables: AlignedBytes,
    scales: Vec<f32>,
    tokens: usize,
    /// Arrangements of the activations for planes and for packed codes.
    acts: [(Arrangement, AlignedBytes); 2],
    rates: [Vec<f64>; 2],
}

impl Matrix {
    fn new(isa: Isa, path: NumberPath, width: usize, columns: usize, tokens: usize) -> Matrix {
        let mut random = Random(1);
        let shape = Shape { columns, groups: 1 };
        let planes: Vec<_> = (0..width)
            .map(|_| random.bytes(ROWS * columns / 8))
            .collect();
        // Ordinary half floats.
        let half = |i: usize| (0x3000 | (i * 37 % 0xC00) as u16).to_le_bytes();
        let lut: Vec<u8> = (0..ROWS << width).flat_map(half).collect();
        let parts: Vec<&[u8]> = planes.iter().map(|p| &p[..]).collect();
        let rows = Rows {
            columns,
            groups: 1,
            planes: &parts,
            lut: &lut,
        };
        let lines = Kind::ALL.map(|kind| {
            let here = kind.planes().start..width.min(kind.planes().end);
            if here.is_empty() {
                return AlignedBytes::new(0);
            }
            let mut out = AlignedBytes::new(ROWS * shape.row_bytes(kind));
            packed::pack(isa, kind, shape, &parts[here], ROWS, &mut out);
            out
        });
        let mut tables = AlignedBytes::new(ROWS * shape.table_bytes(width));
        let mut scales = vec![1.0; ROWS];
        packed::pack_tables(isa, path, &rows, &mut tables, &mut scales);
        let x: Vec<f32> = (0..columns * tokens).map(|_| random.float()).collect();
        let acts = [false, true].map(|packed| {
            let form = Arrangement::of(path, isa, tokens, packed, columns, 1);
            let bytes = form.act_bytes(columns);
            let mut acts = AlignedBytes::new(bytes * tokens);
            for (x, out) in x.chunks_exact(columns).zip(acts.chunks_exact_mut(bytes)) {
                form.arrange(isa, x, out);
            }
            (form, acts)
        });
        Matrix {
            isa,
            shape,
            width,
            planes,
            lut,
            lines,
            tables,
            scales,
            tokens,
            acts,
            rates: [Vec::new(), Vec::new()],
        }
    }

    /// One turn of planes (0) or packed codes (1): weights times activations per second.
    fn turn(&self, which: usize) -> f64 {
        let planes: Vec<&[u8]> = self.planes.iter().map(|p| &p[..]).collect();
        let rows = Rows {
            columns: self.shape.columns,
            groups: 1,
            planes: &planes,
            lut: &self.lut,
        };
        let packed = PackedRows {
            shape: self.shape,
            width: self.width,
            lines: self.lines.each_ref().map(|lines| &lines[..]),
            tables: &self.tables,
            scales: &self.scales,
        };
        let (form, acts) = &self.acts[which];
        let mut out = vec![0.0; ROWS * self.tokens];
        let (start, mut count) = (Instant::now(), 0);
        loop {
            match which {
                0 => multiply(self.isa, &rows, *form, acts, self.tokens, &mut out),
                _ => packed::multiply(self.isa, &packed, *form, acts, self.tokens, &mut out),
            }
            black_box(&out);
            count += ROWS * self.shape.columns * self.tokens;
            let time = start.elapsed();
            if time >= PIECE {
                return count as f64 / time.as_secs_f64() / 1e9;
            }
        }
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [isas, widths, tokens, rest @ ..] = args.as_slice() else {
        return Err("usage: planes ISA,.. WIDTH,.. TOKENS,.. [COLUMNS]".into());
    };
    let columns = rest.first().map_or(Ok(4096), |text| text.parse())?;
    let mut all = Vec::new();
    for width in widths.split(',') {
        for tokens in tokens.split(',') {
            for isa in isas.split(',') {
                let level = Level::ALL.iter().find(|level| level.name() == isa);
                let isa = level.and_then(|&level| Isa::of(level));
                let isa = isa.ok_or("an instruction set that this processor does not have")?;
                for path in [NumberPath::I16, NumberPath::F32] {
                    let m = Matrix::new(isa, path, width.parse()?, columns, tokens.parse()?);
                    all.push((format!("{width} bits, {tokens} tokens, {isa}, {path:?}"), m));
                }
            }
        }
    }
    for turn in 0..=TURNS {
        for (_, m) in &mut all {
            for which in 0..2 {
                let rate = m.turn(which);
                if turn > 0 {
                    m.rates[which].push(rate);
                }
            }
        }
    }
    for (name, m) in &mut all {
        let [planes, packed] = m.rates.each_mut().map(|rates| {
            rates.sort_by(f64::total_cmp);
            format!("{:5.1}/{:5.1}", rates[TURNS / 2], rates[TURNS * 9 / 10])
        });
        println!("{name:32} planes {planes}, packed {packed} GMAC/s");
    }
    Ok(())
}
