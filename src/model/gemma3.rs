//! Gemma 3 (text): norms before and after both halves of a block, RMS norm on every query and key head,
//! sliding-window layers with their own RoPE base, GeGLU.
//!
//! Norm weights are used as stored: the converter has already added the 1 of Gemma's formula.

use super::load::{Linear, Loader};
use super::session::Pass;
use super::{Block, Config, GLOBAL, WINDOW};
use crate::ops::activation::geglu;
use crate::ops::{self, norm};

struct Layer {
    index: usize,
    eps: f32,
    attn_norm: Vec<f32>,
    qkv: [Linear; 3],
    q_norm: Vec<f32>,
    k_norm: Vec<f32>,
    out: Linear,
    attn_post_norm: Vec<f32>,
    ffn_norm: Vec<f32>,
    gate: Linear,
    up: Linear,
    down: Linear,
    ffn_post_norm: Vec<f32>,
    /// Factor on the queries, applied after RoPE; the scores have none.
    query_scale: f32,
    window: Option<usize>,
}

pub fn load(loader: &mut Loader<'_>, c: &Config) -> Vec<Box<dyn Block>> {
    // llama.cpp knows the 27B model by its 62 layers; its queries are scaled by the embedding width
    // per head instead of the head size.
    let per_head = if c.n_layer == 62 {
        c.n_embd / c.n_head
    } else {
        c.head_dim
    };
    let layer = |index: usize| -> Box<dyn Block> {
        let name = |part: &str| format!("blk.{index}.{part}");
        Box::new(Layer {
            index,
            eps: c.eps,
            attn_norm: loader.vector(&name("attn_norm.weight"), c.n_embd),
            qkv: loader.qkv(index, c),
            q_norm: loader.vector(&name("attn_q_norm.weight"), c.head_dim),
            k_norm: loader.vector(&name("attn_k_norm.weight"), c.head_dim),
            out: loader.linear(&name("attn_output"), c.n_head * c.head_dim, c.n_embd),
            attn_post_norm: loader.vector(&name("post_attention_norm.weight"), c.n_embd),
            ffn_norm: loader.vector(&name("ffn_norm.weight"), c.n_embd),
            gate: loader.linear(&name("ffn_gate"), c.n_embd, c.n_ff),
            up: loader.linear(&name("ffn_up"), c.n_embd, c.n_ff),
            down: loader.linear(&name("ffn_down"), c.n_ff, c.n_embd),
            ffn_post_norm: loader.vector(&name("post_ffw_norm.weight"), c.n_embd),
            query_scale: 1.0 / (per_head as f32).sqrt(),
            window: c.layer_window(index),
        })
    };
    (0..c.n_layer).map(layer).collect()
}

impl Block for Layer {
    fn run(&self, x: &mut [f32], pass: &mut Pass<'_>) {
        let rope = if self.window.is_some() {
            WINDOW
        } else {
            GLOBAL
        };
        let u = norm::rms(pass.isa(), x, &self.attn_norm, self.eps);
        let acts = pass.activations(&u);
        let [mut q, mut k, v] = Linear::apply_all(self.qkv.each_ref(), &acts);
        norm::rms_in_place(pass.isa(), &mut q, &self.q_norm, self.eps);
        norm::rms_in_place(pass.isa(), &mut k, &self.k_norm, self.eps);
        pass.rotate(&mut q, rope);
        pass.rotate(&mut k, rope);
        ops::scale(&mut q, self.query_scale);
        pass.store(self.index, &k, &v);
        let heads = pass.attend(self.index, &q, 1.0, self.window);
        let mut y = self.out.apply(&pass.rows(&heads));
        norm::rms_in_place(pass.isa(), &mut y, &self.attn_post_norm, self.eps);
        ops::add(x, &y);

        let u = norm::rms(pass.isa(), x, &self.ffn_norm, self.eps);
        let acts = pass.activations(&u);
        let [mut gate, up] = Linear::apply_all([&self.gate, &self.up], &acts);
        geglu(pass.isa(), &mut gate, &up);
        let mut y = self.down.apply(&pass.rows(&gate));
        norm::rms_in_place(pass.isa(), &mut y, &self.ffn_post_norm, self.eps);
        ops::add(x, &y);
    }
}
