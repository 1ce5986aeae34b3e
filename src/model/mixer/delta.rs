//! Gated DeltaNet and Kimi Delta Attention: a square state for every head, which decays with every position and is
//! corrected towards the position's value where its key points.
//!
//! Queries, keys and values go through a convolution and SiLU; queries and keys of every head are scaled to length 1.
//! What the rule ([`Delta`]) gives is normed per head and multiplied by a gate.

use std::ops::Range;

use super::columns;
use crate::arch::Recurrent;
use crate::arch::rules::Recurrence;
use crate::kernels::Floats;
use crate::model::config::Config;
use crate::model::linear::Linear;
use crate::model::load::Loader;
use crate::model::pass::Pass;
use crate::ops;
use crate::ops::activation::{Activation, HeadGate, sigmoid, softplus};
use crate::ops::convolution::Convolution;
use crate::ops::delta::{Delta, Steps};
use crate::ops::matmul::Activations;
use crate::ops::norm::{Kind, Norm};

/// From the normed input of a block to what it adds.
pub struct DeltaNet {
    sizes: Recurrent,
    /// Its part of a sequence's recurrent state: what the convolution remembers, and the heads' states.
    state: Range<usize>,
    remembered: usize,
    projections: Projections,
    convolution: Convolution,
    /// Scales queries and keys of a head to the root of its size.
    length: Norm,
    rule: Delta,
    /// Added to the decays' projection.
    decay_bias: Vec<f32>,
    /// Factors on the decays, per head.
    decay: Vec<f32>,
    /// Bound of the decays' logarithms, where there is one.
    bound: Option<f32>,
    norm: Norm,
    out: Linear,
}

/// What is made of the block's input.
enum Projections {
    /// Queries, keys and values; gates; strengths and decays, in one projection by key or in two.
    Delta(Box<[Linear; 2]>, DeltaSteps),
    /// Queries, keys, values and gates of every key's heads in one.
    InOne(Box<Linear>, DeltaSteps),
    /// Kimi's.
    Kimi(Box<Kimi>),
}

enum DeltaSteps {
    InOne(Linear),
    Two(Box<[Linear; 2]>),
}

struct Kimi {
    /// Queries, keys and values, in one matrix or in three.
    qkv: Vec<Linear>,
    /// To the decays: one, or two in a row.
    decay: Vec<Linear>,
    /// To the gates: one, or two in a row.
    gate: Vec<Linear>,
    strength: Linear,
}

/// Projections of the rows of a pass.
struct Projected {
    /// `[tokens][channels]`
    qkv: Vec<f32>,
    gates: Vec<f32>,
    strengths: Vec<f32>,
    decays: Vec<f32>,
}

impl DeltaNet {
    /// That of block number `layer`; `None` where a tensor is missing, which is noted.
    pub fn load(loader: &mut Loader<'_>, c: &Config, kind: Recurrence, layer: usize) -> Option<DeltaNet> {
        let sizes = c.mixing.sizes;
        let kimi = kind.is_kimi();
        let projections = match kimi {
            true => Kimi::load(loader, layer).map(|kimi| Projections::Kimi(Box::new(kimi))),
            false => Projections::load(loader, layer),
        };
        let mut vector = |name: &str| loader.vector(Some(layer), name);
        let weights = match kimi {
            true => {
                let all = ["q", "k", "v"].map(|part| vector(&format!("ssm_conv1d_{part}.weight")));
                let [q, k, v] = all;
                Some([q?, k?, v?].concat())
            }
            false => vector("ssm_conv1d.weight"),
        };
        let (mut decay, decay_bias) = (vector("ssm_a"), vector("ssm_dt.bias"));
        if kind == Recurrence::BoundedByRate && c.mixing.bound.is_some() {
            // the reference changes the sign of the products, which is the same
            let factors = decay.iter_mut().flatten();
            factors.for_each(|factor| *factor = -*factor);
        }
        let norm = loader.norm(Some(layer), "ssm_norm");
        let out = match kimi {
            true => {
                let out = loader.linear(layer, "kda_output");
                // the graph applies the factor of this projection in blocks that attend alone
                out.map(|out| Linear { scale: None, ..out })
            }
            false => loader.linear(layer, "ssm_out"),
        };
        let from = c.mixing.state_of(layer);
        let [remembered, numbers] = c.mixing.numbers;
        Some(DeltaNet {
            sizes,
            state: from..from + remembered + numbers,
            remembered,
            projections: projections?,
            convolution: Convolution::new(&weights?, sizes.kernel, None),
            length: Norm {
                kind: Kind::Rms,
                eps: c.eps / sizes.state as f32,
                row: sizes.state,
                gains: vec![1.0; sizes.state],
                bias: None,
            },
            rule: Delta {
                heads: sizes.heads,
                key_heads: sizes.groups,
                neighbours: kind == Recurrence::DeltaNeighbours,
                size: sizes.state,
            },
            decay_bias: decay_bias?,
            decay: decay?,
            bound: c.mixing.bound,
            norm: norm?,
            out: out?,
        })
    }

