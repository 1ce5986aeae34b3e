//! Latent attention: queries, and keys and values, are made of narrow vectors that all heads share.
//!
//! A position's vector `c` makes the first elements of every head's key, `K c`, and its value, `V c`; RoPE turns the
//! last elements of the keys, which all heads have in common. With a matrix `K` for each head the cache holds `c` and
//! those elements alone: `q (K c)` is computed as `(q K) c`, and `V` is multiplied with the weighted sum of the `c`.

use crate::arch::Latent;
use crate::kernels::Floats;
use crate::model::config::{Config, Heat};
use crate::model::linear::Linear;
use crate::model::load::{Loader, Stacked};
use crate::model::pass::{Pass, RopeKind};
use crate::ops::activation::HeadGate;
use crate::ops::attention::{ScoreRules, Window};
use crate::ops::matmul::matmul;
use crate::ops::norm::Norm;

/// From the normed input of a block to what it adds.
pub struct LatentAttention {
    /// Which of the layers that attend it is.
    cache: usize,
    heads: usize,
    sizes: Latent,
    queries: Queries,
    /// To the vector and the elements of the keys that RoPE turns.
    down: Linear,
    norm: Norm,
    /// Of those elements, before they are turned.
    turned_norm: Option<Norm>,
    expansion: Expansion,
    rope: Option<RopeKind>,
    window: Option<Window>,
    /// Bounds, slopes and sinks of scores.
    rules: Option<ScoreRules>,
    /// On every head's output, or on every element of it.
    gate: Option<Linear>,
    /// Factor on the queries by position.
    heat: Option<Heat>,
    /// Factor on the scores.
    score_scale: f32,
    out: Linear,
}

enum Queries {
    /// Of the block's input.
    Plain(Linear),
    /// Of a narrow vector: its projection, its norm, the projection to all heads.
    Ranked(Box<(Linear, Norm, Linear)>),
}

enum Expansion {
    /// Keys and values of all heads.
    Whole(Linear),
    /// A matrix for each head: those of the keys, transposed, and those of the values.
    ByHead([Stacked; 2]),
}

impl LatentAttention {
    /// That of block number `layer`; `None` where a tensor is missing, which is noted.
    pub fn load(loader: &mut Loader<'_>, c: &Config, sizes: Latent, layer: usize) -> Option<LatentAttention> {
        let queries = match loader.linear(layer, "attn_q_a") {
            Some(down) => {
                let norm = loader.required_norm(layer, "attn_q_a_norm");
                let up = loader.required_linear(layer, "attn_q_b");
                norm.zip(up).map(|(norm, up)| Queries::Ranked(Box::new((down, norm, up))))
            }
            None => loader.linear(layer, "attn_q").map(Queries::Plain),
        };
        let down = loader.linear(layer, "attn_kv_a_mqa");
        let norm = loader.norm(Some(layer), "attn_kv_a_norm");
        let expansion = if sizes.absorbed {
            let [keys, values] = ["attn_k_b", "attn_v_b"].map(|name| loader.required_experts(layer, name));
            keys.zip(values).map(|(keys, values)| Expansion::ByHead([keys, values]))
        } else {
            loader.required_linear(layer, "attn_kv_b").map(Expansion::Whole)
        };
        let window = c.layer_window(layer);
        let rules = ScoreRules {
            cap: None,
            slopes: Vec::new(),
            sinks: loader.vector(Some(layer), "attn_sinks.weight").unwrap_or_default(),
        };
        Some(LatentAttention {
            cache: c.mixing.cache(loader.slot()),
            heads: c.n_head,
            sizes,
            queries: queries?,
            down: down?,
            norm: norm?,
            expansion: expansion?,
            turned_norm: loader.norm(Some(layer), "attn_k_norm"),
            rope: c.turned[layer].then_some(match window {
                Some(_) => RopeKind::Window,
                None => RopeKind::Global,
            }),
            window,
            rules: Some(rules).filter(|rules| !rules.is_empty()),
            gate: loader.linear(layer, "attn_gate"),
            heat: c.scores.temperature,
            score_scale: c.scores.scale,
            out: loader.linear(layer, "attn_output")?,
        })
    }

