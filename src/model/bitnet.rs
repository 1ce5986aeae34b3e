//! BitNet b1.58: LLaMA with an RMS norm on the heads before the output projection and on the gated
//! activations before the down projection.
//!
//! llama.cpp's `bitnet` gates with SiLU; the published 2B-4T model (`bitnet-25`, `bitnet-b1.58`) was
//! trained with squared ReLU.

use super::load::{Linear, Loader};
use super::session::Pass;
use super::{Arch, Block, Config, GLOBAL};
use crate::ops::activation::{Gated, squared_reglu, swiglu};
use crate::ops::{self, norm};

struct Layer {
    index: usize,
    eps: f32,
    attn_norm: Vec<f32>,
    qkv: [Linear; 3],
    attn_sub_norm: Vec<f32>,
    out: Linear,
    ffn_norm: Vec<f32>,
    gate: Linear,
    up: Linear,
    ffn_sub_norm: Vec<f32>,
    down: Linear,
    /// Factor on the scores.
    scale: f32,
    /// `gate = activation(gate) * up`.
    gated: Gated,
}

pub fn load(loader: &mut Loader<'_>, c: &Config) -> Vec<Box<dyn Block>> {
    let layer = |index: usize| -> Box<dyn Block> {
        let name = |part: &str| format!("blk.{index}.{part}");
        let heads = c.n_head * c.head_dim;
        Box::new(Layer {
            index,
            eps: c.eps,
            attn_norm: loader.vector(&name("attn_norm.weight"), c.n_embd),
            qkv: loader.qkv(index, c),
            attn_sub_norm: loader.vector(&name("attn_sub_norm.weight"), heads),
            out: loader.linear(&name("attn_output"), heads, c.n_embd),
            ffn_norm: loader.vector(&name("ffn_norm.weight"), c.n_embd),
            gate: loader.linear(&name("ffn_gate"), c.n_embd, c.n_ff),
            up: loader.linear(&name("ffn_up"), c.n_embd, c.n_ff),
            ffn_sub_norm: loader.vector(&name("ffn_sub_norm.weight"), c.n_ff),
            down: loader.linear(&name("ffn_down"), c.n_ff, c.n_embd),
            scale: 1.0 / (c.head_dim as f32).sqrt(),
            gated: if c.arch == Arch::Bitnet {
                swiglu
            } else {
                squared_reglu
            },
        })
    };
    (0..c.n_layer).map(layer).collect()
}

impl Block for Layer {
    fn run(&self, x: &mut [f32], pass: &mut Pass<'_>) {
        let u = norm::rms(pass.isa(), x, &self.attn_norm, self.eps);
        let acts = pass.activations(&u);
        let [mut q, mut k, v] = Linear::apply_all(self.qkv.each_ref(), &acts);
        pass.rotate(&mut q, GLOBAL);
        pass.rotate(&mut k, GLOBAL);
        pass.store(self.index, &k, &v);
        let mut heads = pass.attend(self.index, &q, self.scale, None);
        norm::rms_in_place(pass.isa(), &mut heads, &self.attn_sub_norm, self.eps);
        ops::add(x, &self.out.apply(&pass.rows(&heads)));

        let u = norm::rms(pass.isa(), x, &self.ffn_norm, self.eps);
        let acts = pass.activations(&u);
        let [mut gate, up] = Linear::apply_all_bias_first([&self.gate, &self.up], &acts);
        (self.gated)(pass.isa(), &mut gate, &up);
        norm::rms_in_place(pass.isa(), &mut gate, &self.ffn_sub_norm, self.eps);
        ops::add(x, &self.down.apply(&pass.rows(&gate)));
    }
}
