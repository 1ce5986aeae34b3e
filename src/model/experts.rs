//! A router and the experts that it chooses from.

use trine_cuda::program::{self, Chosen, ProgramError, Span};

use super::config::{Config, Experts};
use super::linear::Linear;
use super::load::{Loader, Stacked};
use super::pass::Pass;
use super::recording::{Recording, missing, refuse, stored};
use crate::arch::rules::GateClamp;
use crate::kernels::Floats;
use crate::math::EXP2_32;
use crate::ops;
use crate::ops::activation::Activation;
use crate::ops::experts::{Choice, Choosing, Claim, Gating, combine, gather};
use crate::ops::matmul::{Activations, matmul};
use crate::ops::norm::Norm;

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
        (Some(&bound), GateClamp::Before) => Activation::ClampedSilu(bound),
        (Some(&bound), GateClamp::After) => Activation::LimitedSilu(bound),
        _ => c.activation,
    }
}

/// A router and the experts that it chooses from.
pub struct Mixture {
    choosing: Choosing,
    /// Whether weights multiply what goes into an expert instead of what comes out.
    weigh_inputs: bool,
    /// Whether the router sees something else than the experts.
    early_router: bool,
    activation: Activation,
    /// To and from what the experts see, where that is narrower than the residual stream.
    narrow: Option<Box<Narrow>>,
    router: Linear,
    gate: Stacked,
    up: Stacked,
    down: Stacked,
    /// Inputs of the down projection.
    n_ff: usize,
}

/// To and from what experts see and give.
struct Narrow {
    down: Linear,
    /// Of what they give.
    norm: Option<Norm>,
    up: Linear,
}

impl Narrow {
    fn load(loader: &mut Loader<'_>, layer: usize) -> Option<Box<Narrow>> {
        let down = loader.required_linear(layer, "ffn_routed_down");
        let up = loader.required_linear(layer, "ffn_routed_up");
        Some(Box::new(Narrow { down: down?, norm: loader.norm(Some(layer), "ffn_routed_norm"), up: up? }))
    }
}

impl Mixture {
    /// The experts of a block; `None` where a tensor is missing, which is noted.
    pub fn load(loader: &mut Loader<'_>, c: &Config, experts: &Experts, layer: usize) -> Option<Mixture> {
        let choosing = choosing(loader, c, experts, layer);
        let narrow = match experts.latent {
            Some(_) => Some(Narrow::load(loader, layer)?),
            None => None,
        };
        let mixture = Mixture::called(loader, c, layer, "exps", (choosing, experts.n_ff))?;
        Some(Mixture { narrow, ..mixture })
    }

    /// The small experts that others have in common, and the factor on what they give; `None` also where a block has
    /// none.
    pub fn load_chunks(loader: &mut Loader<'_>, c: &Config, experts: &Experts, layer: usize) -> Option<(Mixture, f32)> {
        let chunks = experts.chunks?;
        let choosing = Choosing {
            used: experts.used.min(chunks.count),
            shared_by: chunks.shared_by,
            ..choosing(loader, c, experts, layer)
        };
        let mixture = Mixture::called(loader, c, layer, "chexps", (choosing, chunks.n_ff))?;
        // they see what the others give, and their router what those see
        let mixture = Mixture { early_router: true, ..mixture };
        Some((mixture, chunks.scale))
    }

    /// The experts whose matrices' names end with `kind`, of this width.
    fn called(
        loader: &mut Loader<'_>,
        c: &Config,
        layer: usize,
        kind: &str,
        (choosing, n_ff): (Choosing, usize),
    ) -> Option<Mixture> {
        const ROUTER: &str = "ffn_gate_inp.weight";
        let rule = &c.arch.experts;
        let fused = format!("ffn_gate_up_{kind}");
        let fused = loader.expert_halves(layer, &fused, &format!("ffn_up_{kind}"));
        let gate_and_up = match fused {
            Some(halves) => halves.map(Some),
            None => ["gate", "up"].map(|part| {
                let name = format!("ffn_{part}_{kind}");
                let stacked = loader.experts(layer, &name);
                if stacked.is_none() {
                    loader.problem(format!("tensor blk.{layer}.{name}.weight is missing"));
                }
                stacked
            }),
        };
        let down = loader.experts(layer, &format!("ffn_down_{kind}"));
        let router = loader.router(layer, ROUTER);
        let router_bias = loader.finite_vector(layer, "ffn_gate_inp.bias");
        let [gate, up] = gate_and_up;
        Some(Mixture {
            choosing,
            weigh_inputs: rule.weigh_inputs,
            early_router: rule.early_router,
            activation: bounded(c, &c.gate_bounds, layer),
            narrow: None,
            router: Linear { bias: router_bias, ..router? },
            gate: gate?,
            up: up?,
            down: down?,
            n_ff,
        })
    }

