//! The state that recurrent layers keep of a sequence.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The state after the last position of a sequence; zeros until it is written first.
#[derive(Clone, Default)]
pub(super) struct State {
    /// The numbers that are here.
    pub here: Option<Arc<Vec<f32>>>,
    /// The rest, which a device has.
    pub elsewhere: Option<Arc<StateElsewhere>>,
}

/// The part of a state that a device keeps. It belongs to the sequences that refer to it, and to nobody once they are
/// gone; a device writes where one refers to it, and leaves it alone where there are several.
pub struct StateElsewhere(Mutex<StatePlace>);

/// Where a device finds such a part.
pub enum StatePlace {
    /// In one of its slots.
    Slot(usize),
    /// Here, because others were given its slot.
    Here(Vec<f32>),
}

impl StateElsewhere {
    /// A state in a slot.
    pub fn in_slot(slot: usize) -> StateElsewhere {
        StateElsewhere(Mutex::new(StatePlace::Slot(slot)))
    }

    /// Where it is, to read and to change.
    pub fn place(&self) -> MutexGuard<'_, StatePlace> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
