//! Which of trine's operations have the processor's bits in Vulkan: shaders over random numbers and over damaged ones,
//! each compared with the definition that the processor follows. `docs/notes/vulkan.md` says what was found.
//!
//! `VK_ICD_FILENAMES=/usr/share/vulkan/icd.d/lvp_icd.x86_64.json cargo run --release` runs it on any machine with Mesa.

mod device;

use std::time::Instant;

use anyhow::{Context, Result};
use device::{Device, Sizes};
use trine_formats::types::{TypeId, TypeInfo};
use trine_kernels::Isa;
use trine_kernels::elements::{rms_norm, soft_max};

/// A shader as SPIR-V.
macro_rules! shader {
    ($name:literal) => {
        include_bytes!(concat!("../shaders/", $name, ".spv"))
    };
}

/// Random numbers by xorshift, from a seed.
struct Random(u64);

impl Random {
    fn word(&mut self) -> u32 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 16) as u32
    }

    /// A number of a size between 2^-20 and 2^4, of either sign.
    fn float(&mut self) -> f32 {
        f32::from_bits(self.word() & 0x807f_ffff | (107 + self.word() % 24) << 23)
    }

    fn floats(&mut self, n: usize) -> Vec<f32> {
        (0..n).map(|_| self.float()).collect()
    }

    fn bytes(&mut self, n: usize) -> Vec<u8> {
        (0..n).map(|_| self.word() as u8).collect()
    }
}

fn info(ty: TypeId) -> Result<&'static TypeInfo> {
    ty.info().context("a type of trine")
}

fn encoded(ty: TypeId, x: &[f32]) -> Result<Vec<u8>> {
    let info = info(ty)?;
    let mut row = vec![0; x.len() / info.block * info.bytes];
    info.encode.context("a type that is encoded")?(x, None, &mut row);
    Ok(row)
}

fn bytes(x: &[f32]) -> Vec<u8> {
    x.iter().flat_map(|v| v.to_le_bytes()).collect()
}

fn bits(x: &[f32]) -> Vec<u32> {
    x.iter().map(|v| v.to_bits()).collect()
}

/// Writes a line of the table: how many results differ, and the time of the shader.
fn tell(what: &str, found: &[u32], expected: &[u32], since: Instant) {
    let nan = |bits: u32| f32::from_bits(bits).is_nan();
    let differ = found.iter().zip(expected).filter(|(a, b)| a != b && !(nan(**a) && nan(**b))).count();
    let all = expected.len();
    println!("{what:48} {differ:>7} of {all:>7} differ   {:>7.1} ms", since.elapsed().as_secs_f64() * 1e3);
}

/// Products of rows with a vector, for weights that an encoder made and for any bytes.
fn products(device: &Device, ty: TypeId, code: &[u8], random: &mut Random) -> Result<()> {
    let (rows, columns) = (512, 2048);
    let weights = info(ty)?;
    let acts = weights.act.context("activations")?;
    let dot = weights.dot_ref.context("a product")?;
    let x = encoded(acts, &random.floats(columns))?;
    let row = columns / weights.block * weights.bytes;
    let mut made = Vec::new();
    for _ in 0..rows {
        made.extend(encoded(ty, &random.floats(columns))?);
    }
    for (what, w) in [("encoded weights", made), ("any bytes", random.bytes(rows * row))] {
        let expected: Vec<f32> = w.chunks_exact(row).map(|w| dot(w, &x)).collect();
        let sizes = Sizes { rows: rows as u32, columns: columns as u32, ..Sizes::default() };
        let since = Instant::now();
        let found = device.run(code, sizes, &w, &x, rows)?;
        tell(&format!("{} times {}, {what}", weights.name, info(acts)?.name), &found, &bits(&expected), since);
    }
    Ok(())
}

/// Activations as Q8_0: the half float and the codes of each block.
fn encoding(device: &Device, random: &mut Random) -> Result<()> {
    let x = random.floats(32 * 4096);
    let expected: Vec<u32> = encoded(TypeId::Q8_0, &x)?
        .chunks_exact(34)
        .flat_map(|block| {
            let scale = u32::from(u16::from_le_bytes([block[0], block[1]]));
            let codes = block[2..].as_chunks::<4>().0.iter().map(|word| u32::from_le_bytes(*word));
            std::iter::once(scale).chain(codes).collect::<Vec<u32>>()
        })
        .collect();
    let sizes = Sizes { rows: x.len() as u32 / 32, ..Sizes::default() };
    for (what, code) in [
        ("floats to q8_0, division bit by bit", &shader!("encode_q8_0")[..]),
        ("floats to q8_0, division of Vulkan", shader!("encode_q8_0_plain")),
    ] {
        let since = Instant::now();
        let found = device.run(code, sizes, &bytes(&x), &[], expected.len())?;
        tell(what, &found, &expected, since);
    }
    Ok(())
}