    /// What it gives for every row of `x`, `[tokens][n_embd]`.
    pub fn apply(&self, x: &[f32], pass: &mut Pass<'_, '_>) -> Floats {
        let Recurrent { inner, groups, state: size, .. } = self.sizes;
        let channels = self.sizes.channels();
        let mut projected = self.projections.apply(x, &self.sizes, pass);
        let mut convolved = vec![0f32; projected.qkv.len()];
        pass.recur(self.state.clone(), |rows, state| {
            let rows = rows.start * channels..rows.end * channels;
            let state = &mut state[..self.remembered];
            let y = self.convolution.run(&projected.qkv[rows.clone()], state);
            convolved[rows].copy_from_slice(&y);
        });
        Activation::Silu.apply(pass.isa(), &mut convolved);
        let [mut q, mut k, v] = columns(&convolved, [groups * size, groups * size, inner]);
        for x in [&mut q, &mut k] {
            self.length.apply_in_place(pass.isa(), x);
            ops::scale(x, 1.0 / (size as f32).sqrt());
        }
        self.decays(&mut projected.decays);
        projected.strengths.iter_mut().for_each(|b| *b = sigmoid(*b));
        let tokens = v.len() / inner;
        let mut y = vec![0f32; v.len()];
        pass.recur(self.state.clone(), |rows, state| {
            let of = |x: &'_ [f32]| {
                let width = x.len() / tokens;
                rows.start * width..rows.end * width
            };
            let steps = Steps {
                q: &q[of(&q)],
                k: &k[of(&k)],
                v: &v[of(&v)],
                g: &projected.decays[of(&projected.decays)],
                b: &projected.strengths[of(&projected.strengths)],
            };
            let given = self.rule.run(&steps, &mut state[self.remembered..]);
            y[of(&v)].copy_from_slice(&given);
        });
        self.norm.apply_in_place(pass.isa(), &mut y);
        if let Projections::Kimi(_) = self.projections {
            HeadGate::Sigmoid.apply(&mut y, &projected.gates);
        } else {
            Activation::Silu.gate(pass.isa(), &mut projected.gates, &y);
            y = projected.gates;
        }
        self.out.apply(&pass.rows(&y))
    }

    /// Softplus of what the projection gives and the bias, times the head's factor; with a bound the sigmoid of their
    /// product times the bound. One number for every head, or as many as its state has rows.
    fn decays(&self, decays: &mut [f32]) {
        ops::add_rows(decays, &self.decay_bias);
        let of_head = self.decay_bias.len() / self.decay.len();
        for row in decays.chunks_exact_mut(self.decay_bias.len()) {
            for (head, factor) in row.chunks_exact_mut(of_head).zip(&self.decay) {
                head.iter_mut().for_each(|g| {
                    *g = match self.bound {
                        Some(bound) => sigmoid(*g * factor) * bound,
                        None => softplus(*g) * factor,
                    }
                });
            }
        }
    }
}