    /// Whether the router sees the block's input instead of what the experts see.
    pub fn routes_input(&self) -> bool {
        self.early_router
    }

    /// What the experts give for every row of `x`, `[tokens][n_embd]`. `before` is what a router sees that does not see
    /// `x`.
    ///
    /// The tokens of an expert are gathered, so that each of its weights is read once for all of them; an expert that
    /// nobody chose is not read.
    pub fn apply(&self, x: &[f32], before: &[f32], pass: &Pass<'_, '_>) -> Floats {
        let used = self.choosing.used;
        let n_embd = self.down.matrices.first().map_or(0, |m| m.rows);
        let mut choices = self.route(if self.early_router { before } else { x }, pass);
        let narrow = self.narrow.as_ref();
        let seen = narrow.map(|narrow| narrow.down.apply(&pass.activations(x)));
        let x = seen.as_deref().unwrap_or(x);
        let mut given = Floats::scratch(choices.len() * n_embd);
        for expert in 0..self.down.matrices.len() {
            let places = places_of(expert, &choices, used);
            if places.is_empty() {
                continue;
            }
            let tokens = places.iter().map(|place| place / used);
            let mut rows = gather(x, n_embd, tokens);
            if self.weigh_inputs {
                for (row, &place) in rows.chunks_exact_mut(n_embd).zip(&places) {
                    ops::scale(row, choices[place].weight);
                }
            }
            let y = self.expert(expert, &rows, pass);
            for (place, row) in places.iter().zip(y.chunks_exact(n_embd)) {
                given[place * n_embd..][..n_embd].copy_from_slice(row);
            }
        }
        if self.weigh_inputs {
            // a product with 1 is exact
            choices.iter_mut().for_each(|choice| choice.weight = 1.0);
        }
        let mut y = combine(&given, &choices, used, n_embd);
        let Some(narrow) = narrow else {
            return y;
        };
        if let Some(norm) = &narrow.norm {
            norm.apply_in_place(pass.isa(), &mut y);
        }
        narrow.up.apply(&pass.rows(&y))
    }

    /// Records what the router chooses, which sees `x`.
    pub fn record_choice<'a>(&'a self, x: Span, gpu: &mut Recording<'a>) -> Result<Chosen, ProgramError> {
        let scores = self.router.record(x, gpu)?;
        gpu.recorder.choose(scores, &recorded(&self.choosing))
    }

    /// Records [`Mixture::apply`] behind the choice.
    pub fn record<'a>(&'a self, x: Span, chosen: &Chosen, gpu: &mut Recording<'a>) -> Result<Span, ProgramError> {
        let Mixture {
            choosing: _,
            weigh_inputs,
            early_router: _,
            activation,
            narrow,
            router: _,
            gate,
            up,
            down,
            n_ff: _,
        } = self;
        refuse(&[(narrow.is_some(), "experts narrower than the residual stream")])?;
        let x = match weigh_inputs {
            true => gpu.recorder.weigh(x, chosen)?,
            false => x,
        };
        let [g, up] = [gate, up].map(|stack| stack.record(x, chosen, gpu));
        let (g, up) = (g?, up?);
        gpu.gate(*activation, g, Some(up))?;
        let y = down.record(g, chosen, gpu)?;
        gpu.recorder.combine(y, chosen, !weigh_inputs)
    }

    /// The experts of every token.
    fn route(&self, x: &[f32], pass: &Pass<'_, '_>) -> Vec<Choice> {
        let acts = pass.activations(x);
        self.choosing.choose(&mut self.router.apply(&acts))
    }

    /// One expert's feed-forward network.
    fn expert(&self, expert: usize, x: &[f32], pass: &Pass<'_, '_>) -> Floats {
        let count = self.down.matrices.len();
        let acts = pass.activations_of(x, self.gate.matrices[expert].cols);
        let stacks = [&self.gate, &self.up];
        for tensor in stacks.iter().filter_map(|s| s.tensor.as_ref()) {
            acts.observe_expert(tensor, expert, count);
        }
        let [mut gate, mut up] = matmul(stacks.map(|s| &s.matrices[expert]), &acts);
        self.gate.finish(expert, &acts, &mut gate);
        self.up.finish(expert, &acts, &mut up);
        self.activation.gate(pass.isa(), &mut gate, &up);
        let acts = pass.activations_of(&gate, self.n_ff);
        if let Some(tensor) = &self.down.tensor {
            acts.observe_expert(tensor, expert, count);
        }
        let [mut y] = matmul([&self.down.matrices[expert]], &acts);
        self.down.finish(expert, &acts, &mut y);
        y
    }
}

