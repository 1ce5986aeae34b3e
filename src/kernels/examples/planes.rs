//! How fast products of any-precision rows are, from bit planes and from packed codes, in turns.
//!
//! ```sh
//! cargo run --release -p trine-kernels --example planes -- avx2,avx512 3,4,6,8 1,4,120 [COLUMNS [MB [AHEAD,..]]]
//! ```
//!
//! 64 rows after the other of `COLUMNS` (4096) columns, as many as fill `MB` megabytes (0: 64 rows, which stay in the
//! cache), with 16-bit centroids and in single precision; packed codes with a prefetch distance of `AHEAD` bytes,
//! one distance in turn with the others. Prints billions of multiplications per second: the median of many pieces of
//! time and, after the slash, what a tenth of them was faster than.

use std::error::Error;
use std::hint::black_box;
use std::time::{Duration, Instant};

use trine_formats::gguf::Blob;
use trine_kernels::bitplane::packed::{self, Kind, PackedRows, Shape};
use trine_kernels::bitplane::{Arrangement, NumberPath, PlaneRows, multiply};
use trine_kernels::packed::Arena;
use trine_kernels::testing::Random;
use trine_kernels::{AlignedBytes, Isa, Level};

/// Rows of a product.
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
    /// Planes of all rows, as are tables and scales; those of `lut` serve all products alike.
    planes: Vec<Blob>,
    lut: Vec<u8>,
    lines: [Blob; 3],
    tables: Blob,
    scales: Vec<f32>,
    tokens: usize,
    /// Arrangements of the activations for planes and for packed codes.
    acts: [(Arrangement, AlignedBytes); 2],
    /// Prefetch distances of packed codes, bytes.
    aheads: Vec<usize>,
    /// Rates of the planes, then of packed codes with each prefetch distance.
    rates: Vec<Vec<f64>>,
    /// The first row of the next product.
    next: usize,
}

/// Bytes where those of a model lie: on large pages where the system has them.
fn region(bytes: usize, fill: impl FnOnce(&mut [u8])) -> Result<Blob, Box<dyn Error>> {
    let region = Arena::default().region(bytes, |out| {
        fill(out);
        true
    })?;
    Ok(region.ok_or("no memory")?)
}

impl Matrix {
    fn new(
        isa: Isa,
        path: NumberPath,
        [width, columns, tokens, bytes]: [usize; 4],
        aheads: &[usize],
    ) -> Result<Matrix, Box<dyn Error>> {
        let mut random = Random(1);
        let shape = Shape { columns, groups: 1 };
        let part = ROWS * columns / 8;
        let times = bytes.div_ceil(part * width).max(1);
        let rows = times * ROWS;
        let mut planes = Vec::new();
        for _ in 0..width {
            let bits = random.bytes(part);
            let fill = |out: &mut [u8]| {
                out.chunks_exact_mut(part).for_each(|out| out.copy_from_slice(&bits));
            };
            planes.push(region(times * part, fill)?);
        }
        // Ordinary half floats.
        let half = |i: usize| (0x3000 | (i * 37 % 0xC00) as u16).to_le_bytes();
        let lut: Vec<u8> = (0..ROWS << width).flat_map(half).collect();
        let parts: Vec<&[u8]> = planes.iter().map(|p| &p[..]).collect();
        let mut lines = Vec::new();
        for kind in Kind::ALL {
            let here = kind.planes().start..width.min(kind.planes().end);
            let bytes = if here.is_empty() { 0 } else { rows * shape.row_bytes(kind) };
            lines.push(region(bytes, |out| {
                if !here.is_empty() {
                    packed::pack(isa, kind, shape, &parts[here], rows, out);
                }
            })?);
        }
        let mut scales = vec![1.0; rows];
        let tables = region(rows * shape.table_bytes(width), |out| {
            let outs = out.chunks_exact_mut(ROWS * shape.table_bytes(width));
            for (out, scales) in outs.zip(scales.chunks_exact_mut(ROWS)) {
                let rows = PlaneRows { columns, groups: 1, planes: &parts, lut: &lut };
                packed::pack_tables(isa, path, &rows, out, scales);
            }
        })?;
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
        Ok(Matrix {
            isa,
            shape,
            width,
            planes,
            lut,
            lines: lines.try_into().map_err(|_| "kinds of lines")?,
            tables,
            scales,
            tokens,
            acts,
            aheads: aheads.to_vec(),
            rates: vec![Vec::new(); 1 + aheads.len()],
            next: 0,
        })
    }

