//! The source of a configuration.

use trine_formats::gguf::{Metadata, ModelFile};

/// The source of a configuration: a file, or the header of one that is yet to be written.
pub trait Header {
    /// The metadata.
    fn meta(&self) -> &Metadata;
    /// Rows of the tensor of this name; `None` where there is none.
    fn rows(&self, tensor: &str) -> Option<u64>;
}

impl Header for ModelFile {
    fn meta(&self) -> &Metadata {
        ModelFile::meta(self)
    }

    fn rows(&self, tensor: &str) -> Option<u64> {
        self.tensor_info(tensor).map(|t| t.rows())
    }
}
