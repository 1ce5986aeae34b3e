//! Weights on a device, which all programs of a model share.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard};

use super::runner::Runner;
use super::{Failure, Host, Passes};
use crate::device::Device;
use crate::program::{Kind, Program, Table, Weights};

/// A device with weights in its memory.
pub(super) struct Loaded<D: Device> {
    device: Mutex<D>,
    /// By the number of their memory in every program of the model.
    weights: BTreeMap<usize, (usize, D::Buffer)>,
}

impl<D: Device> Loaded<D> {
    /// Brings the weights to the device, one matrix after the other.
    ///
    /// # Errors
    /// Before anything is allocated: the program needs more memory than there is.
    fn new(
        device: D,
        program: &Program,
        weights: &[Weights<'_>],
    ) -> Result<Loaded<D>, (D, Failure)> {
        let mut loaded = Loaded {
            device: Mutex::new(device),
            weights: BTreeMap::new(),
        };
        let table = program.table();
        let done = loaded
            .check(table, table.total())
            .and_then(|()| loaded.bring(weights));
        match done {
            Ok(()) => Ok(loaded),
            Err(failure) => {
                let Loaded { device, weights } = loaded;
                drop(weights);
                let device = device.into_inner().unwrap_or_else(|e| e.into_inner());
                Err((device, failure))
            }
        }
    }

    fn bring(&mut self, weights: &[Weights<'_>]) -> Result<(), Failure> {
        let device = self.device.get_mut().unwrap_or_else(|e| e.into_inner());
        for weights in weights {
            let parts = weights.pack().map_err(Failure::of)?;
            for (i, bytes) in parts.iter().enumerate() {
                let buffer = device.constant(bytes).map_err(Failure::of)?;
                self.weights
                    .insert(weights.memory + i, (bytes.len(), buffer));
            }
        }
        Ok(())
    }

    /// The device.
    pub fn device(&self) -> MutexGuard<'_, D> {
        self.device.lock().unwrap_or_else(|e| e.into_inner())
    }

    /// The weights of a memory of a program.
    pub fn weights(&self, memory: usize) -> Option<&D::Buffer> {
        self.weights.get(&memory).map(|(_, buffer)| buffer)
    }

    /// Whether all weights of a program are here.
    pub fn has(&self, program: &Program) -> bool {
        let memories = program.memories().iter().enumerate();
        let mut wanted = memories.filter(|(_, memory)| memory.kind == Kind::Weights);
        wanted.all(|(i, memory)| {
            self.weights
                .get(&i)
                .is_some_and(|(n, _)| *n == memory.bytes)
        })
    }

    /// Whether the device has so many bytes of the table's.
    pub fn check(&self, table: Table, needed: u64) -> Result<(), Failure> {
        let free = self.device().free_memory().map_err(Failure::of)?;
        if needed > free {
            return Err(Failure(format!(
                "the model needs {needed} bytes of the GPU's memory ({table}), and {free} are free; lower the context (-c), the \
                 sequences, the tokens of a pass (-ub) or the layers on the GPU (-ngl)"
            )));
        }
        Ok(())
    }
}

/// A device, with weights once a program was started.
enum State<D: Device> {
    Empty(D),
    Loaded(Arc<Loaded<D>>),
    /// While weights are on their way.
    Taken,
}

/// A device for the programs of one model.
pub struct Shared<D: Device>(Mutex<State<D>>);

impl<D: Device> Shared<D> {
    /// A device without weights.
    pub fn new(device: D) -> Shared<D> {
        Shared(Mutex::new(State::Empty(device)))
    }
}

impl<D: Device> fmt::Debug for Shared<D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Shared").finish_non_exhaustive()
    }
}

impl<D: Device + Send + 'static> Host for Shared<D> {
    fn start(&self, program: Program, weights: &[Weights<'_>]) -> Result<Box<dyn Passes>, Failure> {
        let mut state = self.0.lock().unwrap_or_else(|e| e.into_inner());
        let loaded = match std::mem::replace(&mut *state, State::Taken) {
            State::Loaded(loaded) => loaded,
            State::Empty(device) => match Loaded::new(device, &program, weights) {
                Ok(loaded) => Arc::new(loaded),
                Err((device, failure)) => {
                    *state = State::Empty(device);
                    return Err(failure);
                }
            },
            State::Taken => {
                return Err(Failure(
                    "the GPU was lost while weights were brought to it".to_owned(),
                ));
            }
        };
        *state = State::Loaded(loaded.clone());
        Ok(Box::new(Runner::new(loaded, program)?))
    }
}