fn choosing(loader: &mut Loader<'_>, c: &Config, experts: &Experts, layer: usize) -> Choosing {
    Choosing {
        experts: experts.count,
        used: experts.used,
        gating: experts.gating,
        claim: c.arch.experts.claim,
        shared_by: 1,
        bias: loader.finite_vector(layer, "exp_probs_b.bias"),
        groups: experts.groups,
        normalize: experts.normalize,
        scale: experts.scale,
    }
}

/// How a program chooses.
fn recorded(choosing: &Choosing) -> program::Choosing<'_> {
    let Choosing { experts: _, used, gating, claim, shared_by, bias, groups, normalize, scale } = choosing;
    program::Choosing {
        used: *used,
        gating: match gating {
            Gating::SoftMax => program::Gating::SoftMax,
            Gating::Sigmoid => program::Gating::Sigmoid,
            Gating::SoftMaxOfChosen => program::Gating::SoftMaxOfChosen,
        },
        claim: match claim {
            Claim::Probabilities => program::Claim::Probabilities,
            Claim::Scores => program::Claim::Scores,
            Claim::Sigmoids => program::Claim::Sigmoids,
        },
        bias: bias.as_deref(),
        groups: *groups,
        shared_by: *shared_by,
        normalize: *normalize,
        // a product with 1 is exact
        scale: scale.unwrap_or(1.0),
        powers: &EXP2_32,
    }
}

impl Stacked {
    /// Records a product with the experts that were chosen.
    fn record<'a>(&'a self, x: Span, chosen: &Chosen, gpu: &mut Recording<'a>) -> Result<Span, ProgramError> {
        let Stacked { tensor, matrices, scales, biases, low_rank } = self;
        refuse(&[(low_rank.iter().any(|l| !l.is_empty()), "adapters")])?;
        let name = tensor.as_deref().unwrap_or("a part of fused experts");
        if matrices.is_empty() {
            return missing("no experts");
        }
        let matrices = matrices.iter().map(|m| stored(name, m));
        let matrices = matrices.collect::<Result<Vec<_>, _>>()?;
        let y = gpu.recorder.product_of_chosen(&matrices, x, chosen)?;
        if let Some(scales) = scales {
            gpu.recorder.scale_chosen(y, scales, chosen)?;
        }
        if let Some(biases) = biases {
            gpu.recorder.add_chosen(y, biases, chosen)?;
        }
        Ok(y)
    }

    /// The factor of an expert's outputs, what adapters add to them, and their bias.
    fn finish(&self, expert: usize, x: &Activations<'_>, y: &mut [f32]) {
        if let Some(scales) = &self.scales {
            ops::scale(y, scales[expert]);
        }
        for low_rank in &self.low_rank[expert] {
            low_rank.add(x, y);
        }
        if let Some(biases) = &self.biases {
            let rows = self.matrices[expert].rows;
            ops::add_rows(y, &biases[expert * rows..][..rows]);
        }
    }
}

/// Where `expert` was chosen, as `token * used + rank`: first choices before second ones, tokens in order. That is the
/// order in which llama-imatrix adds up what an expert sees.
fn places_of(expert: usize, choices: &[Choice], used: usize) -> Vec<usize> {
    let of_rank = |rank: usize| {
        let places = (rank..choices.len()).step_by(used);
        places.filter(move |&place| choices[place].expert == expert)
    };
    (0..used).flat_map(of_rank).collect()
}
