//! Blocks of RWKV 6 and 7: a mixer of positions and a mixer of channels, both of which read a position and the one
//! before it, weighed element by element.

use super::lowering::Lowering;
use crate::arch::rules::Recurrence;
use crate::model::load::{Linear, Stacked};
use crate::ops::activation::Activation;
use crate::ops::norm::{Kind, Norm};
use crate::ops::wkv::{GatedLinear, Wkv6, Wkv7};
use crate::program::{Op, Value};

/// The epsilon of the norms of heads.
const HEAD_EPS: f32 = 64e-5;
/// Every so many blocks the stream of RWKV 6 is halved by this.
const HALF: f32 = 0.5;

/// The beginning and the end of both kinds of time mixing.
struct TimeMix {
    receptance: Linear,
    key: Linear,
    value: Linear,
    output: Linear,
    /// Norm of every head's output, where the model has one.
    norm: Option<Norm>,
}

/// RWKV 6's shares of the position before, and its gates and decays.
struct Mix6 {
    /// Share in the vector that the shares of the others are made of.
    first: Vec<f32>,
    /// To the shares, and from five narrow vectors to these.
    down: Linear,
    up: Stacked,
    /// Added to the shares of decays, keys, values, queries and gates.
    shares: Vec<Vec<f32>>,
    gate: Linear,
    decay: [Linear; 2],
    decay_bias: Vec<f32>,
    /// Factors on what a position itself adds, where the model has them.
    own: Option<Vec<f32>>,
}

/// RWKV 7's shares of the position before, and its gates, decays and rates.
struct Mix7 {
    /// Shares in queries, decays, keys, values, rates and gates.
    shares: Vec<Vec<f32>>,
    decay: [Linear; 2],
    decay_bias: Vec<f32>,
    rate: [Linear; 2],
    rate_bias: Vec<f32>,
    /// How much of the first block's values stands in for this one's; absent in that one.
    kept: Option<([Linear; 2], Vec<f32>)>,
    /// The gate, where the model has one.
    gate: Option<[Linear; 2]>,
    rule: Wkv7,
}

impl Lowering<'_, '_> {
    /// The residual stream behind block number `layer`; `None` where a tensor is missing, which is noted.
    pub(super) fn rwkv_block(&mut self, x: Value, kind: Recurrence, layer: usize) -> Option<Value> {
        let c = self.c;
        let [time_norm, channel_norm] = ["attn_norm", "attn_norm_2"].map(|name| self.loader.norm(Some(layer), name));
        let state = c.mixing.state_of(layer);
        let [shifted, numbers] = c.mixing.numbers;
        let (shift, wkv) = (state..state + c.n_embd, state + shifted..state + shifted + numbers);
        let normed = self.b.maybe_norm("attn_norm", x, time_norm);
        let [input, change] = self.with_change(normed, shift);
        let y = match kind {
            Recurrence::Rwkv6 => self.time_mix_6(input, change, wkv, layer),
            _ => self.time_mix_7(input, change, wkv, layer),
        };
        let x = self.b.add("attn_residual", x, y?);
        let normed = self.b.maybe_norm("attn_norm_2", x, channel_norm);
        let [input, change] = self.with_change(normed, state + c.n_embd..state + shifted);
        let y = self.channel_mix(input, change, kind, layer)?;
        let x = self.b.add("residual", x, y);
        let halved = c.halved_every.is_some_and(|every| (layer + 1).is_multiple_of(every));
        Some(self.b.scale("rescaled", x, Some(HALF).filter(|_| halved)))
    }

    /// The mixer of positions alone, for the normed input of block number `layer`.
    pub(super) fn rwkv_mixer(&mut self, x: Value, kind: Recurrence, layer: usize) -> Option<Value> {
        let from = self.c.mixing.state_of(layer);
        let [shifted, numbers] = self.c.mixing.numbers;
        let [input, change] = self.with_change(x, from..from + shifted);
        let wkv = from + shifted..from + shifted + numbers;
        match kind {
            Recurrence::Rwkv6Alone => self.time_mix_6(input, change, wkv, layer),
            _ => self.time_mix_7(input, change, wkv, layer),
        }
    }

    /// `x`, and how it differs from that of the position before: what that has less this.
    fn with_change(&mut self, x: Value, state: std::ops::Range<usize>) -> [Value; 2] {
        let before = self.b.recurrent("shifted", Op::Shift(state), &[x], 0);
        let change = self.minus("shift_change", before, x);
        [x, change]
    }

    /// `x - y`.
    fn minus(&mut self, name: &str, x: Value, y: Value) -> Value {
        let negative = self.b.scale(name, y, Some(-1.0));
        self.b.add(name, x, negative)
    }

    /// The hyperbolic tangent.
    fn tanh(&mut self, name: &str, x: Value) -> Value {
        self.b.soft_cap(name, x, Some(1.0))
    }

