//! Descriptions of architectures: one each, written once as data.
//!
//! A description says which tensors a block has, and with them which operations: where norms stand, which biases there
//! are, whether the feed-forward network is a mixture of experts. What tensors cannot say (how RoPE pairs elements, the
//! gate's function, which layers have a window, factors) are fields, whose values [`rules`] explains. The engine, the
//! converter and synthetic models all read it; none of them knows an architecture by name.
//!
//! **A new architecture is one description in `family/` and its line in [`ARCHITECTURES`].** Everything that a
//! description can ask for is defined with the reference's order of operations; an architecture that needs an operation
//! nobody has yet adds it to the interpreter (`model/block.rs`) under a new field.

mod checkpoint;
pub(crate) mod compressed_parts;
mod description;
mod encoder_parts;
mod expert_parts;
pub(crate) mod factors;
mod family;
mod functions;
mod joined;
mod keys;
mod latent_parts;
mod leftover;
mod missing;
mod mtp_parts;
#[cfg(any(test, feature = "convert"))]
mod names;
mod parts;
mod recurrent_parts;
pub mod rules;
mod rwkv_parts;
mod sizes;
mod slot_parts;
mod steps;
mod stream_parts;
pub mod tensor;

pub(crate) use checkpoint::source_row;
pub use checkpoint::{
    Checkpoint, Fixed, Fused, HeadDim, KvHeads, Name, RopeScaling, Rotary, SpacePrefix, Target, TokenKey, TokenRule,
    Tokenizer, Width,
};
pub use description::Arch;
pub use family::{ARCHITECTURES, DFLASH, EAGLE3, GEMMA4_ASSISTANT};
pub use functions::{Activation, Claim, Gating, HeadGate, Pairing, Pooling};
pub use keys::{Key, TensorKey};
pub use missing::{MISSING, Missing};
#[cfg(feature = "convert")]
#[cfg(feature = "convert")]
pub(crate) use names::KNOWN;
pub(crate) use parts::DENSE_MATRICES;
pub use parts::Group;
#[cfg(feature = "convert")]
pub(crate) use parts::{FUSED_QKV, INPUT_NORMS};
pub use sizes::{Latent, Recurrent, Rwkv, Sizes};
pub use steps::{Factor, Step, Turn};
pub use tensor::{Extent, Role, Tensor};

impl Arch {
    /// The architecture that `general.architecture` names.
    pub fn find(name: &str) -> Option<&'static Arch> {
        ARCHITECTURES.iter().find(|a| a.name == name).copied()
    }

    /// All names, for messages.
    pub fn names() -> String {
        let names: Vec<&str> = ARCHITECTURES.iter().map(|a| a.name).collect();
        names.join(", ")
    }
}

#[cfg(test)]
mod tests;
