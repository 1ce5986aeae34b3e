//! The operations of a program as launches of a GPU: each is recorded, or refused by name.

use trine_cuda::program::{ProgramError, Recorder, Share, Span, embeds};

use super::offload::{Angles, Recorded, Recording, Start};
use super::recurrent::is_fresh;
use super::tape::{Place, Tape, missing};
use crate::exec::processor::Processor;
use crate::math::EXP2_32;
use crate::ops::activation::HeadGate;
use crate::ops::attention::Reach;
use crate::program::{Op, Program, RowCount, Value};

impl Processor {
    /// Some blocks of `program`, and the logits where they are among them, as launches of a GPU that has its share of the
    /// rows of matrices, all without one. The matrices have to be where the file has them.
    ///
    /// # Errors
    /// The first operation that no kernel does, by name; sizes that a GPU does not have.
    pub(super) fn record<'a>(
        &'a self,
        program: &'a Program,
        options: Recording<'a>,
        share: Option<Share>,
    ) -> Result<Recorded<'a>, ProgramError> {
        let Recording { limits, blocks, cache, turned, halves, widths } = options;
        let mut recorder = Recorder::new(limits, program.shape(program.logits()).columns)?;
        if let Some(pruned) = halves {
            recorder.in_halves(pruned);
        }
        if let Some(share) = share {
            recorder.share(share)?;
        }
        let mut recording = Tape {
            recorder,
            processor: self,
            program,
            n_ctx: limits.context,
            cache,
            turned,
            widths,
            end: program.operations().len() - usize::from(program.bound().is_some()),
            until: program.operations().len(),
            cells: Vec::new(),
            places: vec![None; program.values()],
            done: vec![false; program.operations().len()],
            rotations: Vec::new(),
            factors: Vec::new(),
        };
        recording.until = match blocks.end > program.blocks().len() {
            true => recording.end,
            false => recording.from(blocks.end),
        };
        let (start, from) = recording.start(blocks.start)?;
        for at in from..recording.until {
            recording.run(at)?;
        }
        let angles = |tape: &Tape<'_>| Angles(tape.rotations.iter().map(|(table, _)| *table).collect());
        if recording.until < recording.end {
            let made = program.operations()[from..recording.until].iter().flat_map(|o| &o.outputs);
            let made: Vec<Value> = made.copied().collect();
            let entering = program.entering(recording.until);
            let leaving: Vec<Value> = entering.into_iter().filter(|value| made.contains(value)).collect();
            let spans = leaving.iter().map(|&value| recording.rows(value)).collect::<Result<Vec<_>, _>>()?;
            let angles = angles(&recording);
            let factors = recording.factors;
            let (program, weights) = recording.recorder.finish_part(&spans)?;
            return Ok(Recorded { program, weights, start, leaving, angles, factors });
        }
        let logits = program.bound().map_or(program.logits(), |(unbounded, _)| unbounded);
        let logits = recording.rows(logits)?;
        let angles = angles(&recording);
        let factors = recording.factors;
        let (program, weights) = recording.recorder.finish(logits)?;
        Ok(Recorded { program, weights, start, leaving: Vec::new(), angles, factors })
    }
}

impl<'a> Tape<'a> {
    /// The input of passes that begin with block number `first`, and the first operation behind it: tokens where the
    /// GPU has every operation of the start, otherwise rows of the residual stream.
    fn start(&mut self, first: usize) -> Result<(Start, usize), ProgramError> {
        let program = self.program;
        let from = self.from(first);
        let plain = |op: &Op| match op {
            Op::Embed(table) => embeds(program.matrix(*table).ty),
            Op::Scale(_) => true,
            _ => false,
        };
        if first == 0 && program.operations()[program.start()].iter().all(|o| plain(&o.op)) {
            return Ok((Start::Tokens, 0));
        }
        // Later parts may read more of the values that were made before.
        let read = |value: &Value| program.operations()[from..self.until].iter().any(|o| o.inputs.contains(value));
        let entering: Vec<Value> = program.entering(from).into_iter().filter(read).collect();
        self.done[..from].fill(true);
        for &value in &entering {
            let shape = program.shape(value);
            if shape.rows != RowCount::Tokens {
                return missing(format!("blocks that read {} of those before them", shape.name));
            }
            let given = self.recorder.given(shape.columns)?;
            let made = program.operations()[..from].iter().find(|o| o.outputs.contains(&value));
            self.places[value.0] = Some(match made.map(|o| &o.op) {
                Some(Op::ChooseSwitched(switch)) => {
                    // Number 0 adds nothing.
                    Place::Experts(self.recorder.take_choice(given, switch.adapters + 1)?)
                }
                _ => Place::Rows(given),
            });
        }
        Ok((Start::Rows(entering), from))
    }

