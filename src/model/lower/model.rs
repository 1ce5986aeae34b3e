//! A model: what stands before its blocks, the blocks in order, and what makes logits.

use super::lowering::{Lowered, Lowering};
use crate::arch::rules::Residual;
use crate::model::config::{Config, Cycles, Heard};
use crate::model::load::{Ends, Linear, Loader};
use crate::program::Value;

impl<'l, 'f> Lowering<'l, 'f> {
    /// The program of a model of configuration `c`; `directions` are added to the residual stream behind each block,
    /// nothing where one is empty. The states `kept` are kept. `None` where a tensor is missing, which is noted.
    pub fn model(
        loader: &'l mut Loader<'f>,
        c: &'l Config,
        ends: Ends,
        directions: &[Vec<f32>],
        kept: &[Heard],
    ) -> Option<Lowered> {
        let mut all = Lowering::new(loader, c);
        all.heard = kept.iter().map(|heard| (*heard, None)).collect();
        let x = all.embed(&ends);
        all.embeddings = Some(x);
        if let Some(inputs) = ends.layer_inputs.clone() {
            all.layer_inputs = all.layer_inputs(x, inputs);
        }
        let x = match c.streams {
            Some(_) if !ends.others.is_empty() => all.other_streams(x, &ends.others),
            Some(streams) => all.b.repeat("streams", x, c.n_embd, streams.count),
            None => x,
        };
        // All blocks are looked at, so that every problem is found.
        let x = match c.cycles {
            Some(cycles) => all.cycles(x, cycles, &ends, directions),
            None => all.blocks(x, 0..c.n_layer, directions),
        };
        all.b.end_block();
        // blocks that end with a norm leave none for the end
        let normed = c.residual == Residual::NormedSums;
        let output_norm = if normed { None } else { Some(ends.output_norm?) };
        let mut x = x?;
        all.hear(Heard::Output, x);
        if kept.contains(&Heard::Normed) {
            let normed = all.b.maybe_norm("heard_norm", x, output_norm.clone());
            all.hear(Heard::Normed, normed);
        }
        // streams that are read through gates become one, and normed, behind the rows that are wanted
        let (gates, weighed) = match ends.last_connection {
            Some(connection) if connection.sizes.rank.is_some() => (Some(connection), None),
            other => (None, other),
        };
        match (weighed, c.streams) {
            (Some(connection), _) => x = all.read_streams(["streams_joined", ""], x, connection, None).0,
            (None, Some(_)) if !ends.back.is_empty() => x = all.merged_streams(x, &ends.back),
            (None, Some(streams)) if gates.is_none() => x = all.mean_of_streams(x, streams.count),
            _ => {}
        }
        if let Some(scores) = ends.last_scores {
            x = all.blend("output_blend", x, scores);
        }
        for (_, state) in std::mem::take(&mut all.heard) {
            all.b.keep(state?);
        }
        let x = all.b.take(x);
        let hidden = match gates {
            Some(gates) => all.read_streams(["output", "output_norm"], x, gates, output_norm).0,
            None => all.b.maybe_norm("output_norm", x, output_norm),
        };
        let logits = ends.output.map(|output| all.logits(hidden, output));
        if let Some(rotated) = &c.rotated {
            all.check_rotated(rotated);
        }
        Some(all.finish(hidden, logits))
    }

    /// The logits of hidden states, by this output matrix.
    pub(super) fn logits(&mut self, hidden: Value, output: Linear) -> Value {
        let x = self.b.scale("output_scale", hidden, self.c.output_scale);
        let x = self.product(x, output);
        let x = self.b.scale("logits", x, self.c.logit_scale);
        self.b.soft_cap("logits", x, self.c.final_softcap)
    }

    /// The input of the first block.
    fn embed(&mut self, ends: &Ends) -> Value {
        let table = self.matrix("token_embd.weight", 0, ends.embedding.clone());
        let x = match self.c.switched.as_ref().map(|switched| &switched.switch) {
            Some(switch) => {
                self.adapter = Some(self.switched_on(switch));
                self.b.embed_switched(switch.clone(), table)
            }
            None => self.b.embed(table),
        };
        let mut x = self.unrotated_embeddings(x);
        for low_rank in &ends.embedding_low_rank {
            let adapter = self.low_rank("token_embd.weight", low_rank.clone());
            x = self.b.adapt_embedding(x, adapter);
        }
        x = self.b.scale("embedding_scale", x, self.c.embedding_scale);
        if let Some(row) = &ends.token_type {
            x = self.b.add_row("embedding_and_type", x, row.clone());
        }
        if let Some(table) = &ends.positions {
            let table = self.matrix("position_embd.weight", 0, table.clone());
            let positions = self.b.embed_positions(table);
            x = self.b.add("embedding_and_position", x, positions);
        }
        self.b.maybe_norm("token_embd_norm", x, ends.embedding_norm.clone())
    }

    /// Takes note of a state, where it is kept.
    fn hear(&mut self, state: Heard, value: Value) {
        self.heard.iter_mut().filter(|(wanted, _)| *wanted == state).for_each(|(_, found)| *found = Some(value));
    }

    /// Blocks one after the other.
    pub(super) fn blocks(&mut self, x: Value, slots: std::ops::Range<usize>, directions: &[Vec<f32>]) -> Option<Value> {
        let mut x = Some(x);
        for slot in slots {
            self.loader.enter(slot);
            self.b.begin_block();
            let from = x.unwrap_or(Value(0));
            self.hear(Heard::Input(slot), from);
            // After a problem later blocks are only looked at.
            x = self.block(from, self.c.block(slot)).filter(|_| x.is_some());
            if let (Some(y), Some(direction)) = (x, directions.get(slot).filter(|d| !d.is_empty())) {
                x = Some(self.b.add_row("control_vector", y, direction.clone()));
            }
        }
        x
    }

    /// Stacks of blocks in cycles. After every stack its stream is normed, the last time by the norm before the logits.
    fn cycles(&mut self, x: Value, cycles: Cycles, ends: &Ends, directions: &[Vec<f32>]) -> Option<Value> {
        let (mut high, mut low) = (x, self.b.fill("low_state", x, ends.low_state.clone()));
        let runs = self.c.n_layer / cycles.stack;
        for run in 0..runs {
            let x = self.b.add("stack_input", high, low);
            let mut x = self.blocks(x, run * cycles.stack..(run + 1) * cycles.stack, directions);
            if let (Some(y), true, Some(norm)) = (x, run + 1 < runs, &ends.output_norm) {
                x = Some(self.b.norm("stack_norm", y, norm.clone()));
            }
            match cycles.is_high(run) {
                true => high = x?,
                false => low = x?,
            }
        }
        Some(high)
    }
}
