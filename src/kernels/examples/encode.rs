//! One row of weights or activations encoded again and again: something to count instructions of where nothing can be
//! timed.
//!
//! ```sh
//! cargo run --release -p trine-kernels --example encode -- TYPE COLUMNS ROUNDS
//! ```
//!
//! `TRINE_ISA` chooses the kernels; `scalar` takes the definition. Prints how many values were encoded in all rounds.

use std::error::Error;

use trine_formats::types::REGISTRY;
use trine_kernels::testing::Random;
use trine_kernels::{Isa, encode_rows, quantize_act};

fn main() -> Result<(), Box<dyn Error>> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [ty, columns, rounds] = args.as_slice() else {
        return Err("usage: encode TYPE COLUMNS ROUNDS".into());
    };
    let known = REGISTRY.iter().find(|t| t.name.eq_ignore_ascii_case(ty));
    let info = known.ok_or_else(|| format!("{ty} is no type"))?;
    let (n, rounds): (usize, usize) = (columns.parse()?, rounds.parse()?);
    let isa = Isa::from_env()?;
    let mut random = Random(1);
    let x: Vec<f32> = (0..n).map(|_| random.float()).collect();
    let mut out = vec![0; n / info.block * info.bytes];
    // Types that are activations and nothing else have an entry of their own; where a type is both, its kernel is one.
    let only_activations = info.act.is_none();
    let encode = encode_rows(info.id, isa).ok_or_else(|| format!("{ty} has no encoder"))?;
    for _ in 0..rounds {
        if only_activations {
            quantize_act(info.id, isa)(&x, &mut out);
        } else {
            encode(&x, None, &mut out);
        }
        std::hint::black_box(&mut out);
    }
    println!("{}", n * rounds);
    Ok(())
}
