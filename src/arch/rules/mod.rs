//! Properties of an architecture that tensors cannot show: kinds of functions, factors, and which layers are different.
//!
//! Names of keys stand without the architecture in front.

mod attention;
mod block;
mod experts;
mod mixing;
mod position;

pub use attention::{Alibi, Attention, QkNorms, ScoreCap, ScoreScale, SharedKeys, Temperature};
pub use block::{
    DraftState, EmbeddingScale, FeedForward, GateClamp, HeadRule, LayerInputs, LogitCap, LogitScale, NormKind, Output,
    Residual, ResidualScale, Streams, Sum,
};
pub use experts::{ExpertLayers, ExpertRule, ExpertWidth, GatingRule, Normalize, SharedWidth};
pub use mixing::{Mixing, Recurrence};
pub use position::{
    RopeLayers, RopeRule, Sections, WindowBase, WindowRope, WindowRule, WindowScaling, WindowSize, YarnKeys, YarnLog,
};
