//! Products of ternary weights by multiplying and by tables of sums, beside one another: one token whose weights come
//! from memory and from the cache, and many tokens.
//!
//! ```sh
//! cargo run --release -p trine-kernels --example methods -- I2_S|TQ2_0 COLUMNS [ISA,...] [MEGABYTES]
//! ```
//!
//! Prints for each layout bits per weight, the prefetch distance of the first column, GMAC/s with one token from memory
//! (the median of runs in turns), with one token from the cache and with 256 tokens (the best), and the microseconds in which
//! the activations of a token are arranged, tables included.

use std::error::Error;
use std::time::Instant;

use trine_formats::gguf::Blob;
use trine_formats::types::{TypeId, info};
use trine_kernels::packed::{Arena, Encoding, Packing, layouts, lookups, multiply_groups};
use trine_kernels::testing::Random;
use trine_kernels::{AlignedBytes, Isa, ternary};

/// Runs of every figure.
const RUNS: usize = 5;
/// Tokens of a prompt.
const TOKENS: usize = 256;
/// Prefetch distances, bytes.
const DISTANCES: [usize; 4] = [0, 4 << 10, 8 << 10, 16 << 10];
/// Bytes of weights that stay in the second-level cache, and multiplications of a run with them.
const CACHE: usize = 400_000;
const WORK: usize = 100_000_000;

/// A layout with weights, activations and the rates of its runs.
struct Subject {
    layout: Packing,
    isa: Isa,
    weights: Blob,
    encoded: Vec<u8>,
    act: AlignedBytes,
    ahead: usize,
    memory: Vec<f64>,
    cache: f64,
    prompt: f64,
    arrange: f64,
}

fn main() -> Result<(), Box<dyn Error>> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let ([ty, columns], more) =
        args.split_first_chunk().ok_or("usage: methods I2_S|TQ2_0 COLUMNS [ISA,...] [MEGABYTES]")?;
    let ty = match ty.as_str() {
        "I2_S" => TypeId::I2_S,
        "TQ2_0" => TypeId::TQ2_0,
        _ => return Err("the type is I2_S or TQ2_0".into()),
    };
    let n: usize = columns.parse()?;
    let bytes = more.get(1).map_or(Ok(128), |megabytes| megabytes.parse())? << 20;
    let mut arena = Arena::default();
    let mut subjects = Vec::new();
    for isa in
        Isa::available().filter(|isa| more.first().is_none_or(|list| list.split(',').any(|name| name == isa.name())))
    {
        for layout in layouts(ty, isa).into_iter().chain(lookups(ty, isa)) {
            subjects.push(Subject::new(layout, isa, ty, n, bytes, &mut arena)?);
        }
    }
    for run in 0..RUNS {
        subjects.iter_mut().for_each(|subject| subject.measure(n, run == 0));
    }
    for s in &mut subjects {
        s.memory.sort_by(f64::total_cmp);
        let bits = 8.0 * (s.layout.group_bytes)(n) as f64 / (s.layout.rows * n) as f64;
        let (name, isa, ahead, memory) = (s.layout.name, s.isa.name(), s.ahead, s.memory[RUNS / 2]);
        let (cache, prompt, arrange) = (s.cache, s.prompt, s.arrange);
        println!("{isa:8} {name:12} {bits:.3} {ahead:5} {memory:6.1} {cache:6.1} {prompt:6.1} {arrange:5.1}");
    }
    Ok(())
}

