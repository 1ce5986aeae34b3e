//! Models: a file's configuration is checked, its description lowered to a program, and its weights are given to the
//! executors that carry the program out.

mod cache;
mod config;
mod control;
mod drafter;
mod drafting;
mod encoder;
mod error;
mod heads;
mod layouts;
mod load;
mod lora;
mod lower;
mod mtp;
mod offloaded;
mod options;
mod pages;
mod part;
mod path;
mod problem;
#[cfg(test)]
pub(crate) mod toy;

use std::collections::BTreeSet;
use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;

use trine_formats::anyprec::AnyPrec;
use trine_formats::gguf::{Blob, ModelFile};
use trine_formats::widely;

use crate::arch::Pooling;
use crate::arch::rules::DraftState;
use crate::exec::gradient::{self, Gradient, Real};
use crate::exec::{Cancelled, Offload, PassOptions, Processor};
use crate::kernels::Floats;
use crate::kv::{self, CacheTypes, PageLayout};
use crate::program::{Op, Operation, Program, Scales, Setting, Value};
use config::Heard;
use drafter::{Found, Fusion, Markov};
use heads::{Heads, LoweredHeads};
use load::SharedEnds;
use lora::Adapters;
use lower::{Lowered, Lowering};
use part::LoweredPart;

pub use config::{Config, DraftBlock, Experts, Header, OfLayer, Vectors};
pub use control::Control;
pub use error::{ModelError, WidthError};
pub use layouts::Layouts;
pub use lora::Adapter;
pub use options::{DrafterFile, LoadOptions};
pub use path::NumberPath;
pub use problem::Problem;

/// A loaded model. Cloning shares it.
#[derive(Clone)]
pub struct Weights {
    inner: Arc<Inner>,
}

struct Inner {
    config: Config,
    layouts: Layouts,
    /// The file's any-precision matrices.
    anyprec: Option<AnyPrec>,
    /// The file's widely linear matrices.
    widely: Option<widely::Header>,
    /// The bytes that each width adds to the file.
    sections: Vec<(u8, Blob)>,
    /// The forward pass.
    program: Program,
    /// The operation before which the processor's part of the blocks ends, and the residual stream there.
    handover: (usize, Vec<Value>),
    /// The weights, where the processor has them.
    processor: Processor,
    /// The tensors that rows are multiplied by.
    multiplied: BTreeSet<String>,
    /// The steps behind the pooling of hidden states.
    heads: Heads,
    /// The heads for multi-token prediction, or the drafter in a file of its own, where they were loaded.
    mtp: Vec<Weights>,
    /// The projection to the states that a drafter reads, where it reads no hidden states.
    fusion: Option<Fusion>,
    /// Biases on the logits of a drafter's tokens, where it has any.
    markov: Option<Markov>,
    /// The model that stores keys and values for a drafter of several tokens at once, and these tokens.
    key_reader: Option<(Weights, DraftBlock)>,
    /// The layout of the pages of another model, to whose keys a drafter without its own attends.
    borrowed: Option<PageLayout>,
    /// The encoder of the prompt, where the architecture has one.
    encoder: Option<Weights>,
    /// The types of keys and values.
    cache: CacheTypes,
    /// The factors of adapters.
    scales: Scales,
    /// The files of adapters and control vectors.
    added: Vec<PathBuf>,
    /// The GPU that runs the last layers, at least the logits.
    offload: Option<Offload>,
    /// Where the products of the GPU are those of [`NumberPath::Fast`], the names of the matrices that the file calls
    /// pruned.
    halves: Option<BTreeSet<String>>,
}

impl Inner {
    /// The first block that the GPU runs; their number where that is none but the logits.
    fn first_offloaded(&self) -> Option<usize> {
        self.offload.as_ref().map(|offload| offload.first(self.config.n_layer))
    }

    /// A part of this model that is one of its own, and runs on the processor.
    fn part(&self, part: LoweredPart) -> Option<Weights> {
        let (config, program, processor) = part.ready(self.processor.isa, &self.processor.ropes)?;
        Some(Weights::of(self.beside(config, program, processor)))
    }

    /// A model beside this one, which runs on the processor.
    fn beside(&self, config: Config, program: Program, processor: Processor) -> Inner {
        Inner {
            config,
            layouts: self.layouts.clone(),
            anyprec: self.anyprec.clone(),
            widely: self.widely,
            sections: Vec::new(),
            handover: (program.body().end, vec![program.stream()]),
            program,
            processor,
            multiplied: BTreeSet::new(),
            heads: Heads::default(),
            mtp: Vec::new(),
            fusion: None,
            markov: None,
            key_reader: None,
            borrowed: None,
            encoder: None,
            cache: self.cache,
            added: Vec::new(),
            scales: Scales::default(),
            offload: None,
            halves: None,
        }
    }
}

