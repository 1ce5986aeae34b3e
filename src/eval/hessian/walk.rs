//! Hessians of one block after the other, each measured behind blocks that are rounded already.
//!
//! A [`Walk`] keeps the residual streams of all chunks between two blocks and carries out the block that they enter: to
//! the last product that reads an input whose sums are asked for, or to its end when the sums of a later block are. The
//! matrices of that block can be [replaced](Walk::replace), so that the inputs behind them are those that the new file
//! will have. In memory are the streams, the sums that were asked for, and one chunk's pass.

use std::ops::Range;
use std::sync::Arc;

use trine_formats::gguf::{GgufError, ModelFile};
use trine_formats::hessian::{Hessians, Origin, Reads};
use trine_formats::types::TypeId;

use super::collector::Collector;
use super::error::CollectError;
use super::sums::Collected;
use super::{cache_bytes, inputs};
use crate::eval::Chunks;
use crate::kernels::Floats;
use crate::model::{LoadOptions, ModelError, Weights};
use crate::pool::Pool;
use crate::program::{Op, Program, Value};
use crate::step::Engine;

/// Is told how many of how many passes are done; `false` stops the work.
pub type News<'a> = &'a mut dyn FnMut(usize, usize) -> bool;

/// The chunks of a text on their way through the blocks of a model.
pub struct Walk {
    file: ModelFile,
    options: LoadOptions,
    pool: Pool,
    engine: Engine,
    chunks: Chunks,
    /// The inputs, with the chunks that will be in their sums.
    header: Hessians,
    /// The number of the block that the streams enter; none before the first pass.
    block: Option<usize>,
    /// The values between two blocks, and those of every chunk.
    between: Vec<Value>,
    streams: Vec<Vec<Floats>>,
    /// True if matrices were replaced since the engine was made.
    is_stale: bool,
}

impl Walk {
    /// Loads the model of `file` and finds its inputs, which are those of a run over `chunks`.
    ///
    /// # Errors
    /// A model that cannot be loaded, whose blocks cannot be carried out by themselves, or without matrices.
    pub fn new(
        file: ModelFile,
        options: LoadOptions,
        pool: Pool,
        chunks: Chunks,
        origin: Origin,
    ) -> Result<Walk, CollectError> {
        let options = LoadOptions { repack: false, ..options };
        let engine = engine(&file, &options, &pool, &chunks)?;
        check(engine.model())?;
        let mut header = inputs(&engine, &chunks, origin)?;
        header.chunks = u32::try_from(chunks.count()).unwrap_or(u32::MAX);
        let streams = Vec::new();
        Ok(Walk {
            file,
            options,
            pool,
            engine,
            chunks,
            header,
            block: None,
            between: Vec::new(),
            streams,
            is_stale: false,
        })
    }

    /// The inputs of the model, without sums.
    pub fn header(&self) -> &Hessians {
        &self.header
    }

    /// Takes `data` of type `ty` for a matrix of the block that was measured last.
    ///
    /// # Errors
    /// Data that is no such matrix.
    pub fn replace(&mut self, tensor: &str, ty: TypeId, data: Vec<u8>) -> Result<(), GgufError> {
        self.is_stale = true;
        self.file.replace(tensor, ty, data)
    }

    /// The sums of some neighbouring inputs, which are those of one weight; those before them were asked for earlier.
    ///
    /// # Errors
    /// Activations that are not finite, by the name of the matrix; inputs of no block, or of an earlier one.
    /// [`CollectError::Interrupted`] where `news` wants no more.
    pub fn measure(&mut self, reads: Reads, news: News<'_>) -> Result<Collected, CollectError> {
        let outside = || CollectError::Outside(self.header.inputs[reads.first].name.clone());
        let (target, until) = self.place(reads).ok_or_else(outside)?;
        let next = self.block.unwrap_or(0);
        if target < next {
            return Err(outside());
        }
        let count = self.chunks.count();
        let passes = usize::from(self.block.is_none()) + (target - next) + 1;
        let mut done = 0;
        let mut tell = || {
            done += 1;
            if news(done, passes * count) { Ok(()) } else { Err(CollectError::Interrupted) }
        };
        if self.block.is_none() {
            self.enter(&mut tell)?;
        }
        for _ in next..target {
            self.advance(&mut tell)?;
        }
        self.refresh()?;
        let collected = Collected::zeros(self.header.clone(), reads.inputs());
        let collector = Arc::new(Collector::new(collected, self.chunks.n_ctx(), self.options.isa));
        let operations = self.operations().start..until + 1;
        for number in 0..count {
            let entering: Vec<(Value, Floats)> = self.entering(number);
            let tokens = self.chunks.context(number);
            self.engine.run_part(operations.clone(), (&entering, &[]), &tokens, Some(collector.clone()))?;
            self.keep(number, entering);
            collector.lock().check(number + 1, number + 1)?;
            tell()?;
        }
        let mut state = collector.lock();
        let header = std::mem::take(&mut state.collected.header);
        let sums = std::mem::take(&mut state.collected.sums);
        Ok(Collected { header, sums })
    }

