//! How fast products of packed rows are, and of rows as the file has them, several of them in turns, so that what else
//! runs meets all of them alike.
//!
//! ```sh
//! cargo run --release -p trine-kernels --example rates -- avx2,avx512 Q8_0,Q4_0 1,4,16,120 [COLUMNS [MB [AHEAD]]]
//! ```
//!
//! Groups of `COLUMNS` (4096) columns are multiplied one after the other, as many as fill `MB` megabytes (0: one group,
//! which stays in the cache), with a prefetch distance of `AHEAD` bytes. Prints billions of multiplications per
//! second and billions of bytes of weights, the median of many pieces of time and, after the slash, what a tenth of
//! them was faster than.

use std::error::Error;
use std::hint::black_box;
use std::time::{Duration, Instant};

use trine_formats::gguf::Blob;
use trine_formats::types::{REGISTRY, TypeInfo};
use trine_kernels::packed::{Arena, Encoding, Packing, layouts, multiply_groups};
use trine_kernels::testing::Random;
use trine_kernels::{AlignedBytes, Isa, Level, MatRows, mat_rows, ternary};

/// Turns of every product.
const TURNS: usize = 60;
/// About how long one turn is.
const PIECE: Duration = Duration::from_micros(400);

/// Rows of a group that is not packed.
const ROWS: usize = 32;

/// Layout of the weight rows.
#[derive(Clone, Copy)]
enum RowLayout {
    Packed(Packing),
    File(MatRows),
}

/// One product: groups of rows and arranged tokens.
struct Product {
    name: String,
    form: RowLayout,
    rows: usize,
    group: usize,
    groups: Blob,
    acts: AlignedBytes,
    n: usize,
    tokens: usize,
    ahead: usize,
    next: usize,
    rates: Vec<f64>,
}

/// Bytes of a row of `n` weights.
fn row_bytes(info: &TypeInfo, n: usize) -> Result<usize, Box<dyn Error>> {
    Ok(info.row_bytes(n as u64).ok_or("no whole number of blocks")? as usize)
}

/// Rows of any codes whose scales are 1, for types without an encoder.
fn random_rows(info: &TypeInfo, rows: usize, n: usize, random: &mut Random) -> Result<Vec<u8>, Box<dyn Error>> {
    let size = row_bytes(info, n)?;
    let mut w = random.bytes(rows * size);
    // Layouts of bytes for AVX2 have no room for -128, which no encoder writes.
    w.iter_mut().filter(|byte| **byte == 0x80).for_each(|byte| *byte = 0x7F);
    for row in w.chunks_exact_mut(size) {
        let (head, blocks) = row.split_at_mut(info.head);
        match head {
            [a, b] => [*a, *b] = [0x00, 0x3C],
            [a, b, c, d, ..] => [*a, *b, *c, *d] = 1f32.to_le_bytes(),
            _ => blocks.chunks_exact_mut(info.bytes).for_each(|block| block[..2].copy_from_slice(&[0x00, 0x3C])),
        }
    }
    Ok(w)
}