fn norms(device: &Device, random: &mut Random) -> Result<()> {
    let (rows, columns, eps) = (64, 3072, 1e-5);
    let (x, gains) = (random.floats(rows * columns), random.floats(columns));
    let mut expected = vec![0.0; x.len()];
    for (x, y) in x.chunks_exact(columns).zip(expected.chunks_exact_mut(columns)) {
        rms_norm(Isa::scalar(), x, &gains, eps, y);
    }
    let sizes = Sizes { rows: rows as u32, columns: columns as u32, number: eps, ..Sizes::default() };
    for (what, code) in [
        ("RMS norm, division and root bit by bit", &shader!("rms_norm")[..]),
        ("RMS norm, division and root of Vulkan", shader!("rms_norm_plain")),
    ] {
        let since = Instant::now();
        let found = device.run(code, sizes, &bytes(&x), &bytes(&gains), x.len())?;
        tell(what, &found, &bits(&expected), since);
    }
    Ok(())
}

/// A float rounded to a half float.
fn halved(x: f32) -> Result<f32> {
    let info = info(TypeId::F16)?;
    let mut out = [0.0];
    info.decode.context("half floats")?(&encoded(TypeId::F16, &[x])?, &mut out);
    Ok(out[0])
}

fn attention(device: &Device, random: &mut Random) -> Result<()> {
    let (heads, size, cells) = (8, 64, 257);
    let scale = 1.0 / (size as f32).sqrt();
    let q: Vec<f32> = random.floats(heads * size).iter().map(|v| v * 0.25).collect();
    let kv = random.floats(2 * heads * cells * size);
    let halves: Vec<f32> = kv.iter().map(|&v| halved(v)).collect::<Result<_>>()?;
    let (keys, values) = halves.split_at(heads * cells * size);
    let mut expected = Vec::new();
    for head in 0..heads {
        let q: Vec<f32> = q[head * size..][..size].iter().map(|&v| halved(v)).collect::<Result<_>>()?;
        let of_head = head * cells * size..(head + 1) * cells * size;
        let keys = keys[of_head.clone()].chunks_exact(size);
        let score = |k: &[f32]| q.iter().zip(k).fold(0f64, |sum, (q, k)| sum + f64::from(q * k)) as f32;
        let mut p: Vec<f32> = keys.map(score).collect();
        p.resize(cells.next_multiple_of(16), 0.0);
        soft_max(Isa::scalar(), &mut p, 0..cells, scale);
        let p: Vec<f32> = p.iter().map(|&v| halved(v)).collect::<Result<_>>()?;
        for d in 0..size {
            let values = values[of_head.clone()].iter().skip(d).step_by(size);
            expected.push(p.iter().zip(values).fold(0f64, |sum, (p, v)| sum + f64::from(p * v)) as f32);
        }
    }
    let cache = encoded(TypeId::F16, &kv)?;
    let sizes = Sizes { rows: heads as u32, columns: size as u32, extra: cells as u32, number: scale };
    let since = Instant::now();
    let found = device.run(shader!("attention"), sizes, &cache, &bytes(&q), heads * (size + cells))?;
    tell("attention, 8 heads over 257 cells", &found[..heads * size], &bits(&expected), since);
    Ok(())
}

fn main() -> Result<()> {
    let device = Device::open()?;
    let about = device.about();
    println!("{}, {}", about.name, about.driver);
    for (what, holds) in about.promises {
        println!("  {what}: {}", if holds { "promised" } else { "not promised" });
    }
    println!();
    let mut random = Random(0x9e37_79b9_7f4a_7c15);
    products(&device, TypeId::Q8_0, shader!("product_q8_0"), &mut random)?;
    products(&device, TypeId::TQ2_0, shader!("product_tq2_0"), &mut random)?;
    encoding(&device, &mut random)?;
    norms(&device, &mut random)?;
    attention(&device, &mut random)
}
