//! Embeddings of n-grams, which one block adds to the residual streams (Qwen 4).
//!
//! A stream takes as much of the value that the embeddings make as its norm agrees with their key; the values go through
//! a convolution as well, whose output is added to them.

use super::lowering::Lowering;
use crate::model::config::Ngrams;
use crate::ops::activation::{Activation, HeadGate};
use crate::ops::convolution::Convolution;
use crate::program::{Op, Value};

impl Lowering<'_, '_> {
    /// The residual streams `x` with what the n-grams add; `None` where a tensor is missing, which is noted.
    pub(super) fn ngrams(&mut self, x: Value, ngrams: &Ngrams, layer: usize) -> Option<Value> {
        const TABLE: &str = "per_layer_token_embd.weight";
        let c = self.c;
        let count = c.streams?.count;
        let table = self.loader.table(TABLE);
        let [key, value] = ["ple_key", "ple_value"].map(|name| self.loader.required_linear(layer, name));
        let [key_norm, query_norm, value_norm] =
            ["ple_norm_key", "ple_norm_query", "ple_norm_conv"].map(|name| self.loader.required_norm(layer, name));
        let weights = self.loader.vector(Some(layer), "ple_conv1d.weight");
        let weights = self.loader.required(Some(layer), "ple_conv1d", weights);
        let state = c.mixing.others_of(layer);
        let (tokens, positions) = (state.start..state.start + ngrams.rule.state(), state.start + ngrams.rule.state());
        let (table, key, value, weights) = (table?, key?, value?, weights?);
        let (key_norm, query_norm, value_norm) = (key_norm?, query_norm?, value_norm?);

        let table = self.matrix(TABLE, 0, table);
        let embedded = self.b.embed_ngrams(table, ngrams.rule.clone(), tokens);
        let [key, value] = self.products(embedded, [key, value]);
        let key = self.b.norm("ple_norm_key", key, key_norm);
        let query = self.b.norm("ple_norm_query", x, query_norm);
        let agreement = self.b.rooted_dots("ple_agreement", key, query, c.n_embd);
        let values = self.b.repeat("ple_values", value, c.n_embd, count);
        let values = self.b.head_gate("ple_gated", HeadGate::Sigmoid, values, agreement);
        let normed = self.b.norm("ple_norm_conv", values, value_norm);
        let apart = ngrams.rule.multipliers.len();
        let convolution = Convolution::new(&weights, ngrams.kernel, None).with_distance(apart);
        let y = self.b.recurrent("ple_conv", Op::Convolve(convolution, positions..state.end), &[normed], 0);
        let y = self.b.activate("ple_conv_silu", Activation::Silu, y);
        let y = self.b.add("ple_added", values, y);
        Some(self.b.add("ngrams_residual", x, y))
    }
}
