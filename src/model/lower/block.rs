//! One block: a mixer of positions and a feed-forward network, or one of the two.

use super::lowering::Lowering;
use crate::arch::rules::{Mixing, Residual, Streams, Sum};
use crate::model::load::Connection;
use crate::ops::norm::Norm;
use crate::program::Value;

/// Norms of a block, where it has them.
pub(super) struct Norms {
    pub attn: Option<Norm>,
    pub attn_post: Option<Norm>,
    pub ffn: Option<Norm>,
    pub ffn_post: Option<Norm>,
}

impl Norms {
    const NONE: Norms = Norms { attn: None, attn_post: None, ffn: None, ffn_post: None };

    pub fn load(l: &mut Lowering<'_, '_>, layer: usize) -> Norms {
        let c = l.c;
        let mut norm = |name: &str| l.loader.norm(Some(layer), name);
        let first = norm("attn_norm");
        // with a norm of attention's own the first is the feed-forward network's
        let (attn, ffn) = match norm("attn_norm_2") {
            Some(own) => (Some(own), first),
            None => (first, norm("ffn_norm")),
        };
        let mut post = |name: &str| {
            let norm = norm(name)?;
            let eps = c.arch.post_norm_eps.unwrap_or(norm.eps);
            Some(Norm { eps, ..norm })
        };
        Norms { attn, ffn, attn_post: post("post_attention_norm"), ffn_post: post("post_ffw_norm") }
    }
}

impl Lowering<'_, '_> {
    /// The residual stream behind block number `layer`; `None` where a tensor is missing, which is noted.
    pub(super) fn block(&mut self, x: Value, layer: usize) -> Option<Value> {
        let c = self.c;
        if let Some(kind) = c.mixing.kind.filter(|kind| kind.is_rwkv()) {
            return self.rwkv_block(x, kind, layer);
        }
        if c.arch.streams == Streams::Predicted {
            return self.predicted_block(x, layer);
        }
        let parts = c.mixing.blocks[layer];
        let mixes = parts.attends || parts.recurs;
        if let (Mixing::ByHeadsOrNone(_), false) = (c.arch.mixing, mixes) {
            return self.without_mixer(x, layer);
        }
        let norms = match c.residual {
            Residual::NormedSums => Norms::NONE,
            _ => Norms::load(self, layer),
        };
        let scores = match c.kept_every {
            Some(_) => {
                let mut scores = |name| self.loader.required_norm(layer, name);
                [Some(scores("attn_res_score")?), Some(scores("ffn_res_score")?)]
            }
            None => [None, None],
        };
        let y = match c.streams {
            Some(sizes) => {
                let [attn, ffn] = ["attn", "ffn"].map(|half| Connection::load(self.loader, sizes, c.eps, layer, half));
                self.block_of_streams(x, norms, [attn?, ffn?], layer)
            }
            None if c.residual == Residual::NormedSums => self.normed_sums(x, layer),
            None if c.residual == Residual::NormedHalves => self.normed_halves(x, norms, layer),
            None if mixes && parts.feeds => self.two_sublayers(x, norms, scores, layer),
            None => {
                let input = self.b.maybe_norm("attn_norm", x, norms.attn);
                let y = match mixes {
                    true => self.mixer(input, layer),
                    false => self.feed_forward(input, layer, None).map(|given| given.y),
                };
                y.map(|y| self.b.add("residual", x, y))
            }
        };
        let one = |scale: Option<Vec<f32>>| scale.and_then(|scale| scale.first().copied());
        let skip = one(self.loader.vector(Some(layer), "layer_output_scale.weight"));
        let scale = one(self.loader.vector(Some(layer), "layer_scale.weight"));
        let input = match c.layer_input {
            Some(_) => Some(self.input(layer)?),
            None => None,
        };
        let mut y = y?;
        if let Some(input) = input {
            let given = self.gated_input(y, input, layer)?;
            y = self.b.add("layer_input_added", y, given);
        }
        y = self.b.scale("layer_scale", y, scale);
        let Some((factor, embeddings)) = skip.zip(self.embeddings) else {
            return Some(y);
        };
        let added = self.b.scale("layer_output_scale", embeddings, Some(factor));
        Some(self.b.add("residual", y, added))
    }

    /// A block that has no more than a feed-forward network with a norm of its own, or nothing at all.
    fn without_mixer(&mut self, x: Value, layer: usize) -> Option<Value> {
        if !self.c.mixing.blocks[layer].feeds {
            return Some(x);
        }
        let norm = self.loader.norm(Some(layer), "ffn_norm");
        let normed = self.b.maybe_norm("ffn_norm", x, norm);
        let y = self.feed_forward(normed, layer, None)?.y;
        Some(self.b.add("residual", x, y))
    }

