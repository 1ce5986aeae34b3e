//! The attention of a block whose heads, or groups of them, have keys and values of their own.

use super::key_parts::KeyParts;
use super::lowering::Lowering;
use crate::arch::rules::QkNorms;
use crate::model::config::{Config, OfLayer};
use crate::model::load::Linear;
use crate::ops::activation::HeadGate;
use crate::ops::attention::{Heads, Reach, Relative, RelativeBack, ScoreRules, alibi_slopes};
use crate::ops::norm::{Kind, Norm};
use crate::program::{Attend, RopeKind, Value};

/// The projections of a block, and the values that it attends to without any.
enum Projections {
    /// To queries, keys and values.
    Own(Box<[Linear; 3]>),
    /// To queries, and to keys that are the values too.
    KeysAlone(Box<[Linear; 2]>),
    /// To queries; keys and values are those of an earlier block.
    Shared(Box<Linear>, [Value; 2]),
    /// To queries; keys and values are those of another model.
    Borrowed(Box<Linear>),
}

impl Projections {
    /// The parts that make keys and values, with these norms; `None` where the block has none.
    fn key_parts(&self, key_norm: Option<Norm>, value_norm: Option<Norm>) -> Option<KeyParts> {
        let (key, value) = match self {
            Projections::Own(qkv) => (qkv[1].clone(), Some(qkv[2].clone())),
            Projections::KeysAlone(qk) => (qk[1].clone(), None),
            Projections::Shared(..) | Projections::Borrowed(_) => return None,
        };
        Some(KeyParts { key, value, key_norm, value_norm })
    }
}

impl Lowering<'_, '_> {
    /// Attention: from the normed input of block number `layer` to what it adds; `None` where a tensor is missing, which
    /// is noted.
    pub(super) fn attention(&mut self, x: Value, layer: usize) -> Option<Value> {
        let c = self.c;
        let (rule, scores) = (&c.arch.attention, &c.scores);
        let OfLayer { n_head, head_dim, .. } = c.layer(layer);
        let turned = c.turned[layer];
        let mut norms = match rule.qk_norms {
            QkNorms::WithRope(but) if !turned || has_experts(c, but) => [None, None],
            _ => self.qk_norms(layer),
        };
        let slopes = match scores.alibi > 0.0 {
            true => alibi_slopes(n_head, scores.alibi),
            false => Vec::new(),
        };
        let attend = self.attend(layer, ScoreRules { cap: scores.cap, slopes, ..ScoreRules::default() });
        let gate = match rule.gate_in_queries {
            true => None,
            false => self.loader.linear(layer, "attn_gate"),
        };
        let projections = self.attention_projections(layer)?;
        let v_norm = self.loader.norm(Some(layer), "attn_v_norm");
        let v_norm = v_norm.filter(|_| !rule.plain_values || matches!(projections, Projections::KeysAlone(_)));
        if rule.ahead {
            self.key_parts.extend(projections.key_parts(norms[1].clone(), v_norm.clone()));
        }
        let sub_norm = self.loader.norm(Some(layer), "attn_sub_norm");
        let out = self.loader.linear(layer, "attn_output")?;

        let (mut q, shared, mut own) = match projections {
            Projections::Own(qkv) => {
                let [q, k, v] = self.products(x, *qkv);
                (q, None, Some([k, v]))
            }
            Projections::KeysAlone(qk) => {
                let [q, k] = self.products(x, *qk);
                (q, None, Some([k, k]))
            }
            Projections::Shared(query, keys) => (self.product(x, *query), Some(keys), None),
            Projections::Borrowed(query) => (self.product(x, *query), None, None),
        };
        let mut gate = gate.map(|gate| (self.product(x, gate), rule.gate));
        if rule.gate_in_queries {
            let [queries, gates] = self.b.split(["q", "q_gate"], q, [head_dim; 2]);
            q = queries;
            gate = Some((gates, HeadGate::Sigmoid));
        }
        if let Some(bound) = scores.clamp {
            q = self.b.clamp("q", q, bound);
            own = own.map(|[k, v]| [self.b.clamp("k", k, bound), self.b.clamp("v", v, bound)]);
        }
        if rule.qk_norms == QkNorms::BeforeRope {
            (q, own) = self.norm_heads(q, own, std::mem::take(&mut norms));
        }
        own = own.map(|[k, v]| [k, self.b.maybe_norm("attn_v_norm", v, v_norm)]);
        let rope = turned.then_some(self.rope(layer));
        q = self.b.rotate("q_rope", q, rope, head_dim);
        own = own.map(|[k, v]| [self.b.rotate("k_rope", k, rope, head_dim), v]);
        (q, own) = self.norm_heads(q, own, norms);
        let temperature = scores.temperature.filter(|t| !(t.unturned && turned));
        q = self.b.scale_by_position("q_temperature", q, temperature.map(|t| t.factor));
        q = self.b.scale("q_scale", q, scores.query_scale);
        self.keys[layer] = own;
        // the queries stand for keys of another model, which the operation does not read
        let borrowed = attend.reach == Reach::Before;
        let [k, v] = own.or(shared).or(borrowed.then_some([q; 2]))?;
        let mut heads = self.b.attend("attention", [q, k, v], attend);
        if let Some((gate, function)) = gate {
            heads = self.b.head_gate("attn_gated", function, heads, gate);
        }
        heads = self.b.maybe_norm("attn_sub_norm", heads, sub_norm);
        let y = self.product(heads, out);
        Some(self.b.scale("attn_scale", y, scores.value_scale))
    }

