//! A head for multi-token prediction: the embedding of a token and the hidden state before it become a row of a residual
//! stream, one block follows, and a norm and an output matrix make logits.

use trine_formats::rotated::TABLE;

use super::lowering::{Lowered, Lowering};
use crate::arch::rules::DraftState;
use crate::model::config::Config;
use crate::model::load::{Linear, Loader, SharedEnds};
use crate::ops::norm::{Kind, Norm};
use crate::program::Value;

impl<'l, 'f> Lowering<'l, 'f> {
    /// The program of the head in block `layer`, whose configuration is `c`:
    /// `x = eh_proj [enorm(embedding), hnorm(hidden)]`, for each of several residual streams, the block, and logits of the
    /// normed rows. These are its hidden states, or the rows before the norm are, as the model's states are. `None` where a tensor is missing, which is noted.
    pub fn mtp_head(loader: &'l mut Loader<'f>, c: &'l Config, ends: SharedEnds, layer: usize) -> Option<Lowered> {
        let mut all = Lowering::new(loader, c);
        let own = all.loader.head_table(layer);
        let (name, table) = own.unwrap_or_else(|| (TABLE.to_owned(), ends.embedding));
        let [of_embedding, of_hidden] =
            ["nextn.enorm", "nextn.hnorm"].map(|name| all.loader.required_norm(layer, name));
        let project = all.loader.required_linear(layer, "nextn.eh_proj");
        let own = all.loader.linear(layer, "nextn.shared_head_head");
        let output = own.or(ends.output);
        let own = all.loader.norm(Some(layer), "nextn.shared_head_norm").map(|norm| match c.head_eps {
            Some(eps) => Norm { kind: Kind::Layer, eps, ..norm },
            None => norm,
        });
        let norm = own.or(ends.output_norm);
        let table = all.matrix(&name, 0, table);
        let embedding = all.b.embed(table);
        // the keys name the model's own table alone
        let embedding = if name == TABLE { all.unrotated_embeddings(embedding) } else { embedding };
        let streams = c.streams.map_or(1, |streams| streams.count);
        let hidden = all.b.hidden("hidden", c.n_embd * streams);
        let mut embedding = all.b.maybe_norm("nextn.enorm", embedding, of_embedding);
        if streams > 1 {
            embedding = all.b.repeat("nextn.embeddings", embedding, c.n_embd, streams);
        }
        let hidden = all.b.maybe_norm("nextn.hnorm", hidden, of_hidden);
        let mut x = all.b.join("nextn.both", &[(embedding, c.n_embd), (hidden, c.n_embd)]);
        let complete = project.is_some();
        if let Some(project) = project {
            x = all.project_streams(x, project, streams);
        }
        all.b.begin_block();
        // After a problem the block is only looked at.
        let x = all.block(x, layer).filter(|_| complete)?;
        all.b.end_block();
        let x = all.b.take(x);
        let joined = match ends.last_connection {
            Some(connection) => all.read_streams(["streams_joined", ""], x, connection, None).0,
            None => x,
        };
        let normed = all.b.maybe_norm("nextn.shared_head_norm", joined, norm);
        let logits = all.logits(normed, output?);
        let hidden = if c.arch.draft_state == DraftState::Stream { x } else { normed };
        Some(all.finish(hidden, Some(logits)))
    }

    /// The product of `project` and each of the equal parts of rows, one for every residual stream.
    fn project_streams(&mut self, x: Value, project: Linear, streams: usize) -> Value {
        if streams == 1 {
            return self.product(x, project);
        }
        let width = self.b.columns(x) / streams;
        let parts = self.b.split_into(x, (0..streams).map(|_| ("nextn.stream", width)));
        let parts: Vec<(Value, usize)> =
            parts.into_iter().map(|part| (self.product(part, project.clone()), self.c.n_embd)).collect();
        self.b.join("nextn.streams", &parts)
    }
}
