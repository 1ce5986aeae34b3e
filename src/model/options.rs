//! Options of loading a model.

use std::fmt;
use std::sync::Arc;

use trine_formats::gguf::{ModelFile, PackingOptions};

use super::control::Control;
use super::lora::Adapter;
use super::path::NumberPath;
use crate::exec::Offload;
use crate::kernels::Isa;
use crate::kv::CacheTypes;

/// The file of a model that drafts for another.
#[derive(Clone)]
pub struct DrafterFile(pub Arc<ModelFile>);

impl fmt::Debug for DrafterFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0.shards()[0].path.display())
    }
}

/// How to load a model.
#[derive(Clone, Debug)]
pub struct LoadOptions {
    /// Instruction set of the kernels; the results are bit-identical.
    pub isa: Isa,
    /// Copy the weights into layouts that the kernels read faster, where there are any; otherwise they are used where
    /// the file's bytes are. The results are bit-identical.
    pub repack: bool,
    /// How products with any-precision and widely linear weights are computed. Decides their bits.
    pub number_path: NumberPath,
    /// Properties of I2_S, TL1 and TL2 tensors that files do not state.
    pub packing: PackingOptions,
    /// Low-rank weights that are added to the model's, in the order in which they were named.
    pub adapters: Vec<Adapter>,
    /// Directions that are added to the residual stream.
    pub control: Control,
    /// Load the head for multi-token prediction, which drafts. It changes no result.
    pub mtp: bool,
    /// The file of a model that drafts for this one from states of its blocks or from its keys. It changes no result.
    pub drafter: Option<DrafterFile>,
    /// The types of keys and values. They decide the bits of the result.
    pub cache: CacheTypes,
    /// The GPU that runs the last layers. The results are bit-identical.
    pub offload: Option<Offload>,
}

impl Default for LoadOptions {
    fn default() -> LoadOptions {
        LoadOptions {
            isa: Isa::detect(),
            repack: true,
            number_path: NumberPath::default(),
            packing: PackingOptions::default(),
            adapters: Vec::new(),
            control: Control::default(),
            mtp: false,
            drafter: None,
            cache: CacheTypes::default(),
            offload: None,
        }
    }
}
