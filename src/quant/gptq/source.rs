//! Where Hessians come from: a file, or measurements that are made while matrices are rounded.

use std::error::Error;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard};

use trine_formats::gguf::ModelFile;
use trine_formats::hessian::{HessianError, Hessians, Reads};
use trine_formats::types::TypeId;

use super::fault::HessianFault;

/// Why inputs cannot be measured.
type Fault = Box<dyn Error + Send + Sync>;

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

/// The sums of some neighbouring inputs.
#[derive(Clone, Debug, Default)]
pub struct Measured {
    /// Tokens in the sums of each.
    pub tokens: Vec<u64>,
    /// The lower triangle of each, row after row.
    pub sums: Vec<Vec<f64>>,
}

/// Measures inputs of a model some of whose matrices are rounded already.
pub trait Measure: Send {
    /// The sums of the inputs of one weight. Weights come in the order of the graph: those of earlier inputs are
    /// [rounded](Measure::rounded). `news` is told how many of how many parts of the work are done; `false` stops it.
    ///
    /// # Errors
    /// Inputs that cannot be measured.
    fn measure(&mut self, reads: Reads, news: &mut dyn FnMut(usize, usize) -> bool) -> Result<Measured, Fault>;

    /// A matrix whose input was measured last has become `data` of type `ty`.
    ///
    /// # Errors
    /// Data that is no such matrix.
    fn rounded(&mut self, tensor: &str, ty: TypeId, data: Vec<u8>) -> Result<(), Fault>;
}

/// Measurements that are made while matrices are rounded, and the inputs that there are. They are made once.
pub struct Measurements {
    header: Hessians,
    measure: Mutex<Box<dyn Measure>>,
}

impl Measurements {
    /// Measurements of the inputs of `header`, which says how many chunks there will be.
    pub fn new(header: Hessians, measure: Box<dyn Measure>) -> Measurements {
        Measurements { header, measure: Mutex::new(measure) }
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, Box<dyn Measure>> {
        self.measure.lock().unwrap_or_else(|e| e.into_inner())
    }
}

impl fmt::Debug for Measurements {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Measurements").field(&self.header.origin).finish()
    }
}

/// Where Hessians come from.
#[derive(Clone, Debug)]
pub enum Calibration {
    /// A file, whose inputs are those of the unquantized model.
    File(Arc<HessianFile>),
    /// The model with what is rounded already.
    Sequential(Arc<Measurements>),
}

impl Calibration {
    /// The inputs, and what they were measured on.
    pub fn header(&self) -> &Hessians {
        match self {
            Calibration::File(file) => file.header(),
            Calibration::Sequential(measurements) => &measurements.header,
        }
    }

    /// The file.
    ///
    /// # Errors
    /// There is none.
    pub(in crate::quant) fn file(&self) -> Result<&HessianFile, HessianFault> {
        match self {
            Calibration::File(file) => Ok(file),
            Calibration::Sequential(_) => Err(HessianFault::Sequential),
        }
    }
}

/// Sums of neighbouring inputs of one width, those of a weight, by their number among these.
pub trait Sums: Sync {
    /// Tokens in the sums of an input.
    fn tokens(&self, number: usize) -> u64;

    /// The lower triangle of an input.
    ///
    /// # Errors
    /// A file that became shorter.
    fn sums(&self, number: usize) -> Result<Vec<f64>, HessianFault>;
}

impl Sums for (&HessianFile, Reads) {
    fn tokens(&self, number: usize) -> u64 {
        self.0.header().tokens_of(self.1.first + number)
    }

    fn sums(&self, number: usize) -> Result<Vec<f64>, HessianFault> {
        self.0.sums(self.1.first + number)
    }
}

impl Sums for Measured {
    fn tokens(&self, number: usize) -> u64 {
        self.tokens[number]
    }

    fn sums(&self, number: usize) -> Result<Vec<f64>, HessianFault> {
        self.sums.get(number).cloned().ok_or(HessianFault::CutShort)
    }
}
