//! Hyper-connections: the tensors with which sublayers read and write several residual streams.

use super::loader::Loader;
use super::projections::Linear;
use crate::model::config::Streams;
use crate::ops::norm::{Kind, Norm};

/// The tensors with which a sublayer reads and writes residual streams.
#[derive(Clone)]
pub struct Connection {
    pub sizes: Streams,
    pub way: Way,
}

/// The ways of reading and writing.
#[derive(Clone)]
pub enum Way {
    /// By coefficients.
    Weighed(Box<Weighed>),
    /// Through gates.
    Gated(Box<Gated>),
}

/// Coefficients of streams.
#[derive(Clone)]
pub struct Weighed {
    /// Norm of all streams of a token.
    pub norm: Norm,
    /// To the coefficients.
    pub project: Linear,
    /// A factor on those of either kind.
    pub scales: Vec<f32>,
    /// Added to each of them.
    pub bases: Vec<f32>,
}

/// Gates on streams.
#[derive(Clone)]
pub struct Gated {
    /// To a narrow vector, and from it to a gate for every element.
    pub down: Linear,
    pub up: Linear,
    /// To the coefficients with which outputs are written, where any is.
    pub inject: Option<Linear>,
}

impl Connection {
    /// With coefficients of these tensors, and norms of this epsilon.
    pub fn weighed(sizes: Streams, eps: f32, project: Linear, scales: Vec<f32>, bases: Vec<f32>) -> Connection {
        let row = project.weight.cols;
        let norm = Norm { kind: Kind::Rms, eps, row, gains: vec![1.0; row], bias: None };
        Connection { sizes, way: Way::Weighed(Box::new(Weighed { norm, project, scales, bases })) }
    }

    /// With these gates.
    pub fn gated(sizes: Streams, [down, up]: [Linear; 2], inject: Option<Linear>) -> Connection {
        Connection { sizes, way: Way::Gated(Box::new(Gated { down, up, inject })) }
    }

    /// That of a sublayer; `None` where a tensor is missing, which is noted.
    pub fn load(loader: &mut Loader<'_>, sizes: Streams, eps: f32, layer: usize, sublayer: &str) -> Option<Connection> {
        if sizes.rank.is_some() {
            let [down, up, inject] =
                ["down", "up", "inject"].map(|part| loader.linear(layer, &format!("hc_{sublayer}_{part}")));
            return Some(Connection::gated(sizes, [down?, up?], Some(inject?)));
        }
        let project = loader.linear(layer, &format!("hc_{sublayer}_fn"));
        let [scales, bases] =
            ["scale", "base"].map(|part| loader.vector(Some(layer), &format!("hc_{sublayer}_{part}.weight")));
        Some(Connection::weighed(sizes, eps, project?, scales?, bases?))
    }
}