impl Subject {
    fn new(
        layout: Packing,
        isa: Isa,
        ty: TypeId,
        n: usize,
        bytes: usize,
        arena: &mut Arena,
    ) -> Result<Subject, Box<dyn Error>> {
        let mut random = Random(7);
        let mut group = vec![0; (layout.group_bytes)(n)];
        if !layout.pack(&weights(ty, n, layout.rows, &mut random), n, &mut group) {
            return Err(format!("{}: these weights are not packed", layout.name).into());
        }
        let x: Vec<f32> = (0..n).map(|_| random.float()).collect();
        let encoded = match layout.encoding {
            Encoding::Int8(rule) => {
                let mut act = vec![0; ternary::act_bytes(n)];
                ternary::quantize_act(rule, &x, &mut act);
                act
            }
            Encoding::Type(act) => {
                let mut act = vec![0; n / act.info().ok_or("no activation type")?.block * info::Q8_K.bytes];
                trine_kernels::quantize_act(TypeId::Q8_K, isa)(&x, &mut act);
                act
            }
        };
        let mut act = AlignedBytes::new((layout.act_bytes)(n));
        layout.arrange(&encoded, n, &mut act);
        let fill = |out: &mut [u8]| {
            out.chunks_exact_mut(group.len()).for_each(|out| out.copy_from_slice(&group));
            true
        };
        let weights = arena.region(bytes / group.len() * group.len(), fill)?.ok_or("no memory")?;
        let (memory, cache, prompt, arrange) = (Vec::new(), 0.0, 0.0, f64::INFINITY);
        Ok(Subject { layout, isa, weights, encoded, act, ahead: 0, memory, cache, prompt, arrange })
    }

    /// GMAC/s of some groups, `rounds` times over.
    fn rate(&self, groups: usize, acts: &[u8], n: usize, tokens: usize, ahead: usize, rounds: usize) -> f64 {
        let groups = &self.weights[..groups * (self.layout.group_bytes)(n)];
        let start = Instant::now();
        for _ in 0..rounds {
            multiply_groups(self.layout, groups, acts, n, tokens, ahead, |_, _, out| {
                std::hint::black_box(out);
            });
        }
        let rows = groups.len() / (self.layout.group_bytes)(n) * self.layout.rows;
        (rows * n * tokens * rounds) as f64 / start.elapsed().as_secs_f64() / 1e9
    }

    fn measure(&mut self, n: usize, first: bool) {
        let group = (self.layout.group_bytes)(n);
        let all = self.weights.len() / group;
        if first {
            let mut best = 0.0;
            for ahead in DISTANCES {
                let rate = self.rate(all / 3, &self.act, n, 1, ahead, 1);
                if rate > 1.02 * best {
                    (best, self.ahead) = (rate, ahead);
                }
            }
        }
        self.memory.push(self.rate(all, &self.act, n, 1, self.ahead, 1));
        let few = (CACHE / group).clamp(1, all);
        let rounds = WORK / (self.layout.rows * n * few) + 1;
        self.cache = self.cache.max(self.rate(few, &self.act, n, 1, 0, rounds));
        let mut acts = AlignedBytes::new(TOKENS * self.act.len());
        acts.chunks_exact_mut(self.act.len()).for_each(|out| out.copy_from_slice(&self.act));
        self.prompt = self.prompt.max(self.rate(4.min(all), &acts, n, TOKENS, 0, 1));
        let (start, rounds) = (Instant::now(), 50);
        for _ in 0..rounds {
            self.layout.arrange(&self.encoded, n, &mut self.act);
        }
        self.arrange = self.arrange.min(start.elapsed().as_secs_f64() / f64::from(rounds) * 1e6);
    }
}

/// Rows of random ternary weights.
fn weights(ty: TypeId, n: usize, rows: usize, random: &mut Random) -> Vec<u8> {
    let mut out = Vec::new();
    for _ in 0..rows {
        let codes: Vec<i8> = (0..n).map(|_| random.below(3) as i8 - 1).collect();
        if ty == TypeId::I2_S {
            let mut row = vec![0; ternary::row_bytes(n)];
            ternary::pack_row(&codes, &mut row);
            out.extend(row);
        } else {
            let floats: Vec<f32> = codes.iter().map(|&code| f32::from(code) / 16.0).collect();
            let info = ty.info().expect("registered");
            let mut row = vec![0; n / info.block * info.bytes];
            info.encode.expect("a type with an encoder")(&floats, None, &mut row);
            out.extend(row);
        }
    }
    out
}
