//! One transformer block, forwards and backwards.
//!
//! One graph serves all architectures: what a model does not have is absent.

use super::attention::{Attention, Qkv};
use super::ops::{Differentiable, Norm, Turn, add, rotate};
use super::product::{Packed, Place, View, accumulate, multiply};
use super::real::Real;
use crate::kernels::Isa;
use crate::ops::activation::Activation;
use crate::ops::rope::Rope;

/// `y = (W x) * scale + bias`, or `(W x + bias) * scale`.
pub struct Linear<T> {
    /// Number of its gradient.
    pub index: usize,
    /// Inputs.
    pub columns: usize,
    /// Outputs.
    pub rows: usize,
    /// `[rows][columns]`.
    pub weight: Vec<T>,
    /// One factor for all outputs.
    pub scale: Option<T>,
    /// One per output.
    pub bias: Option<Vec<T>>,
    /// Whether the bias comes before the scale.
    pub bias_first: bool,
}

/// Sums over weights, one vector per [`Linear`], in the order of their numbers.
pub struct Gradients<T> {
    /// `[rows][columns]` each.
    pub sums: Vec<Vec<T>>,
    /// The new sum, from the old one and a weight's gradient.
    pub fold: fn(T, T) -> T,
}

impl<T: Real> Linear<T> {
    fn forward(&self, isa: Isa, x: &[T]) -> Vec<T> {
        let mut y = vec![T::default(); x.len() / self.columns * self.rows];
        let weight = Packed::new(View::new(&self.weight, self.columns).transposed());
        let x = View::new(x, self.columns);
        multiply(isa, x, &weight, &mut y, Place::whole(self.rows));
        let bias = |y: &mut [T]| {
            if let Some(bias) = &self.bias {
                y.chunks_exact_mut(self.rows).for_each(|row| add(row, bias));
            }
        };
        if self.bias_first {
            bias(&mut y);
        }
        if let Some(scale) = self.scale {
            y.iter_mut().for_each(|v| *v *= scale);
        }
        if !self.bias_first {
            bias(&mut y);
        }
        y
    }

    /// The gradient at `x` from that at the result; the weight's own goes into `gradients`.
    fn backward(&self, isa: Isa, x: &[T], mut dy: Vec<T>, gradients: &mut Gradients<T>) -> Vec<T> {
        if let Some(scale) = self.scale {
            dy.iter_mut().for_each(|v| *v *= scale);
        }
        let d = View::new(&dy, self.rows);
        let input = Packed::new(View::new(x, self.columns));
        let sums = &mut gradients.sums[self.index];
        accumulate(isa, d.transposed(), &input, sums, gradients.fold);
        drop(input);
        let mut dx = vec![T::default(); x.len()];
        let weight = Packed::new(View::new(&self.weight, self.columns));
        multiply(isa, d, &weight, &mut dx, Place::whole(self.columns));
        dx
    }
}

/// The weights of a block.
pub struct Block<T> {
    /// Before the attention.
    pub attn_norm: Option<Norm<T>>,
    /// Query, key and value, or all three in one.
    pub qkv: Vec<Linear<T>>,
    /// Of queries and of keys, per head or per row, before RoPE.
    pub qk_norms: Option<[Norm<T>; 2]>,
    /// Scores, window, heads.
    pub attention: Attention,
    /// Which of the model's RoPEs.
    pub rope: usize,
    /// On the heads' outputs.
    pub attn_sub_norm: Option<Norm<T>>,
    /// The output projection.
    pub out: Linear<T>,
    /// Before the residual addition.
    pub attn_post_norm: Option<Norm<T>>,
    /// Before the feed-forward half.
    pub ffn_norm: Option<Norm<T>>,
    /// The gate's projection.
    pub gate: Linear<T>,
    /// What is gated.
    pub up: Linear<T>,
    /// The gate's function.
    pub activation: Activation,
    /// On the gated values.
    pub ffn_sub_norm: Option<Norm<T>>,
    /// Back to the residual stream.
    pub down: Linear<T>,
    /// Before the residual addition.
    pub ffn_post_norm: Option<Norm<T>>,
}

/// What the way back needs of the way there. Norms are computed again.
pub struct Saved<T> {
    /// The residual stream before the block.
    x: Vec<T>,
    /// Queries and keys before their norms.
    raw: Option<[Vec<T>; 2]>,
    /// As they attend.
    qkv: Qkv<T>,
    heads: Vec<T>,
    /// The output projection's result, where a norm follows.
    attn: Option<Vec<T>>,
    /// The residual stream between the halves.
    middle: Vec<T>,
    gate: Vec<T>,
    up: Vec<T>,
    /// The down projection's result, where a norm follows.
    ffn: Option<Vec<T>>,
}

/// The positions of a sequence.
pub struct Positions<'a> {
    /// The model's RoPEs.
    pub ropes: &'a [Rope],
    /// Of each, the cosines and sines per position and pair.
    pub angles: &'a [Vec<Vec<(f32, f32)>>],
}

/// The normed rows, or the rows themselves.
fn normed<T: Real>(norm: &Option<Norm<T>>, x: &[T]) -> Vec<T> {
    norm.as_ref().map_or_else(|| x.to_vec(), |n| n.forward(x))
}

fn normed_back<T: Real>(norm: &Option<Norm<T>>, x: &[T], dy: &mut [T]) {
    if let Some(norm) = norm {
        norm.backward(x, dy);
    }
}

/// `y` after the norm; `y` itself is kept where there is one.
fn post<T: Real>(norm: &Option<Norm<T>>, y: Vec<T>) -> (Vec<T>, Option<Vec<T>>) {
    match norm {
        Some(norm) => (norm.forward(&y), Some(y)),
        None => (y, None),
    }
}