    /// Products with two matrices in a row.
    fn in_a_row(&mut self, x: Value, [down, up]: [Linear; 2], between: impl Fn(&mut Self, Value) -> Value) -> Value {
        let low = self.product(x, down);
        let low = between(self, low);
        self.product(low, up)
    }

    fn rwkv_vector(&mut self, layer: usize, name: &str) -> Option<Vec<f32>> {
        let found = self.loader.vector(Some(layer), &format!("{name}.weight"));
        self.loader.required(Some(layer), name, found)
    }

    fn rwkv_pair(&mut self, layer: usize, names: [&str; 2]) -> Option<[Linear; 2]> {
        let [down, up] = names.map(|name| self.loader.required_linear(layer, name));
        Some([down?, up?])
    }

    fn time_mix(&mut self, layer: usize) -> Option<TimeMix> {
        let [receptance, key, value, output] = ["time_mix_receptance", "time_mix_key", "time_mix_value", "attn_output"]
            .map(|name| self.loader.required_linear(layer, name));
        let row = self.c.mixing.sizes.state;
        let norm = self.loader.norm(Some(layer), "time_mix_ln");
        let norm = norm.map(|norm| Norm { kind: Kind::Layer, eps: HEAD_EPS, row, ..norm });
        Some(TimeMix { receptance: receptance?, key: key?, value: value?, output: output?, norm })
    }

    fn time_mix_6(&mut self, x: Value, change: Value, state: std::ops::Range<usize>, layer: usize) -> Option<Value> {
        const NAMES: [&str; 5] = ["w", "k", "v", "r", "g"];
        let n = self.c.n_embd;
        let size = self.c.mixing.sizes.state;
        let common = self.time_mix(layer);
        let fused = self.loader.vector(Some(layer), "time_mix_lerp_fused.weight");
        let shares = match fused {
            Some(all) => Some(all.chunks_exact(n).map(<[f32]>::to_vec).collect()),
            None => NAMES.iter().map(|part| self.rwkv_vector(layer, &format!("time_mix_lerp_{part}"))).collect(),
        };
        let first = self.rwkv_vector(layer, "time_mix_lerp_x");
        let down = self.loader.required_linear(layer, "time_mix_w1");
        let up = self.loader.required_experts(layer, "time_mix_w2");
        let gate = self.loader.required_linear(layer, "time_mix_gate");
        let decay = self.rwkv_pair(layer, ["time_mix_decay_w1", "time_mix_decay_w2"]);
        let decay_bias = self.rwkv_vector(layer, "time_mix_decay");
        let own = self.loader.vector(Some(layer), "time_mix_first.weight");
        let mix = Mix6 {
            first: first?,
            down: down?,
            up: up?,
            shares: shares?,
            gate: gate?,
            decay: decay?,
            decay_bias: decay_bias?,
            own,
        };
        let common = common?;

        let mixed = self.b.multiply_add("mix", x, change, mix.first);
        let low = self.product(mixed, mix.down);
        let low = self.tanh("mix_low", low);
        let up = self.stack(mix.up);
        let all = self.b.products_by_head("mix_shares", low, up);
        let parts = self.b.split_into(all, NAMES.iter().map(|name| (*name, n)));
        let mut inputs = parts.into_iter().zip(mix.shares).map(|(part, share)| {
            let share = self.b.add_row("mix_share", part, share);
            let y = self.b.multiply("mixed", share, change);
            self.b.add("mixed", y, x)
        });
        let [xw, xk, xv, xr, xg] = std::array::from_fn(|_| inputs.next().unwrap_or(x));
        drop(inputs);
        let [r, k, v] =
            [(xr, common.receptance), (xk, common.key), (xv, common.value)].map(|(x, w)| self.product(x, w));
        let g = self.product(xg, mix.gate);
        let g = match mix.own {
            Some(_) => self.b.activate("time_mix_gate", Activation::Silu, g),
            None => self.b.sigmoid("time_mix_gate", g),
        };
        let w = self.in_a_row(xw, mix.decay, |all, low| all.tanh("decay_low", low));
        let w = self.b.add_row("decay", w, mix.decay_bias);
        let heads = n / size;
        let times = n / self.b.columns(k).max(1);
        let [k, v] = [("k", k), ("v", v)].map(|(name, x)| match times {
            1 => x,
            _ => self.b.repeat(name, x, size, times),
        });
        let op = match mix.own {
            Some(first) => Op::Wkv6(Box::new(Wkv6 { size, first }), state),
            None => Op::GatedLinear(GatedLinear { size, heads }, state),
        };
        let y = self.b.recurrent("wkv", op, &[r, k, v, w], 0);
        let y = self.b.maybe_norm("time_mix_ln", y, common.norm);
        let y = self.b.multiply("time_mix_gated", y, g);
        Some(self.product(y, common.output))
    }

