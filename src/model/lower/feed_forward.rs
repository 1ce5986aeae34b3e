//! The feed-forward network of a block: dense, a mixture of experts, or both.

use super::experts::bounded;
use super::lowering::Lowering;
use crate::model::Problem;
use crate::model::load::Linear;
use crate::ops::activation::Activation;
use crate::ops::norm::Norm;
use crate::program::{Op, Value};

/// The values that a feed-forward network makes.
pub struct Given {
    /// Its output.
    pub y: Value,
    /// The output of experts that read the norm of the block's input, which is added after all else.
    pub beside: Option<Value>,
}

/// `down(norm(f(gate(x)) * up(x)))`, or without a gate `down(norm(f(up(x))))`
struct Dense {
    up: Up,
    activation: Activation,
    /// Standard deviations above their mean from which gates count, where all do not.
    cutoff: Option<f32>,
    /// Divisors of the gated values.
    divisors: Option<Vec<f32>>,
    sub_norm: Option<Norm>,
    down: Linear,
}

/// The projections into a dense network.
enum Up {
    Gated(Box<[Linear; 2]>),
    Plain(Box<Linear>),
}

/// The expert that all tokens go to, the gate on its output, and whether its function is the sigmoid itself.
struct Shared {
    dense: Dense,
    gate: Option<Linear>,
    plain_gate: bool,
}

impl Lowering<'_, '_> {
    /// The network of block number `layer` for `x`. `before` is the block's input, for experts and routers that read
    /// that; `None` where both sublayers read the same. The result is `None` where a tensor is missing, which is noted.
    pub(super) fn feed_forward(&mut self, x: Value, layer: usize, before: Option<Value>) -> Option<Given> {
        let c = self.c;
        let experts = c.layer_experts(layer);
        let dense = self.dense(layer, "");
        let shared = self.shared(layer);
        let unused = experts.is_some() && c.arch.experts.unused;
        let mixture = match experts {
            Some(experts) if !unused => Some(self.mixture(experts, layer)?),
            _ => None,
        };
        if mixture.is_none() && dense.is_none() && !unused {
            return None;
        }
        let chunks = experts.and_then(|e| self.chunk_experts(e, layer));
        let accompanied = mixture.is_some() && (dense.is_some() || shared.is_some());
        let factor = c.arch.experts.beside.filter(|_| accompanied);
        let expert_norm = self.loader.norm(Some(layer), "ffn_norm_exps");

        let dense = dense.map(|dense| self.run_dense(x, dense));
        let (mixture, beside) = match (mixture, expert_norm) {
            (Some(mixture), Some(norm)) => {
                let beside = before.map(|before| {
                    let x = self.b.norm("ffn_norm_exps", before, norm);
                    self.mix_experts(x, x, mixture)
                });
                (None, beside)
            }
            (Some(mixture), None) => {
                let routed = before.filter(|_| mixture.early_router).unwrap_or(x);
                (Some(self.mix_experts(x, routed, mixture)), None)
            }
            (None, _) => (None, None),
        };
        let shared = shared.map(|shared| self.run_shared(x, shared));
        let chunks = chunks.zip(mixture).map(|((chunks, scale), given)| {
            let y = self.mix_experts(given, x, chunks);
            self.b.scale("ffn_chunks", y, Some(scale))
        });
        let all = [mixture, dense, shared, chunks].into_iter().flatten();
        let y = all.reduce(|y, z| self.b.add("ffn", y, z));
        let y = y.unwrap_or_else(|| self.b.activate("ffn", c.activation, x));
        Some(Given { y: self.b.scale("ffn", y, factor), beside })
    }

    /// True if experts of block number `layer` and the network beside them have norms of their own.
    pub(super) fn apart(&self, layer: usize) -> bool {
        self.c.arch.experts.apart && self.c.layer_experts(layer).is_some()
    }