    /// The first operation of block number `block`; that of the logits behind the last block.
    fn from(&self, block: usize) -> usize {
        self.program.blocks().get(block).map_or(self.program.head().start, |block| block.start)
    }

    /// The first input of operation number `at`, which writes over it. Other operations that read it are recorded
    /// before; where that cannot be, it is a copy.
    pub(super) fn own(&mut self, at: usize) -> Result<Span, ProgramError> {
        let x = self.program.operations()[at].inputs[0];
        for later in at + 1..self.until {
            let operation = &self.program.operations()[later];
            let ready = operation.inputs.iter().all(|input| self.places[input.0].is_some());
            let reads = operation.inputs.contains(&x) && !writes_over(&operation.op, operation.inputs[0] == x);
            if !self.done[later] && reads && ready {
                self.run(later)?;
            }
        }
        let rows = self.rows(x)?;
        match self.is_wanted(x, at) {
            true => self.recorder.copied(rows),
            false => Ok(rows),
        }
    }

    fn run(&mut self, at: usize) -> Result<(), ProgramError> {
        if self.done[at] {
            return Ok(());
        }
        let program = self.program;
        let operation = &program.operations()[at];
        let (inputs, outputs) = (&operation.inputs, &operation.outputs);
        match &operation.op {
            Op::Embed(table) => {
                let x = self.recorder.embed(self.stored(*table)?)?;
                self.set(outputs[0], x);
            }
            Op::Norm(norm) => {
                let y = match self.is_wanted(inputs[0], at) {
                    true => self.norm(norm, self.rows(inputs[0])?)?,
                    false => self.norm_in_place(norm, self.rows(inputs[0])?)?,
                };
                self.set(outputs[0], y);
            }
            Op::AddNorm(norm) => {
                let (x, y) = (self.own(at)?, self.rows(inputs[1])?);
                self.recorder.add(x, y);
                let normed = self.norm(norm, x)?;
                self.set(outputs[0], x);
                self.set(outputs[1], normed);
            }
            Op::Add => {
                let (x, y) = (self.own(at)?, self.rows(inputs[1])?);
                self.recorder.add(x, y);
                self.set(outputs[0], x);
            }
            Op::Multiply => {
                let (x, y) = (self.own(at)?, self.rows(inputs[1])?);
                self.recorder.multiply(x, y)?;
                self.set(outputs[0], x);
            }
            Op::Clamp(bound) => {
                let x = self.own(at)?;
                self.recorder.clamp(x, *bound);
                self.set(outputs[0], x);
            }
            Op::SoftCap(cap) => {
                let x = self.own(at)?;
                self.recorder.soft_cap(x, *cap);
                self.set(outputs[0], x);
            }
            Op::Sigmoid => {
                let x = self.own(at)?;
                self.recorder.sigmoid(x, &EXP2_32);
                self.set(outputs[0], x);
            }
            Op::HeadGate(f @ (HeadGate::Sigmoid | HeadGate::Itself)) => {
                let (x, gates) = (self.own(at)?, self.rows(inputs[1])?);
                self.recorder.head_gate(x, gates, *f == HeadGate::Itself, &EXP2_32)?;
                self.set(outputs[0], x);
            }
            Op::Split(widths) => {
                // parts of no elements are nowhere
                let some: Vec<usize> = widths.iter().copied().filter(|width| *width > 0).collect();
                let parts = self.recorder.split(self.rows(inputs[0])?, &some)?;
                let outputs = outputs.iter().zip(widths).filter(|(_, width)| **width > 0);
                outputs.zip(parts).for_each(|((&output, _), part)| self.set(output, part));
            }
            Op::Join(widths) => {
                let some = inputs.iter().zip(widths).filter(|(_, width)| **width > 0);
                let some = some.map(|(&input, &width)| Ok((self.rows(input)?, width)));
                let some = some.collect::<Result<Vec<_>, ProgramError>>()?;
                let (parts, widths): (Vec<Span>, Vec<usize>) = some.into_iter().unzip();
                let y = self.recorder.join(&parts, &widths)?;
                self.set(outputs[0], y);
            }
            Op::Repeat { width, times } => {
                let y = self.recorder.repeat(self.rows(inputs[0])?, *width, *times)?;
                self.set(outputs[0], y);
            }
            Op::AddRow(row) => {
                let x = self.own(at)?;
                self.recorder.add_row(x, row)?;
                self.set(outputs[0], x);
            }
            Op::Scale(factor) => {
                let x = self.own(at)?;
                self.recorder.scale(x, *factor);
                self.set(outputs[0], x);
            }
            Op::Activate(f) => {
                let x = self.own(at)?;
                self.gate(*f, x, None)?;
                self.set(outputs[0], x);
            }
            Op::Gate(f) => {
                let (x, up) = (self.own(at)?, self.rows(inputs[1])?);
                self.gate(*f, x, Some(up))?;
                self.set(outputs[0], x);
            }
            Op::ScaleByGate { plain } => {
                let (x, gates) = (self.own(at)?, self.rows(inputs[1])?);
                self.recorder.scale_by_gate(x, gates, &EXP2_32, *plain)?;
                self.set(outputs[0], x);
            }
            Op::Products(products) => {
                let x = self.rows(inputs[0])?;
                for (product, &output) in products.iter().zip(outputs) {
                    let y = self.product(product, x)?;
                    self.set(output, y);
                }
            }
            Op::GatedProducts(products, f) => {
                let x = self.rows(inputs[0])?;
                let [gate, up, down] = &**products;
                let (g, u) = (self.product(gate, x)?, self.product(up, x)?);
                self.gate(*f, g, Some(u))?;
                let y = self.product(down, g)?;
                self.set(outputs[0], y);
            }
            Op::Rotate(kind, head) => {
                let x = self.own(at)?;
                let rotation = self.rotation(*kind)?;
                self.recorder.rotate(x, rotation, *head)?;
                self.set(outputs[0], x);
            }
            Op::Attend(attend) if attend.stored && attend.reach == Reach::Own => {
                let y = self.attend_again(self.rows(inputs[0])?, attend)?;
                self.set(outputs[0], y);
            }
            Op::Attend(attend) if attend.reach == Reach::Own => {
                let qkv = [self.rows(inputs[0])?, self.rows(inputs[1])?, self.rows(inputs[2])?];
                let y = self.attend(qkv, attend)?;
                self.set(outputs[0], y);
            }
            Op::Take => {
                let y = self.recorder.take_wanted(self.rows(inputs[0])?)?;
                self.set(outputs[0], y);
            }
            Op::Choose(choosing) => {
                let chosen = self.choose(self.rows(inputs[0])?, choosing)?;
                self.places[outputs[0].0] = Some(Place::Experts(chosen));
            }
            // products find the rows of their experts themselves
            Op::Dispatch { weighed: false } => self.set(outputs[0], self.rows(inputs[0])?),
            Op::Dispatch { weighed: true } => {
                let y = self.recorder.weigh(self.rows(inputs[0])?, &self.experts(inputs[1])?)?;
                self.set(outputs[0], y);
            }
            Op::ProductsOfExperts(stacks) => {
                let (x, chosen) = (self.rows(inputs[0])?, self.experts(inputs[1])?);
                for (stack, &output) in stacks.iter().zip(outputs) {
                    let y = self.product_of_experts(stack, x, &chosen)?;
                    self.set(output, y);
                }
            }
            Op::Combine { weighed } => {
                let chosen = self.experts(inputs[1])?;
                let y = self.recorder.combine(self.rows(inputs[0])?, &chosen, *weighed)?;
                self.set(outputs[0], y);
            }
            Op::Decay(rule) => {
                let x = self.own(at)?;
                self.decay(x, rule)?;
                self.set(outputs[0], x);
            }
            op if is_fresh(op) => {
                let y = self.recurrent(operation)?;
                self.set(outputs[0], y);
            }
            _ => self.between(at)?,
        }
        self.done[at] = true;
        Ok(())
    }
}

/// True if an operation writes over its first input, where `first` states that this is the value in question.
fn writes_over(op: &Op, first: bool) -> bool {
    let fresh = matches!(
        op,
        Op::Norm(_)
            | Op::Products(_)
            | Op::GatedProducts(..)
            | Op::Dispatch { .. }
            | Op::ProductsOfExperts(_)
            | Op::Choose(_)
            | Op::Split(_)
            | Op::Join(_)
            | Op::Repeat { .. }
            | Op::Fill(_)
            | Op::ProductsByHead(_)
            | Op::SumStreams(_)
            | Op::ReadStreams(_)
            | Op::Blend(_)
            | Op::RootedDots(_)
            | Op::AttendCompressed(_)
            | Op::Take
    );
    first && !fresh && !is_fresh(op)
}
