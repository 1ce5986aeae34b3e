//! The attention of a block, as an architecture's description has it.

use trine_cuda::program::{Heads, ProgramError, Span};

use crate::arch::rules::QkNorms;
use crate::kernels::Floats;
use crate::model::config::{Config, Heat};
use crate::model::linear::Linear;
use crate::model::load::Loader;
use crate::model::pass::{Pass, RopeKind};
use crate::model::recording::{Recording, refuse};
use crate::ops;
use crate::ops::activation::HeadGate;
use crate::ops::attention::{ScoreRules, Window, alibi_slopes};
use crate::ops::norm::Norm;

/// From the normed input of a block to what it adds.
pub struct Attention {
    /// Which of the layers that attend it is.
    cache: usize,
    both_ways: bool,
    qkv: [Linear; 3],
    /// Bound of queries, keys and values.
    clamp: Option<f32>,
    /// Of queries and keys: per head, or over all of them.
    qk_norms: [Option<Norm>; 2],
    norms_after_rope: bool,
    rope: Option<RopeKind>,
    /// Factor on the queries by position.
    heat: Option<Heat>,
    /// Factor on the queries.
    query_scale: Option<f32>,
    /// Factor on the scores.
    score_scale: f32,
    /// What else is done with the scores.
    rules: Option<ScoreRules>,
    window: Option<Window>,
    /// On the heads' outputs, and its function.
    gate: Option<(Linear, HeadGate)>,
    /// Elements of a head, where the queries' projection gives the gates too.
    gated_queries: Option<usize>,
    /// Of the heads' outputs.
    sub_norm: Option<Norm>,
    out: Linear,
    /// Factor on the result.
    value_scale: Option<f32>,
}

impl Attention {
    /// That of block number `layer`; `None` where a tensor is missing, which is noted.
    pub fn load(loader: &mut Loader<'_>, c: &Config, layer: usize) -> Option<Attention> {
        let (rule, scores) = (&c.arch.attention, &c.scores);
        let window = c.layer_window(layer);
        let turned = c.turned[layer];
        let qk_norms = match rule.qk_norms {
            QkNorms::WithRope(but) if !turned || has_experts(c, but) => [None, None],
            _ => qk_norms(loader, layer),
        };
        let slopes = match scores.alibi > 0.0 {
            true => alibi_slopes(c.n_head, scores.alibi),
            false => Vec::new(),
        };
        let rules = ScoreRules {
            cap: scores.cap,
            slopes,
            sinks: loader.vector(Some(layer), "attn_sinks.weight").unwrap_or_default(),
        };
        let rope = match window {
            Some(_) => RopeKind::Window,
            None => RopeKind::Global,
        };
        let gate = match rule.gate_in_queries {
            true => None,
            false => loader.linear(layer, "attn_gate"),
        };
        Some(Attention {
            cache: c.mixing.cache(loader.slot()),
            both_ways: rule.both_ways,
            qkv: loader.qkv(layer)?,
            clamp: scores.clamp,
            qk_norms,
            norms_after_rope: rule.qk_norms != QkNorms::BeforeRope,
            rope: turned.then_some(rope),
            heat: scores.temperature.filter(|heat| !(heat.unturned && turned)),
            query_scale: scores.query_scale,
            score_scale: scores.scale,
            rules: Some(rules).filter(|rules| !rules.is_empty()),
            window,
            gate: gate.map(|gate| (gate, rule.gate)),
            gated_queries: rule.gate_in_queries.then_some(c.head_dim),
            sub_norm: loader.norm(Some(layer), "attn_sub_norm"),
            out: loader.linear(layer, "attn_output")?,
            value_scale: scores.value_scale,
        })
    }

