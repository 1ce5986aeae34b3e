//! Attention and recurrent layers of a block, and the simpler recurrent layers.

use super::lowering::Lowering;
use crate::arch::rules::Recurrence;
use crate::model::load::Linear;
use crate::ops::activation::{Activation, HeadGate};
use crate::ops::convolution::Convolution;
use crate::ops::lightning::Lightning;
use crate::program::{Op, Value};

impl Lowering<'_, '_> {
    /// The mixer of block number `layer`: from its normed input to what it adds; `None` where a tensor is missing, which
    /// is noted.
    pub(super) fn mixer(&mut self, x: Value, layer: usize) -> Option<Value> {
        let parts = self.c.mixing.blocks[layer];
        let c = self.c;
        let attention = parts.attends.then(|| match (c.latent, &c.compressed) {
            (Some(sizes), _) => self.latent_attention(x, sizes, layer),
            (None, Some(rule)) => self.compressed_attention(x, rule, layer),
            (None, None) => self.attention(x, layer),
        });
        let recurrent = parts.recurs.then(|| self.recurrent(x, layer));
        match (attention, recurrent) {
            (Some(attention), Some(recurrent)) => Some(self.b.add("mixers", attention?, recurrent?)),
            (one, other) => one.or(other)?,
        }
    }

    fn recurrent(&mut self, x: Value, layer: usize) -> Option<Value> {
        match self.c.mixing.kind? {
            Recurrence::Matrix => {
                let matrix = self.loader.linear(layer, "attn_output")?;
                Some(self.product(x, matrix))
            }
            Recurrence::Convolution => self.gated_convolution(x, layer),
            kind if kind.is_delta() || kind.is_kimi() => self.delta_net(x, kind, layer),
            kind if kind.is_rwkv_alone() => self.rwkv_mixer(x, kind, layer),
            Recurrence::Lightning => self.lightning(x, layer),
            kind => self.mamba(x, kind, layer),
        }
    }

    /// LFM 2's gated convolution: `out(c * convolution(b * x))`, where b, c and x are projections of the input.
    fn gated_convolution(&mut self, x: Value, layer: usize) -> Option<Value> {
        let c = self.c;
        let project = self.loader.linear(layer, "shortconv.in_proj");
        let weights = self.loader.vector(Some(layer), "shortconv.conv.weight");
        let out = self.loader.linear(layer, "shortconv.out_proj");
        let from = c.mixing.state_of(layer);
        let [remembered, _] = c.mixing.numbers;
        let (project, weights, out) = (project?, weights?, out?);
        let convolution = Convolution::new(&weights, c.mixing.sizes.kernel, None);
        let all = self.product(x, project);
        let [gate, outer, inner] = self.b.split(["conv_b", "conv_c", "conv_x"], all, [c.n_embd; 3]);
        let gated = self.b.multiply("conv_bx", gate, inner);
        let convolved = self.b.recurrent("conv", Op::Convolve(convolution, from..from + remembered), &[gated], 0);
        let y = self.b.multiply("conv_gated", outer, convolved);
        Some(self.product(y, out))
    }

    /// Lightning attention: queries, keys and values of every head follow each other in one projection, which goes
    /// through SiLU; the outputs are normed over all heads and multiplied by a gate.
    fn lightning(&mut self, x: Value, layer: usize) -> Option<Value> {
        let c = self.c;
        // the graph applies no factors here
        let mut linear = |name: &str| {
            let linear = self.loader.required_linear(layer, name)?;
            Some(Linear { scale: None, ..linear })
        };
        let (qkv, gate, out) = (linear("lightning_qkv"), linear("lightning_gate"), linear("attn_output"));
        let norm = self.loader.required_norm(layer, "lightning_norm");
        let from = c.mixing.state_of(layer);
        let (qkv, gate, norm, out) = (qkv?, gate?, norm?, out?);
        let [qkv, gate] = self.products(x, [qkv, gate]);
        let qkv = self.b.activate("qkv", Activation::Silu, qkv);
        let qkv = self.b.split(["q", "k", "v"], qkv, [c.head_dim; 3]);
        let rule = Lightning::new(c.n_head, c.head_dim, layer, c.n_layer);
        let state = from..from + c.mixing.numbers[1];
        let y = self.b.recurrent("attention", Op::Lightning(Box::new(rule), state), &qkv, 0);
        let y = self.b.norm("lightning_norm", y, norm);
        let y = self.b.head_gate("attn_gated", HeadGate::Sigmoid, y, gate);
        Some(self.product(y, out))
    }
}