    /// One turn of planes (0) or packed codes (with distance `which - 1`): weights times activations per second.
    fn turn(&mut self, which: usize) -> f64 {
        let part = ROWS * self.shape.columns / 8;
        let packed = PackedRows {
            shape: self.shape,
            width: self.width,
            lines: self.lines.each_ref().map(|lines| &lines[..]),
            tables: &self.tables,
            scales: &self.scales,
            ahead: which.checked_sub(1).map_or(0, |i| self.aheads[i]),
        };
        let (form, acts) = &self.acts[which.min(1)];
        let mut out = vec![0.0; ROWS * self.tokens];
        let (start, mut count) = (Instant::now(), 0);
        loop {
            let range = self.next..self.next + ROWS;
            self.next = range.end % self.scales.len();
            if which > 0 {
                let rows = packed.part(&range);
                packed::multiply(self.isa, &rows, *form, acts, self.tokens, &mut out);
            } else {
                let plane = |p: usize| &self.planes[p][range.start / ROWS * part..][..part];
                let mut planes = [&[][..]; 8];
                (0..self.width).for_each(|p| planes[p] = plane(p));
                let rows =
                    PlaneRows { columns: self.shape.columns, groups: 1, planes: &planes[..self.width], lut: &self.lut };
                multiply(self.isa, &rows, *form, acts, self.tokens, &mut out);
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
        return Err("usage: planes ISA,.. WIDTH,.. TOKENS,.. [COLUMNS [MB [AHEAD,..]]]".into());
    };
    let number = |i: usize, or: usize| rest.get(i).map_or(Ok(or), |text| text.parse());
    let (columns, mb) = (number(0, 4096)?, number(1, 0)?);
    let aheads = rest.get(2).map_or("0", |text| text).split(',');
    let aheads: Vec<usize> = aheads.map(str::parse).collect::<Result<_, _>>()?;
    let mut all = Vec::new();
    for width in widths.split(',') {
        for tokens in tokens.split(',') {
            for isa in isas.split(',') {
                let level = Level::ALL.iter().find(|level| level.name() == isa);
                let isa = level.and_then(|&level| Isa::of(level));
                let isa = isa.ok_or("an instruction set that this processor does not have")?;
                for path in [NumberPath::I16, NumberPath::F32] {
                    let sizes = [width.parse()?, columns, tokens.parse()?, mb << 20];
                    let m = Matrix::new(isa, path, sizes, &aheads)?;
                    all.push((format!("{width} bits, {tokens} tokens, {isa}, {path:?}"), m));
                }
            }
        }
    }
    for turn in 0..=TURNS {
        for (_, m) in &mut all {
            for which in 0..m.rates.len() {
                let rate = m.turn(which);
                if turn > 0 {
                    m.rates[which].push(rate);
                }
            }
        }
    }
    for (name, m) in &mut all {
        let mut rates = m.rates.iter_mut().map(|rates| {
            rates.sort_by(f64::total_cmp);
            format!("{:5.1}/{:5.1}", rates[TURNS / 2], rates[TURNS * 9 / 10])
        });
        let planes = rates.next().unwrap_or_default();
        print!("{name:32} planes {planes}, packed");
        for (ahead, rates) in m.aheads.iter().zip(rates) {
            print!(" {rates} ({ahead} ahead)");
        }
        println!(" GMAC/s");
    }
    Ok(())
}
