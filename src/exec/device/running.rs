//! The part of a pass that GPUs run.

use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use trine_cuda::run::{Failure, Input, Part};

use super::offload::{DeviceError, Limits, Offloaded, OffloadedPart, Start};
use super::slots::{Slots, States};
use crate::exec::behind::Behind;
use crate::kv::{Keeper, PagePool, SequenceRows};
use crate::program::Value;

/// Rows of logits that are computed together, as on the processor.
const LOGITS_AT_ONCE: usize = 32;
/// Bytes of states that are not too much beside the weights; two states may take more.
const MOST_STATES: usize = 2 << 30;
/// The most rows of a pass: what is computed for them at the same time takes memory beside the weights.
const MOST_ROWS: usize = 2048;

/// The GPU part of an engine: keys and values in the engine's pages, states of recurrent layers, and memory for passes.
/// It is allocated at its first use.
#[derive(Clone, Default)]
pub struct OnDevice(Arc<Mutex<Option<Started>>>);

/// The GPU of an engine while a step uses it.
pub struct Running<'a>(MutexGuard<'a, Option<Started>>);

/// A program with its memory, and who has which slot of it.
struct Started {
    offloaded: Offloaded,
    slots: Slots,
}

impl OnDevice {
    /// Says to `pages` that the layers that are elsewhere are here.
    pub fn keeps(&self, pages: &PagePool) {
        if pages.layout().elsewhere > 0 {
            pages.kept_by(Arc::new(self.clone()));
        }
    }

    /// Does something with the parts of a GPU that has begun.
    fn with_parts<T>(&self, f: impl FnOnce(&mut [OffloadedPart]) -> Result<T, Failure>) -> io::Result<T> {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(started) = &mut *state else {
            return Err(io::Error::other("the GPU that keeps keys and values has not begun"));
        };
        f(&mut started.offloaded.0).map_err(io::Error::other)
    }

    /// The GPU of an engine with `pages`, with memory for passes of `rows` rows of `sequences` sequences; `None` where
    /// `start` says that it runs nothing.
    ///
    /// # Errors
    /// More memory than the GPU has, and what it says.
    pub fn running(
        &self,
        pages: &PagePool,
        [rows, sequences]: [usize; 2],
        start: impl FnOnce(Limits) -> Option<Result<Offloaded, DeviceError>>,
    ) -> Result<Option<Running<'_>>, DeviceError> {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if state.is_none() {
            let page = pages.layout().positions;
            let limits = Limits {
                tokens: rows.clamp(1, MOST_ROWS),
                wanted: LOGITS_AT_ONCE,
                context: pages.budget().saturating_mul(page),
                page,
                pages: pages.budget(),
                slots: slots(sequences, pages.layout().state_elsewhere),
            };
            let started = |offloaded| Started { offloaded, slots: Slots::new(limits.slots) };
            *state = start(limits).transpose()?.map(started);
        }
        Ok(state.is_some().then_some(Running(state)))
    }
}

/// Slots for passes of so many sequences with states of `numbers` numbers: the state that a pass begins with stays
/// until it has ended.
fn slots(sequences: usize, numbers: usize) -> usize {
    let of_two = numbers.saturating_mul(2 * size_of::<f32>()).max(1);
    2 * sequences.min(MOST_STATES / of_two).max(1)
}

impl Keeper for OnDevice {
    fn page(&self, number: u32, positions: usize) -> io::Result<Vec<Vec<u8>>> {
        self.with_parts(|parts| {
            let pages = parts.iter_mut().map(|part| part.passes.read_page(number, positions));
            Ok(pages.collect::<Result<Vec<_>, _>>()?.concat())
        })
    }

    fn set_page(&self, number: u32, positions: usize, mut cells: &[Vec<u8>]) -> io::Result<()> {
        self.with_parts(|parts| {
            for part in parts {
                let (own, others) = cells.split_at(part.passes.cells().min(cells.len()));
                part.passes.write_page(number, positions, own)?;
                cells = others;
            }
            Ok(())
        })
    }
}

