//! Which slots of a GPU hold the states of which sequences.
//!
//! A state belongs to whoever refers to it: sequences, and marks that they may return to. Who alone refers to one has it
//! changed where it is; where there are several, the next pass begins with a copy. A slot is free once nobody refers to
//! its state. Where none is free, the state that was used the longest ago waits in this memory until it is wanted.

use std::sync::{Arc, Weak};

use trine_cuda::run::{Failure, Slot};

use super::offload::OffloadedPart;
use crate::kv::{Sequence, SequenceRows, StateElsewhere, StatePlace};

/// The states of a model on its GPUs: under a slot's number each GPU has the part of its own blocks.
pub(super) struct States<'a>(pub &'a mut [OffloadedPart]);

impl States<'_> {
    /// True if a GPU has any.
    pub fn are_there(&self) -> bool {
        self.0.iter().any(|part| part.passes.state() > 0)
    }

    fn copy(&mut self, from: usize, to: usize) -> Result<(), Failure> {
        self.0.iter_mut().try_for_each(|part| part.passes.copy_state(from, to))
    }

    /// All parts, one behind the other.
    fn read(&mut self, slot: usize) -> Result<Vec<f32>, Failure> {
        let parts = self.0.iter_mut().map(|part| part.passes.read_state(slot));
        Ok(parts.collect::<Result<Vec<_>, _>>()?.concat())
    }

    fn write(&mut self, slot: usize, mut state: &[f32]) -> Result<(), Failure> {
        for part in self.0.iter_mut() {
            let (own, others) = state.split_at(part.passes.state().min(state.len()));
            part.passes.write_state(slot, own)?;
            state = others;
        }
        Ok(())
    }
}

/// All slots.
pub(super) struct Slots {
    slots: Vec<Held>,
    /// Passes so far.
    passes: u64,
}

/// One slot.
#[derive(Default)]
struct Held {
    of: Weak<StateElsewhere>,
    /// The last pass that used it.
    used: u64,
    /// True while the pass that is being prepared writes it.
    written: bool,
}

impl Slots {
    /// So many that nobody uses.
    pub fn new(count: usize) -> Slots {
        Slots { slots: (0..count).map(|_| Held::default()).collect(), passes: 0 }
    }

    /// The slots of the sequences of a pass, whose states nobody else refers to from then on; any where there are none.
    ///
    /// # Errors
    /// More sequences than slots, and the device's error.
    pub fn place(&mut self, states: &mut States<'_>, parts: &mut [SequenceRows<'_>]) -> Result<Vec<Slot>, Failure> {
        if !states.are_there() {
            return Ok(vec![Slot::default(); parts.len()]);
        }
        self.passes += 1;
        for held in &mut self.slots {
            held.written = false;
        }
        // States that the pass begins with go last where others have to.
        for part in parts.iter() {
            if let Some(StatePlace::Slot(slot)) = part.seq.state_elsewhere().map(|state| state.place()).as_deref() {
                self.slots[*slot].used = self.passes;
            }
        }
        parts.iter_mut().map(|part| self.place_one(states, part.seq)).collect()
    }

    fn place_one(&mut self, states: &mut States<'_>, seq: &mut Sequence) -> Result<Slot, Failure> {
        let Some(state) = seq.state_elsewhere().cloned() else {
            let number = self.free(states)?;
            self.give(number, seq);
            return Ok(Slot { number, fresh: true });
        };
        // The sequence and this function.
        if Arc::strong_count(&state) > 2 {
            let number = self.free(states)?;
            match &*state.place() {
                StatePlace::Slot(from) => states.copy(*from, number)?,
                StatePlace::Here(numbers) => states.write(number, numbers)?,
            }
            self.give(number, seq);
            return Ok(Slot { number, fresh: false });
        }
        let there = match &*state.place() {
            StatePlace::Slot(number) => Some(*number),
            StatePlace::Here(_) => None,
        };
        let number = match there {
            Some(number) => number,
            None => {
                let number = self.free(states)?;
                let mut place = state.place();
                if let StatePlace::Here(numbers) = &*place {
                    states.write(number, numbers)?;
                }
                *place = StatePlace::Slot(number);
                number
            }
        };
        self.hold(number, &state);
        Ok(Slot { number, fresh: false })
    }

    /// A state of a sequence's own.
    fn give(&mut self, number: usize, seq: &mut Sequence) {
        let state = Arc::new(StateElsewhere::in_slot(number));
        self.hold(number, &state);
        seq.set_state_elsewhere(state);
    }

    fn hold(&mut self, number: usize, state: &Arc<StateElsewhere>) {
        self.slots[number] = Held { of: Arc::downgrade(state), used: self.passes, written: true };
    }

    /// A slot that nobody uses, made so where there is none.
    fn free(&mut self, states: &mut States<'_>) -> Result<usize, Failure> {
        if let Some(number) = self.slots.iter().position(|held| !held.written && held.of.strong_count() == 0) {
            return Ok(number);
        }
        let others = self.slots.iter().enumerate().filter(|(_, held)| !held.written);
        let Some(number) = others.min_by_key(|(_, held)| held.used).map(|(number, _)| number) else {
            return Err(Failure::new(format!("a pass of more sequences than {} slots", self.slots.len())));
        };
        if let Some(state) = self.slots[number].of.upgrade() {
            *state.place() = StatePlace::Here(states.read(number)?);
        }
        Ok(number)
    }
}
