//! The feed-forward network of a block with experts.

use super::config::{Config, Experts};
use super::load::Loader;
use super::pass::Pass;
use crate::arch::Router;
use crate::kernels::Floats;
use crate::ops;
use crate::ops::activation::Activation;
use crate::ops::experts::{Choice, choose, combine, gather};
use crate::ops::matmul::{Matrix, matmul};

/// A router and the experts that it chooses from.
pub struct Mixture {
    sizes: Experts,
    rule: Router,
    activation: Activation,
    router: Matrix,
    router_name: String,
    gate: Stack,
    up: Stack,
    down: Stack,
}

/// One matrix of every expert.
struct Stack {
    name: String,
    matrices: Vec<Matrix>,
    /// Factors on the outputs, one per expert.
    scales: Option<Vec<f32>>,
}

impl Mixture {
    /// The experts of a block.
    pub fn load(loader: &mut Loader<'_>, c: &Config, sizes: Experts, layer: usize) -> Mixture {
        let mut stack = |name: &str, cols, rows| {
            let (matrices, scales) = loader.experts(layer, name, [cols, rows, sizes.count]);
            Stack {
                name: format!("blk.{layer}.{name}.weight"),
                matrices,
                scales,
            }
        };
        Mixture {
            gate: stack("ffn_gate_exps", c.n_embd, sizes.n_ff),
            up: stack("ffn_up_exps", c.n_embd, sizes.n_ff),
            down: stack("ffn_down_exps", sizes.n_ff, c.n_embd),
            sizes,
            rule: c.arch.router,
            activation: c.arch.activation,
            router: loader.router(layer, "ffn_gate_inp.weight", c.n_embd, sizes.count),
            router_name: format!("blk.{layer}.ffn_gate_inp.weight"),
        }
    }

    /// What the experts give for every row of `x`, `[tokens][n_embd]`.
    ///
    /// The tokens of an expert are gathered, so that each of its weights is read once for all of them; an expert that
    /// nobody chose is not read.
    pub fn apply(&self, x: &[f32], pass: &Pass<'_, '_>) -> Floats {
        let used = self.sizes.used;
        let n_embd = self.down.matrices.first().map_or(0, |m| m.rows);
        let acts = pass.activations(x);
        acts.observe(&self.router_name);
        let [mut scores] = matmul([&self.router], &acts);
        let rule = self.rule;
        let choices = choose(
            &mut scores,
            self.sizes.count,
            used,
            rule.gating,
            rule.normalize,
        );
        let mut given = Floats::scratch(choices.len() * n_embd);
        for expert in 0..self.sizes.count {
            let places = places_of(expert, &choices, used);
            if places.is_empty() {
                continue;
            }
            let tokens = places.iter().map(|place| place / used);
            let y = self.expert(expert, &gather(x, n_embd, tokens), pass);
            for (place, row) in places.iter().zip(y.chunks_exact(n_embd)) {
                given[place * n_embd..][..n_embd].copy_from_slice(row);
            }
        }
        combine(&given, &choices, used, n_embd)
    }

    /// One expert's feed-forward network.
    fn expert(&self, expert: usize, x: &[f32], pass: &Pass<'_, '_>) -> Floats {
        let acts = pass.activations(x);
        let stacks = [&self.gate, &self.up];
        for stack in stacks {
            acts.observe_expert(&stack.name, expert, self.sizes.count);
        }
        let [mut gate, mut up] = matmul(stacks.map(|s| &s.matrices[expert]), &acts);
        self.gate.multiply_scale(expert, &mut gate);
        self.up.multiply_scale(expert, &mut up);
        self.activation.gate(pass.isa(), &mut gate, &up);
        let acts = pass.activations_of(&gate, self.sizes.n_ff);
        acts.observe_expert(&self.down.name, expert, self.sizes.count);
        let [mut y] = matmul([&self.down.matrices[expert]], &acts);
        self.down.multiply_scale(expert, &mut y);
        y
    }
}

impl Stack {
    fn multiply_scale(&self, expert: usize, y: &mut [f32]) {
        if let Some(scales) = &self.scales {
            ops::scale(y, scales[expert]);
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