    /// What attention gives for every row of `x`, `[tokens][n_embd]`. Keys and values are stored.
    pub fn apply(&self, x: &[f32], pass: &mut Pass<'_, '_>) -> Floats {
        let acts = pass.activations(x);
        let [mut q, mut k, mut v] = Linear::apply_all(self.qkv.each_ref(), &acts);
        let mut gate = self.gate.as_ref().map(|(gate, f)| (gate.apply(&acts), *f));
        if let Some(size) = self.gated_queries {
            let (queries, gates) = part_heads(&q, size);
            q = queries;
            gate = Some((gates, HeadGate::Sigmoid));
        }
        if let Some(bound) = self.clamp {
            for x in [&mut q, &mut k, &mut v] {
                ops::clamp(x, bound);
            }
        }
        if !self.norms_after_rope {
            self.norm_heads(&mut q, &mut k, pass);
        }
        if let Some(rope) = self.rope {
            pass.rotate(&mut q, rope);
            pass.rotate(&mut k, rope);
        }
        if self.norms_after_rope {
            self.norm_heads(&mut q, &mut k, pass);
        }
        if let Some(heat) = &self.heat {
            pass.scale_by_position(&mut q, |position| heat.at(position));
        }
        if let Some(scale) = self.query_scale {
            ops::scale(&mut q, scale);
        }
        let mut heads = if self.both_ways {
            pass.attend_whole([&q, &k, &v], self.score_scale)
        } else {
            pass.store(self.cache, &k, &v);
            let rules = self.rules.as_ref();
            pass.attend(self.cache, &q, self.score_scale, self.window, rules)
        };
        if let Some((gate, function)) = gate {
            function.apply(&mut heads, &gate);
        }
        if let Some(norm) = &self.sub_norm {
            norm.apply_in_place(pass.isa(), &mut heads);
        }
        let mut y = self.out.apply(&pass.rows(&heads));
        if let Some(scale) = self.value_scale {
            ops::scale(&mut y, scale);
        }
        y
    }

    /// Records [`Attention::apply`].
    pub fn record<'a>(&'a self, x: Span, gpu: &mut Recording<'a>) -> Result<Span, ProgramError> {
        let Attention {
            cache: _,
            both_ways,
            qkv: [q, k, v],
            clamp,
            qk_norms: [q_norm, k_norm],
            norms_after_rope,
            rope,
            heat,
            query_scale,
            score_scale,
            rules,
            window,
            gate,
            gated_queries,
            sub_norm,
            out,
            value_scale,
        } = self;
        refuse(&[
            (*both_ways, "attention in both directions"),
            (clamp.is_some(), "bounds of queries, keys and values"),
            (heat.is_some(), "a temperature of positions"),
            (rules.is_some(), "bounds, slopes and sinks of scores"),
            (gate.is_some() || gated_queries.is_some(), "gates of heads"),
        ])?;
        let [q, k, v] = [q.record(x, gpu)?, k.record(x, gpu)?, v.record(x, gpu)?];
        let ([queries, keys], [key_size, value_size]) = (gpu.heads, gpu.sizes);
        let norms = [(q, q_norm), (k, k_norm)];
        if !norms_after_rope {
            for (x, norm) in norms {
                gpu.norm_in_place(norm.as_ref(), x)?;
            }
        }
        if let Some(rope) = rope {
            gpu.rotate(q, *rope, key_size)?;
            gpu.rotate(k, *rope, key_size)?;
        }
        if *norms_after_rope {
            for (x, norm) in norms {
                gpu.norm_in_place(norm.as_ref(), x)?;
            }
        }
        if let Some(scale) = query_scale {
            gpu.recorder.scale(q, *scale);
        }
        let heads = Heads { queries, keys, key_size, value_size };
        let window = window.map(|w| (w.size, w.chunked));
        let heads = gpu.recorder.attend([q, k, v], heads, *score_scale, window)?;
        gpu.norm_in_place(sub_norm.as_ref(), heads)?;
        let y = out.record(heads, gpu)?;
        if let Some(scale) = value_scale {
            gpu.recorder.scale(y, *scale);
        }
        Ok(y)
    }

    fn norm_heads(&self, q: &mut [f32], k: &mut [f32], pass: &Pass<'_, '_>) {
        for (x, norm) in [q, k].into_iter().zip(&self.qk_norms) {
            if let Some(norm) = norm {
                norm.apply_in_place(pass.isa(), x);
            }
        }
    }
}

/// Every head's queries and the gates after them.
fn part_heads(both: &[f32], size: usize) -> (Floats, Floats) {
    let mut parts = [0, 1].map(|_| Floats::scratch(both.len() / 2));
    for (i, part) in parts.iter_mut().enumerate() {
        let heads = part.chunks_exact_mut(size);
        for (to, from) in heads.zip(both.chunks_exact(2 * size)) {
            to.copy_from_slice(&from[i * size..][..size]);
        }
    }
    let [queries, gates] = parts;
    (queries, gates)
}

/// Norms of queries and keys; those of keys alone are not computed.
fn qk_norms(loader: &mut Loader<'_>, layer: usize) -> [Option<Norm>; 2] {
    let Some(q) = loader.norm(Some(layer), "attn_q_norm") else {
        return [None, None];
    };
    [Some(q), loader.norm(Some(layer), "attn_k_norm")]
}

fn has_experts(c: &Config, count: u32) -> bool {
    c.experts.as_ref().is_some_and(|e| e.count == count as usize)
}