    /// What attention gives for every row of `x`, `[tokens][n_embd]`. What the cache holds is stored.
    pub fn apply(&self, x: &[f32], pass: &mut Pass<'_, '_>) -> Floats {
        let Latent { key, rank, rope, .. } = self.sizes;
        let acts = pass.activations(x);
        let (q, down) = match &self.queries {
            Queries::Plain(q) => {
                let [q, down] = Linear::apply_all([q, &self.down], &acts);
                (q, down)
            }
            Queries::Ranked(ranked) => {
                let (a, norm, b) = &**ranked;
                let [mut low, down] = Linear::apply_all([a, &self.down], &acts);
                norm.apply_in_place(pass.isa(), &mut low);
                (b.apply(&pass.rows(&low)), down)
            }
        };
        let [mut c, mut turned_keys] = columns(&down, [rank, rope]);
        self.norm.apply_in_place(pass.isa(), &mut c);
        let [still, mut turned] = columns(&q, [key - rope, rope]);
        if let Some(norm) = &self.turned_norm {
            norm.apply_in_place(pass.isa(), &mut turned_keys);
        }
        if let Some(kind) = self.rope {
            for x in [&mut turned_keys, &mut turned] {
                pass.rotate_heads(x, kind, rope);
            }
        }
        let gate = self.gate.as_ref().map(|gate| gate.apply(&acts));
        let mut heads = match &self.expansion {
            Expansion::Whole(expansion) => {
                let kv = expansion.apply(&pass.rows(&c));
                let [keys, values] = columns(&kv, [key - rope, self.sizes.value]);
                let shared = each_head(&turned_keys, rope, self.heads);
                let keys = beside(&keys, key - rope, &shared, rope);
                let q = beside(&still, key - rope, &turned, rope);
                self.attend(q, [&keys, &values], pass)
            }
            Expansion::ByHead([keys, values]) => {
                let q = self.by_head(keys, &still, key - rope, pass);
                let q = beside(&q, rank, &turned, rope);
                let keys = beside(&c, rank, &turned_keys, rope);
                let sums = self.attend(q, [&keys, &c], pass);
                self.by_head(values, &sums, rank, pass)
            }
        };
        if let Some(gate) = gate {
            HeadGate::Sigmoid.apply(&mut heads, &gate);
        }
        self.out.apply(&pass.rows(&heads))
    }

    fn attend(&self, mut q: Vec<f32>, kv: [&[f32]; 2], pass: &mut Pass<'_, '_>) -> Vec<f32> {
        if let Some(heat) = &self.heat {
            pass.scale_by_position(&mut q, |position| heat.at(position));
        }
        pass.store(self.cache, kv[0], kv[1]);
        let rules = self.rules.as_ref();
        pass.attend(self.cache, &q, self.score_scale, self.window, rules).to_vec()
    }

    /// Every head's rows of `x`, `[tokens][heads][width]`, multiplied by its matrix.
    fn by_head(&self, stack: &Stacked, x: &[f32], width: usize, pass: &Pass<'_, '_>) -> Vec<f32> {
        let rows = stack.matrices.first().map_or(0, |m| m.rows);
        let all = self.heads * rows;
        let mut out = vec![0f32; x.len() / width.max(1) * rows];
        for (head, matrix) in stack.matrices.iter().enumerate() {
            let of_head = x.chunks_exact(width).skip(head).step_by(self.heads);
            let of_head: Vec<f32> = of_head.flatten().copied().collect();
            let acts = pass.activations_of(&of_head, width);
            if let Some(tensor) = &stack.tensor {
                acts.observe_expert(tensor, head, self.heads);
            }
            let [y] = matmul([matrix], &acts);
            for (to, y) in out.chunks_exact_mut(all).zip(y.chunks_exact(rows)) {
                to[head * rows..][..rows].copy_from_slice(y);
            }
        }
        out
    }
}

/// The two parts of rows of so many columns.
fn columns(x: &[f32], [left, right]: [usize; 2]) -> [Vec<f32>; 2] {
    let rows = || x.chunks_exact(left + right);
    [rows().flat_map(|row| &row[..left]).copied().collect(), rows().flat_map(|row| &row[left..]).copied().collect()]
}

/// Rows of `left` and `right` beside each other; without elements on one side the other.
fn beside(left: &[f32], a: usize, right: &[f32], b: usize) -> Vec<f32> {
    if a == 0 || b == 0 {
        return if a == 0 { right } else { left }.to_vec();
    }
    let rows = left.chunks_exact(a).zip(right.chunks_exact(b));
    rows.flat_map(|(left, right)| left.iter().chain(right)).copied().collect()
}

/// Every row of so many columns once for each head.
fn each_head(x: &[f32], width: usize, heads: usize) -> Vec<f32> {
    let rows = x.chunks_exact(width.max(1));
    rows.flat_map(|row| row.repeat(heads)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_parted_and_put_together() {
        let x = [1.0, 2.0, 3.0, 4.0, 5.0, 6.0];
        let [left, right] = columns(&x, [1, 2]);
        assert_eq!((&left[..], &right[..]), (&[1.0, 4.0][..], &[2.0, 3.0, 5.0, 6.0][..]));
        assert_eq!(beside(&left, 1, &right, 2), x);
        let [none, all] = columns(&x, [0, 3]);
        assert!(none.is_empty());
        assert_eq!(beside(&none, 0, &all, 3), x);
        assert_eq!(each_head(&left, 1, 2), [1.0, 1.0, 4.0, 4.0]);
    }
}
