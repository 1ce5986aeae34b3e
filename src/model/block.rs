//! The block interpreter: attention and feed-forward network as an architecture's description has them.
//!
//! What a description does not list is absent here; nothing is decided by an architecture's name.

use super::config::Config;
use super::experts::Mixture;
use super::linear::Linear;
use super::load::Loader;
use super::pass::{Pass, RopeKind};
use crate::kernels::Floats;
use crate::ops::activation::Activation;
use crate::ops::{self, norm};

/// Gains of an RMS norm that a block may lack.
type Norm = Option<Vec<f32>>;

/// One transformer block.
pub struct Block {
    layer: usize,
    eps: f32,
    /// Before attention.
    attn_norm: Norm,
    qkv: [Linear; 3],
    /// Of queries and keys before RoPE: per head, or over all of them, as long as the gains are.
    qk_norms: [Norm; 2],
    rope: RopeKind,
    window: Option<usize>,
    /// Factor on the queries after RoPE.
    query_scale: Option<f32>,
    /// Factor on the scores.
    score_scale: f32,
    /// Of the heads' outputs.
    attn_sub_norm: Norm,
    out: Linear,
    /// Of what attention adds.
    attn_post_norm: Norm,
    /// Before the feed-forward network.
    ffn_norm: Norm,
    ffn: FeedForward,
    /// Of what the feed-forward network adds.
    ffn_post_norm: Norm,
    /// Factor on what both halves add.
    residual_scale: Option<f32>,
}

/// The feed-forward network of a block.
enum FeedForward {
    Dense(Box<Dense>),
    Experts(Box<Mixture>),
}

/// `down(norm(f(gate(x)) * up(x)))`
struct Dense {
    eps: f32,
    gate_and_up: [Linear; 2],
    activation: Activation,
    sub_norm: Norm,
    down: Linear,
}

impl Block {
    /// The block number `layer`.
    pub fn load(loader: &mut Loader<'_>, c: &Config, layer: usize) -> Block {
        let heads = c.n_head * c.head_dim;
        let window = c.layer_window(layer);
        Block {
            layer,
            eps: c.eps,
            attn_norm: loader.norm(layer, "attn_norm"),
            qkv: loader.qkv(layer, c),
            qk_norms: ["attn_q_norm", "attn_k_norm"].map(|name| loader.norm(layer, name)),
            rope: match window {
                Some(_) => RopeKind::Window,
                None => RopeKind::Global,
            },
            window,
            query_scale: c.query_scale,
            score_scale: c.score_scale,
            attn_sub_norm: loader.norm(layer, "attn_sub_norm"),
            out: loader.linear(layer, "attn_output", heads, c.n_embd),
            attn_post_norm: loader.norm(layer, "post_attention_norm"),
            ffn_norm: loader.norm(layer, "ffn_norm"),
            ffn: match c.experts {
                Some(experts) => {
                    FeedForward::Experts(Box::new(Mixture::load(loader, c, experts, layer)))
                }
                None => FeedForward::Dense(Box::new(Dense::load(loader, c, layer))),
            },
            ffn_post_norm: loader.norm(layer, "post_ffw_norm"),
            residual_scale: c.residual_scale,
        }
    }

    /// Adds the block's attention and feed-forward network to `x`, `[tokens][n_embd]`.
    pub fn run(&self, x: &mut [f32], pass: &mut Pass<'_, '_>) {
        let mut y = self.attention(x, pass);
        self.finish(&mut y, &self.attn_post_norm, pass);
        ops::add(x, &y);
        let normed = self.normed(&self.ffn_norm, x, pass);
        let input = normed.as_deref().unwrap_or(x);
        let mut y = match &self.ffn {
            FeedForward::Dense(dense) => dense.apply(input, pass),
            FeedForward::Experts(mixture) => mixture.apply(input, pass),
        };
        self.finish(&mut y, &self.ffn_post_norm, pass);
        ops::add(x, &y);
    }

    fn attention(&self, x: &[f32], pass: &mut Pass<'_, '_>) -> Floats {
        let normed = self.normed(&self.attn_norm, x, pass);
        let acts = pass.activations(normed.as_deref().unwrap_or(x));
        let [mut q, mut k, v] = Linear::apply_all(self.qkv.each_ref(), &acts);
        for (x, gains) in [&mut q, &mut k].into_iter().zip(&self.qk_norms) {
            self.norm_in_place(x, gains, pass);
        }
        pass.rotate(&mut q, self.rope);
        pass.rotate(&mut k, self.rope);
        if let Some(scale) = self.query_scale {
            ops::scale(&mut q, scale);
        }
        pass.store(self.layer, &k, &v);
        let mut heads = pass.attend(self.layer, &q, self.score_scale, self.window);
        self.norm_in_place(&mut heads, &self.attn_sub_norm, pass);
        self.out.apply(&pass.rows(&heads))
    }

    /// What is done with the result of either half before it is added.
    fn finish(&self, y: &mut [f32], post_norm: &Norm, pass: &Pass<'_, '_>) {
        self.norm_in_place(y, post_norm, pass);
        if let Some(scale) = self.residual_scale {
            ops::scale(y, scale);
        }
    }

    fn normed(&self, gains: &Norm, x: &[f32], pass: &Pass<'_, '_>) -> Option<Floats> {
        let gains = gains.as_ref()?;
        Some(norm::rms(pass.isa(), x, gains, self.eps))
    }

    fn norm_in_place(&self, x: &mut [f32], gains: &Norm, pass: &Pass<'_, '_>) {
        if let Some(gains) = gains {
            norm::rms_in_place(pass.isa(), x, gains, self.eps);
        }
    }
}

impl Dense {
    fn load(loader: &mut Loader<'_>, c: &Config, layer: usize) -> Dense {
        Dense {
            eps: c.eps,
            gate_and_up: ["ffn_gate", "ffn_up"]
                .map(|name| loader.linear(layer, name, c.n_embd, c.n_ff)),
            activation: c.arch.activation,
            sub_norm: loader.norm(layer, "ffn_sub_norm"),
            down: loader.linear(layer, "ffn_down", c.n_ff, c.n_embd),
        }
    }

    fn apply(&self, x: &[f32], pass: &Pass<'_, '_>) -> Floats {
        let acts = pass.activations(x);
        let both = self.gate_and_up.each_ref();
        let [mut gate, up] = Linear::apply_all_bias_first(both, &acts);
        self.activation.gate(pass.isa(), &mut gate, &up);
        if let Some(gains) = &self.sub_norm {
            norm::rms_in_place(pass.isa(), &mut gate, gains, self.eps);
        }
        self.down.apply_bias_first(&pass.rows(&gate))
    }
}
