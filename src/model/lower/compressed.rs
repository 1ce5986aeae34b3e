//! Attention to the last positions, and in some blocks to compressed keys of all positions: DeepSeek 4.
//!
//! A position's vector is its key and its value. RoPE turns the last elements of queries and keys, and what is attended
//! to is turned back by the query's position, so that its elements say how far away values are. Compressed keys turn by
//! the first position of their block.

use super::lowering::Lowering;
use crate::model::config::Compressed;
use crate::model::load::Linear;
use crate::ops::attention::{AttendCompressed, ScoreRules};
use crate::ops::compress::Compress;
use crate::ops::norm::{Kind, Norm};
use crate::ops::rope::Turn;
use crate::program::{Attend, Op, RopeKind, Value};

/// The tensors that make a key for each block of positions.
struct Compressor {
    values: Linear,
    scores: Linear,
    rule: Compress,
    norm: Norm,
}

impl Lowering<'_, '_> {
    /// Attention: from the normed input of block number `layer` to what it adds; `None` where a tensor is missing, which
    /// is noted.
    pub(super) fn compressed_attention(&mut self, x: Value, rule: &Compressed, layer: usize) -> Option<Value> {
        let c = self.c;
        let ratio = rule.ratios[layer];
        let [q_low, q_up, kv] = ["attn_q_a", "attn_q_b", "attn_kv"].map(|name| self.loader.linear(layer, name));
        let [q_norm, kv_norm] = ["attn_q_a_norm", "attn_kv_a_norm"].map(|name| self.loader.norm(Some(layer), name));
        let compressor = match ratio {
            0 => None,
            _ => Some(self.compressor(ratio, layer)),
        };
        let grouped = self.loader.required_experts(layer, "attn_output_a");
        let out = self.loader.linear(layer, "attn_output");
        let attend = self.attend(layer, ScoreRules::default());
        let (q_low, q_up, kv, q_norm, kv_norm) = (q_low?, q_up?, kv?, q_norm?, kv_norm?);
        let (grouped, out) = (grouped?, out?);

        let kind = if ratio == 0 { RopeKind::Window } else { RopeKind::Global };
        let [low, kv] = self.products(x, [q_low, kv]);
        let low = self.b.norm("attn_q_a_norm", low, q_norm);
        let q = self.product(low, q_up);
        let plain = Norm { kind: Kind::Rms, eps: c.eps, row: c.head_dim, gains: vec![1.0; c.head_dim], bias: None };
        let q = self.b.norm("q_norm", q, plain);
        let kv = self.b.norm("attn_kv_a_norm", kv, kv_norm);
        let [q, kv] = [("q", q), ("kv", kv)].map(|(name, x)| self.turned(name, x, kind, None));
        let heads = match compressor {
            None => self.b.attend("attention", [q, kv, kv], attend),
            Some(compressor) => {
                let keys = self.compressed_keys(x, compressor?, layer);
                let rule = attend_compressed(attend, ratio)?;
                self.b.recurrent("attention", Op::AttendCompressed(Box::new(rule)), &[q, kv, keys], 0)
            }
        };
        let back = Turn { head: c.rope.n_rot, back: true, block: 1 };
        let heads = self.turned("attention_back", heads, kind, Some(back));
        let grouped = self.stack(grouped);
        let y = self.b.products_by_head("attn_output_a", heads, grouped);
        Some(self.product(y, out))
    }

    fn compressor(&mut self, ratio: usize, layer: usize) -> Option<Compressor> {
        let overlap = Compressed::overlaps(ratio);
        let kind = if overlap { "overlapping" } else { "apart" };
        let [values, scores] = ["kv", "gate"].map(|part| self.loader.required_linear(layer, &format!("{kind}_{part}")));
        let places = self.loader.vector(Some(layer), &format!("{kind}_ape.weight"));
        let places = self.loader.required(Some(layer), &format!("{kind}_ape"), places);
        let norm = self.loader.required_norm(layer, "attn_compressor_norm");
        let rule = Compress { size: self.c.head_dim, ratio, overlap, places: places? };
        Some(Compressor { values: values?, scores: scores?, rule, norm: norm? })
    }

    /// A key for each block of positions, in the row of its last one.
    fn compressed_keys(&mut self, x: Value, compressor: Compressor, layer: usize) -> Value {
        let Compressor { values, scores, rule, norm } = compressor;
        let (size, block) = (rule.size, rule.ratio);
        let inputs = self.products(x, [values, scores]);
        let op = Op::Compress(Box::new(rule), self.c.mixing.others_of(layer));
        let keys = self.b.recurrent_into("compressed", op, &inputs, size);
        let keys = self.b.norm("attn_compressor_norm", keys, norm);
        let turn = Turn { head: self.c.rope.n_rot, back: false, block };
        self.turned("compressed", keys, RopeKind::Global, Some(turn))
    }

    /// Heads whose last elements are turned: by their positions, or in another way.
    fn turned(&mut self, name: &str, x: Value, kind: RopeKind, turn: Option<Turn>) -> Value {
        let (size, turned) = (self.c.head_dim, self.c.rope.n_rot);
        let [still, last] = self.b.split(["nope", "rope"], x, [size - turned, turned]);
        let last = match turn {
            None => self.b.rotate("rope", last, Some(kind), turned),
            Some(turn) => self.b.recurrent("rope", Op::Turn(kind, turn), &[last], 0),
        };
        self.b.join(name, &[(still, size - turned), (last, turned)])
    }
}

/// Attention with compressed keys by the rules of that without; `None` without a window.
fn attend_compressed(attend: Attend, ratio: usize) -> Option<AttendCompressed> {
    Some(AttendCompressed {
        cache: attend.cache,
        heads: attend.heads.queries,
        size: attend.heads.size,
        scale: attend.scale,
        window: attend.window?,
        ratio,
        sinks: attend.rules.map_or(Vec::new(), |rules| rules.sinks),
    })
}
