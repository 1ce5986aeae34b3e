//! Steps of a model on a pool, with a budget of pages.

use std::sync::Arc;

use super::sink::{Logits, Sink};
use crate::cancel::CancelToken;
use crate::exec::{Behind, Cancelled, DeviceError, OnDevice, PassOptions, Profile, Running};
use crate::kernels::Floats;
use crate::kv::{self, KvHeads, Mark, OutOfPages, PagePool, Sequence};
use crate::model::{Weights, WidthError};
use crate::ops::observe::ActivationObserver;
use crate::pool::Pool;
use crate::program::{Scales, Setting};

/// A model that is ready to run: its weights, the threads it runs on, and the pages its sequences live in. Cloning
/// shares all three; several threads may step different sequences at the same time and share the pool fairly.
#[derive(Clone)]
pub struct Engine {
    model: Weights,
    pool: Pool,
    pages: PagePool,
    device: OnDevice,
    /// Sequences that a GPU keeps the recurrent states of.
    sequences: usize,
}

/// Sequences that a GPU keeps the recurrent states of, unless an engine is told otherwise.
const SEQUENCES: usize = 16;

/// The next tokens of one sequence.
pub struct Segment<'a> {
    /// The sequence, one of the engine's; the tokens follow its last position.
    pub seq: &'a mut Sequence,
    /// The tokens.
    pub tokens: &'a [u32],
    /// Index of the first token whose logits, or hidden states, are wanted, as those of all after it are;
    /// `tokens.len()` wants none.
    pub logits_from: usize,
}

/// How a step runs.
#[derive(Clone)]
pub struct StepOptions {
    /// Bits of an any-precision model's weights in this step; `None` for the widest.
    pub bits: Option<u8>,
    /// Factors of the model's adapters in this step; `None` for those with which they were loaded.
    pub adapters: Option<Scales>,
    /// Positions that the sequences may come to have. Models with two sets of RoPE factors, for contexts as long as
    /// those of the training and for longer ones, choose by it; it has to be the same in all steps of a sequence. It
    /// means nothing to others.
    pub n_ctx: usize,
    /// Rows of one forward pass: a step of more is cut into several, which bounds its working memory. The results are
    /// bit-identical.
    pub n_ubatch: usize,
    /// The hidden states before all tokens of the step, segment by segment, `[tokens][n]`, of a model that reads
    /// [some](Weights::reads_hidden); empty for others.
    pub hidden: Vec<f32>,
    /// Sees what is multiplied with the weights.
    pub observer: Option<Arc<dyn ActivationObserver>>,
    /// Ends the step between two layers.
    pub cancel: Option<CancelToken>,
    /// Times the operations that the processor carries out.
    pub profile: Option<Arc<Profile>>,
}

impl Default for StepOptions {
    fn default() -> StepOptions {
        StepOptions {
            bits: None,
            adapters: None,
            n_ctx: 0,
            n_ubatch: 512,
            hidden: Vec::new(),
            observer: None,
            cancel: None,
            profile: None,
        }
    }
}

/// Why a step was not done. All sequences are as they were before it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum StepError {
    /// A token the model does not have.
    #[error("token {id} at index {index} is outside the vocabulary of {n_vocab}")]
    UnknownToken {
        /// The token.
        id: u32,
        /// Which segment.
        segment: usize,
        /// Where in the segment.
        index: usize,
        /// Size of the vocabulary.
        n_vocab: usize,
    },
    /// A position the model has no vector for.
    #[error("the model has vectors for {0} positions, and the sequence would become longer")]
    TooLong(usize),
    /// A position that would not see all before it.
    #[error(
        "an indexer of the model chooses {0} positions that are attended to, and trine evaluates sequences in which these are all"
    )]
    Chosen(usize),
    /// A part of a sequence, of a model that attends in both directions.
    #[error("the model attends in both directions: a sequence is evaluated whole, in one pass of at least {0} rows")]
    NotWhole(usize),
    /// A sequence of a model whose encoder has read no text for it.
    #[error(
        "the model continues no text alone: it attends to another that its encoder reads, as rgen has it read prompts"
    )]
    NoSource,
    /// A text for an encoder, of a model without one.
    #[error("the model has no encoder")]
    NoEncoder,
    /// Logits of a model that makes none.
    #[error("the model makes vectors of texts and no logits: it cannot continue a text")]
    NoLogits,
    /// The pages for all tokens are not there.
    #[error(transparent)]
    OutOfPages(#[from] OutOfPages),
    /// The model does not have the width.
    #[error(transparent)]
    Width(Box<WidthError>),
    /// Not a factor for each adapter.
    #[error("{given} factors of adapters are given, and the model has {adapters} adapters")]
    Adapters {
        /// Factors.
        given: usize,
        /// Adapters of the model.
        adapters: usize,
    },
    /// A sequence of another model.
    #[error("the sequence of segment {0} belongs to a model of another shape")]
    ForeignSequence(usize),
    /// The caller ended the step. Logits that were handed out before are right.
    #[error("the step was cancelled")]
    Cancelled,
    /// The GPU that runs some of the model has no room, or fails. Logits that were handed out before are right.
    #[error(transparent)]
    Device(Box<DeviceError>),
    /// Activations of operations on a GPU.
    #[error("what is multiplied with weights on a GPU is not seen; use --device cpu")]
    Unseen,
}

