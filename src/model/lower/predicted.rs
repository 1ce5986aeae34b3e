//! Residual streams that predict one another (AltUp, Baykal and others 2023), as Gemma 3n has them, with its vectors of
//! tokens for every block.
//!
//! Before a block every stream becomes the sum of itself and of all streams, by coefficients that a router makes of the
//! first one. That one runs through attention, beside which stands a path of low rank (Laurel), and through the
//! feed-forward network. What these change of it is added to every stream, times a coefficient of its own, and the
//! gated vector that the token has for this block to all but the first. The others begin as projections of the
//! embeddings, as long as these; behind the last block projections as long as the first stream lead back, and the mean
//! of all goes on.

use super::block::Norms;
use super::lowering::Lowering;
use crate::model::load::Linear;
use crate::ops::activation::{Activation, HeadGate};
use crate::ops::matmul::Matrix;
use crate::ops::norm::Norm;
use crate::program::{Op, Value};

/// The numbers by which streams are predicted and corrected.
#[derive(Clone)]
struct Router {
    norm: Norm,
    project: Linear,
}

/// The use that a block makes of a token's vector.
pub(super) struct Input {
    gate: Linear,
    project: Linear,
    norm: Norm,
}

/// `1 / sqrt(2)`, as two halves of a variance are added up.
fn half() -> Option<f32> {
    Some(1.0 / 2f32.sqrt())
}

impl Lowering<'_, '_> {
    /// The vectors of the tokens for every block, of the embeddings `x`.
    pub(super) fn layer_inputs(&mut self, x: Value, (table, project, norm): (Matrix, Linear, Norm)) -> Vec<Value> {
        let c = self.c;
        let width = norm.row;
        let table = self.matrix("per_layer_token_embd.weight", 0, table);
        let own = self.b.embed(table);
        let own = self.b.scale("layer_inputs_embedded", own, Some((width as f32).sqrt()));
        let projected = self.product(x, project);
        let projected = self.b.scale("layer_inputs_projected", projected, Some(1.0 / (c.n_embd as f32).sqrt()));
        let projected = self.b.norm("per_layer_proj_norm", projected, norm);
        let all = self.b.add("layer_inputs", projected, own);
        let all = self.b.scale("layer_inputs", all, half());
        self.b.split_into(all, (0..c.n_layer).map(|_| ("layer_input", width)))
    }

    /// The embeddings `x` and the streams that are made of them.
    pub(super) fn other_streams(&mut self, x: Value, others: &[Linear]) -> Value {
        let n = self.c.n_embd;
        let made: Vec<(Value, usize)> = others.iter().map(|other| (self.product(x, other.clone()), n)).collect();
        let made = self.b.join("streams_made", &made);
        let made = self.b.like("streams_as_long", Op::AsLong(n), &[made, x]);
        self.b.join("streams", &[(x, n), (made, others.len() * n)])
    }

    /// The mean of the first of the streams `x` and of what the others become.
    pub(super) fn merged_streams(&mut self, x: Value, back: &[Linear]) -> Value {
        let n = self.c.n_embd;
        let streams = self.b.split_into(x, (0..=back.len()).map(|_| ("stream", n)));
        let made = back.iter().zip(&streams[1..]).map(|(back, x)| (self.product(*x, back.clone()), n));
        let made: Vec<(Value, usize)> = made.collect();
        let made = self.b.join("streams_back", &made);
        let made = self.b.like("streams_as_long", Op::AsLong(n), &[made, streams[0]]);
        let made = self.b.split_into(made, back.iter().map(|_| ("stream_back", n)));
        let sum = made.into_iter().fold(streams[0], |sum, stream| self.b.add("streams_added", sum, stream));
        self.b.scale("streams_mean", sum, Some(1.0 / streams.len() as f32))
    }

