//! Models that draft for another from inputs of that model's blocks: one block that reads a state, made of them, and the
//! embedding of the token behind it; or blocks over several tokens that are drafted at once, and what makes the keys and
//! values that they attend to.

use std::sync::Arc;

use super::key_parts::KeyParts;
use super::lowering::{Lowered, Lowering};
use crate::model::config::{Config, Drafter};
use crate::model::load::{AssistantEnds, DrafterEnds, Linear, Loader};
use crate::ops::norm::Norm;
use crate::program::Value;

impl<'l, 'f> Lowering<'l, 'f> {
    /// The program that makes states of the inputs, rows of several side by side.
    pub fn fusion(loader: &'l mut Loader<'f>, drafter: &'l Drafter, norm: Option<Norm>, fuse: Linear) -> Lowered {
        let mut all = Lowering::new(loader, &drafter.config);
        let inputs = all.b.given("inputs", drafter.heard.len() * drafter.width);
        let x = all.b.take(inputs);
        let x = all.b.maybe_norm("inputs_norm", x, norm);
        let y = all.product(x, fuse);
        all.finish(y, Some(y))
    }

    /// The program that makes biases on the logits behind tokens of their vectors: of `tokens` where these are not all.
    pub fn biases(
        loader: &'l mut Loader<'f>,
        c: &'l Config,
        (biases, tokens): (Linear, Option<Arc<[u32]>>),
    ) -> Lowered {
        let mut all = Lowering::new(loader, c);
        let vectors = all.b.given("vectors", biases.weight.cols);
        let x = all.b.take(vectors);
        let mut y = all.product(x, biases);
        if let Some(tokens) = tokens {
            y = all.b.spread("biases", y, tokens, c.n_vocab);
        }
        all.finish(y, Some(y))
    }

    /// The program of the block with these ends. Its hidden states are those that it can go on with; it adds to the norm
    /// of a state where `adds_to_norm` says so. `None` where a tensor is missing, which is noted.
    pub fn drafter(
        loader: &'l mut Loader<'f>,
        c: &'l Config,
        ends: DrafterEnds,
        adds_to_norm: bool,
    ) -> Option<Lowered> {
        let [of_embedding, of_state, of_ffn] =
            ["attn_norm", "attn_norm_2", "ffn_norm"].map(|name| loader.required_norm(0, name));
        let mut all = Lowering::new(loader, c);
        let embedding = all.embed_draft(&ends);
        let state = all.b.hidden("hidden", c.n_embd);
        all.b.begin_block();
        let embedding = all.b.maybe_norm("attn_norm", embedding, of_embedding);
        let normed = all.b.maybe_norm("attn_norm_2", state, of_state);
        let x = all.b.join("both", &[(embedding, c.n_embd), (normed, c.n_embd)]);
        let before = if adds_to_norm { normed } else { state };
        let y = all.attention(x, 0);
        // After a problem the network is looked at with what there is.
        let y = all.b.add("attn_residual", y.unwrap_or(before), before);
        let normed = all.b.maybe_norm("ffn_norm", y, of_ffn);
        let given = all.feed_forward(normed, 0, None)?.y;
        let x = all.b.add("residual", given, y);
        all.b.end_block();
        let x = all.b.take(x);
        let (_, logits) = all.draft_logits(x, ends);
        Some(all.finish(x, Some(logits)))
    }

    /// The program of blocks with these ends that draft tokens at once, and for each block the parts that make keys and
    /// values. `None` where a tensor is missing, which is noted.
    pub fn block_drafter(
        loader: &'l mut Loader<'f>,
        c: &'l Config,
        ends: DrafterEnds,
    ) -> Option<(Lowered, Vec<KeyParts>)> {
        let mut all = Lowering::new(loader, c);
        let x = all.embed_draft(&ends);
        let x = all.b.scale("embedding_scale", x, c.embedding_scale);
        let x = all.blocks(x, 0..c.n_layer, &[])?;
        all.b.end_block();
        let keys = std::mem::take(&mut all.key_parts);
        let x = all.b.take(x);
        let (hidden, logits) = all.draft_logits(x, ends);
        Some((all.finish(hidden, Some(logits)), keys))
    }

