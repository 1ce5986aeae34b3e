//! Lightning attention: queries, keys and values of every head follow each other in one projection, which goes through
//! SiLU; what attention ([`Lightning`]) gives is normed over all heads and multiplied by a gate.

use std::ops::Range;

use super::columns;
use crate::kernels::Floats;
use crate::model::config::Config;
use crate::model::linear::Linear;
use crate::model::load::Loader;
use crate::model::pass::Pass;
use crate::ops::activation::{Activation, HeadGate};
use crate::ops::lightning::Lightning;
use crate::ops::norm::Norm;

/// From the normed input of a block to what it adds.
pub struct LightningAttention {
    size: usize,
    /// Its part of a sequence's recurrent state.
    state: Range<usize>,
    qkv: Linear,
    attention: Lightning,
    norm: Norm,
    gate: Linear,
    out: Linear,
}

impl LightningAttention {
    /// That of block number `layer`; `None` where a tensor is missing, which is noted.
    pub fn load(loader: &mut Loader<'_>, c: &Config, layer: usize) -> Option<LightningAttention> {
        // the graph applies no factors here
        let mut linear = |name: &str| {
            let linear = loader.required_linear(layer, name)?;
            Some(Linear { scale: None, ..linear })
        };
        let (qkv, gate, out) = (linear("lightning_qkv"), linear("lightning_gate"), linear("attn_output"));
        let norm = loader.required_norm(layer, "lightning_norm");
        let from = c.mixing.state_of(layer);
        Some(LightningAttention {
            size: c.head_dim,
            state: from..from + c.mixing.numbers[1],
            qkv: qkv?,
            attention: Lightning::new(c.n_head, c.head_dim, layer, c.n_layer),
            norm: norm?,
            gate: gate?,
            out: out?,
        })
    }

    /// What it gives for every row of `x`, `[tokens][n_embd]`.
    pub fn apply(&self, x: &[f32], pass: &mut Pass<'_, '_>) -> Floats {
        let acts = pass.activations(x);
        let [mut qkv, gate] = Linear::apply_all([&self.qkv, &self.gate], &acts);
        Activation::Silu.apply(pass.isa(), &mut qkv);
        let parts = columns(&qkv, [self.size; 3]);
        let width = self.norm.row;
        let mut y = vec![0f32; parts[0].len()];
        pass.recur(self.state.clone(), |rows, state| {
            let rows = rows.start * width..rows.end * width;
            let parts = parts.each_ref().map(|part| &part[rows.clone()]);
            y[rows.clone()].copy_from_slice(&self.attention.run(parts, state));
        });
        self.norm.apply_in_place(pass.isa(), &mut y);
        HeadGate::Sigmoid.apply(&mut y, &gate);
        self.out.apply(&pass.rows(&y))
    }
}