    /// How block number `layer` attends, by these rules and its own sinks.
    pub(super) fn attend(&mut self, layer: usize, rules: ScoreRules) -> Attend {
        let c = self.c;
        let OfLayer { n_head, n_head_kv, head_dim, value_dim, .. } = c.layer(layer);
        let sinks = self.loader.vector(Some(layer), "attn_sinks.weight").unwrap_or_default();
        let relative = c.arch.attention.relative.then(|| self.relative(layer));
        let (relative, back) = match c.arch.attention.both_ways {
            true => (relative, None),
            false => (None, relative.as_ref().map(RelativeBack::new)),
        };
        let rules = ScoreRules { sinks, relative, back, ..rules };
        let borrowed = c.borrowed.get(layer).copied();
        let reach = match c.ahead {
            _ if borrowed.is_some() => Reach::Before,
            true => Reach::Pass,
            false => Reach::Own,
        };
        Attend {
            cache: borrowed.unwrap_or_else(|| c.cached_before(c.keys_of(layer).unwrap_or(self.loader.slot()))),
            heads: Heads { queries: n_head, keys: n_head_kv, size: head_dim },
            value_size: value_dim,
            scale: c.scores.scale,
            window: c.layer_window(layer),
            rules: Some(rules).filter(|rules| !rules.is_empty()),
            both_ways: c.arch.attention.both_ways,
            reach,
            stored: c.keys_of(layer).is_some() || borrowed.is_some(),
        }
    }

    /// The projections of block number `layer`; `None` where a tensor is missing, which is noted.
    fn attention_projections(&mut self, layer: usize) -> Option<Projections> {
        if !self.c.borrowed.is_empty() {
            return Some(Projections::Borrowed(Box::new(self.loader.query(layer)?)));
        }
        if let Some(earlier) = self.c.keys_of(layer) {
            return Some(Projections::Shared(Box::new(self.loader.query(layer)?), self.keys[earlier]?));
        }
        if let Some(qk) = self.loader.query_and_key(layer) {
            return Some(Projections::KeysAlone(Box::new(qk)));
        }
        self.loader.qkv(layer).map(|qkv| Projections::Own(Box::new(qkv)))
    }

    /// The biases by distance of block number `layer`: its own or the first one's.
    fn relative(&mut self, layer: usize) -> Relative {
        const NAME: &str = "attn_rel_b";
        let mut of = |layer: usize| self.loader.vector(Some(layer), &format!("{NAME}.weight"));
        let found = of(layer).or_else(|| of(0));
        let biases = self.loader.required(Some(0), NAME, found);
        // a problem is noted
        let none = vec![0.0; self.c.n_head * self.c.scores.buckets];
        Relative { heads: self.c.n_head, biases: biases.filter(|b| !b.is_empty()).unwrap_or(none) }
    }

    /// The position embedding of block number `layer`.
    pub(super) fn rope(&self, layer: usize) -> RopeKind {
        match self.c.layer_window(layer) {
            Some(_) => RopeKind::Window,
            None => RopeKind::Global,
        }
    }

    /// The norms of queries, and of keys where the block has its own.
    fn norm_heads(
        &mut self,
        q: Value,
        own: Option<[Value; 2]>,
        [q_norm, k_norm]: [Option<Norm>; 2],
    ) -> (Value, Option<[Value; 2]>) {
        let q = self.b.maybe_norm("attn_q_norm", q, q_norm);
        (q, own.map(|[k, v]| [self.b.maybe_norm("attn_k_norm", k, k_norm), v]))
    }

    /// Norms of queries and keys; those of keys alone are not computed.
    fn qk_norms(&mut self, layer: usize) -> [Option<Norm>; 2] {
        let Some(q) = self.loader.norm(Some(layer), "attn_q_norm") else {
            return [None, None];
        };
        let k = match self.c.keys_of(layer) {
            Some(_) => None,
            None => self.loader.norm(Some(layer), "attn_k_norm"),
        };
        [Some(q), k].map(|norm| match (norm, self.c.arch.attention.qk_layer_norm) {
            (Some(norm), Some(eps)) => Some(Norm { kind: Kind::Layer, eps, ..norm }),
            (norm, _) => norm,
        })
    }
}

fn has_experts(c: &Config, count: u32) -> bool {
    c.experts.as_ref().is_some_and(|e| e.count == count as usize)
}
