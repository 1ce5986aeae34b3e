//! The file of Hessians.

use std::fmt;
use std::path::{Path, PathBuf};

use trine_formats::gguf::ModelFile;
use trine_formats::hessian::{HessianError, Hessians};

use super::fault::HessianFault;

/// An opened file of Hessians: what it says of itself, and its sums where the file has them.
pub struct HessianFile {
    path: PathBuf,
    header: Hessians,
    file: ModelFile,
}

impl HessianFile {
    /// Takes `file`, which was opened from `path`.
    ///
    /// # Errors
    /// A file of another kind, or one that contradicts itself.
    pub fn new(path: &Path, file: ModelFile) -> Result<HessianFile, HessianError> {
        Ok(HessianFile { path: path.to_owned(), header: Hessians::parse(file.meta(), file.tensors())?, file })
    }

    /// The facts that the file states about itself.
    pub fn header(&self) -> &Hessians {
        &self.header
    }

    /// The lower triangle of input number `input`.
    pub(super) fn sums(&self, input: usize) -> Result<Vec<f64>, HessianFault> {
        let name = self.header.inputs[input].tensor();
        let tensor = self.file.tensor(&name).ok_or(HessianFault::CutShort)?;
        let numbers = tensor.data.as_chunks().0.iter();
        let sums: Vec<f64> = numbers.map(|b| f64::from_le_bytes(*b)).collect();
        tensor.data.release();
        Ok(sums)
    }
}

impl fmt::Debug for HessianFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("HessianFile").field(&self.path).finish()
    }
}
