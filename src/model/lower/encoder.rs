//! An encoder, and the attention of a decoder's blocks to the text that it has read.
//!
//! The decoder reads keys and values of that text, block by block. They are products with the encoder's states alone, so
//! they belong to its program and are made once for a text.

use super::lowering::{Lowered, Lowering};
use crate::model::config::{Config, OfLayer};
use crate::model::load::Loader;
use crate::ops::attention::{AttendSource, Heads};
use crate::ops::matmul::Matrix;
use crate::program::{Op, Value};

impl<'l, 'f> Lowering<'l, 'f> {
    /// The program of an encoder of configuration `c`. Its hidden states are the keys and values that the blocks of the
    /// model, whose configuration is `decoder`, attend to: those of the first block, then those of the second.
    /// `None` where a tensor is missing, which is noted.
    pub fn encoder(loader: &'l mut Loader<'f>, [c, decoder]: [&'l Config; 2], embedding: Matrix) -> Option<Lowered> {
        loader.enter_part(c);
        let norm = loader.norm(None, "output_norm");
        let mut all = Lowering::new(loader, c);
        let table = all.matrix("token_embd.weight", 0, embedding);
        let x = all.b.embed(table);
        let x = all.unrotated_embeddings(x);
        let x = all.blocks(x, 0..c.n_layer, &[]);
        all.b.end_block();
        all.loader.enter_part(decoder);
        let projections: Vec<_> = (0..decoder.n_layer)
            .flat_map(|layer| ["cross_attn_k", "cross_attn_v"].map(|name| all.loader.linear(layer, name)))
            .collect();
        let x = all.b.take(x?);
        let states = all.b.maybe_norm("output_norm", x, norm);
        let mut parts = Vec::new();
        for projection in projections {
            let y = all.product(states, projection?);
            parts.push((y, all.b.columns(y)));
        }
        let keys_and_values = all.b.join("keys_and_values", &parts);
        Some(all.finish(keys_and_values, None))
    }
}

impl Lowering<'_, '_> {
    /// The residual stream `x` behind the attention of block number `layer` to the encoder's text; `None` where a tensor
    /// is missing, which is noted.
    pub(super) fn cross_attention(&mut self, x: Value, layer: usize) -> Option<Value> {
        let OfLayer { n_head, n_head_kv, head_dim, .. } = self.c.layer(layer);
        let norm = self.loader.norm(Some(layer), "cross_attn_norm");
        let query = self.loader.linear(layer, "cross_attn_q");
        let out = self.loader.linear(layer, "cross_attn_output");
        let heads = Heads { queries: n_head, keys: n_head_kv, size: head_dim };
        let (query, out) = (query?, out?);
        let normed = self.b.maybe_norm("cross_attn_norm", x, norm);
        let q = self.product(normed, query);
        let attend = AttendSource { layer, heads, scale: self.c.scores.scale };
        let y = self.b.like("cross_attention", Op::AttendSource(attend), &[q]);
        let y = self.product(y, out);
        Some(self.b.add("cross_attn_residual", y, x))
    }
}