    /// The block in which all weights that read some inputs are multiplied, and the last operation that does.
    fn place(&self, reads: Reads) -> Option<(usize, usize)> {
        let program = self.engine.model().program();
        let readers = |tensor: &str| self.header.weights.get(tensor).is_some_and(|of| *of == reads);
        let last = last_product(program, readers)?;
        let block = program.blocks().iter().position(|block| block.contains(&last))?;
        Some((block, last))
    }

    /// The operations of the block that the streams enter.
    fn operations(&self) -> Range<usize> {
        self.engine.model().program().blocks()[self.block.unwrap_or(0)].clone()
    }

    /// Makes the streams before the first block.
    fn enter(&mut self, tell: &mut dyn FnMut() -> Result<(), CollectError>) -> Result<(), CollectError> {
        let program = self.engine.model().program();
        let start = program.start();
        self.between = program.entering(start.end);
        for number in 0..self.chunks.count() {
            let tokens = self.chunks.context(number);
            let made = self.engine.run_part(start.clone(), (&[], &self.between), &tokens, None)?;
            self.streams.push(made);
            tell()?;
        }
        self.block = Some(0);
        Ok(())
    }

    /// Takes the streams through the block that they enter, whose matrices are those of the file again afterwards.
    fn advance(&mut self, tell: &mut dyn FnMut() -> Result<(), CollectError>) -> Result<(), CollectError> {
        self.refresh()?;
        let operations = self.operations();
        let behind = self.engine.model().program().entering(operations.end);
        for number in 0..self.chunks.count() {
            let entering = self.entering(number);
            let tokens = self.chunks.context(number);
            let made = self.engine.run_part(operations.clone(), (&entering, &behind), &tokens, None)?;
            self.streams[number] = made;
            tell()?;
        }
        self.between = behind;
        self.block = self.block.map(|block| block + 1);
        self.file.restore();
        self.is_stale = true;
        Ok(())
    }

    /// Takes the values of a chunk, each with its number.
    fn entering(&mut self, number: usize) -> Vec<(Value, Floats)> {
        let values = std::mem::take(&mut self.streams[number]);
        self.between.iter().copied().zip(values).collect()
    }

    fn keep(&mut self, number: usize, values: Vec<(Value, Floats)>) {
        self.streams[number] = values.into_iter().map(|(_, rows)| rows).collect();
    }

    /// Loads the matrices as they are now.
    fn refresh(&mut self) -> Result<(), CollectError> {
        if std::mem::take(&mut self.is_stale) {
            self.engine = engine(&self.file, &self.options, &self.pool, &self.chunks)?;
        }
        Ok(())
    }
}

fn engine(file: &ModelFile, options: &LoadOptions, pool: &Pool, chunks: &Chunks) -> Result<Engine, CollectError> {
    let failed = |error: ModelError| CollectError::Model(Box::new(error));
    let model = Weights::load(file, options).map_err(failed)?;
    Ok(Engine::new(&model, pool, cache_bytes(&model, chunks, 1)))
}

/// The last operation that multiplies by a tensor for which `is_wanted` holds.
fn last_product(program: &Program, is_wanted: impl Fn(&str) -> bool) -> Option<usize> {
    program.operations().iter().rposition(|operation| {
        let mut found = false;
        operation.op.matrices(|id| found |= is_wanted(&program.matrix(id).tensor));
        found
    })
}

/// Checks that blocks can be carried out one after the other with nothing but values between them.
fn check(model: &Weights) -> Result<(), CollectError> {
    let program = model.program();
    let arch = model.config().arch.name;
    let refused = |what| Err(CollectError::Blocks { arch, what });
    if model.encoder().is_some() || model.reads_hidden() > 0 {
        return refused("it reads states of another model");
    }
    let operations = program.operations();
    let mut shared: Vec<&str> = Vec::new();
    for block in program.blocks() {
        let entering = program.entering(block.start);
        let makes_choice = |op: &Op| matches!(op, Op::Choose(_) | Op::ChooseSwitched(_));
        let before = operations[..block.start].iter().filter(|operation| makes_choice(&operation.op));
        if before.flat_map(|operation| &operation.outputs).any(|value| entering.contains(value)) {
            return refused("blocks read a choice of experts that an earlier one made");
        }
        let mut stored = Vec::new();
        let mut own: Vec<&str> = Vec::new();
        for operation in &operations[block.clone()] {
            match &operation.op {
                Op::Store(cache) => stored.push(*cache),
                Op::Attend(attend) if attend.stored && !stored.contains(&attend.cache) => {
                    return refused("blocks attend to keys and values that an earlier one stored");
                }
                Op::AttendCompressed(_) | Op::AttendSource(_) => {
                    return refused("blocks attend to keys that they do not make by themselves");
                }
                op => op.matrices(|id| own.push(&program.matrix(id).tensor)),
            }
        }
        own.sort_unstable();
        own.dedup();
        if own.iter().any(|tensor| shared.contains(tensor)) {
            return refused("several blocks have the same matrices");
        }
        shared.append(&mut own);
    }
    Ok(())
}