impl Running<'_> {
    fn started(&mut self) -> &mut Started {
        self.0.as_mut().expect("it was started")
    }

    fn parts(&mut self) -> &mut [OffloadedPart] {
        &mut self.started().offloaded.0
    }

    /// The part that makes logits.
    fn last(&mut self) -> &mut OffloadedPart {
        self.parts().last_mut().expect("a GPU has a layer")
    }

    /// The most sequences of a pass.
    pub fn sequences(&mut self) -> usize {
        match States(self.parts()).are_there() {
            true => self.last().passes.limits().slots / 2,
            false => usize::MAX,
        }
    }

    /// The most rows of a pass.
    pub fn rows(&mut self) -> usize {
        self.last().passes.limits().tokens
    }

    /// Runs the model's last blocks over the rows of `parts`. GPUs hand on what later ones read. Keys and values are left in the pages of the sequences, and
    /// states in slots.
    ///
    /// # Errors
    /// The device's error.
    pub fn pass(&mut self, behind: &Behind<'_>, parts: &mut [SequenceRows<'_>]) -> Result<(), DeviceError> {
        let Started { offloaded: Offloaded(on_gpus), slots } = self.started();
        for part in parts.iter() {
            if let Some((from, to)) = part.seq.copied_page() {
                on_gpus.iter_mut().try_for_each(|gpu| gpu.passes.copy_page(from, to))?;
            }
        }
        let pages: Vec<Vec<u32>> = parts.iter().map(|p| p.seq.page_numbers()).collect();
        let placed = slots.place(&mut States(on_gpus), parts)?;
        let parts = parts.iter().zip(&pages).zip(placed);
        let parts: Vec<Part<'_>> = parts
            .map(|((part, pages), slot)| Part { pages, first: part.first(), tokens: part.rows.len(), slot })
            .collect();
        for i in 0..on_gpus.len() {
            let (before, behind_it) = on_gpus.split_at_mut(i + 1);
            let OffloadedPart { passes, start, leaving, tables, factors } = &mut before[i];
            let factors: Vec<Option<f32>> = factors.iter().map(|added| added.factor(behind.adapters)).collect();
            passes.tell(&factors)?;
            let angles = |kind: usize, position: usize| tables.at(kind, position, behind.angles);
            match start {
                Start::Tokens => passes.pass(Input::of_tokens(behind.tokens), &parts, behind.bits, &angles)?,
                Start::Rows(values) => {
                    // What GPUs before it have left is there.
                    let known = |value: &Value| behind.rows.iter().find(|(v, _)| v == value);
                    let of = |value: &Value| known(value).map_or(&[][..], |(_, rows)| *rows);
                    let rows: Vec<&[f32]> = values.iter().map(of).collect();
                    passes.pass(Input { tokens: behind.tokens, rows: &rows }, &parts, behind.bits, &angles)?;
                }
            }
            for later in behind_it {
                let Start::Rows(given) = &later.start else { continue };
                for (place, value) in given.iter().enumerate() {
                    if let Some(left) = leaving.iter().position(|v| v == value) {
                        passes.hand(left, &mut *later.passes, place)?;
                    }
                }
            }
        }
        Ok(())
    }

    /// Calls `sink` with the number and the logits of each row in `rows` of the last pass, in order.
    ///
    /// # Errors
    /// The device's error.
    pub fn logits(&mut self, rows: &[usize], sink: &mut dyn FnMut(usize, &mut [f32])) -> Result<(), DeviceError> {
        for (block, rows) in rows.chunks(LOGITS_AT_ONCE).enumerate() {
            let mut logits = self.last().passes.logits(rows)?;
            let columns = logits.len() / rows.len();
            for (i, row) in logits.chunks_exact_mut(columns).enumerate() {
                sink(block * LOGITS_AT_ONCE + i, row);
            }
        }
        Ok(())
    }

    /// The rows that the last pass has left, which the logits are made of.
    ///
    /// # Errors
    /// The device's error.
    pub fn stream(&mut self) -> Result<Vec<f32>, DeviceError> {
        Ok(self.last().passes.left()?.swap_remove(0))
    }
}

#[cfg(test)]
mod tests {
    use super::slots;

    #[test]
    fn large_states_have_fewer_slots_and_every_pass_has_two() {
        assert_eq!(slots(16, 0), 32);
        assert_eq!(slots(16, 1 << 20), 32);
        assert_eq!(slots(16, 1 << 27), 4);
        assert_eq!((slots(16, usize::MAX), slots(0, 5)), (2, 2));
    }
}