    fn time_mix_7(&mut self, x: Value, change: Value, state: std::ops::Range<usize>, layer: usize) -> Option<Value> {
        let n = self.c.n_embd;
        let size = self.c.mixing.sizes.state;
        let common = self.time_mix(layer);
        // without gates there are shares for five vectors alone
        let gated = self.loader.has(&format!("blk.{layer}.time_mix_g1.weight"));
        let shares = match gated {
            true => self.rwkv_vector(layer, "time_mix_lerp_fused"),
            false => self.rwkv_vector(layer, "time_mix_lerp_ungated"),
        };
        let [decay_bias, rate_bias, removal, replacement, bonus] =
            ["w0", "a0", "k_k", "k_a", "r_k"].map(|name| self.rwkv_vector(layer, &format!("time_mix_{name}")));
        let mut pair = |p: &str| self.rwkv_pair(layer, [&*format!("time_mix_{p}1"), &*format!("time_mix_{p}2")]);
        let [decay, rate] = ["w", "a"].map(&mut pair);
        let gate = if gated { Some(pair("g")?) } else { None };
        let kept = match layer {
            0 => None,
            _ => {
                let pair = self.rwkv_pair(layer, ["time_mix_v1", "time_mix_v2"]);
                Some((pair?, self.rwkv_vector(layer, "time_mix_v0")?))
            }
        };
        let mix = Mix7 {
            shares: shares?.chunks_exact(n).map(<[f32]>::to_vec).collect(),
            decay: decay?,
            decay_bias: decay_bias?,
            rate: rate?,
            rate_bias: rate_bias?,
            kept,
            gate,
            rule: Wkv7 { size, removal: removal?, replacement: replacement?, bonus: bonus? },
        };
        let common = common?;

        let mut shares = mix.shares.into_iter();
        let [xr, xw, xk, xv, xa, xg] = [(); 6].map(|()| match shares.next() {
            Some(share) => self.b.multiply_add("mixed", x, change, share),
            None => x,
        });
        let [r, k, mut v] =
            [(xr, common.receptance), (xk, common.key), (xv, common.value)].map(|(x, w)| self.product(x, w));
        let w = self.in_a_row(xw, mix.decay, |all, low| all.tanh("decay_low", low));
        let w = self.b.add_row("decay", w, mix.decay_bias);
        match mix.kept.zip(self.first_values) {
            None => self.first_values = Some(v),
            Some(((pair, bias), first)) => {
                let kept = self.in_a_row(xv, pair, |_, low| low);
                let kept = self.b.add_row("value_kept", kept, bias);
                let kept = self.b.sigmoid("value_kept", kept);
                let change = self.minus("value_change", first, v);
                let change = self.b.multiply("value_change", change, kept);
                v = self.b.add("value", v, change);
            }
        }
        let g = mix.gate.map(|gate| self.in_a_row(xg, gate, |all, low| all.b.sigmoid("gate_low", low)));
        let a = self.in_a_row(xa, mix.rate, |_, low| low);
        let a = self.b.add_row("rate", a, mix.rate_bias);
        let a = self.b.sigmoid("rate", a);
        let both = self.b.recurrent_into("wkv", Op::Wkv7(Box::new(mix.rule), state), &[r, w, k, v, a], 2 * n);
        let [y, own] = self.b.split(["wkv_state", "wkv_own"], both, [n, n]);
        let y = self.b.maybe_norm("time_mix_ln", y, common.norm);
        let mut y = self.b.add("time_mix_own", y, own);
        if let Some(g) = g {
            y = self.b.multiply("time_mix_gated", y, g);
        }
        Some(self.product(y, common.output))
    }

    fn channel_mix(&mut self, x: Value, change: Value, kind: Recurrence, layer: usize) -> Option<Value> {
        let share = self.rwkv_vector(layer, "channel_mix_lerp_k");
        let [key, value] = ["channel_mix_key", "channel_mix_value"].map(|n| self.loader.required_linear(layer, n));
        let gate = match kind {
            Recurrence::Rwkv6 => {
                let share = self.rwkv_vector(layer, "channel_mix_lerp_r");
                let receptance = self.loader.required_linear(layer, "channel_mix_receptance");
                Some((share?, receptance?))
            }
            _ => None,
        };
        let (share, key, value) = (share?, key?, value?);
        let xk = self.b.multiply_add("mixed", x, change, share);
        let k = self.product(xk, key);
        let k = self.b.activate("channel_mix_key", Activation::SquaredRelu, k);
        let y = self.product(k, value);
        Some(match gate {
            Some((share, receptance)) => {
                let xr = self.b.multiply_add("mixed", x, change, share);
                let r = self.product(xr, receptance);
                let r = self.b.sigmoid("channel_mix_receptance", r);
                self.b.multiply("channel_mixed", r, y)
            }
            None => y,
        })
    }
}