    /// The streams `x` behind block number `layer`; `None` where a tensor is missing, which is noted.
    pub(super) fn predicted_block(&mut self, x: Value, layer: usize) -> Option<Value> {
        let (n, count) = (self.c.n_embd, self.c.streams?.count);
        let loader = &mut *self.loader;
        let router =
            loader.required_norm(layer, "altup_router_norm").zip(loader.required_linear(layer, "altup_router"));
        let [predict, correct] = ["predict", "correct"].map(|of| loader.linear(layer, &format!("altup_{of}_coef")));
        let scale = loader.vector(Some(layer), "altup_correct_scale.weight");
        let [left, right] = ["laurel_l", "laurel_r"].map(|name| loader.linear(layer, name));
        let laurel_norm = loader.norm(Some(layer), "laurel_post_norm");
        let norms = Norms::load(self, layer);
        let input = self.input(layer);
        let (router_norm, project) = router?;
        let router = Router { norm: router_norm, project };
        let input = input?;
        let (predict, correct, left, right) = (predict?, correct?, left?, right?);

        let streams = self.b.split_into(x, (0..count).map(|_| ("stream", n)));
        let coefficients = self.routed(streams[0], router.clone());
        let coefficients = self.product(coefficients, predict);
        let predicted = self.b.like("altup_sums", Op::SumStreams(count), &[x, coefficients]);
        let predicted = self.b.add("altup_predicted", predicted, x);
        let [first, _] = self.b.split(["altup_first", "altup_others"], predicted, [n, (count - 1) * n]);

        let normed = self.b.maybe_norm("attn_norm", first, norms.attn);
        let low = self.product(normed, left);
        let beside = self.product(low, right);
        let beside = self.b.maybe_norm("laurel_post_norm", beside, laurel_norm);
        let beside = self.b.add("laurel", beside, normed);
        let a = self.mixer(normed, layer);
        // After a problem the feed-forward network is looked at with what there is.
        let y = self.b.maybe_norm("post_attention_norm", a.unwrap_or(normed), norms.attn_post);
        let y = self.b.add("attn_residual", y, first);
        let y = self.b.add("laurel_residual", y, beside);
        let y = self.b.scale("laurel_residual", y, half());
        let normed = self.b.maybe_norm("ffn_norm", y, norms.ffn);
        let f = self.feed_forward(normed, layer, None)?.y;
        let f = self.b.maybe_norm("post_ffw_norm", f, norms.ffn_post);
        let y = self.b.add("residual", f, y);

        let coefficients = self.routed(y, router);
        let coefficients = self.product(coefficients, correct);
        let coefficients = self.b.add_row("altup_coefficients", coefficients, vec![1.0; count]);
        let before = self.b.scale("altup_before", first, Some(-1.0));
        let change = self.b.add("altup_change", y, before);
        let changes = self.b.repeat("altup_changes", change, n, count);
        let changes = self.b.head_gate("altup_changes", HeadGate::Itself, changes, coefficients);
        let corrected = self.b.add("altup_corrected", changes, predicted);
        let streams = self.b.split_into(corrected, (0..count).map(|_| ("stream", n)));
        let given = self.layer_input(streams[0], scale?, input, layer)?;
        let others = streams[1..].iter().map(|&stream| (self.b.add("layer_input_added", stream, given), n));
        let all: Vec<(Value, usize)> = [(streams[0], n)].into_iter().chain(others).collect();
        a.map(|_| self.b.join("streams", &all))
    }

    /// The numbers that a router makes of a stream `x`.
    fn routed(&mut self, x: Value, router: Router) -> Value {
        let width = self.c.n_embd as f32;
        let x = self.b.norm("altup_router_norm", x, router.norm);
        let x = self.b.scale("altup_routed", x, Some(1.0 / width));
        let x = self.product(x, router.project);
        self.b.activate("altup_modalities", Activation::Tanh, x)
    }

    /// The output of the tokens' vectors for block number `layer`, through a gate that the stream `x` times `scale`
    /// opens; `None` where these were not made.
    fn layer_input(&mut self, x: Value, scale: Vec<f32>, input: Input, layer: usize) -> Option<Value> {
        let scale = self.b.fill("altup_correct_scale", x, scale);
        let x = self.b.multiply("altup_scaled", x, scale);
        self.gated_input(x, input, layer)
    }

    /// The use that block number `layer` makes of a token's vector; `None` where a tensor is missing, which is noted.
    pub(super) fn input(&mut self, layer: usize) -> Option<Input> {
        let loader = &mut *self.loader;
        let matrices = loader.linear(layer, "inp_gate").zip(loader.linear(layer, "proj"));
        let norm = loader.norm(Some(layer), "post_norm");
        let (gate, project) = matrices?;
        Some(Input { gate, project, norm: norm? })
    }

    /// The output of the tokens' vectors for block number `layer`, through a gate that `x` opens; `None` where these
    /// were not made.
    pub(super) fn gated_input(&mut self, x: Value, input: Input, layer: usize) -> Option<Value> {
        let of_layer = self.layer_inputs.get(layer).copied()?;
        let Input { gate, project, norm } = input;
        let x = self.product(x, gate);
        let x = self.b.gate("layer_input_gated", Activation::Gelu, x, of_layer);
        let x = self.product(x, project);
        Some(self.b.norm("post_norm", x, norm))
    }
}
