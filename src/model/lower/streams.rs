//! Several residual streams side by side, which every sublayer reads and writes: hyper-connections (Zhu and others
//! 2024), as Hunyuan 4, GLM 5.3 Flash, DeepSeek 4 and Qwen 4 have them.
//!
//! The streams of a token follow each other. Their norm, all of them one row, gives two coefficients for each stream:
//! a sublayer reads the sum of the streams times the first ones, and its output is added to each stream times its
//! second one. Where the streams are mixed, a matrix of more coefficients makes new streams of them before. Behind the
//! last block the streams become one, by coefficients of their own or as their mean.
//!
//! Qwen 4's sublayers read the mean of the streams' norms instead, after a gate on every element, which two projections
//! through a narrow vector make of all norms; so does what makes the logits.

use super::lowering::Lowering;
use crate::model::config::Streams as Sizes;
use crate::model::load::{Connection, Gated, Way, Weighed};
use crate::ops::activation::{Activation, HeadGate};
use crate::ops::norm::Norm;
use crate::ops::streams::Streams;
use crate::program::Value;

impl Lowering<'_, '_> {
    /// The normed input that a sublayer reads from the streams `x`, and the coefficients with which it writes its
    /// output, where it does. `norm` is that before the sublayer: of the input, or of all streams where they are read
    /// through gates.
    pub(super) fn read_streams(
        &mut self,
        names: [&str; 2],
        x: Value,
        connection: Connection,
        norm: Option<Norm>,
    ) -> (Value, Option<Value>) {
        let [name, norm_name] = names;
        let sizes = connection.sizes;
        match connection.way {
            Way::Weighed(weighed) => {
                let Weighed { norm: norm_of_streams, project, scales, bases } = *weighed;
                let normed = self.b.norm(&format!("{name}_norm"), x, norm_of_streams);
                let coefficients = self.product(normed, project);
                let Sizes { count, eps, magnitude, offset, mixing, .. } = sizes;
                let streams = Streams { count, eps, magnitude, offset, mixing, scales, bases };
                let [read, coefficients] = self.b.read_streams(name, x, coefficients, streams);
                (self.b.maybe_norm(norm_name, read, norm), Some(coefficients))
            }
            Way::Gated(gated) => {
                let Gated { down, up, inject } = *gated;
                let inverse = Some(1.0 / sizes.count as f32);
                let normed = self.b.maybe_norm(norm_name, x, norm);
                let low = self.product(normed, down);
                let low = self.b.scale("streams_low", low, inverse);
                let low = self.b.activate("streams_low", Activation::Silu, low);
                let gates = self.product(low, up);
                let gated = self.b.head_gate("streams_gated", HeadGate::Sigmoid, normed, gates);
                let read = self.mean_of_streams(gated, sizes.count);
                let coefficients = inject.map(|inject| {
                    let w = self.product(normed, inject);
                    let w = self.b.scale(&format!("{name}_coefficients"), w, inverse);
                    let w = self.b.sigmoid(&format!("{name}_coefficients"), w);
                    self.b.scale(&format!("{name}_coefficients"), w, Some(sizes.magnitude))
                });
                (read, coefficients)
            }
        }
    }

    /// The mean of `count` streams `x`.
    pub(super) fn mean_of_streams(&mut self, x: Value, count: usize) -> Value {
        let width = self.b.columns(x) / count;
        let streams = self.b.split_into(x, (0..count).map(|_| ("stream", width)));
        let sum = streams.into_iter().reduce(|sum, stream| self.b.add("streams_added", sum, stream));
        self.b.scale("streams_mean", sum.unwrap_or(x), Some(1.0 / count as f32))
    }
}