    /// The network of a block whose experts have norms of their own, which read `x` as their router does; what stands
    /// beside them reads `normed`. `None` where a tensor is missing, which is noted.
    pub(super) fn feed_forward_apart(&mut self, x: Value, normed: Value, layer: usize) -> Option<Given> {
        const SCALE: &str = "ffn_gate_inp.scale";
        let c = self.c;
        let names = ["post_ffw_norm_1", "pre_ffw_norm_2", "post_ffw_norm_2"];
        let [dense_norm, before, behind] = names.map(|name| self.loader.required_norm(layer, name));
        let router_norm = self.loader.norm(Some(layer), "ffn_router_norm");
        let scale = self.loader.vector(Some(layer), SCALE);
        let dense = self.dense(layer, "");
        let mixture = self.mixture(c.layer_experts(layer)?, layer);
        let (dense, mixture, scale) = (dense?, mixture?, scale?);

        let dense = self.run_dense(normed, dense);
        let dense = self.b.norm("post_ffw_norm_1", dense, dense_norm?);
        let routed = self.b.norm("ffn_router_norm", x, router_norm?);
        let routed = self.b.scale("ffn_routed", routed, Some(1.0 / (c.n_embd as f32).sqrt()));
        let scale = self.b.fill("ffn_router_scale", routed, scale);
        let routed = self.b.multiply("ffn_routed", routed, scale);
        let given = self.b.norm("pre_ffw_norm_2", x, before?);
        let given = self.mix_experts(given, routed, mixture);
        let given = self.b.norm("post_ffw_norm_2", given, behind?);
        Some(Given { y: self.b.add("ffn", dense, given), beside: None })
    }

    /// The matrices `ffn_upSUFFIX`, `ffn_downSUFFIX` and, where there is one, `ffn_gateSUFFIX`.
    fn dense(&mut self, layer: usize, suffix: &str) -> Option<Dense> {
        let (c, loader) = (self.c, &mut *self.loader);
        let name = |part: &str| format!("ffn_{part}{suffix}");
        let up = match loader.linear(layer, &name("gate")) {
            Some(_) if loader.is_fused(layer, &name("up")) => {
                let what = "its rows hold a gate, and there is a gate beside it";
                loader.problem(Problem::tensor(&format!("blk.{layer}.{}.weight", name("up")), what));
                return None;
            }
            Some(gate) => Up::Gated(Box::new([gate, loader.linear(layer, &name("up"))?])),
            None if loader.is_fused(layer, &name("up")) => Up::Gated(Box::new(loader.halves(layer, &name("up"))?)),
            None => Up::Plain(Box::new(loader.linear(layer, &name("up"))?)),
        };
        Some(Dense {
            up,
            activation: bounded(c, &c.dense_bounds, layer),
            cutoff: c.arch.feed_forward.cutoff.filter(|&(blocks, _)| layer < blocks as usize).map(|(_, factor)| factor),
            divisors: loader.vector(Some(layer), "ffn.act.scales"),
            sub_norm: loader.norm(Some(layer), "ffn_sub_norm"),
            down: loader.linear(layer, &name("down"))?,
        })
    }

    fn run_dense(&mut self, x: Value, dense: Dense) -> Value {
        let Dense { up, activation, cutoff, divisors, sub_norm, down } = dense;
        let mut y = match up {
            Up::Gated(both) => {
                let [mut gate, up] = self.products_bias_first(x, *both);
                if let Some(factor) = cutoff {
                    gate = self.b.like("ffn_cutoff", Op::Cutoff(factor), &[gate]);
                }
                self.b.gate("ffn_gated", activation, gate, up)
            }
            Up::Plain(up) => {
                let [y] = self.products_bias_first(x, [*up]);
                let activation = self.c.arch.feed_forward.ungated.unwrap_or(activation);
                self.b.activate("ffn_activated", activation, y)
            }
        };
        if let Some(divisors) = divisors {
            y = self.b.divide_row("ffn_divided", y, divisors);
        }
        y = self.b.maybe_norm("ffn_sub_norm", y, sub_norm);
        let [y] = self.products_bias_first(y, [down]);
        y
    }

    fn shared(&mut self, layer: usize) -> Option<Shared> {
        const GATE: &str = "ffn_gate_inp_shexp.weight";
        let dense = self.dense(layer, "_shexp")?;
        let gate = self.loader.router(layer, GATE);
        Some(Shared { dense, gate, plain_gate: self.c.arch.experts.plain_gate })
    }

    fn run_shared(&mut self, x: Value, shared: Shared) -> Value {
        let y = self.run_dense(x, shared.dense);
        match shared.gate {
            Some(gate) => {
                let gate = self.product(x, gate);
                self.b.scale_by_gate("ffn_shared", y, gate, shared.plain_gate)
            }
            None => y,
        }
    }
}