    /// A mixer and a feed-forward network, one after the other or side by side.
    fn two_sublayers(&mut self, x: Value, norms: Norms, scores: [Option<Norm>; 2], layer: usize) -> Option<Value> {
        let c = self.c;
        let parallel = match c.residual {
            Residual::Parallel(sum) => Some(sum),
            Residual::ByNorm(sum) if norms.ffn.is_none() => Some(sum),
            _ => None,
        };
        // The factor of streams that begin again with their norms is on these.
        let normed_scale = (c.residual == Residual::Normed).then(|| c.residual_scale.unwrap_or(0.0));
        let scale = c.residual_scale.filter(|_| normed_scale.is_none());
        let [attn_scores, ffn_scores] = scores;
        let blended = match attn_scores {
            Some(scores) => self.blend("attn_blend", x, scores),
            None => x,
        };
        let keeps = c.kept_every.is_some_and(|every| layer.is_multiple_of(every));
        if keeps {
            self.kept.push(x);
        }
        let has_norm = norms.attn.is_some();
        let normed = self.b.maybe_norm("attn_norm", blended, norms.attn);
        let a = self.mixer(normed, layer);
        let a = a.map(|a| self.b.maybe_norm("post_attention_norm", a, norms.attn_post));
        let a = a.map(|a| self.b.scale("attn_residual_scale", a, scale));
        if let Some(sum) = parallel {
            let input = match norms.ffn {
                Some(norm) => self.b.norm("ffn_norm", x, norm),
                None if has_norm => normed,
                None => x,
            };
            let f = self.feed_forward(input, layer, None)?.y;
            let f = self.b.maybe_norm("post_ffw_norm", f, norms.ffn_post);
            let f = self.b.scale("ffn_residual_scale", f, scale);
            return a.map(|a| self.sum(sum, x, a, f));
        }
        let before = x;
        // After a problem the feed-forward network is looked at with what there is.
        let mixed = a.unwrap_or(x);
        let x = match normed_scale.filter(|_| has_norm) {
            Some(factor) => self.b.scale("attn_normed", normed, Some(factor)),
            None => x,
        };
        let x = match keeps {
            true => mixed,
            false => self.b.add("attn_residual", x, mixed),
        };
        let x = match c.arch.encoder {
            Some(_) => self.cross_attention(x, layer)?,
            None => x,
        };
        let blended = match ffn_scores {
            Some(scores) => self.blend("ffn_blend", x, scores),
            None => x,
        };
        let has_norm = norms.ffn.is_some();
        let normed = self.b.maybe_norm("ffn_norm", blended, norms.ffn);
        let given = match self.apart(layer) {
            true => self.feed_forward_apart(x, normed, layer),
            false => self.feed_forward(normed, layer, Some(before)),
        };
        let given = given?;
        let f = self.b.maybe_norm("post_ffw_norm", given.y, norms.ffn_post);
        let f = self.b.scale("ffn_residual_scale", f, scale);
        let x = match normed_scale.filter(|_| has_norm) {
            Some(factor) => self.b.scale("ffn_normed", normed, Some(factor)),
            None => x,
        };
        let mut x = self.b.add("residual", x, f);
        if let Some(beside) = given.beside {
            x = self.b.add("residual", x, beside);
        }
        a.map(|_| x)
    }

    /// A block whose sums are normed: attention's output and the block's input, then the network's and that norm.
    fn normed_sums(&mut self, x: Value, layer: usize) -> Option<Value> {
        let first = self.loader.required_norm(layer, "attn_output_norm");
        let again = self.loader.norm(Some(layer), "attn_norm_2");
        let last = self.loader.required_norm(layer, "layer_output_norm");
        let a = self.mixer(x, layer);
        // After a problem the feed-forward network is looked at with what there is.
        let sum = self.b.add("attn_residual", a.unwrap_or(x), x);
        let mut y = self.b.maybe_norm("attn_output_norm", sum, first);
        if again.is_some() {
            let sum = self.b.add("attn_residual", y, x);
            y = self.b.maybe_norm("attn_norm_2", sum, again);
        }
        let f = self.feed_forward(y, layer, None)?.y;
        let sum = self.b.add("residual", f, y);
        let y = self.b.maybe_norm("layer_output_norm", sum, last);
        a.map(|_| y)
    }

    /// A block whose sublayers' outputs are normed; the network sees that of attention.
    fn normed_halves(&mut self, x: Value, norms: Norms, layer: usize) -> Option<Value> {
        let a = self.mixer(x, layer);
        // After a problem the feed-forward network is looked at with what there is.
        let normed = self.b.maybe_norm("attn_norm", a.unwrap_or(x), norms.attn);
        let y = self.b.add("attn_residual", x, normed);
        let f = self.feed_forward(normed, layer, None)?.y;
        let f = self.b.maybe_norm("ffn_norm", f, norms.ffn);
        a.map(|_| self.b.add("residual", y, f))
    }

    /// The sum of a residual stream and both sublayers that read it, in a model's order.
    fn sum(&mut self, order: Sum, x: Value, a: Value, f: Value) -> Value {
        let [x, first, second] = match order {
            Sum::AttentionFirst => [x, a, f],
            Sum::FeedForwardFirst => [x, f, a],
            Sum::HalvesFirst => {
                let both = self.b.add("sublayers", a, f);
                return self.b.add("residual", x, both);
            }
        };
        let x = self.b.add("residual", x, first);
        self.b.add("residual", x, second)
    }

    /// A block on several residual streams.
    fn block_of_streams(
        &mut self,
        x: Value,
        norms: Norms,
        [attn, ffn]: [Connection; 2],
        layer: usize,
    ) -> Option<Value> {
        let parts = self.c.mixing.blocks[layer];
        let mut x = x;
        if let Some(ngrams) = self.c.ngrams.as_ref().filter(|ngrams| ngrams.layer == layer) {
            x = self.ngrams(x, ngrams, layer)?;
        }
        if parts.attends || parts.recurs {
            let count = attn.sizes.count;
            let (input, coefficients) = self.read_streams(["attn_read", "attn_norm"], x, attn, norms.attn);
            let y = self.mixer(input, layer)?;
            x = self.b.write_streams("attn_written", x, y, coefficients?, count);
        }
        if parts.feeds {
            let count = ffn.sizes.count;
            let (input, coefficients) = self.read_streams(["ffn_read", "ffn_norm"], x, ffn, norms.ffn);
            let y = self.feed_forward(input, layer, None)?.y;
            x = self.b.write_streams("ffn_written", x, y, coefficients?, count);
        }
        Some(x)
    }
}
