//! Residual streams side by side, as the metadata states them.

use super::keys::Keys;
use crate::arch::rules::Streams as Rule;
use crate::ops::streams::Mixing as Mixed;

/// Residual streams side by side.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Streams {
    /// Number of streams.
    pub count: usize,
    /// Epsilon of the coefficients.
    pub eps: f32,
    /// Factor on the coefficients with which a sublayer's output is added to the streams.
    pub magnitude: f32,
    /// Added to those.
    pub offset: f32,
    /// How the streams are mixed with one another, where they are.
    pub mixing: Option<Mixed>,
    /// Elements of the vector that gates on the streams are made of, where they are read through gates.
    pub rank: Option<usize>,
    /// True if coefficients of their own make one of the streams behind the last block; their mean is taken otherwise.
    pub ends_weighed: bool,
}

/// Residual streams side by side.
pub fn streams(k: &mut Keys<'_>, rule: Rule) -> Option<Streams> {
    const MOST: u32 = 64;
    const MOST_ROUNDS: u32 = 1024;
    /// Streams of Gemma 3n, whose files do not say how many there are.
    const PREDICTED: usize = 4;
    let count = match rule {
        Rule::One => return None,
        Rule::Predicted => PREDICTED,
        _ => k.count("hyper_connection.count", MOST),
    };
    let plain = Streams { count, eps: 0.0, magnitude: 2.0, offset: 0.0, mixing: None, rank: None, ends_weighed: false };
    if rule == Rule::Predicted {
        return Some(plain);
    }
    if rule == Rule::Gated {
        let rank = Some(k.count("hyper_connection.low_rank", 1 << 20));
        return Some(Streams { rank, ..plain });
    }
    let eps = k.finite("hyper_connection.epsilon");
    if rule == Rule::Weighed {
        let magnitude = k.finite("hyper_connection.magnitude");
        return Some(Streams { eps, magnitude, offset: eps, ends_weighed: true, ..plain });
    }
    let rounds = k.count("hyper_connection.sinkhorn_iterations", MOST_ROUNDS);
    Some(Streams { eps, mixing: Some(Mixed { rounds, eps }), ends_weighed: rule == Rule::MixedWeighed, ..plain })
}
