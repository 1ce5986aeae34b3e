//! A model that drafts for another: a projection of inputs of that model's blocks to states, and one block that reads a
//! state and the embedding of the token behind it.

use super::lowering::{Lowered, Lowering};
use crate::model::config::Drafter;
use crate::model::load::{DrafterEnds, Linear, Loader};
use crate::ops::norm::Norm;

impl<'l, 'f> Lowering<'l, 'f> {
    /// The program that makes states of the inputs, rows of several side by side.
    pub fn fusion(loader: &'l mut Loader<'f>, drafter: &'l Drafter, norm: Option<Norm>, fuse: Linear) -> Lowered {
        let mut all = Lowering::new(loader, &drafter.config);
        let inputs = all.b.given("inputs", drafter.blocks.len() * drafter.width);
        let x = all.b.take(inputs);
        let x = all.b.maybe_norm("inputs_norm", x, norm);
        let y = all.product(x, fuse);
        all.finish(y, Some(y))
    }

    /// The program of the block with these ends. Its hidden states are those that it can go on with. `None` where a
    /// tensor is missing, which is noted.
    pub fn drafter(loader: &'l mut Loader<'f>, drafter: &'l Drafter, ends: DrafterEnds) -> Option<Lowered> {
        let c = &drafter.config;
        let [of_embedding, of_state, of_ffn] =
            ["attn_norm", "attn_norm_2", "ffn_norm"].map(|name| loader.required_norm(0, name));
        let mut all = Lowering::new(loader, c);
        let (name, table) = ends.embedding;
        let table = all.matrix(&name, 0, table);
        let embedding = all.b.embed(table);
        let state = all.b.hidden("hidden", c.n_embd);
        all.b.begin_block();
        let embedding = all.b.maybe_norm("attn_norm", embedding, of_embedding);
        let normed = all.b.maybe_norm("attn_norm_2", state, of_state);
        let x = all.b.join("both", &[(embedding, c.n_embd), (normed, c.n_embd)]);
        let before = if drafter.adds_to_norm { normed } else { state };
        let y = all.attention(x, 0);
        // After a problem the network is looked at with what there is.
        let y = all.b.add("attn_residual", y.unwrap_or(before), before);
        let normed = all.b.maybe_norm("ffn_norm", y, of_ffn);
        let given = all.feed_forward(normed, 0, None)?.y;
        let x = all.b.add("residual", given, y);
        all.b.end_block();
        let x = all.b.take(x);
        let normed = all.b.maybe_norm("output_norm", x, ends.output_norm);
        let mut logits = all.product(normed, ends.output);
        if let Some(tokens) = ends.tokens {
            logits = all.b.spread("logits", logits, tokens, c.n_vocab);
        }
        Some(all.finish(x, Some(logits)))
    }
}
