//! Products of one group of packed rows, again and again: something to count instructions of where nothing can be
//! timed.
//!
//! ```sh
//! cargo run --release -p trine-kernels --example product -- TYPE COLUMNS TOKENS ROUNDS [LAYOUT]
//! ```
//!
//! LAYOUT is the name of a layout, such as TL2, whose products are looked up; without it the best one is taken.
//! `TRINE_ISA` chooses the kernels; `scalar` has no packed rows and takes the definition. Prints how many weights were
//! multiplied with an activation in all rounds.

use std::error::Error;

use trine_formats::types::{REGISTRY, TypeInfo};
use trine_kernels::packed::{Encoding, Packing, layouts, lookups, multiply_groups};
use trine_kernels::testing::Random;
use trine_kernels::{AlignedBytes, Isa, mat_rows, ternary};

/// Rows where no layout says how many.
const ROWS: usize = 32;

fn main() -> Result<(), Box<dyn Error>> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let ([ty, columns, tokens, rounds], name) =
        args.split_first_chunk().ok_or("usage: product TYPE COLUMNS TOKENS ROUNDS [LAYOUT]")?;
    let known = REGISTRY.iter().find(|t| t.name.eq_ignore_ascii_case(ty));
    let info = known.ok_or_else(|| format!("{ty} is no type"))?;
    let (n, tokens, rounds): (usize, usize, usize) = (columns.parse()?, tokens.parse()?, rounds.parse()?);
    let isa = Isa::from_env()?;
    let mut random = Random(1);
    let all: Vec<Packing> = layouts(info.id, isa).into_iter().chain(lookups(info.id, isa)).collect();
    let chosen = match name.first() {
        Some(name) => Some(all.iter().find(|p| p.name == name).ok_or_else(|| format!("{ty} has no layout {name}"))?),
        None => all.first(),
    };
    let products = match chosen {
        Some(&layout) => {
            let row = match layout.encoding {
                Encoding::Int8(_) => ternary::row_bytes(n),
                Encoding::Type(_) => n / info.block * info.bytes,
            };
            let mut group = vec![0; (layout.group_bytes)(n)];
            if !layout.pack(&small(&mut random, layout.rows * row), n, &mut group) {
                return Err(format!("{ty}: these weights are not packed").into());
            }
            let width = (layout.act_bytes)(n);
            let mut acts = AlignedBytes::new(tokens * width);
            for to in acts.chunks_exact_mut(width) {
                let x: Vec<f32> = (0..n).map(|_| random.float()).collect();
                let act = match layout.encoding {
                    Encoding::Int8(rule) => {
                        let mut act = vec![0; ternary::act_bytes(n)];
                        ternary::quantize_act(rule, &x, &mut act);
                        act
                    }
                    Encoding::Type(act) => encoded(act.info().ok_or("no activation type")?, &x)?,
                };
                layout.arrange(&act, n, to);
            }
            for _ in 0..rounds {
                multiply_groups(layout, &group, &acts, n, tokens, 0, |_, _, out| {
                    std::hint::black_box(out);
                });
            }
            layout.rows
        }
        None => {
            let rows = mat_rows(info.id, isa).ok_or("a type without a product")?;
            let act = info.act.and_then(|act| act.info()).ok_or("no activation type")?;
            let w = small(&mut random, ROWS * (n / info.block * info.bytes));
            let mut acts = Vec::new();
            for _ in 0..tokens {
                let x: Vec<f32> = (0..n).map(|_| random.float()).collect();
                acts.extend(encoded(act, &x)?);
            }
            let mut out = vec![0.0; ROWS * tokens];
            for _ in 0..rounds {
                rows.multiply(&w, &acts, n, tokens, &mut out);
                std::hint::black_box(&mut out);
            }
            ROWS
        }
    };
    println!("{}", products * n * tokens * rounds);
    Ok(())
}

/// Bytes that make no exponent of a half float an infinity's, and no code of two bits 3.
fn small(random: &mut Random, len: usize) -> Vec<u8> {
    let mut bytes = random.bytes(len);
    bytes.iter_mut().for_each(|b| *b &= 0x3F & !(*b >> 1 & 0x55));
    bytes
}

fn encoded(act: &TypeInfo, x: &[f32]) -> Result<Vec<u8>, Box<dyn Error>> {
    let encode = act.encode.ok_or("activations without an encoder")?;
    let mut out = vec![0; x.len() / act.block * act.bytes];
    encode(x, None, &mut out);
    Ok(out)
}