impl<T: Real> Block<T> {
    /// Adds the block's two halves to `x`, `[tokens][n_embd]`.
    pub fn forward(&self, x: &mut [T], at: &Positions<'_>) -> Saved<T> {
        let isa = self.attention.isa;
        let before = x.to_vec();
        let u = normed(&self.attn_norm, x);
        let mut qkv = self.project(isa, &u);
        let raw = self.qk_norms.as_ref().map(|[q_norm, k_norm]| {
            let q = std::mem::take(&mut qkv.q);
            let k = std::mem::take(&mut qkv.k);
            (qkv.q, qkv.k) = (q_norm.forward(&q), k_norm.forward(&k));
            [q, k]
        });
        self.turn(&mut qkv, at, Turn::Forward);
        let heads = self.attention.forward(&qkv);
        let y = self.out.forward(isa, &normed(&self.attn_sub_norm, &heads));
        let (y, attn) = post(&self.attn_post_norm, y);
        add(x, &y);

        let middle = x.to_vec();
        let u = normed(&self.ffn_norm, x);
        let gate = self.gate.forward(isa, &u);
        let up = self.up.forward(isa, &u);
        let inner = self.activation.gated(&gate, &up);
        let y = self.down.forward(isa, &normed(&self.ffn_sub_norm, &inner));
        let (y, ffn) = post(&self.ffn_post_norm, y);
        add(x, &y);
        Saved { x: before, raw, qkv, heads, attn, middle, gate, up, ffn }
    }

    /// Takes the gradient at the block's result, `dx`, to its input.
    pub fn backward(&self, saved: Saved<T>, dx: &mut [T], at: &Positions<'_>, gradients: &mut Gradients<T>) {
        let isa = self.attention.isa;
        let mut d = dx.to_vec();
        if let Some(y) = &saved.ffn {
            normed_back(&self.ffn_post_norm, y, &mut d);
        }
        let inner = self.activation.gated(&saved.gate, &saved.up);
        let input = normed(&self.ffn_sub_norm, &inner);
        let mut d = self.down.backward(isa, &input, d, gradients);
        drop(input);
        normed_back(&self.ffn_sub_norm, &inner, &mut d);
        let [d_gate, d_up] = self.activation.gated_back(&saved.gate, &saved.up, d);
        let u = normed(&self.ffn_norm, &saved.middle);
        let mut d = self.gate.backward(isa, &u, d_gate, gradients);
        add(&mut d, &self.up.backward(isa, &u, d_up, gradients));
        normed_back(&self.ffn_norm, &saved.middle, &mut d);
        add(dx, &d);

        let mut d = dx.to_vec();
        if let Some(y) = &saved.attn {
            normed_back(&self.attn_post_norm, y, &mut d);
        }
        let input = normed(&self.attn_sub_norm, &saved.heads);
        let mut d = self.out.backward(isa, &input, d, gradients);
        normed_back(&self.attn_sub_norm, &saved.heads, &mut d);
        let mut d = self.attention.backward(&saved.qkv, &d);
        self.turn(&mut d, at, Turn::Back);
        if let (Some([q_norm, k_norm]), Some([q, k])) = (&self.qk_norms, &saved.raw) {
            q_norm.backward(q, &mut d.q);
            k_norm.backward(k, &mut d.k);
        }
        let u = normed(&self.attn_norm, &saved.x);
        let mut d = self.project_back(isa, &u, d, gradients);
        normed_back(&self.attn_norm, &saved.x, &mut d);
        add(dx, &d);
    }

    fn turn(&self, x: &mut Qkv<T>, at: &Positions<'_>, turn: Turn) {
        let (rope, angles) = (&at.ropes[self.rope], &at.angles[self.rope]);
        let hd = self.attention.head_dim;
        rotate(&mut x.q, self.attention.n_head * hd, hd, rope, angles, turn);
        rotate(&mut x.k, self.attention.n_head_kv * hd, hd, rope, angles, turn);
    }

    fn widths(&self) -> [usize; 3] {
        let hd = self.attention.head_dim;
        let kv = self.attention.n_head_kv * hd;
        [self.attention.n_head * hd, kv, kv]
    }

    fn project(&self, isa: Isa, u: &[T]) -> Qkv<T> {
        let parts: Vec<Vec<T>> = match &self.qkv[..] {
            [all] => {
                let y = all.forward(isa, u);
                let mut from = 0;
                let part = |width: usize| {
                    let columns = from..from + width;
                    from += width;
                    let rows = y.chunks_exact(all.rows);
                    rows.flat_map(|row| &row[columns.clone()]).copied().collect()
                };
                self.widths().into_iter().map(part).collect()
            }
            each => each.iter().map(|l| l.forward(isa, u)).collect(),
        };
        let mut parts = parts.into_iter();
        let mut next = || parts.next().unwrap_or_default();
        Qkv { q: next(), k: next(), v: next() }
    }

    fn project_back(&self, isa: Isa, u: &[T], d: Qkv<T>, gradients: &mut Gradients<T>) -> Vec<T> {
        match &self.qkv[..] {
            [all] => {
                let [q, k, v] = self.widths();
                let tokens = d.q.len() / q;
                let mut dy = Vec::with_capacity(tokens * all.rows);
                for t in 0..tokens {
                    dy.extend_from_slice(&d.q[t * q..][..q]);
                    dy.extend_from_slice(&d.k[t * k..][..k]);
                    dy.extend_from_slice(&d.v[t * v..][..v]);
                }
                all.backward(isa, u, dy, gradients)
            }
            each => {
                let mut du = vec![T::default(); u.len()];
                for (linear, dy) in each.iter().zip([d.q, d.k, d.v]) {
                    add(&mut du, &linear.backward(isa, u, dy, gradients));
                }
                du
            }
        }
    }
}
