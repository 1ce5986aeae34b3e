//! Latent attention: queries, and keys and values, are made of narrow vectors that all heads share.
//!
//! A position's vector `c` makes the first elements of every head's key, `K c`, and its value, `V c`; RoPE turns the
//! last elements of the keys, which all heads have in common. With a matrix `K` for each head the cache holds `c` and
//! those elements alone: `q (K c)` is computed as `(q K) c`, and `V` is multiplied with the weighted sum of the `c`.

use super::lowering::Lowering;
use crate::arch::Latent;
use crate::model::load::{Linear, Stacked};
use crate::ops::activation::HeadGate;
use crate::ops::attention::{Heads, ScoreRules};
use crate::ops::norm::Norm;
use crate::program::{Attend, Value};

enum Queries {
    /// Projection of the block's input.
    Plain(Box<Linear>),
    /// Projections through a narrow vector: to it, its norm, and from it to all heads.
    Ranked(Box<(Linear, Norm, Linear)>),
}

enum Expansion {
    /// Keys and values of all heads.
    Whole(Linear),
    /// A matrix for each head: those of the keys, transposed, and those of the values.
    ByHead([Stacked; 2]),
}

impl Lowering<'_, '_> {
    /// Latent attention: from the normed input of block number `layer` to what it adds; `None` where a tensor is
    /// missing, which is noted.
    pub(super) fn latent_attention(&mut self, x: Value, sizes: Latent, layer: usize) -> Option<Value> {
        let c = self.c;
        let Latent { key, rank, rope, value, absorbed, .. } = sizes;
        let queries = self.queries(layer);
        let down = self.loader.linear(layer, "attn_kv_a_mqa");
        let norm = self.loader.norm(Some(layer), "attn_kv_a_norm");
        let expansion = if absorbed {
            let [keys, values] = ["attn_k_b", "attn_v_b"].map(|name| self.loader.required_experts(layer, name));
            keys.zip(values).map(|(keys, values)| Expansion::ByHead([keys, values]))
        } else {
            self.loader.required_linear(layer, "attn_kv_b").map(Expansion::Whole)
        };
        let attend = self.attend(layer, ScoreRules::default());
        let (queries, down, norm, expansion) = (queries?, down?, norm?, expansion?);
        let turned_norm = self.loader.norm(Some(layer), "attn_k_norm");
        let gate = self.loader.linear(layer, "attn_gate");
        let out = self.loader.linear(layer, "attn_output")?;

        let (q, down) = match queries {
            Queries::Plain(q) => {
                let [q, down] = self.products(x, [*q, down]);
                (q, down)
            }
            Queries::Ranked(ranked) => {
                let (a, norm, b) = *ranked;
                let [low, down] = self.products(x, [a, down]);
                let low = self.b.norm("attn_q_a_norm", low, norm);
                (self.product(low, b), down)
            }
        };
        let [c_kv, turned_keys] = self.b.split(["kv_latent", "k_rope"], down, [rank, rope]);
        let c_kv = self.b.norm("attn_kv_a_norm", c_kv, norm);
        let [still, turned] = self.b.split(["q_nope", "q_rope"], q, [key - rope, rope]);
        let turned_keys = self.b.maybe_norm("attn_k_norm", turned_keys, turned_norm);
        let kind = c.turned[layer].then_some(self.rope(layer));
        let turned_keys = self.b.rotate("k_rope", turned_keys, kind, rope);
        let turned = self.b.rotate("q_rope", turned, kind, rope);
        let gate = gate.map(|gate| self.product(x, gate));
        let mut heads = match expansion {
            Expansion::Whole(expansion) => {
                let kv = self.product(c_kv, expansion);
                let [keys, values] = self.b.split(["k_nope", "v"], kv, [key - rope, value]);
                let shared = self.b.repeat("k_rope_of_heads", turned_keys, rope, c.n_head);
                let keys = self.b.join("k", &[(keys, key - rope), (shared, rope)]);
                let q = self.b.join("q", &[(still, key - rope), (turned, rope)]);
                let attend =
                    Attend { heads: Heads { keys: c.n_head, size: key, ..attend.heads }, value_size: value, ..attend };
                self.attend_latent([q, keys, values], attend)
            }
            Expansion::ByHead([keys, values]) => {
                let keys = self.stack(keys);
                let q = self.b.products_by_head("q_absorbed", still, keys);
                let q = self.b.join("q", &[(q, rank), (turned, rope)]);
                let keys = self.b.join("k", &[(c_kv, rank), (turned_keys, rope)]);
                let heads = Heads { keys: 1, size: rank + rope, ..attend.heads };
                let attend = Attend { heads, value_size: rank, ..attend };
                let sums = self.attend_latent([q, keys, c_kv], attend);
                let values = self.stack(values);
                self.b.products_by_head("attention_expanded", sums, values)
            }
        };
        if let Some(gate) = gate {
            heads = self.b.head_gate("attn_gated", HeadGate::Sigmoid, heads, gate);
        }
        Some(self.product(heads, out))
    }

    fn queries(&mut self, layer: usize) -> Option<Queries> {
        match self.loader.linear(layer, "attn_q_a") {
            Some(down) => {
                let norm = self.loader.required_norm(layer, "attn_q_a_norm");
                let up = self.loader.required_linear(layer, "attn_q_b");
                norm.zip(up).map(|(norm, up)| Queries::Ranked(Box::new((down, norm, up))))
            }
            None => self.loader.linear(layer, "attn_q").map(Box::new).map(Queries::Plain),
        }
    }

    fn attend_latent(&mut self, [q, k, v]: [Value; 3], attend: Attend) -> Value {
        let temperature = self.c.scores.temperature.map(|t| t.factor);
        let q = self.b.scale_by_position("q_temperature", q, temperature);
        self.b.attend("attention", [q, k, v], attend)
    }
}