impl From<WidthError> for StepError {
    fn from(e: WidthError) -> StepError {
        StepError::Width(Box::new(e))
    }
}

impl From<DeviceError> for StepError {
    fn from(e: DeviceError) -> StepError {
        StepError::Device(Box::new(e))
    }
}

impl From<Cancelled> for StepError {
    fn from(_: Cancelled) -> StepError {
        StepError::Cancelled
    }
}

impl Engine {
    /// `model` on `pool`, its sequences together in at most `budget` bytes of keys and values, at least one page.
    pub fn new(model: &Weights, pool: &Pool, budget: usize) -> Engine {
        let layout = model.page_layout();
        let pages = (budget / layout.bytes().max(1)).max(1);
        Engine::with_pages(model, pool, PagePool::new(layout, pages))
    }

    /// The same with given pages, which must be of the model's heads and layers.
    ///
    /// # Panics
    /// When they are not.
    pub fn with_pages(model: &Weights, pool: &Pool, pages: PagePool) -> Engine {
        let (own, given) = (model.page_layout(), pages.layout());
        let same = own.with_positions(given.positions);
        assert!(same == *given, "pages of another model");
        let device = OnDevice::default();
        device.keeps(&pages);
        Engine { model: model.clone(), pool: pool.clone(), pages, device, sequences: SEQUENCES }
    }

    /// The same where a GPU keeps the recurrent states of `sequences` sequences, and of as many as they were before a
    /// step; those of others wait in this memory. A pass there is of so many sequences at most.
    pub fn with_sequences(self, sequences: usize) -> Engine {
        Engine { sequences, ..self }
    }

    /// Takes the memory of a GPU that runs some of the model, for passes of `n_ubatch` rows, as the first step would.
    /// Without one nothing happens.
    ///
    /// # Errors
    /// More memory than the GPU has, by a table of what is needed; a GPU that fails.
    pub fn prepare(&self, n_ubatch: usize) -> Result<(), StepError> {
        self.running(n_ubatch)?;
        Ok(())
    }