impl Weights {
    /// Checks and loads the model of `file`. Weights without a packed layout stay where the file's bytes are.
    ///
    /// # Errors
    /// [`ModelError::Invalid`] lists every missing key, missing tensor and wrong shape at once.
    pub fn load(file: &ModelFile, options: &LoadOptions) -> Result<Weights, ModelError> {
        let config = Config::read(file)?;
        let anyprec = AnyPrec::read(file)?;
        let widely = match config.arch.widely_linear {
            true => Some(widely::Header::read(file.meta())?),
            false if options.number_path == NumberPath::I8 => {
                return Err(ModelError::NumberPath(config.arch.name));
            }
            false => None,
        };
        let layers = options.offload.as_ref().map_or(0, |o| o.layers);
        if options.number_path == NumberPath::Fast && layers == 0 {
            return Err(ModelError::NoGpu);
        }
        let halves = match options.number_path {
            NumberPath::Fast => Some(trine_formats::pruned::read(file.meta())?),
            _ => None,
        };
        let special = load::Special { anyprec: anyprec.as_ref(), widely };
        let adapters = Adapters::read(&options.adapters, file)?;
        if config.latent.is_some() && !adapters.is_empty() {
            return Err(ModelError::Latent(config.arch.name));
        }
        if config.switched.is_some() && !adapters.is_empty() {
            return Err(ModelError::Switched(config.arch.name));
        }
        config.check_cache(options.cache)?;
        if !config.arch.steered && !options.control.vectors.is_empty() {
            return Err(ModelError::Unsteered(config.arch.name));
        }
        let directions = options.control.read(config.n_layer, config.n_embd)?;
        let mut loader = load::Loader::new(file, special, options, adapters, &config);
        let mut ends = load::ends(&mut loader, &config);
        let rope_factors = std::mem::take(&mut ends.rope_factors);
        let shared = options.mtp.then(|| SharedEnds::of(&ends));
        let drafter = match &options.drafter {
            Some(_) if layers > 0 => {
                return Err(ModelError::Drafter("the model it drafts for runs on a GPU; use --device cpu".to_owned()));
            }
            Some(drafter) => Some((Found::new(&drafter.0, &config)?, SharedEnds::of(&ends))),
            None => None,
        };
        if layers > 0 && options.mtp && config.arch.draft_state == DraftState::Stream {
            let why = "the heads for multi-token prediction read states that a GPU keeps; use --device cpu";
            return Err(ModelError::NoHead(why.to_owned()));
        }
        let of_heads: &[Heard] = match config.arch.draft_state {
            DraftState::Stream if options.mtp => &[Heard::Output],
            _ => &[],
        };
        let kept = drafter.as_ref().map_or(of_heads, |(found, _)| &found.drafter.heard);
        let embedding = ends.embedding.clone();
        let lowered = Lowering::model(&mut loader, &config, ends, &directions, kept);
        let heads = LoweredHeads::load(&mut loader, &config);
        let mtp = match shared {
            Some(ends) => LoweredPart::mtp_heads(&mut loader, file, &config, &ends)?,
            None => Vec::new(),
        };
        let encoder = LoweredPart::encoder(&mut loader, file, &config, embedding)?;
        let layouts = loader.finish()?;
        let Lowered { program, matrices, multiplied } = lowered.ok_or_else(|| {
            let what = "the architecture's description lacks a block's tensors";
            ModelError::Invalid(vec![Problem::Contradiction(what.to_owned())])
        })?;
        let ropes = config.ropes(rope_factors);
        let heads = heads.ready(options.isa, &ropes);
        let processor = Processor { isa: options.isa, matrices, ropes };
        let sections = anyprec.as_ref().map(|a| load::sections(file, a));
        let added = options.adapters.iter().chain(&options.control.vectors);
        let mut offload = options.offload.clone().filter(|_| layers > 0);
        if let Some(offload) = &mut offload {
            let of_file = anyprec.as_ref().map_or(&[][..], AnyPrec::widths);
            offload.widths.retain(|width| of_file.contains(width));
            offload.widths.sort_unstable();
        }
        let here = offload.as_ref().map_or(config.n_layer, |offload| offload.first(config.n_layer));
        let handover = match program.blocks().get(here) {
            Some(block) => (block.start, program.entering(block.start)),
            None => (program.body().end, vec![program.stream()]),
        };
        let mut inner = Inner {
            config,
            layouts,
            sections: sections.unwrap_or_default(),
            anyprec,
            widely,
            program,
            handover,
            processor,
            multiplied,
            heads,
            mtp: Vec::new(),
            fusion: None,
            markov: None,
            key_reader: None,
            borrowed: None,
            encoder: None,
            cache: options.cache.stored(),
            added: added.map(Adapter::path).collect(),
            scales: options.adapters.iter().map(|adapter| adapter.scale).collect::<Vec<_>>().into(),
            offload,
            halves,
        };
        inner.mtp = mtp.into_iter().filter_map(|mtp| inner.part(mtp)).collect();
        if let Some((found, shared)) = drafter {
            inner.mtp = vec![inner.drafter(found, options, shared)?];
        }
        inner.encoder = encoder.and_then(|encoder| inner.part(encoder));
        let model = Weights::of(inner);
        model.check_offload()?;
        Ok(model)
    }

