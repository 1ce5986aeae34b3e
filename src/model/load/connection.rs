//! Hyper-connections: the tensors with which sublayers read and write several residual streams.

use super::loader::Loader;
use super::projections::Linear;
use crate::model::config::Streams;
use crate::ops::norm::{Kind, Norm};

/// The tensors with which a sublayer reads and writes residual streams.
pub struct Connection {
    pub sizes: Streams,
    /// Norm of all streams of a token.
    pub norm: Norm,
    /// To the coefficients.
    pub project: Linear,
    /// A factor on those of either kind.
    pub scales: Vec<f32>,
    /// Added to each of them.
    pub bases: Vec<f32>,
}

impl Connection {
    /// With these tensors, and norms of this epsilon.
    pub fn new(sizes: Streams, eps: f32, project: Linear, scales: Vec<f32>, bases: Vec<f32>) -> Connection {
        let row = project.weight.cols;
        let norm = Norm { kind: Kind::Rms, eps, row, gains: vec![1.0; row], bias: None };
        Connection { sizes, norm, project, scales, bases }
    }

    /// That of a sublayer; `None` where a tensor is missing, which is noted.
    pub fn load(loader: &mut Loader<'_>, sizes: Streams, eps: f32, layer: usize, sublayer: &str) -> Option<Connection> {
        let project = loader.linear(layer, &format!("hc_{sublayer}_fn"));
        let [scales, bases] =
            ["scale", "base"].map(|part| loader.vector(Some(layer), &format!("hc_{sublayer}_{part}.weight")));
        Some(Connection::new(sizes, eps, project?, scales?, bases?))
    }
}
