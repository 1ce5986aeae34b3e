//! The feed-forward network of a block: dense, a mixture of experts, or both.

use trine_cuda::program::{Chosen, ProgramError, Span};

use super::config::Config;
use super::experts::{Mixture, bounded};
use super::linear::Linear;
use super::load::Loader;
use super::pass::Pass;
use super::recording::{Recording, missing, refuse};
use crate::kernels::Floats;
use crate::math::{EXP2_32, expf};
use crate::ops;
use crate::ops::activation::{Activation, sigmoid};
use crate::ops::gated::gated;
use crate::ops::matmul::Activations;
use crate::ops::norm::Norm;

/// The feed-forward network of a block.
pub struct FeedForward {
    dense: Option<Dense>,
    mixture: Option<Mixture>,
    /// Small experts that others have in common, and the factor on what they give; they see what those give.
    chunks: Option<(Mixture, f32)>,
    /// The expert that all tokens go to.
    shared: Option<Shared>,
    /// Factor on the sum of the mixture and what stands beside it, where something does.
    beside: Option<f32>,
    /// Of the block's input, which the mixture sees then; what it gives is added after all else.
    expert_norm: Option<Norm>,
    /// What a network without matrices is.
    activation: Activation,
}

/// What is recorded of a network while the block's input is still there: see [`FeedForward::record_early`].
#[derive(Default)]
pub struct Early {
    chosen: Option<Chosen>,
    /// What [`FeedForward::apply_beside`] gives.
    pub beside: Option<Span>,
}

/// `down(norm(f(gate(x)) * up(x)))`, or without a gate `down(norm(f(up(x))))`
struct Dense {
    up: Up,
    activation: Activation,
    /// Divisors of what the activation gives.
    divisors: Option<Vec<f32>>,
    sub_norm: Option<Norm>,
    down: Linear,
}

/// What leads into a dense network.
enum Up {
    Gated(Box<[Linear; 2]>),
    Plain(Linear),
}

/// An expert that all tokens go to, and the gate on what it gives.
struct Shared {
    dense: Dense,
    gate: Option<Linear>,
    /// Whether its function is the sigmoid itself.
    plain_gate: bool,
}

impl FeedForward {
    /// That of block number `layer`; `None` where a tensor is missing, which is noted.
    pub fn load(loader: &mut Loader<'_>, c: &Config, layer: usize) -> Option<FeedForward> {
        let experts = c.layer_experts(layer);
        let dense = Dense::load(loader, c, layer, "");
        let shared = Shared::load(loader, c, layer);
        let unused = experts.is_some() && c.arch.experts.unused;
        let mixture = match experts {
            Some(experts) if !unused => Some(Mixture::load(loader, c, experts, layer)?),
            _ => None,
        };
        if mixture.is_none() && dense.is_none() && !unused {
            return None;
        }
        let chunks = experts.and_then(|e| Mixture::load_chunks(loader, c, e, layer));
        let accompanied = mixture.is_some() && (dense.is_some() || shared.is_some());
        Some(FeedForward {
            dense,
            mixture,
            chunks,
            shared,
            beside: c.arch.experts.beside.filter(|_| accompanied),
            expert_norm: loader.norm(Some(layer), "ffn_norm_exps"),
            activation: c.activation,
        })
    }

    /// Whether the mixture wants the block's input.
    pub fn sees_input(&self) -> bool {
        let mixture = self.mixture.as_ref();
        mixture.is_some_and(|m| m.routes_input() || self.expert_norm.is_some())
    }