    /// The program that makes keys and values of every block of inputs, rows of several side by side that are given with
    /// every token, and stores them. Its hidden states are what it makes them of.
    pub fn key_reader(
        loader: &'l mut Loader<'f>,
        drafter: &'l Drafter,
        (fuse, norm): (Linear, Option<Norm>),
        keys: Vec<KeyParts>,
    ) -> Lowered {
        let c = &drafter.config;
        let mut all = Lowering::new(loader, c);
        let inputs = all.b.hidden("inputs", drafter.heard.len() * drafter.width);
        let x = all.product(inputs, fuse);
        let x = all.b.maybe_norm("inputs_norm", x, norm);
        for (layer, parts) in keys.into_iter().enumerate() {
            all.b.begin_block();
            let [k, v] = match parts.value {
                Some(value) => all.products(x, [parts.key, value]),
                None => [all.product(x, parts.key); 2],
            };
            let v = all.b.maybe_norm("attn_v_norm", v, parts.value_norm);
            let k = all.b.maybe_norm("attn_k_norm", k, parts.key_norm);
            let k = all.b.rotate("k_rope", k, Some(all.rope(layer)), c.layer(layer).head_dim);
            all.b.store(c.cached_before(layer), [k, v]);
        }
        all.b.end_block();
        let x = all.b.take(x);
        all.finish(x, None)
    }
}

impl<'l, 'f> Lowering<'l, 'f> {
    /// The program of an assistant with these ends: `x = before [embedding, hidden]`, blocks that attend to keys of the
    /// model that it drafts for, and logits. Its hidden states are those of the model that it can go on with. `None` where
    /// a tensor is missing, which is noted.
    pub fn assistant(loader: &'l mut Loader<'f>, drafter: &'l Drafter, ends: AssistantEnds) -> Option<Lowered> {
        let (c, width) = (&drafter.config, drafter.width);
        let mut all = Lowering::new(loader, c);
        let table = all.matrix("token_embd.weight of the model", 0, ends.embedding);
        let embedding = all.b.embed(table);
        let embedding = all.b.scale("embedding_scale", embedding, Some((width as f32).sqrt()));
        let hidden = all.b.hidden("hidden", width);
        let x = all.b.join("both", &[(embedding, width), (hidden, width)]);
        let x = all.product(x, ends.before);
        let x = all.blocks(x, 0..c.n_layer, &[])?;
        all.b.end_block();
        let x = all.b.take(x);
        // of the same rows twice, so that states are had without logits
        let [of_state, of_logits] = [(); 2].map(|()| all.b.maybe_norm("output_norm", x, ends.output_norm.clone()));
        let hidden = all.product(of_state, ends.behind);
        let logits = all.product(of_logits, ends.output);
        Some(all.finish(hidden, Some(logits)))
    }
}

impl Lowering<'_, '_> {
    /// The embeddings of tokens by the drafter's table.
    fn embed_draft(&mut self, ends: &DrafterEnds) -> Value {
        let (name, table) = &ends.embedding;
        let table = self.matrix(name, 0, table.clone());
        self.b.embed(table)
    }

    /// Rows of the residual stream behind the last norm, and their logits.
    fn draft_logits(&mut self, x: Value, ends: DrafterEnds) -> (Value, Value) {
        let normed = self.b.maybe_norm("output_norm", x, ends.output_norm);
        let mut logits = self.product(normed, ends.output);
        if let Some(tokens) = ends.tokens {
            logits = self.b.spread("logits", logits, tokens, self.c.n_vocab);
        }
        (normed, logits)
    }
}
