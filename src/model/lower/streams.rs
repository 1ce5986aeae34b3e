//! Several residual streams side by side, which every sublayer reads and writes: hyper-connections (Zhu and others
//! 2024), as Hunyuan 4, GLM 5.3 Flash and DeepSeek 4 have them.
//!
//! The streams of a token follow each other. Their norm, all of them one row, gives two coefficients for each stream:
//! a sublayer reads the sum of the streams times the first ones, and its output is added to each stream times its
//! second one. Where the streams are mixed, a matrix of more coefficients makes new streams of them before. Behind the
//! last block the streams become one, by coefficients of their own or as their mean.

use super::lowering::Lowering;
use crate::model::load::Connection;
use crate::ops::streams::Streams;
use crate::program::Value;

impl Lowering<'_, '_> {
    /// The input that a sublayer reads from the streams `x`, and the coefficients with which it writes its output.
    pub(super) fn read_streams(&mut self, name: &str, x: Value, connection: &Connection) -> [Value; 2] {
        let Connection { sizes, norm, project, scales, bases } = connection;
        let normed = self.b.norm(&format!("{name}_norm"), x, norm.clone());
        let coefficients = self.product(normed, project.clone());
        let streams = Streams {
            count: sizes.count,
            eps: sizes.eps,
            magnitude: sizes.magnitude,
            offset: sizes.offset,
            mixing: sizes.mixing,
            scales: scales.clone(),
            bases: bases.clone(),
        };
        self.b.read_streams(name, x, coefficients, streams)
    }

    /// The mean of `count` streams `x`.
    pub(super) fn mean_of_streams(&mut self, x: Value, count: usize) -> Value {
        let width = self.b.columns(x) / count;
        let streams = self.b.split_into(x, (0..count).map(|_| ("stream", width)));
        let sum = streams.into_iter().reduce(|sum, stream| self.b.add("streams_added", sum, stream));
        self.b.scale("streams_mean", sum.unwrap_or(x), Some(1.0 / count as f32))
    }
}