    /// What the network gives for every row of `x`, `[tokens][n_embd]`. `before` is the block's input, where the
    /// mixture wants it.
    pub fn apply(&self, x: &[f32], before: Option<&[f32]>, pass: &Pass<'_, '_>) -> Floats {
        let dense = self.dense.as_ref().map(|dense| dense.apply(x, pass));
        let mixture = self.mixture.as_ref().filter(|_| self.expert_norm.is_none());
        let mixture = mixture.map(|m| m.apply(x, before.unwrap_or(x), pass));
        let shared = self.shared.as_ref().map(|shared| shared.apply(x, pass));
        let chunks = self.chunks.as_ref().zip(mixture.as_ref());
        let chunks = chunks.map(|((chunks, scale), given)| {
            let mut y = chunks.apply(given, x, pass);
            ops::scale(&mut y, *scale);
            y
        });
        let mut all = [mixture, dense, shared, chunks].into_iter().flatten();
        let mut y = all.next().unwrap_or_else(|| {
            let mut y = Floats::scratch(x.len());
            y.copy_from_slice(x);
            self.activation.apply(pass.isa(), &mut y);
            y
        });
        all.for_each(|z| ops::add(&mut y, &z));
        if let Some(factor) = self.beside {
            ops::scale(&mut y, factor);
        }
        y
    }

    /// Records what the mixture makes of the block's input `x`, where it wants that: the choice of its experts, or all
    /// that it gives.
    pub fn record_early<'a>(&'a self, x: Span, gpu: &mut Recording<'a>) -> Result<Early, ProgramError> {
        let mut early = Early::default();
        match (&self.mixture, &self.expert_norm) {
            (Some(mixture), Some(norm)) => {
                let x = gpu.norm(Some(norm), x)?;
                let chosen = mixture.record_choice(x, gpu)?;
                early.beside = Some(mixture.record(x, &chosen, gpu)?);
            }
            (Some(mixture), None) if mixture.routes_input() => {
                early.chosen = Some(mixture.record_choice(x, gpu)?);
            }
            _ => {}
        }
        Ok(early)
    }

    /// Records [`FeedForward::apply`].
    pub fn record<'a>(&'a self, x: Span, early: &Early, gpu: &mut Recording<'a>) -> Result<Span, ProgramError> {
        let FeedForward { dense, mixture, chunks, shared, beside, expert_norm, activation: _ } = self;
        let mut all = Vec::new();
        let mixture = mixture.as_ref().filter(|_| expert_norm.is_none());
        if let Some(mixture) = mixture {
            let chosen = match early.chosen {
                Some(chosen) => chosen,
                None => mixture.record_choice(x, gpu)?,
            };
            all.push(mixture.record(x, &chosen, gpu)?);
        }
        let given = all.first().copied();
        if let Some(dense) = dense {
            all.push(dense.record(x, gpu)?);
        }
        if let Some(shared) = shared {
            all.push(shared.record(x, gpu)?);
        }
        if let (Some((chunks, scale)), Some(given)) = (chunks, given) {
            let chosen = chunks.record_choice(x, gpu)?;
            let y = chunks.record(given, &chosen, gpu)?;
            gpu.recorder.scale(y, *scale);
            all.push(y);
        }
        let Some((&y, others)) = all.split_first() else {
            return missing("feed-forward networks without matrices");
        };
        others.iter().for_each(|&z| gpu.recorder.add(y, z));
        if let Some(factor) = beside {
            gpu.recorder.scale(y, *factor);
        }
        Ok(y)
    }

    /// What experts give that see the norm of the block's input, where they do.
    pub fn apply_beside(&self, before: &[f32], pass: &Pass<'_, '_>) -> Option<Floats> {
        let x = self.expert_norm.as_ref()?.apply(pass.isa(), before);
        Some(self.mixture.as_ref()?.apply(&x, &x, pass))
    }
}

impl Dense {
    /// The matrices `ffn_upSUFFIX`, `ffn_downSUFFIX` and, where there is one, `ffn_gateSUFFIX`.
    fn load(loader: &mut Loader<'_>, c: &Config, layer: usize, suffix: &str) -> Option<Dense> {
        let name = |part: &str| format!("ffn_{part}{suffix}");
        let up = match loader.linear(layer, &name("gate")) {
            Some(gate) => Up::Gated(Box::new([gate, loader.linear(layer, &name("up"))?])),
            None if loader.is_fused(layer, &name("up")) => Up::Gated(Box::new(loader.halves(layer, &name("up"))?)),
            None => Up::Plain(loader.linear(layer, &name("up"))?),
        };
        Some(Dense {
            up,
            activation: bounded(c, &c.dense_bounds, layer),
            divisors: loader.vector(Some(layer), "ffn.act.scales"),
            sub_norm: loader.norm(Some(layer), "ffn_sub_norm"),
            down: loader.linear(layer, &name("down"))?,
        })
    }

