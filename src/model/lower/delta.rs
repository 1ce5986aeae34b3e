//! Gated DeltaNet and Kimi Delta Attention: a square state for every head, which decays with every position and is
//! corrected towards the position's value where its key points.
//!
//! Queries, keys and values go through a convolution and SiLU; queries and keys of every head are scaled to length 1.
//! The output of the rule ([`Delta`]) is normed per head and multiplied by a gate.

use super::lowering::Lowering;
use crate::arch::Recurrent;
use crate::arch::rules::Recurrence;
use crate::model::load::Linear;
use crate::ops::activation::{Activation, HeadGate};
use crate::ops::convolution::Convolution;
use crate::ops::delta::{Decay, Delta};
use crate::ops::norm::{Kind, Norm};
use crate::program::{Op, Value};

/// The epsilon of lengths where it is not that of the norms.
const LENGTH_EPS: f32 = 1e-6;

/// The projections of a layer's input.
enum Projections {
    /// Queries, keys and values; gates; strengths and decays, in one projection by key or in two.
    Delta(Box<[Linear; 2]>, Steps),
    /// Queries, keys, values and gates of every key's heads in one.
    InOne(Box<Linear>, Steps),
    /// Kimi's.
    Kimi(Box<Kimi>),
}

enum Steps {
    InOne(Box<Linear>),
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

/// Values that the projections make.
struct Projected {
    /// Queries, keys and values side by side.
    qkv: Value,
    gates: Value,
    strengths: Value,
    decays: Value,
}

impl Lowering<'_, '_> {
    /// A layer with a delta rule: from the normed input of block number `layer` to what it adds; `None` where a tensor is
    /// missing, which is noted.
    pub(super) fn delta_net(&mut self, x: Value, kind: Recurrence, layer: usize) -> Option<Value> {
        let c = self.c;
        let sizes = c.mixing.sizes;
        let Recurrent { inner, groups, state: size, .. } = sizes;
        let kimi = kind.is_kimi();
        let projections = match kimi {
            true => self.kimi(layer).map(|kimi| Projections::Kimi(Box::new(kimi))),
            false => self.projections(layer),
        };
        let mut vector = |name: &str| self.loader.vector(Some(layer), name);
        let weights = match kimi {
            true => {
                let [q, k, v] = ["q", "k", "v"].map(|part| vector(&format!("ssm_conv1d_{part}.weight")));
                Some([q?, k?, v?].concat())
            }
            false => vector("ssm_conv1d.weight"),
        };
        let (mut decay, decay_bias) = (vector("ssm_a"), vector("ssm_dt.bias"));
        if kind.has_negative_factors() && c.mixing.bound.is_some() {
            // the reference changes the sign of the products, which is the same
            decay.iter_mut().flatten().for_each(|factor| *factor = -*factor);
        }
        let norm = self.loader.norm(Some(layer), "ssm_norm");
        let out = match kimi {
            // the graph applies the factor of this projection in blocks that attend alone
            true => self.loader.linear(layer, "kda_output").map(|out| Linear { scale: None, ..out }),
            false => self.loader.linear(layer, "ssm_out"),
        };
        let from = c.mixing.state_of(layer);
        let [remembered, numbers] = c.mixing.numbers;
        let (projections, weights, decay_bias, decay) = (projections?, weights?, decay_bias?, decay?);
        let (norm, out) = (norm?, out?);

        let projected = self.project(x, projections, sizes);
        let convolve = Op::Convolve(Convolution::new(&weights, sizes.kernel, None), from..from + remembered);
        let convolved = self.b.recurrent("conv", convolve, &[projected.qkv], 0);
        let convolved = self.b.activate("conv_silu", Activation::Silu, convolved);
        let [q, k, v] = self.b.split(["q", "k", "v"], convolved, [groups * size, groups * size, inner]);
        // scales queries and keys of a head to length 1
        let eps = if kind == Recurrence::BoundedOfLength { LENGTH_EPS } else { c.eps };
        let length = Norm { kind: Kind::Rms, eps: eps / size as f32, row: size, gains: vec![1.0; size], bias: None };
        let [q, k] = [("q_length", q), ("k_length", k)].map(|(name, x)| {
            let x = self.b.norm(name, x, length.clone());
            self.b.scale(name, x, Some(1.0 / (size as f32).sqrt()))
        });
        let of_head = decay_bias.len() / decay.len().max(1);
        let decays = self.b.add_row("decay_biased", projected.decays, decay_bias);
        let decays = self.b.decay("decay", decays, Decay { factors: decay, of_head, bound: c.mixing.bound });
        let strengths = self.b.sigmoid("strength", projected.strengths);
        let rule =
            Delta { heads: sizes.heads, key_heads: groups, neighbours: kind == Recurrence::DeltaNeighbours, size };
        let from = from + remembered;
        let y = self.b.recurrent("delta", Op::Delta(rule, from..from + numbers), &[q, k, v, decays, strengths], 2);
        let y = self.b.norm("ssm_norm", y, norm);
        let y = match kimi || kind == Recurrence::DeltaSigmoid {
            true => self.b.head_gate("ssm_gated", HeadGate::Sigmoid, y, projected.gates),
            false => self.b.gate("ssm_gated", Activation::Silu, projected.gates, y),
        };
        Some(self.product(y, out))
    }

