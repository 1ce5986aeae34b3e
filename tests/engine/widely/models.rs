//! Small random models of the architectures that can be made widely linear, and their two forms.

use std::collections::HashMap;

use trine::arch::{Arch, Latent, Recurrent, Role, Rwkv, Sizes, Tensor};
use trine::model::{LoadOptions, NumberPath, Weights};
use trine::pool::Pool;
use trine::quant::widely::Options;
use trine::quant::{Plan, Recipe, RunOptions, Target, run};
use trine::step::{Session, SessionOptions};
use trine_formats::gguf::write::NewTensor;
use trine_formats::gguf::{Metadata, ModelFile, Value};
use trine_formats::types::TypeId;
use trine_testkit::gguf;

/// An odd number of heads, and widths of which half is no whole chunk.
pub const SIZES: Sizes = Sizes {
    vocab: 150,
    embd: 84,
    ff: 202,
    heads: 3,
    kv_heads: 1,
    head_dim: 28,
    value_dim: 28,
    rope_dim: 28,
    experts: 0,
    experts_used: 0,
    expert_ff: 0,
    expert_embd: 0,
    shared_ff: 0,
    chunks: 0,
    chunk_ff: 0,
    context: 0,
    streams: 0,
    token_types: 0,
    buckets: 0,
    up: 0,
    classes: 0,
    projected: 0,
    stream_rank: 0,
    layer_input: [0; 2],
    ngrams: [0; 3],
    slots: [0; 2],
    output_groups: 0,
    output_rank: 0,
    latent: Latent::NONE,
    recurrent: Recurrent::NONE,
    rwkv: Rwkv::NONE,
};
const LAYERS: usize = 2;

/// About normal numbers, the same everywhere.
pub struct Noise(u64);

impl Noise {
    pub fn next(&mut self) -> f32 {
        let mut sum = 0.0;
        for _ in 0..4 {
            self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            sum += (self.0 >> 40) as f32 / (1u64 << 24) as f32 - 0.5;
        }
        sum
    }
}

fn data(tensor: &Tensor, sizes: &Sizes, ty: TypeId, noise: &mut Noise) -> Vec<u8> {
    let shape = sizes.shape(tensor);
    let columns = *shape.last().expect("a shape");
    let weights: Vec<f32> = (0..shape.iter().product::<u64>())
        .map(|_| match tensor.role {
            Role::Norm => 1.0 + 0.1 * noise.next(),
            Role::Bias => 0.3 * noise.next(),
            _ => 2.0 * noise.next() / (columns as f32).sqrt(),
        })
        .collect();
    let info = ty.info().expect("a known type");
    let bytes = info.row_bytes(weights.len() as u64).expect("whole blocks");
    let mut out = vec![0; bytes as usize];
    info.encode.expect("can be encoded")(&weights, None, &mut out);
    out
}

/// A random model: all tensors that the architecture knows but for factors of RoPE, matrices of type `ty`.
pub fn random(arch: &str, ty: TypeId) -> ModelFile {
    random_of(arch, ty, &SIZES)
}

/// Sizes whose matrices are made of whole tiles.
pub fn tile_sizes() -> Sizes {
    Sizes { embd: 128, ff: 256, heads: 2, kv_heads: 2, head_dim: 64, value_dim: 64, rope_dim: 64, ..SIZES }
}

