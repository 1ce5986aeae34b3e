//! Speed of products of half floats, for some numbers of tokens and kinds of weights.
//!
//! ```sh
//! cargo run --release -p trine-kernels --example halves -- COLUMNS TOKENS,TOKENS,.. [MEGABYTES]
//! ```
//!
//! `TRINE_ISA` chooses the kernels. Billions of products per second of one thread, the median of some rounds over as
//! many megabytes of weights, one if not said, weights of all kinds in turns; and microseconds to arrange one token.

use std::error::Error;
use std::time::Instant;

use trine_formats::types::TypeId;
use trine_formats::types::num::f32_to_f16;
use trine_kernels::packed::{layouts, multiply_groups};
use trine_kernels::testing::{Random, power};
use trine_kernels::{AlignedBytes, Isa};

/// Products of a round, about.
const ROUND: usize = 50_000_000;
/// Rounds.
const ROUNDS: usize = 15;

fn main() -> Result<(), Box<dyn Error>> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let (columns, tokens, megabytes) = match args.as_slice() {
        [columns, tokens] => (columns, tokens, 1),
        [columns, tokens, megabytes] => (columns, tokens, megabytes.parse()?),
        _ => return Err("usage: halves COLUMNS TOKENS,TOKENS,.. [MEGABYTES]".into()),
    };
    let n: usize = columns.parse()?;
    let isa = Isa::from_env()?;
    let layouts = layouts(TypeId::F16, isa);
    let layout = *layouts.first().ok_or("no packed half floats")?;
    let mut random = Random(1);
    let count = ((megabytes << 20) / (2 * 32 * n)).max(1);
    let mut pack = |value: &mut dyn FnMut(&mut Random) -> f32| {
        let groups = (0..count).map(|_| {
            let weights = halves(&mut random, layout.rows * n, value);
            let mut group = AlignedBytes::new((layout.group_bytes)(n));
            assert!(layout.pack(&weights, n, &mut group), "finite weights are packed");
            group
        });
        groups.collect::<Vec<_>>()
    };
    let kinds = [
        ("sigma 0.02", pack(&mut |r| 0.02 * r.normal())),
        ("from bf16", pack(&mut |r| coarse(0.02 * r.normal()))),
        ("no subnormal", pack(&mut |r| large(0.02 * r.normal()))),
    ];
    println!("{isa}, {n} columns, {} rows, GMAC/s", count * layout.rows);
    for tokens in tokens.split(',') {
        let tokens: usize = tokens.parse()?;
        let width = (layout.act_bytes)(n);
        let mut acts = AlignedBytes::new(tokens * width);
        let mut arranging = 0.0;
        for to in acts.chunks_exact_mut(width) {
            let mut value = |r: &mut Random| match r.below(100) {
                0 => 10.0 * r.normal(),
                _ => r.normal(),
            };
            let act = halves(&mut random, n, &mut value);
            layout.arrange(&act, n, to);
            let start = Instant::now();
            layout.arrange(&act, n, to);
            arranging += start.elapsed().as_secs_f64() / tokens as f64;
        }
        let products = count * layout.rows * n * tokens;
        let turns = (ROUND / products).max(1);
        let mut times = [const { Vec::new() }; 3];
        for _ in 0..ROUNDS {
            for ((_, groups), times) in kinds.iter().zip(&mut times) {
                let start = Instant::now();
                for group in (0..turns).flat_map(|_| groups) {
                    multiply_groups(layout, group, &acts, n, tokens, 0, |_, _, out| {
                        std::hint::black_box(out);
                    });
                }
                times.push(start.elapsed().as_secs_f64() / turns as f64);
            }
        }
        print!("{tokens:5} tokens");
        for ((name, _), times) in kinds.iter().zip(&mut times) {
            times.sort_by(f64::total_cmp);
            print!("   {name} {:6.1}", products as f64 / times[ROUNDS / 2] / 1e9);
        }
        println!("   arranging {:6.1} us", arranging * 1e6);
    }
    Ok(())
}

/// `count` half floats as bytes.
fn halves(random: &mut Random, count: usize, value: &mut dyn FnMut(&mut Random) -> f32) -> Vec<u8> {
    (0..count).flat_map(|_| f32_to_f16(value(random)).to_le_bytes()).collect()
}

/// Rounds a weight as in a model that was trained in bfloats and whose smallest weights were rounded away: eight bits,
/// and none below 2^-15 of the greatest.
fn coarse(x: f32) -> f32 {
    let brain = f32::from_bits(x.to_bits() & 0xFFFF_0000);
    let unit = power(-18) as f32;
    (brain / unit).round() * unit
}

/// No half float below the normal ones.
fn large(x: f32) -> f32 {
    match x.abs() < 1e-4 {
        true => x.signum() * 1e-4,
        false => x,
    }
}