    fn of(inner: Inner) -> Weights {
        Weights { inner: Arc::new(inner) }
    }

    /// The tensors that rows of activations are multiplied by, but for those of heads: what a rotation of the model can
    /// name.
    pub fn multiplied(&self) -> &BTreeSet<String> {
        &self.inner.multiplied
    }

    /// The forward pass as operations.
    pub fn program(&self) -> &Program {
        &self.inner.program
    }

    /// Checks that all operations of the forward pass have derivatives.
    ///
    /// # Errors
    /// Those that have none, by name.
    pub fn check_gradient(&self) -> Result<(), ModelError> {
        gradient::check(&self.inner.program).map_err(|what| {
            let name = self.inner.config.arch.name;
            let what = format!("gradients of architecture {name} are not supported: {what}");
            ModelError::Invalid(vec![Problem::Gradient(what)])
        })
    }

    /// The forward pass with its derivative, and the weights as plain numbers. They have to be where the file has them
    /// ([`LoadOptions::repack`]).
    ///
    /// # Errors
    /// Operations without a derivative; tensors without plain weights.
    pub fn gradient<T: Real>(&self) -> Result<Gradient<T>, ModelError> {
        self.check_gradient()?;
        let gradient = Gradient::new(&self.inner.program, &self.inner.processor);
        gradient.map_err(|what| ModelError::Invalid(vec![Problem::Gradient(what)]))
    }

    /// Bytes of the matrices of an operation, as the processor has them.
    pub fn matrix_bytes(&self, operation: &Operation) -> usize {
        let mut bytes = 0;
        operation.op.matrices(|id| bytes += self.inner.processor.matrix(id).layout().1);
        bytes
    }