    fn projections(&mut self, layer: usize) -> Option<Projections> {
        let steps = match self.loader.linear(layer, "ssm_ba") {
            Some(both) => Some(Steps::InOne(Box::new(both))),
            None => {
                let [strength, decay] = ["ssm_beta", "ssm_alpha"].map(|name| self.loader.linear(layer, name));
                strength.zip(decay).map(|(strength, decay)| Steps::Two(Box::new([strength, decay])))
            }
        };
        if let Some(qkv) = self.loader.linear(layer, "delta_qkv") {
            let gate = self.loader.required_linear(layer, "delta_gate")?;
            return Some(Projections::Delta(Box::new([qkv, gate]), steps?));
        }
        let all = self.loader.required_linear(layer, "ssm_in")?;
        Some(Projections::InOne(Box::new(all), steps?))
    }

    fn kimi(&mut self, layer: usize) -> Option<Kimi> {
        let qkv = match self.loader.linear(layer, "kda_qkv") {
            Some(all) => vec![all],
            None => {
                let [q, k, v] = ["kda_q", "kda_k", "kda_v"].map(|name| self.loader.linear(layer, name));
                vec![q?, k?, v?]
            }
        };
        let mut in_a_row = |names: [&str; 2]| -> Vec<Linear> {
            names.into_iter().filter_map(|name| self.loader.linear(layer, name)).collect()
        };
        let (decay, gate) = (in_a_row(["ssm_f_a", "ssm_f_b"]), in_a_row(["ssm_g_a", "ssm_g_b"]));
        if decay.is_empty() || gate.is_empty() {
            return None;
        }
        Some(Kimi { qkv, decay, gate, strength: self.loader.linear(layer, "ssm_beta")? })
    }

    fn project(&mut self, x: Value, projections: Projections, sizes: Recurrent) -> Projected {
        let Recurrent { state, heads, groups, .. } = sizes;
        match projections {
            Projections::Delta(both, steps) => {
                let [qkv, gates] = self.products(x, *both);
                let [strengths, decays] = self.steps(x, steps, sizes);
                Projected { qkv, gates, strengths, decays }
            }
            Projections::InOne(all, steps) => {
                let all = self.product(x, *all);
                let values = heads / groups * state;
                let [q, k, v, gates] = self.b.split(["q", "k", "v", "z"], all, [state, state, values, values]);
                let qkv = self.b.join("qkv", &[(q, groups * state), (k, groups * state), (v, heads * state)]);
                let [strengths, decays] = self.steps(x, steps, sizes);
                Projected { qkv, gates, strengths, decays }
            }
            Projections::Kimi(kimi) => {
                let Kimi { qkv, decay, gate, strength } = *kimi;
                let parts: Vec<Value> = qkv.into_iter().map(|linear| self.product(x, linear)).collect();
                let qkv = match parts[..] {
                    [all] => all,
                    _ => {
                        let parts: Vec<_> = parts.iter().map(|&part| (part, self.b.columns(part))).collect();
                        self.b.join("qkv", &parts)
                    }
                };
                let mut in_a_row = |all: Vec<Linear>| all.into_iter().fold(x, |x, linear| self.product(x, linear));
                let gates = in_a_row(gate);
                let decays = in_a_row(decay);
                Projected { qkv, gates, strengths: self.product(x, strength), decays }
            }
        }
    }

    /// Strengths and decays before their functions, `[tokens][heads]`.
    fn steps(&mut self, x: Value, steps: Steps, sizes: Recurrent) -> [Value; 2] {
        match steps {
            Steps::InOne(both) => {
                let both = self.product(x, *both);
                self.b.split(["b", "a"], both, [sizes.heads / sizes.groups; 2])
            }
            Steps::Two(both) => self.products(x, *both),
        }
    }
}