    /// The GPU that runs some of the model, with memory for passes of `rows` rows.
    fn running(&self, rows: usize) -> Result<Option<Running<'_>>, DeviceError> {
        self.device.running(&self.pages, [rows, self.sequences], |limits| self.model.start(limits))
    }

    /// The model.
    pub fn model(&self) -> &Weights {
        &self.model
    }

    /// The pages.
    pub fn pages(&self) -> &PagePool {
        &self.pages
    }

    /// The threads.
    pub fn pool(&self) -> &Pool {
        &self.pool
    }

    /// Layout of the KV cache in words, in contexts of `n_ctx` positions: a saved sequence can be read where it is the
    /// same.
    pub fn form(&self, n_ctx: usize) -> String {
        let l = self.pages.layout();
        let positions = match self.model.has_long_positions(n_ctx) {
            true => "of long contexts",
            false => "of the training",
        };
        let layers: Vec<KvHeads> = l.heads().collect();
        let alike = layers.chunk_by(|a, b| a == b).map(|all| {
            let KvHeads { count, key, value } = all[0];
            format!("{} layers of {count} heads, keys of {key} and values of {value}, ", all.len())
        });
        let layers: String = alike.collect();
        format!("{layers}{} to a page, a state of {}, positions {positions}", l.positions, l.state)
    }

    /// An empty sequence.
    pub fn sequence(&self) -> Sequence {
        self.pages.sequence()
    }

    /// Appends the tokens of all segments to their sequences. `sink(segment, index, logits)` is called for every token
    /// whose logits are wanted: segment by segment within a pass, and in order within a segment.
    ///
    /// # Errors
    /// Checked before anything is computed: tokens, width, pages for all of it. After any error, a cancelled step's
    /// too, all sequences are as they were.
    pub fn step(
        &self,
        segments: &mut [Segment<'_>],
        options: &StepOptions,
        sink: &mut (dyn FnMut(usize, usize, &[f32]) + Send),
    ) -> Result<(), StepError> {
        self.step_into(segments, options, &mut Logits(sink))
    }

    /// [`Engine::step`] for a sink that may want hidden states of some segments. Of the segments whose logits are
    /// wanted it hears in the same order as there; hidden states come before the logits of the same pass.
    ///
    /// # Errors
    /// As [`Engine::step`].
    ///
    /// # Panics
    /// When there is not a hidden state for each token of a model that reads them.
    pub fn step_into(
        &self,
        segments: &mut [Segment<'_>],
        options: &StepOptions,
        sink: &mut dyn Sink,
    ) -> Result<(), StepError> {
        let setting = self.setting(options)?;
        self.check(segments)?;
        let wants_logits = |(no, s): (usize, &Segment<'_>)| s.logits_from < s.tokens.len() && !sink.wants_hidden(no);
        if !self.model.makes_logits() && segments.iter().enumerate().any(wants_logits) {
            return Err(StepError::NoLogits);
        }
        let mut device = self.running(options.n_ubatch)?;
        if options.observer.is_some() && device.is_some() {
            return Err(StepError::Unseen);
        }
        let most = match &mut device {
            Some(device) => [options.n_ubatch.min(device.rows()), device.sequences()],
            None => [options.n_ubatch, usize::MAX],
        };
        let rows = segments.iter().map(|s| s.tokens.len()).sum();
        let given = self.model.reads_hidden();
        assert_eq!(options.hidden.len(), rows * given, "a hidden state for every token");
        let begun = segments.iter().any(|s| !s.seq.is_empty());
        if self.model.attends_both_ways() && (begun || rows > most[0]) {
            return Err(StepError::NotWhole(rows));
        }
        let stores = usize::from(!self.model.borrows_keys());
        let reserved = segments.iter_mut().try_for_each(|s| s.seq.reserve(stores * s.tokens.len()));
        if let Err(e) = reserved {
            segments.iter_mut().for_each(|s| s.seq.release_reserved());
            return Err(e.into());
        }
        let pass = PassOptions {
            setting,
            n_ctx: options.n_ctx,
            observer: options.observer.clone(),
            cancel: options.cancel.clone(),
            profile: options.profile.clone(),
            hidden: Vec::new(),
        };
        // a mark makes the step copy recurrent states, and only what can be cancelled or fail needs one
        let can_end = options.cancel.is_some() || device.is_some();
        let mark = |s: &Segment<'_>| can_end.then(|| s.seq.mark());
        let before: Vec<Option<Mark>> = segments.iter().map(mark).collect();
        let done = self.pool.install(|| {
            let mut hidden = &options.hidden[..];
            cuts(segments, most).iter().try_for_each(|cut| {
                let rows: usize = cut.iter().map(|c| c.to - c.from).sum();
                let (here, later) = hidden.split_at(rows * given);
                hidden = later;
                let pass = PassOptions { hidden: here.to_vec(), ..pass.clone() };
                self.pass(segments, cut, &pass, device.as_mut(), sink)
            })
        });
        done.inspect_err(|_| {
            for (segment, mark) in segments.iter_mut().zip(before) {
                if let Some(mark) = mark {
                    segment.seq.restore(mark);
                }
            }
        })
    }

    pub(super) fn setting(&self, options: &StepOptions) -> Result<Setting, StepError> {
        let bits = match options.bits {
            Some(bits) => {
                self.model.check_width(bits)?;
                bits
            }
            None => self.model.widths().last().copied().unwrap_or(0),
        };
        let (adapters, of_model) = (options.adapters.clone(), self.model.adapter_scales().len());
        match adapters.as_ref().map(|scales| scales.len()).filter(|&given| given != of_model) {
            Some(given) => Err(StepError::Adapters { given, adapters: of_model }),
            None => Ok(Setting { bits, adapters }),
        }
    }

    pub(super) fn check(&self, segments: &[Segment<'_>]) -> Result<(), StepError> {
        let n_vocab = self.model.n_vocab();
        let most = self.model.most_positions().unwrap_or(usize::MAX);
        for (no, segment) in segments.iter().enumerate() {
            let positions = segment.seq.len().saturating_add(segment.tokens.len());
            if positions > most {
                return Err(StepError::TooLong(most));
            }
            if let Some(chosen) = self.model.most_chosen().filter(|&n| positions > n) {
                return Err(StepError::Chosen(chosen));
            }
            if self.model.encoder().is_some() && segment.seq.source().is_none() {
                return Err(StepError::NoSource);
            }
            if segment.seq.layout() != self.pages.layout() {
                return Err(StepError::ForeignSequence(no));
            }
            let mut ids = segment.tokens.iter().enumerate();
            if let Some((index, &id)) = ids.find(|(_, id)| **id as usize >= n_vocab) {
                return Err(StepError::UnknownToken { id, segment: no, index, n_vocab });
            }
        }
        Ok(())
    }

    /// One forward pass over a part of the segments' tokens.
    fn pass(
        &self,
        segments: &mut [Segment<'_>],
        cut: &[Cut],
        options: &PassOptions,
        mut device: Option<&mut Running<'_>>,
        sink: &mut dyn Sink,
    ) -> Result<(), StepError> {
        let mut tokens = Vec::new();
        let mut parts = Vec::with_capacity(cut.len());
        // Rows whose logits are wanted, and those whose hidden states are: the row, its segment, its index there.
        let (mut wanted, mut hidden) = (Vec::new(), Vec::new());
        let mut cut = cut.iter().peekable();
        for (no, segment) in segments.iter_mut().enumerate() {
            let Some(Cut { from, to, .. }) = cut.next_if(|c| c.segment == no) else {
                continue;
            };
            let first = tokens.len();
            tokens.extend_from_slice(&segment.tokens[*from..*to]);
            let heard = (*from.max(&segment.logits_from)).min(*to)..*to;
            let of_rows = |indices: std::ops::Range<usize>| indices.map(|index| (first + index - from, no, index));
            match sink.wants_hidden(no) {
                true => hidden.extend(of_rows(heard)),
                false => wanted.extend(of_rows(heard)),
            }
            if sink.hears_hidden(no) {
                hidden.extend(of_rows(*from..*to));
            }
            parts.push(kv::SequenceRows { seq: &mut *segment.seq, rows: first..tokens.len() });
        }
        let (values, kept) = self.model.residual(&tokens, &mut parts, options)?;
        let mut stream = Vec::new();
        if let Some(device) = &mut device {
            let angles = |kind, position| self.model.angles(kind, options.n_ctx, position);
            let bits = options.setting.bits;
            let adapters = options.setting.adapters.as_ref();
            let named = self.model.handed_over().iter().copied();
            let rows: Vec<_> = named.zip(values.iter().map(|rows| &rows[..])).collect();
            device.pass(&Behind { tokens: &tokens, rows: &rows, bits, adapters, angles: &angles }, &mut parts)?;
            if !hidden.is_empty() {
                stream = device.stream()?;
            }
        }
        for part in parts.into_iter().filter(|_| !self.model.borrows_keys()) {
            part.seq.advance(part.rows.len());
        }
        let program = self.model.program();
        let [n, of_hidden] = [program.stream(), program.hidden()].map(|value| program.shape(value).columns);
        let x: &[f32] = if stream.is_empty() { &values[0] } else { &stream };
        let rows = |list: &[(usize, usize, usize)]| -> Vec<f32> {
            let rows = list.iter().flat_map(|&(row, ..)| &x[row * n..][..n]);
            rows.copied().collect()
        };
        // a drafter hears the inputs of blocks instead of hidden states
        if !kept.is_empty() {
            let heard: Vec<_> = hidden.extract_if(.., |(_, segment, _)| sink.hears_hidden(*segment)).collect();
            for (row, segment, index) in heard {
                let of_row = |input: &Floats| {
                    let width = input.len() / tokens.len();
                    input[row * width..][..width].to_vec()
                };
                sink.hidden(segment, index, &kept.iter().flat_map(of_row).collect::<Vec<f32>>());
            }
        }
        let states = self.model.hidden(&rows(&hidden), options);
        for (state, &(_, segment, index)) in states.chunks_exact(of_hidden).zip(&hidden) {
            sink.hidden(segment, index, state);
        }
        let mut heard = |i: usize, logits: &[f32]| {
            let (_, segment, index) = wanted[i];
            sink.logits(segment, index, logits);
        };
        match device {
            Some(device) => {
                let rows: Vec<usize> = wanted.iter().map(|(row, ..)| *row).collect();
                device.logits(&rows, &mut |i, logits| {
                    self.model.bound(logits);
                    heard(i, logits);
                })?;
            }
            None => self.model.logits(&rows(&wanted), options, &mut heard),
        }
        Ok(())
    }
}

/// Tokens `from..to` of a segment.
struct Cut {
    segment: usize,
    from: usize,
    to: usize,
}

/// Passes of at most `most` rows and `sequences` segments that together are all tokens, each segment's in order.
fn cuts(segments: &[Segment<'_>], [most, sequences]: [usize; 2]) -> Vec<Vec<Cut>> {
    let most = most.max(1);
    let (mut passes, mut pass, mut room) = (Vec::new(), Vec::new(), most);
    for (segment, s) in segments.iter().enumerate() {
        let mut from = 0;
        while from < s.tokens.len() {
            let to = s.tokens.len().min(from + room);
            pass.push(Cut { segment, from, to });
            room -= to - from;
            from = to;
            if room == 0 || pass.len() == sequences {
                passes.push(std::mem::take(&mut pass));
                room = most;
            }
        }
    }
    if !pass.is_empty() {
        passes.push(pass);
    }
    passes
}
