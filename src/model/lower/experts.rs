//! A router and the experts that it chooses from.

use super::lowering::Lowering;
use crate::arch::rules::GateClamp;
use crate::model::config::{Config, Experts};
use crate::model::load::{Linear, Stacked};
use crate::ops::activation::Activation;
use crate::ops::experts::Choosing;
use crate::ops::norm::Norm;
use crate::program::Value;

/// Bounds of a gate below this are none.
const LEAST_BOUND: f32 = 1e-6;

/// The function of a layer's gates with its bound, where it has one, and its numbers.
pub fn bounded(c: &Config, bounds: &[f32], layer: usize) -> Activation {
    let rule = &c.arch.feed_forward;
    if let Some(&numbers) = c.xielu.get(layer) {
        return Activation::Xielu(numbers);
    }
    let bound = bounds.get(layer).filter(|&&bound| bound > LEAST_BOUND);
    match (bound, rule.clamp) {
        (Some(&bound), GateClamp::Before | GateClamp::BeforeEverywhere) => Activation::ClampedSilu(bound),
        (Some(&bound), GateClamp::After) => Activation::LimitedSilu(bound),
        _ => c.activation,
    }
}

/// A router and the experts that it chooses from.
pub struct Mixture {
    choosing: Choosing,
    /// True if weights multiply the inputs of an expert instead of its outputs.
    weigh_inputs: bool,
    /// True if the router reads another value than the experts.
    pub early_router: bool,
    activation: Activation,
    /// To and from experts that are narrower than the residual stream.
    narrow: Option<Box<Narrow>>,
    router: Linear,
    /// `None` of experts without gates.
    gate: Option<Stacked>,
    up: Stacked,
    down: Stacked,
}

/// To and from experts that are narrower than the residual stream.
struct Narrow {
    down: Linear,
    /// Norm of the experts' outputs.
    norm: Option<Norm>,
    up: Linear,
}

impl Lowering<'_, '_> {
    /// The experts of a block; `None` where a tensor is missing, which is noted.
    pub(super) fn mixture(&mut self, experts: &Experts, layer: usize) -> Option<Mixture> {
        let choosing = self.choosing(experts, layer);
        let narrow = match experts.latent {
            Some(_) => Some(self.narrow(layer)?),
            None => None,
        };
        let mixture = self.experts_called(layer, "exps", choosing)?;
        Some(Mixture { narrow, ..mixture })
    }

    /// The small experts that others have in common (GroveMoE's chunks), and the factor on their outputs. They read the
    /// outputs of the others, and their router the block's normed input. `None` also where a block has none.
    pub(super) fn chunk_experts(&mut self, experts: &Experts, layer: usize) -> Option<(Mixture, f32)> {
        let chunks = experts.chunks?;
        let choosing = Choosing {
            used: experts.used.min(chunks.count),
            shared_by: chunks.shared_by,
            ..self.choosing(experts, layer)
        };
        let mixture = self.experts_called(layer, "chexps", choosing)?;
        Some((mixture, chunks.scale))
    }

    fn narrow(&mut self, layer: usize) -> Option<Box<Narrow>> {
        let down = self.loader.required_linear(layer, "ffn_routed_down");
        let up = self.loader.required_linear(layer, "ffn_routed_up");
        let norm = self.loader.norm(Some(layer), "ffn_routed_norm");
        Some(Box::new(Narrow { down: down?, norm, up: up? }))
    }

    /// The experts whose matrices' names end with `kind`.
    fn experts_called(&mut self, layer: usize, kind: &str, choosing: Choosing) -> Option<Mixture> {
        const ROUTER: &str = "ffn_gate_inp.weight";
        let (c, loader) = (self.c, &mut *self.loader);
        let rule = &c.arch.experts;
        let fused = format!("ffn_gate_up_{kind}");
        let fused = loader.expert_halves(layer, &fused, &format!("ffn_up_{kind}"));
        let gated = loader.has_place(layer, &format!("ffn_gate_{kind}.weight"));
        let gate_and_up = match fused {
            Some(halves) => halves.map(Some),
            None => ["gate", "up"].map(|part| match part == "up" || gated {
                true => loader.stated_experts(layer, &format!("ffn_{part}_{kind}")),
                false => None,
            }),
        };
        let down = loader.experts(layer, &format!("ffn_down_{kind}"));
        let router = loader.router(layer, ROUTER);
        let bias = loader.finite_vector(layer, "ffn_gate_inp.bias");
        let [gate, up] = gate_and_up;
        Some(Mixture {
            choosing,
            weigh_inputs: rule.weigh_inputs,
            early_router: rule.early_router,
            activation: bounded(c, &c.gate_bounds, layer),
            narrow: None,
            router: Linear { bias, ..router? },
            gate: if gated { Some(gate?) } else { None },
            up: up?,
            down: down?,
        })
    }

    fn choosing(&mut self, experts: &Experts, layer: usize) -> Choosing {
        Choosing {
            experts: experts.count,
            used: experts.used,
            gating: experts.gating,
            claim: self.c.arch.experts.claim,
            shared_by: 1,
            bias: self.loader.finite_vector(layer, "exp_probs_b.bias"),
            groups: experts.groups,
            normalize: experts.normalize,
            scale: experts.scale,
            table: (layer < experts.listed).then(|| self.loader.expert_ids(layer, experts)).flatten(),
        }
    }

    /// The outputs of a mixture for `x`; its router reads `routed`.
    pub(super) fn mix_experts(&mut self, x: Value, routed: Value, mixture: Mixture) -> Value {
        let Mixture { choosing, weigh_inputs, activation, narrow, router, gate, up, down, .. } = mixture;
        let scores = self.product(routed, router);
        let choice = self.b.choose("experts", scores, choosing);
        let (x, wide) = match narrow {
            Some(narrow) => (self.product(x, narrow.down), Some((narrow.norm, narrow.up))),
            None => (x, None),
        };
        let gate_input = gate.as_ref().map(|gate| self.rotated(x, &gate.tensor));
        let up_input = self.rotated(x, &up.tensor);
        let gate_rows = gate_input.map(|input| self.b.dispatch("expert_rows", input, choice, weigh_inputs));
        let up_rows = match gate_rows {
            Some(rows) if gate_input == Some(up_input) => rows,
            _ => self.b.dispatch("expert_rows", up_input, choice, weigh_inputs),
        };
        let down_tensor = down.tensor.clone();
        let gate = gate.map(|gate| self.stack(gate)).zip(gate_rows);
        let [up, down] = [up, down].map(|stacked| self.stack(stacked));
        let g = gate.map(|(gate, rows)| self.b.product_of_experts("ffn_gate_exps", rows, choice, gate));
        let u = self.b.product_of_experts("ffn_up_exps", up_rows, choice, up);
        let y = match g {
            Some(g) => self.b.gate("ffn_gated_exps", activation, g, u),
            None => self.b.activate("ffn_activated_exps", activation, u),
        };
        let y = self.rotated(y, &down_tensor);
        let y = self.b.product_of_experts("ffn_down_exps", y, choice, down);
        let y = self.b.combine("ffn_moe", y, choice, !weigh_inputs);
        match wide {
            Some((norm, up)) => {
                let y = self.b.maybe_norm("ffn_routed_norm", y, norm);
                self.product(y, up)
            }
            None => y,
        }
    }
}
