//! Scales tuned by gradient: the scales and minima of a quantized model's blocks move so that its predictions come
//! nearer to those of its original; the codes stay, and the file keeps its types.
//!
//! The loss is the mean Kullback-Leibler divergence from the original over sequences of a text. Every weight of a block
//! is linear in the block's scales and minima, with factors that the codes decide, so that the gradient of a scale is
//! the sum of those of its weights times these factors. The gradients are those of [`crate::fisher`]'s pass, at the weights
//! that the file would decode to. One sequence is one step of Adam on the relative changes of all floats, with a rate
//! that falls to zero. A part of the text is held out: the scales that are best there are kept, and where none are
//! better than the file's own there is no result.
//!
//! Only the text, its order and the options decide the bytes: neither threads nor the instruction set do.

mod error;
mod moving;
mod scales;
mod tables;

use std::collections::BTreeMap;

use trine_formats::anyprec::{AnyPrec, Part};
use trine_formats::gguf::{ModelFile, PackingOptions};

use crate::fisher::{Pass, SequenceError, Target};
use crate::kernels::Isa;
use crate::model::{Config, LoadOptions, ModelError, Weights};

pub use error::TuneError;
use moving::{Movable, Step};
use scales::Scales;
use tables::Tables;

/// Rate where nothing else is asked for.
pub const RATE: f64 = 0.002;

/// How often the part that is held out is evaluated while scales move.
const CHECKS: usize = 4;

/// Steps for one sequence that is learned from, in units of one that is only evaluated.
const LEARNING: usize = 2;

/// The sequences of a run.
#[derive(Clone, Copy, Debug)]
pub struct Text<'a> {
    /// Sequences that scales are tuned on, in order.
    pub train: &'a [Vec<u32>],
    /// Sequences that decide which scales are kept.
    pub held_out: &'a [Vec<u32>],
}

/// News of a run.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct News {
    /// Units of work that are done, and all of them.
    pub done: usize,
    /// All units of work.
    pub total: usize,
    /// The divergence of the part that is held out when it was last evaluated.
    pub held_out: Option<f64>,
}

/// A tuned model.
#[derive(Clone, Debug)]
pub struct Tuned {
    /// New data of the tensors that changed, by name.
    pub tensors: BTreeMap<String, Vec<u8>>,
    /// Floats that could move.
    pub floats: usize,
    /// Divergence of the part that was held out, in nats: with the file's own scales and with the new ones.
    pub held_out: [f64; 2],
}

/// A model whose scales can be tuned, and its original.
pub struct Tuner {
    model: Pass<f32>,
    reference: Pass<f32>,
    matrices: Vec<Matrix>,
}

/// A matrix with floats that move.
struct Matrix {
    /// Its number among the targets of the gradients.
    target: usize,
    /// The tensor that its floats are in.
    tensor: String,
    floats: Box<dyn Movable>,
}

impl Matrix {
    /// The matrix of a target; none where its weights are plain floats.
    fn of(
        file: &ModelFile,
        any_precision: Option<&AnyPrec>,
        (number, target): (usize, &Target),
        isa: Isa,
    ) -> Result<Option<Matrix>, TuneError> {
        let name = &target.tensor;
        let made = |tensor: String, floats: Box<dyn Movable>| Ok(Some(Matrix { target: number, tensor, floats }));
        if let Some((ap, tensor)) = any_precision.and_then(|ap| Some((ap, ap.tensor(name)?))) {
            if tensor.tables > 0 {
                return Err(TuneError::Shared(name.clone()));
            }
            let [width] = ap.widths() else { return Err(TuneError::Widths) };
            let view = ap.view(file, name, *width).map_err(|e| TuneError::Model(Box::new(e.into())))?;
            return made(Part::Lut(*width).name(name), Box::new(Tables::new(view)));
        }
        let info = file.tensor_info(name);
        let Some((info, data)) = info.and_then(|info| Some((info, file.tensor_data(info)?))) else {
            return Err(TuneError::Changed(name.clone()));
        };
        match Scales::new(info.ty, target.columns, &data, isa) {
            Some(scales) => made(name.clone(), Box::new(scales)),
            None if info.ty.info().is_some_and(|ty| !ty.is_quantized() && !ty.is_per_tensor()) => Ok(None),
            None => Err(TuneError::Type { tensor: name.clone(), ty: info.ty }),
        }
    }
}

/// About the bytes that tuning takes: both models as floats, gradients, and what is kept of sequences of `seq_len` tokens.
pub fn memory(file: &ModelFile, config: &Config, seq_len: usize) -> u64 {
    let weights: u64 = file.tensors().map(|tensor| tensor.elements()).sum();
    let bytes: u64 = file.tensors().map(|tensor| tensor.bytes).sum();
    crate::fisher::memory(file, config, seq_len) + 4 * weights + 2 * bytes
}