    /// The residual stream, `[tokens][columns]`, or several side by side, behind all blocks that are not on a GPU, and
    /// what else those on a GPU read ([`Weights::handed_over`]), of one pass, whose `tokens` are those of the rows of `parts`; beside it the inputs of blocks that are kept. Keys and values are stored; the sequences' lengths
    /// are the caller's to advance.
    ///
    /// Runs on the current pool.
    ///
    /// # Errors
    /// The pass was cancelled.
    pub(crate) fn residual(
        &self,
        tokens: &[u32],
        parts: &mut [kv::SequenceRows<'_>],
        options: &PassOptions,
    ) -> Result<(Vec<Floats>, Vec<Floats>), Cancelled> {
        let (end, wanted) = &self.inner.handover;
        self.inner.processor.run(&self.inner.program, (*end, wanted), tokens, parts, options)
    }

    /// The values that [`Weights::residual`] gives.
    pub(crate) fn handed_over(&self) -> &[Value] {
        &self.inner.handover.1
    }

    /// Carries out some operations of the forward pass on the processor, as [`Processor::run_part`] says. Runs on the
    /// current pool.
    pub(crate) fn part_of_pass(
        &self,
        operations: Range<usize>,
        values: (&[(Value, Floats)], &[Value]),
        tokens: &[u32],
        parts: &mut [kv::SequenceRows<'_>],
        options: &PassOptions,
    ) -> Vec<Floats> {
        self.inner.processor.run_part(&self.inner.program, operations, values, tokens, parts, options)
    }

    /// The hidden states of the rows of `x`: the residual stream behind the last norm, of which logits are made.
    pub(crate) fn hidden(&self, x: &[f32], options: &PassOptions) -> Floats {
        self.inner.processor.hidden(&self.inner.program, x, options)
    }

    /// Calls `sink` with the number and the logits of every row of `x`, in order.
    pub(crate) fn logits(&self, x: &[f32], options: &PassOptions, sink: &mut dyn FnMut(usize, &[f32])) {
        self.inner.processor.logits(&self.inner.program, x, options, sink);
    }

    /// True if a GPU runs some layers, and therefore the logits.
    pub fn is_offloaded(&self) -> bool {
        self.inner.offload.is_some()
    }

    /// The checked configuration.
    pub fn config(&self) -> &Config {
        &self.inner.config
    }

    /// The factors of its adapters, in the order in which they were named.
    pub fn adapter_scales(&self) -> &Scales {
        &self.inner.scales
    }

    /// The files of what was added to it, adapters first.
    pub fn added_files(&self) -> &[PathBuf] {
        &self.inner.added
    }

    /// True if positions are embedded differently in a context of `n_ctx` than in one of the training's length.
    pub fn has_long_positions(&self, n_ctx: usize) -> bool {
        let ropes = &self.inner.processor.ropes;
        ropes.of(n_ctx) != ropes.of(self.inner.config.original_context)
    }

    /// In which layouts the weights are.
    pub fn layouts(&self) -> &Layouts {
        &self.inner.layouts
    }

    /// The header of the any-precision weights, if the file has any.
    pub fn any_precision(&self) -> Option<&AnyPrec> {
        self.inner.anyprec.as_ref()
    }

    /// The header of the widely linear matrices, if the architecture has any.
    pub fn widely_linear(&self) -> Option<&widely::Header> {
        self.inner.widely.as_ref()
    }

    /// Announces that no session will run at more than `bits` for now: the system may prefetch the planes of these
    /// widths, and drop those of wider ones. Changes no result; any width can still be used.
    pub fn advise_width(&self, bits: u8) {
        for (width, section) in &self.inner.sections {
            if *width <= bits {
                section.need();
            } else {
                section.release();
            }
        }
    }

    /// Layout of the KV cache's pages.
    pub fn page_layout(&self) -> PageLayout {
        self.inner.page_layout()
    }

    /// The positions that a sequence can have at most, where the model has a vector for each.
    pub fn most_positions(&self) -> Option<usize> {
        let program = &self.inner.program;
        program.operations()[program.start()].iter().find_map(|operation| match operation.op {
            Op::EmbedPositions(table) => Some(program.matrix(table).rows),
            _ => None,
        })
    }

    /// The positions of the longest sequence in which an indexer chooses all, where the model has one.
    pub fn most_chosen(&self) -> Option<usize> {
        self.config().indexed
    }

    /// True if layers have a state that cannot be cut back to an earlier position.
    pub fn is_recurrent(&self) -> bool {
        self.config().mixing.state() > 0
    }

    /// True if tokens also attend to later ones, so that a sequence is evaluated whole, in one step and one pass.
    pub fn attends_both_ways(&self) -> bool {
        self.config().arch.attention.both_ways
    }

    /// True if the model has a head that ranks texts.
    pub fn ranks(&self) -> bool {
        self.inner.heads.ranks()
    }

    /// The pooling of states that stands before the model's head, where `pooling` asks for that, or `pooling` itself.
    pub fn pools_by(&self, pooling: Pooling) -> Pooling {
        match pooling {
            Pooling::Rank => self.config().vectors.rank_pooling,
            other => other,
        }
    }

    /// The steps behind the pooling, with the weights as `setting` has them: the model's projections on a vector, and for
    /// [`Pooling::Rank`] the outputs of its head, as many as it has names for, at least one. Runs on the current pool.
    pub(crate) fn behind_pooling(&self, pooling: Pooling, setting: &Setting, pooled: &[f32]) -> Vec<f32> {
        self.inner.heads.run(pooling, setting, pooled, self.config().vectors.classes())
    }

    /// Its encoder, where blocks attend to a text that it reads: a model whose hidden states are their keys and values
    /// for that, `[tokens][source_widths]`.
    pub fn encoder(&self) -> Option<&Weights> {
        self.inner.encoder.as_ref()
    }

    /// Elements of the keys of a position of the encoder's text for each block, which its values have as well; none of a
    /// model without an encoder.
    pub fn source_widths(&self) -> Vec<usize> {
        let c = self.config();
        let width = |layer: usize| c.layer(layer).n_head_kv * c.layer(layer).head_dim;
        (0..c.n_layer).filter(|_| c.arch.encoder.is_some()).map(width).collect()
    }

    /// Elements of the hidden state that is read beside every token; 0 of a model that reads tokens alone.
    pub fn reads_hidden(&self) -> usize {
        self.inner.program.given_beside()
    }

    /// True if the model makes logits; false where it makes vectors of texts alone.
    pub fn makes_logits(&self) -> bool {
        self.inner.program.makes_logits()
    }

    /// Number of logits per position.
    pub fn n_vocab(&self) -> usize {
        self.inner.config.n_vocab
    }
}