impl Product {
    fn new(
        info: &'static TypeInfo,
        form: RowLayout,
        [n, tokens, bytes, ahead]: [usize; 4],
        name: String,
    ) -> Result<Product, Box<dyn Error>> {
        let mut random = Random(1);
        let (rows, encoding) = match form {
            RowLayout::Packed(layout) => (layout.rows, layout.encoding),
            RowLayout::File(_) => (ROWS, Encoding::Type(info.act.ok_or("no activation type")?)),
        };
        let mut w;
        match (encoding, info.encode) {
            (Encoding::Int8(_), _) => {
                w = random.bytes(rows * ternary::row_bytes(n));
                // Code 3 stands for no weight.
                w.iter_mut().for_each(|b| *b &= !(*b >> 1 & 0x55));
            }
            (_, Some(encode)) => {
                w = vec![0; rows * row_bytes(info, n)?];
                for row in w.chunks_exact_mut(row_bytes(info, n)?) {
                    let x: Vec<f32> = (0..n).map(|_| random.float()).collect();
                    encode(&x, None, row);
                }
            }
            _ => w = random_rows(info, rows, n, &mut random)?,
        }
        if let RowLayout::Packed(layout) = form {
            let mut packed = vec![0; (layout.group_bytes)(n)];
            if !layout.pack(&w, n, &mut packed) {
                return Err(format!("{name}: these weights are not packed").into());
            }
            w = packed;
        }
        // Where the weights of a model lie: on large pages where the system has them.
        let groups = Arena::default().region(bytes.div_ceil(w.len()).max(1) * w.len(), |groups| {
            let groups = groups.chunks_exact_mut(w.len());
            groups.for_each(|to| to.copy_from_slice(&w));
            true
        })?;
        let groups = groups.ok_or("no memory")?;
        let mut encoded = Vec::new();
        for _ in 0..tokens {
            let x: Vec<f32> = (0..n).map(|_| random.float()).collect();
            encoded.push(match encoding {
                Encoding::Int8(rule) => {
                    let mut act = vec![0; ternary::act_bytes(n)];
                    ternary::quantize_act(rule, &x, &mut act);
                    act
                }
                Encoding::Type(ty) => {
                    let info = ty.info().ok_or("no activation type")?;
                    let mut act = vec![0; n / info.block * info.bytes];
                    info.encode.ok_or("no encoder")?(&x, None, &mut act);
                    act
                }
            });
        }
        let width = match form {
            RowLayout::Packed(layout) => (layout.act_bytes)(n),
            RowLayout::File(_) => encoded[0].len(),
        };
        let mut acts = AlignedBytes::new(tokens * width);
        for (act, to) in encoded.iter().zip(acts.chunks_exact_mut(width)) {
            match form {
                RowLayout::Packed(layout) => layout.arrange(act, n, to),
                RowLayout::File(_) => to.copy_from_slice(act),
            }
        }
        Ok(Product { name, form, rows, group: w.len(), groups, acts, n, tokens, ahead, next: 0, rates: Vec::new() })
    }

    /// One turn: weights times activations per second.
    fn turn(&mut self) -> f64 {
        let mut out = vec![0.0; self.rows * self.tokens];
        let (start, mut count) = (Instant::now(), 0);
        loop {
            let group = &self.groups[self.next..][..self.group];
            self.next = (self.next + self.group) % self.groups.len();
            let (acts, n, tokens) = (&self.acts, self.n, self.tokens);
            match self.form {
                RowLayout::Packed(layout) => {
                    multiply_groups(layout, group, acts, n, tokens, self.ahead, |_, _, out| {
                        black_box(out);
                    });
                }
                RowLayout::File(rows) => {
                    rows.multiply(group, acts, n, tokens, &mut out);
                    black_box(&out);
                }
            }
            count += self.rows * n * tokens;
            let time = start.elapsed();
            if time >= PIECE {
                return count as f64 / time.as_secs_f64() / 1e9;
            }
        }
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [isas, types, tokens, rest @ ..] = args.as_slice() else {
        return Err("usage: rates ISA,.. TYPE,.. TOKENS,.. [COLUMNS [MB [AHEAD]]]".into());
    };
    let number = |i: usize, or: usize| rest.get(i).map_or(Ok(or), |text| text.parse());
    let (n, mb, ahead) = (number(0, 4096)?, number(1, 0)?, number(2, 0)?);
    let mut products = Vec::new();
    for ty in types.split(',') {
        let known = REGISTRY.iter().find(|t| t.name.eq_ignore_ascii_case(ty));
        let info = known.ok_or_else(|| format!("{ty} is no type"))?;
        for tokens in tokens.split(',') {
            for isa in isas.split(',') {
                let level = Level::ALL.iter().find(|level| level.name() == isa);
                let isa = level.and_then(|&level| Isa::of(level));
                let isa = isa.ok_or("an instruction set that this processor does not have")?;
                let packed = layouts(info.id, isa).into_iter();
                let packed = packed.map(|layout| (layout.name, RowLayout::Packed(layout)));
                let rows = mat_rows(info.id, isa).map(|rows| ("rows of the file", RowLayout::File(rows)));
                for (form_name, form) in packed.chain(rows) {
                    let name = format!("{ty} {tokens} {isa} ({form_name})");
                    let sizes = [n, tokens.parse()?, mb << 20, ahead];
                    products.push(Product::new(info, form, sizes, name)?);
                }
            }
        }
    }
    for turn in 0..=TURNS {
        for product in &mut products {
            let rate = product.turn();
            if turn > 0 {
                product.rates.push(rate);
            }
        }
    }
    for p in &mut products {
        p.rates.sort_by(f64::total_cmp);
        let (median, best) = (p.rates[TURNS / 2], p.rates[TURNS * 9 / 10]);
        let bytes = p.group as f64 / (p.rows * p.n * p.tokens) as f64;
        println!("{:40} {median:6.1}/{best:6.1} GMAC/s, {:5.1} GB/s", p.name, median * bytes);
    }
    Ok(())
}