impl Tuner {
    /// Decodes the model of `file` and that of `reference`.
    ///
    /// # Errors
    /// Models that do not run or have no gradients, that are not of the same vocabulary and shapes; types without
    /// scales that are floats; a file without quantized matrices.
    pub fn load(
        file: &ModelFile,
        reference: &ModelFile,
        packing: &PackingOptions,
        isa: Isa,
    ) -> Result<Tuner, TuneError> {
        let load = |file: &ModelFile| -> Result<(Pass<f32>, usize), ModelError> {
            let options = LoadOptions { isa, repack: false, packing: packing.clone(), ..LoadOptions::default() };
            let model = Weights::load(file, &options)?;
            Ok((Pass::of(&model)?, model.n_vocab()))
        };
        let (mut model, n_vocab) = load(file).map_err(|e| TuneError::Model(Box::new(e)))?;
        let any_precision = AnyPrec::read(file).map_err(|e| TuneError::Model(Box::new(e.into())))?;
        let targets = model.gradient.targets().iter().enumerate();
        let each = targets.map(|target| Matrix::of(file, any_precision.as_ref(), target, isa));
        let matrices: Vec<Matrix> = each.filter_map(Result::transpose).collect::<Result<_, _>>()?;
        if matrices.is_empty() {
            return Err(TuneError::Nothing);
        }
        for matrix in &matrices {
            let weights = model.gradient.weights_mut(matrix.target).unwrap_or_default();
            let mut decoded = vec![0f32; weights.len()];
            matrix.floats.decode(&mut decoded);
            if !decoded.iter().zip(&*weights).all(|(d, w)| d.to_bits() == w.to_bits()) {
                return Err(TuneError::Changed(matrix.tensor.clone()));
            }
        }
        const TOKENS: &str = "tokenizer.ggml.tokens";
        let same_tokens = file.meta().get(TOKENS) == reference.meta().get(TOKENS);
        let (reference, theirs) = load(reference).map_err(|e| TuneError::Reference(Box::new(e)))?;
        if theirs != n_vocab || !same_tokens {
            return Err(TuneError::Vocabulary);
        }
        let known = reference.gradient.targets();
        let other = model.gradient.targets().iter().find(|target| !known.contains(target));
        if let Some(other) = other {
            return Err(TuneError::Shape(other.tensor.clone()));
        }
        if let Some(more) = known.iter().find(|target| !model.gradient.targets().contains(target)) {
            return Err(TuneError::More(more.tensor.clone()));
        }
        Ok(Tuner { model, reference, matrices })
    }

    /// Floats that can move, and the matrices that they are of.
    pub fn floats(&self) -> (usize, usize) {
        (self.matrices.iter().map(|matrix| matrix.floats.len()).sum(), self.matrices.len())
    }

    /// Tunes the scales; `news` is told of every sequence. Runs in the current rayon pool.
    ///
    /// # Errors
    /// Sequences that cannot be evaluated; models that are damaged; no scales that are better than the file's.
    pub fn run(mut self, text: Text<'_>, rate: f64, news: &mut dyn FnMut(News)) -> Result<Tuned, TuneError> {
        let steps = text.train.len();
        let checks = CHECKS.min(steps);
        let total = LEARNING * steps + (1 + checks) * text.held_out.len();
        let mut told = News { done: 0, total, held_out: None };
        let mut tell = |units: usize, held_out: Option<f64>| {
            told = News { done: told.done + units, held_out: held_out.or(told.held_out), ..told };
            news(told);
        };
        tell(0, None);
        let before = self.evaluate(text.held_out, &mut tell)?;
        if !before.is_finite() {
            return Err(TuneError::NonFinite(before));
        }
        tell(0, Some(before));
        let first = self.bytes();
        let mut best: Option<Vec<Vec<u8>>> = None;
        let mut least = f64::INFINITY;
        let mut gradients = self.model.gradient.zeros(|sum, g| sum + g);
        for (number, tokens) in text.train.iter().enumerate() {
            for sums in &mut gradients.sums {
                sums.fill(0.0);
            }
            let found = self.model.diverge(&self.reference, tokens, &mut gradients);
            found.map_err(|error| of_sequence(text.held_out.len() + number, error))?;
            // In the middle of what is left, so that the last step moves too.
            let left = (steps - number) as f64 - 0.5;
            let step = Step::new(number, rate * left / steps as f64);
            for Matrix { target, floats, .. } in &mut self.matrices {
                let weights = self.model.gradient.weights_mut(*target).unwrap_or_default();
                floats.advance(&gradients.sums[*target], step, weights);
            }
            tell(LEARNING, None);
            let due = |number: usize| number * checks / steps;
            if due(number + 1) > due(number) {
                let after = self.evaluate(text.held_out, &mut tell)?;
                tell(0, Some(after));
                if after < before.min(least) {
                    best = Some(self.bytes());
                }
                least = least.min(after);
            }
        }
        let Some(bytes) = best else {
            return Err(TuneError::Worse { before, after: least });
        };
        let floats = self.floats().0;
        let named = self.matrices.into_iter().map(|matrix| matrix.tensor).zip(bytes.into_iter().zip(first));
        let changed = named.filter(|(_, (new, old))| new != old);
        let tensors = changed.map(|(name, (new, _))| (name, new)).collect();
        Ok(Tuned { tensors, floats, held_out: [before, least] })
    }

    /// The data of all tensors with floats, as they are now.
    fn bytes(&self) -> Vec<Vec<u8>> {
        self.matrices.iter().map(|matrix| matrix.floats.bytes().to_vec()).collect()
    }

    /// The mean divergence of sequences.
    fn evaluate(&self, sequences: &[Vec<u32>], tell: &mut dyn FnMut(usize, Option<f64>)) -> Result<f64, TuneError> {
        let mut sum = 0.0;
        for (number, tokens) in sequences.iter().enumerate() {
            let found = self.model.divergence(&self.reference, tokens);
            sum += found.map_err(|error| of_sequence(number, error))?;
            tell(1, None);
        }
        Ok(sum / sequences.len() as f64)
    }
}

fn of_sequence(number: usize, error: SequenceError) -> TuneError {
    TuneError::Sequence { number: number + 1, error }
}
