//! How fast products of one token with widely linear matrices are, of both paths and with prefetching at some
//! distances, in turns, so that what else runs meets all of them alike.
//!
//! ```sh
//! cargo run --release -p trine-kernels --example widely -- avx2,avx512 [COLUMNS [MB [AHEAD,..]]]
//! ```
//!
//! Units of two stages and `COLUMNS` (4096) real columns are multiplied one after the other, as many as fill `MB` (128)
//! megabytes. Prints billions of bytes of codes per second, the median of many pieces of time and, after the slash,
//! what a tenth of them was faster than.

use std::error::Error;
use std::hint::black_box;
use std::time::{Duration, Instant};

use trine_formats::widely::{Profile, Rule, Scope, Shape, TieRule};
use trine_kernels::packed::Arena;
use trine_kernels::testing::Random;
use trine_kernels::widely::{CodeLayout, Path, ROWS, Unit, multiply, tables};
use trine_kernels::{AlignedBytes, Isa, Level};

/// Turns of every product.
const TURNS: usize = 40;
/// About how long one turn is.
const PIECE: Duration = Duration::from_millis(4);

fn main() -> Result<(), Box<dyn Error>> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [isas, rest @ ..] = args.as_slice() else {
        return Err("usage: widely ISA,.. [COLUMNS [MB [AHEAD,..]]]".into());
    };
    let number = |i: usize, or: usize| rest.get(i).map_or(Ok(or), |text| text.parse());
    let (columns, mb) = (number(0, 4096)?, number(1, 128)?);
    let aheads = rest.get(2).map_or("0,8192", |text| text).split(',');
    let aheads = aheads.map(str::parse).collect::<Result<Vec<usize>, _>>()?;
    let rule = Rule { stages: 2, scope: Scope::Tensor, profile: Profile::F32, tie: TieRule::Phase };
    let shape = rule.shape(2 * ROWS, columns).ok_or("an odd number of columns")?;
    let scales = [0.02f32; 8];
    let mut random = Random(1);
    let x: Vec<f32> = (0..columns).map(|_| random.float()).collect();
    let words = random.bytes(ROWS * 4 * shape.row_words());
    let units = |form: CodeLayout| {
        let bytes = form.unit_bytes(&shape);
        // Where the weights of a model lie: on large pages where the system has them.
        Arena::default().region((mb << 20).div_ceil(bytes) * bytes, |units| {
            let (first, rest) = units.split_at_mut(bytes);
            form.pack(&shape, &words, first);
            rest.chunks_exact_mut(bytes).for_each(|unit| unit.copy_from_slice(first));
            true
        })
    };
    let mut products = Vec::new();
    for (path, form) in [(Path::Exact, CodeLayout::Lanes), (Path::Int8, CodeLayout::Rows16)] {
        let units = units(form)?.ok_or("no memory")?;
        let mut of_path = Vec::new();
        for isa in isas.split(',') {
            let level = Level::ALL.iter().find(|level| level.name() == isa);
            let isa = level.and_then(|&level| Isa::of(level));
            let isa = isa.ok_or("an instruction set that this processor does not have")?;
            of_path.extend(aheads.iter().map(|&ahead| (isa, ahead, 0, Vec::new())));
        }
        products.push((path, form, units, of_path));
    }
    for turn in 0..=TURNS {
        for (path, form, units, of_path) in &mut products {
            for (isa, ahead, next, rates) in of_path {
                let mut acts = AlignedBytes::new(path.act_bytes(&shape));
                path.arrange(*isa, &shape, &x, &mut acts);
                let rate = piece(*isa, &shape, *form, (units, next), &acts, *ahead, &scales);
                if turn > 0 {
                    rates.push(rate);
                }
            }
        }
    }
    for (path, _, _, of_path) in &mut products {
        for (isa, ahead, _, rates) in of_path {
            rates.sort_by(f64::total_cmp);
            let (median, best) = (rates[TURNS / 2], rates[TURNS * 9 / 10]);
            println!("{path:?} {isa}, {ahead} bytes ahead: {median:5.2}/{best:5.2} GB/s");
        }
    }
    Ok(())
}

/// Billions of bytes of codes per second, from unit `next` on.
fn piece(
    isa: Isa,
    shape: &Shape,
    form: CodeLayout,
    (units, next): (&[u8], &mut usize),
    acts: &[u8],
    ahead: usize,
    scales: &[f32],
) -> f64 {
    let bytes = form.unit_bytes(shape);
    let mut of_acts = vec![0.0; tables::floats(shape)];
    if form == CodeLayout::Lanes {
        tables::arrange(isa, shape, acts, &mut of_acts);
    }
    let mut out = [[0.0; ROWS]; 2];
    let (start, mut read) = (Instant::now(), 0);
    loop {
        let unit = Unit { shape, first: 0, rows: ROWS, form, weights: &units[*next..][..bytes], scales, ahead };
        match form {
            CodeLayout::Lanes => tables::multiply(isa, &unit, &of_acts, &mut out),
            _ => multiply(isa, &unit, acts, 1, out.as_flattened_mut()),
        }
        black_box(&out);
        *next = (*next + bytes) % units.len();
        read += bytes;
        let time = start.elapsed();
        if time >= PIECE {
            return read as f64 / time.as_secs_f64() / 1e9;
        }
    }
}