impl Projections {
    fn load(loader: &mut Loader<'_>, layer: usize) -> Option<Projections> {
        let steps = match loader.linear(layer, "ssm_ba") {
            Some(both) => Some(DeltaSteps::InOne(both)),
            None => {
                let both = ["ssm_beta", "ssm_alpha"].map(|name| loader.linear(layer, name));
                let [strength, decay] = both;
                strength.zip(decay).map(|(strength, decay)| DeltaSteps::Two(Box::new([strength, decay])))
            }
        };
        if let Some(qkv) = loader.linear(layer, "delta_qkv") {
            let gate = loader.required_linear(layer, "delta_gate")?;
            return Some(Projections::Delta(Box::new([qkv, gate]), steps?));
        }
        let all = loader.required_linear(layer, "ssm_in")?;
        Some(Projections::InOne(Box::new(all), steps?))
    }

    fn apply(&self, x: &[f32], sizes: &Recurrent, pass: &Pass<'_, '_>) -> Projected {
        let acts = pass.activations(x);
        match self {
            Projections::Delta(both, steps) => {
                let [qkv, gates] = Linear::apply_all(both.each_ref(), &acts);
                let [strengths, decays] = steps.apply(&acts, sizes);
                Projected { qkv: qkv.to_vec(), gates: gates.to_vec(), strengths, decays }
            }
            Projections::InOne(all, steps) => {
                let all = all.apply(&acts);
                let Recurrent { state, heads, groups, .. } = *sizes;
                let values = heads / groups * state;
                let [q, rest, gates] = columns(&all, [state, state + values, values]);
                let [k, v, _] = columns(&rest, [state, values, 0]);
                let rows = q.chunks_exact(groups * state).zip(k.chunks_exact(groups * state));
                let rows = rows.zip(v.chunks_exact(heads * state));
                let qkv = rows.flat_map(|((q, k), v)| q.iter().chain(k).chain(v));
                let [strengths, decays] = steps.apply(&acts, sizes);
                Projected { qkv: qkv.copied().collect(), gates, strengths, decays }
            }
            Projections::Kimi(kimi) => kimi.apply(&acts, pass),
        }
    }
}

impl DeltaSteps {
    /// Strengths and decays before their functions, `[tokens][heads]`.
    fn apply(&self, acts: &Activations<'_>, sizes: &Recurrent) -> [Vec<f32>; 2] {
        match self {
            DeltaSteps::InOne(both) => {
                let of_key = sizes.heads / sizes.groups;
                let [strengths, decays, _] = columns(&both.apply(acts), [of_key, of_key, 0]);
                [strengths, decays]
            }
            DeltaSteps::Two(both) => Linear::apply_all(both.each_ref(), acts).map(|y| y.to_vec()),
        }
    }
}

impl Kimi {
    fn load(loader: &mut Loader<'_>, layer: usize) -> Option<Kimi> {
        let qkv = match loader.linear(layer, "kda_qkv") {
            Some(all) => vec![all],
            None => {
                let all = ["kda_q", "kda_k", "kda_v"].map(|name| loader.linear(layer, name));
                let [q, k, v] = all;
                vec![q?, k?, v?]
            }
        };
        let mut in_a_row = |names: [&str; 2]| {
            let all = names.into_iter();
            all.filter_map(|name| loader.linear(layer, name)).collect()
        };
        Some(Kimi {
            qkv,
            decay: in_a_row(["ssm_f_a", "ssm_f_b"]),
            gate: in_a_row(["ssm_g_a", "ssm_g_b"]),
            strength: loader.linear(layer, "ssm_beta")?,
        })
    }

    fn apply(&self, acts: &Activations<'_>, pass: &Pass<'_, '_>) -> Projected {
        let parts: Vec<Floats> = self.qkv.iter().map(|l| l.apply(acts)).collect();
        let width = |part: &Floats| part.len() / acts.tokens();
        let row = |t: usize| {
            let parts = parts.iter();
            parts.flat_map(move |part| &part[t * width(part)..][..width(part)])
        };
        let in_a_row = |all: &[Linear]| {
            let mut all = all.iter();
            let first = all.next().map(|l| l.apply(acts)).unwrap_or_default();
            all.fold(first, |x, l| l.apply(&pass.rows(&x))).to_vec()
        };
        Projected {
            qkv: (0..acts.tokens()).flat_map(row).copied().collect(),
            gates: in_a_row(&self.gate),
            strengths: self.strength.apply(acts).to_vec(),
            decays: in_a_row(&self.decay),
        }
    }
}