    fn apply(&self, x: &[f32], pass: &Pass<'_, '_>) -> Floats {
        let acts = pass.activations(x);
        let mut y = match &self.up {
            Up::Gated(both) => {
                if let Some(y) = self.gated(both.each_ref(), &acts) {
                    return self.down.apply_bias_first(&y);
                }
                let [mut gate, up] = Linear::apply_all_bias_first(both.each_ref(), &acts);
                self.activation.gate(pass.isa(), &mut gate, &up);
                gate
            }
            Up::Plain(up) => {
                let mut y = up.apply_bias_first(&acts);
                self.activation.apply(pass.isa(), &mut y);
                y
            }
        };
        if let Some(divisors) = &self.divisors {
            ops::divide_rows(&mut y, divisors);
        }
        if let Some(norm) = &self.sub_norm {
            norm.apply_in_place(pass.isa(), &mut y);
        }
        self.down.apply_bias_first(&pass.rows(&y))
    }
}

impl Dense {
    /// What goes into `down`, encoded, where nothing but the activation stands between the matrices.
    fn gated(&self, both: [&Linear; 2], acts: &Activations<'_>) -> Option<Activations<'static>> {
        let bare = self.divisors.is_none() && self.sub_norm.is_none();
        // Adapters want the values themselves.
        if !bare || !self.down.low_rank.is_empty() {
            return None;
        }
        let [gate, up] = both.map(Linear::bare);
        gated([gate?, up?], self.activation, &self.down.weight, acts)
    }

    /// Records [`Dense::apply`].
    fn record<'a>(&'a self, x: Span, gpu: &mut Recording<'a>) -> Result<Span, ProgramError> {
        let Dense { up, activation, divisors, sub_norm, down } = self;
        refuse(&[(divisors.is_some(), "divisors of activations")])?;
        let y = match up {
            Up::Gated(both) => {
                let [gate, up] = &**both;
                let gate = gate.record_bias_first(x, gpu)?;
                let up = up.record_bias_first(x, gpu)?;
                gpu.gate(*activation, gate, Some(up))?;
                gate
            }
            Up::Plain(up) => {
                let y = up.record_bias_first(x, gpu)?;
                gpu.gate(*activation, y, None)?;
                y
            }
        };
        gpu.norm_in_place(sub_norm.as_ref(), y)?;
        down.record_bias_first(y, gpu)
    }
}

impl Shared {
    fn load(loader: &mut Loader<'_>, c: &Config, layer: usize) -> Option<Shared> {
        const GATE: &str = "ffn_gate_inp_shexp.weight";
        Some(Shared {
            dense: Dense::load(loader, c, layer, "_shexp")?,
            gate: loader.router(layer, GATE),
            plain_gate: c.arch.experts.plain_gate,
        })
    }

    /// Records [`Shared::apply`].
    fn record<'a>(&'a self, x: Span, gpu: &mut Recording<'a>) -> Result<Span, ProgramError> {
        let Shared { dense, gate, plain_gate } = self;
        let y = dense.record(x, gpu)?;
        if let Some(gate) = gate {
            let gates = gate.record(x, gpu)?;
            let plain = *plain_gate;
            gpu.recorder.scale_by_gate(y, gates, &EXP2_32, plain)?;
        }
        Ok(y)
    }

    /// The gate's sigmoid is computed as the quotient of SiLU and its argument, unless it is plain.
    fn apply(&self, x: &[f32], pass: &Pass<'_, '_>) -> Floats {
        let mut y = self.dense.apply(x, pass);
        if let Some(gate) = &self.gate {
            let gate = gate.apply(&pass.activations(x));
            let width = y.len() / gate.len().max(1);
            for (row, &g) in y.chunks_exact_mut(width.max(1)).zip(gate.iter()) {
                let factor = match self.plain_gate {
                    true => sigmoid(g),
                    false => g / (1.0 + expf(-g)) / g,
                };
                ops::scale(row, factor);
            }
        }
        y
    }
}