/// The same with other sizes.
pub fn random_of(arch: &str, ty: TypeId, sizes: &Sizes) -> ModelFile {
    let arch = Arch::find(arch).expect("an architecture");
    let mut meta = Metadata::default();
    meta.set("general.architecture", Value::str(arch.name));
    let numbers = [
        ("block_count", LAYERS as u64),
        ("context_length", 256),
        ("embedding_length", sizes.embd),
        ("feed_forward_length", sizes.ff),
        ("attention.head_count", sizes.heads),
        ("attention.head_count_kv", sizes.kv_heads),
        ("attention.key_length", sizes.head_dim),
        ("attention.value_length", sizes.head_dim),
        ("rope.dimension_count", sizes.head_dim),
        ("vocab_size", sizes.vocab),
    ];
    for (key, value) in numbers {
        meta.set(&format!("{}.{key}", arch.name), Value::U32(value as u32));
    }
    let eps = format!("{}.attention.layer_norm_rms_epsilon", arch.name);
    meta.set(&eps, Value::F32(1e-5));
    let mut noise = Noise(arch.name.len() as u64);
    let ends = arch.end_tensors().map(|t| (String::new(), t));
    let blocks = (0..LAYERS).flat_map(|n| arch.block_tensors(false).map(move |t| (format!("blk.{n}."), t)));
    let tensors: Vec<(NewTensor, Vec<u8>)> = ends
        .chain(blocks)
        // Nor the head of a model that ranks.
        .filter(|(_, t)| t.role != Role::RopeFactors && !t.gguf.starts_with("cls."))
        .map(|(prefix, t)| {
            let ty = match t.role {
                Role::Norm | Role::Bias => TypeId::F32,
                _ => ty,
            };
            let name = format!("{prefix}{}", t.gguf);
            let tensor = NewTensor::new(name, sizes.gguf_shape(t), ty);
            (tensor, data(t, sizes, ty, &mut noise))
        })
        .collect();
    gguf::model(gguf::bytes(&meta, &tensors))
}

/// A recipe for a target, matrices as `options` say.
pub fn recipe(target: Target, options: &Options) -> Recipe {
    Recipe { widely: *options, ..Recipe::new(target) }
}

/// The bytes of the file that a recipe makes of a model.
pub fn written(model: &ModelFile, recipe: &Recipe) -> Vec<u8> {
    let (dir, mut plan) = (trine_testkit::folder(), Plan::new(model, recipe).expect("a plan"));
    let out = dir.path().join("out.gguf");
    run(model, &mut plan, &out, RunOptions::default(), &mut ()).expect("a file");
    trine_testkit::read(&out)
}

/// The bytes of the widely linear form of a model.
pub fn widely(model: &ModelFile, options: &Options) -> Vec<u8> {
    written(model, &recipe(Target::Widely, options))
}

/// The bytes of the dense form of a widely linear model.
pub fn dense(model: &ModelFile, ty: TypeId) -> Vec<u8> {
    written(model, &Recipe::new(Target::Dense(ty)))
}

pub fn options(number_path: NumberPath) -> LoadOptions {
    LoadOptions { number_path, ..LoadOptions::default() }
}

pub fn tokens(n: usize) -> Vec<u32> {
    (0..n).map(|i| (i * i * 7 + 3 * i) as u32 % SIZES.vocab as u32).collect()
}

/// Logits of all positions, with `threads` threads and `n_ubatch` tokens computed at once.
pub fn logits(model: &Weights, tokens: &[u32], (threads, n_ubatch): (usize, usize)) -> Vec<Vec<f32>> {
    let options = SessionOptions { n_ctx: tokens.len(), n_ubatch };
    let mut session = Session::new(model, &Pool::new(threads).expect("threads"), options);
    let mut out = Vec::new();
    session.eval(tokens, 0, &mut |_, logits| out.push(logits.to_vec())).expect("room for the tokens");
    out
}

pub fn bits(logits: &[Vec<f32>]) -> Vec<Vec<u32>> {
    let row = |row: &Vec<f32>| row.iter().map(|v| v.to_bits()).collect();
    logits.iter().map(row).collect()
}

/// Names and bytes of the tensors of a file.
pub fn parts(model: &ModelFile) -> HashMap<String, Vec<u8>> {
    let data = |name: &str| model.tensor(name).expect("it is there").data.to_vec();
    model.tensors().map(|t| (t.name.clone(), data(&t.name))).collect()
}
