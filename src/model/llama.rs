//! LLaMA and its kin Qwen 2 and Qwen 3: norms before both halves of a block, SwiGLU.

use super::load::{Linear, Loader};
use super::session::Pass;
use super::{Arch, Block, Config, GLOBAL};
use crate::ops::activation::swiglu;
use crate::ops::{self, norm};

struct Layer {
    index: usize,
    eps: f32,
    attn_norm: Vec<f32>,
    qkv: [Linear; 3],
    /// RMS norms of every query and every key head, before RoPE (Qwen 3).
    head_norms: Option<[Vec<f32>; 2]>,
    out: Linear,
    ffn_norm: Vec<f32>,
    gate: Linear,
    up: Linear,
    down: Linear,
    /// Factor on the scores.
    scale: f32,
}

pub fn load(loader: &mut Loader<'_>, c: &Config) -> Vec<Box<dyn Block>> {
    let layer = |index: usize| -> Box<dyn Block> {
        let name = |part: &str| format!("blk.{index}.{part}");
        Box::new(Layer {
            index,
            eps: c.eps,
            attn_norm: loader.vector(&name("attn_norm.weight"), c.n_embd),
            qkv: loader.qkv(index, c),
            head_norms: (c.arch == Arch::Qwen3).then(|| {
                ["attn_q_norm.weight", "attn_k_norm.weight"]
                    .map(|part| loader.vector(&name(part), c.head_dim))
            }),
            out: loader.linear(&name("attn_output"), c.n_head * c.head_dim, c.n_embd),
            ffn_norm: loader.vector(&name("ffn_norm.weight"), c.n_embd),
            gate: loader.linear(&name("ffn_gate"), c.n_embd, c.n_ff),
            up: loader.linear(&name("ffn_up"), c.n_embd, c.n_ff),
            down: loader.linear(&name("ffn_down"), c.n_ff, c.n_embd),
            scale: 1.0 / (c.head_dim as f32).sqrt(),
        })
    };
    (0..c.n_layer).map(layer).collect()
}

impl Block for Layer {
    fn run(&self, x: &mut [f32], pass: &mut Pass<'_>) {
        let u = norm::rms(pass.isa(), x, &self.attn_norm, self.eps);
        let acts = pass.activations(&u);
        let [mut q, mut k, v] = Linear::apply_all(self.qkv.each_ref(), &acts);
        if let Some([q_norm, k_norm]) = &self.head_norms {
            norm::rms_in_place(pass.isa(), &mut q, q_norm, self.eps);
            norm::rms_in_place(pass.isa(), &mut k, k_norm, self.eps);
        }
        pass.rotate(&mut q, GLOBAL);
        pass.rotate(&mut k, GLOBAL);
        pass.store(self.index, &k, &v);
        let heads = pass.attend(self.index, &q, self.scale, None);
        ops::add(x, &self.out.apply(&pass.rows(&heads)));

        let u = norm::rms(pass.isa(), x, &self.ffn_norm, self.eps);
        let acts = pass.activations(&u);
        let [mut gate, up] = Linear::apply_all_bias_first([&self.gate, &self.up], &acts);
        swiglu(pass.isa(), &mut gate, &up);
        ops::add(x, &self.down.apply_bias_first(&pass.rows(&gate)));
    }
}
