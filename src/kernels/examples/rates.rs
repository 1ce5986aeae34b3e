//! How fast products of packed rows are, several of them in turns, so that what else runs meets all of them alike.
//!
//! ```sh
//! cargo run --release -p trine-kernels --example rates -- avx2,avx512 Q8_0,Q4_0 1,4,16,120 [COLUMNS [MB [AHEAD]]]
//! ```
//!
//! Groups of `COLUMNS` (4096) columns are multiplied one after the other, as many as fill `MB` megabytes (0: one group,
//! which stays in the cache), with weights asked for `AHEAD` bytes in advance. Prints billions of multiplications per second and
//! billions of bytes of weights, the median of many pieces of time and, after the slash, what a tenth of them was faster than.

use std::error::Error;
use std::hint::black_box;
use std::time::{Duration, Instant};

use trine_formats::types::{REGISTRY, TypeInfo};
use trine_kernels::packed::{Encoding, Layout, layouts, multiply_group};
use trine_kernels::testing::Random;
use trine_kernels::{AlignedBytes, Isa, Level, ternary};

/// Turns of every product.
const TURNS: usize = 60;
/// About how long one turn is.
const PIECE: Duration = Duration::from_micros(400);

/// One product: a layout, packed groups and arranged tokens.
struct Product {
    name: String,
    layout: &'static Layout,
    groups: AlignedBytes,
    acts: AlignedBytes,
    n: usize,
    tokens: usize,
    ahead: usize,
    next: usize,
    rates: Vec<f64>,
}

impl Product {
    fn new(
        info: &'static TypeInfo,
        layout: &'static Layout,
        [n, tokens, bytes, ahead]: [usize; 4],
        name: String,
    ) -> Result<Product, Box<dyn Error>> {
        let mut random = Random(1);
        let group = (layout.group_bytes)(n);
        let mut groups = AlignedBytes::new(bytes.div_ceil(group).max(1) * group);
        let mut w;
        match (layout.encoding, info.encode) {
            (Encoding::Int8(_), _) => {
                w = random.bytes(layout.rows * ternary::row_bytes(n));
                // Code 3 stands for no weight.
                w.iter_mut().for_each(|b| *b &= !(*b >> 1 & 0x55));
            }
            (_, Some(encode)) => {
                let x: Vec<f32> = (0..layout.rows * n).map(|_| random.float()).collect();
                w = vec![0; x.len() / info.block * info.bytes];
                encode(&x, None, &mut w);
            }
            _ => return Err(format!("{name}: no encoder").into()),
        }
        if !(layout.pack)(&w, n, &mut groups[..group]) {
            return Err(format!("{name}: these weights are not packed").into());
        }
        for at in (group..groups.len()).step_by(group) {
            groups.copy_within(..group, at);
        }
        let width = (layout.act_bytes)(n);
        let mut acts = AlignedBytes::new(tokens * width);
        for to in acts.chunks_exact_mut(width) {
            let x: Vec<f32> = (0..n).map(|_| random.float()).collect();
            let mut act;
            match layout.encoding {
                Encoding::Int8(rule) => {
                    act = vec![0; ternary::act_bytes(n)];
                    ternary::quantize_act(rule, &x, &mut act);
                }
                Encoding::Type(ty) => {
                    let info = ty.info().ok_or("no activation type")?;
                    act = vec![0; n / info.block * info.bytes];
                    info.encode.ok_or("no encoder")?(&x, None, &mut act);
                }
            }
            (layout.arrange)(&act, n, to);
        }
        Ok(Product {
            name,
            layout,
            groups,
            acts,
            n,
            tokens,
            ahead,
            next: 0,
            rates: Vec::new(),
        })
    }

    /// One turn: weights times activations per second.
    fn turn(&mut self) -> f64 {
        let (start, mut count) = (Instant::now(), 0);
        loop {
            let bytes = (self.layout.group_bytes)(self.n);
            let group = &self.groups[self.next..][..bytes];
            self.next = (self.next + bytes) % self.groups.len();
            multiply_group(
                self.layout,
                group,
                &self.acts,
                self.n,
                self.tokens,
                self.ahead,
                |_, out| {
                    black_box(out);
                },
            );
            count += self.layout.rows * self.n * self.tokens;
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
                for layout in layouts(info.id, isa) {
                    let name = format!("{ty} {tokens} {isa} ({})", layout.name);
                    let sizes = [n, tokens.parse()?, mb << 20, ahead];
                    products.push(Product::new(info, layout, sizes, name)?);
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
        let products = p.layout.rows * p.n * p.tokens;
        let bytes = (p.layout.group_bytes)(p.n) as f64 / products as f64;
        println!(
            "{:40} {median:6.1}/{best:6.1} GMAC/s, {:5.1} GB/s",
            p.name,
            median * bytes
        );
    }
    Ok(())
}
