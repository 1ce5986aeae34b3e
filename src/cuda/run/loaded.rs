//! Weights on a device, which all programs of a model share.

use std::collections::BTreeMap;
use std::num::NonZero;
use std::panic::resume_unwind;
use std::sync::{Mutex, MutexGuard};
use std::thread;

use super::Failure;
use crate::device::Device;
use crate::program::{Kind, Program, Table, Weights};

/// Matrices that are laid out at the same time, and their bytes, which take memory until they are on the device.
const MOST_WORKERS: usize = 8;
const MOST_BYTES: usize = 1 << 30;

/// A device with weights in its memory.
pub(super) struct Loaded<D: Device> {
    device: Mutex<D>,
    /// By the number of their memory in every program of the model.
    weights: BTreeMap<usize, (usize, D::Buffer)>,
}

impl<D: Device> Loaded<D> {
    /// Brings the weights to the device, laid out several matrices at a time.
    ///
    /// # Errors
    /// Before anything is allocated: the program needs more memory than there is.
    pub fn new(device: D, program: &Program, weights: &[Weights<'_>]) -> Result<Loaded<D>, (D, Failure)> {
        let mut loaded = Loaded { device: Mutex::new(device), weights: BTreeMap::new() };
        let table = program.table();
        let done = loaded.check(table, table.total()).and_then(|()| loaded.bring(program, weights));
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

    fn bring(&mut self, program: &Program, weights: &[Weights<'_>]) -> Result<(), Failure> {
        let device = self.device.get_mut().unwrap_or_else(|e| e.into_inner());
        let workers = thread::available_parallelism().map_or(1, NonZero::get).min(MOST_WORKERS);
        let mut left = weights;
        while !left.is_empty() {
            let mut bytes = 0usize;
            let sizes = left.iter().map(|weights| {
                bytes = bytes.saturating_add(weights.bytes(program));
                bytes
            });
            // One may be larger than all that several may take.
            let count = sizes.take(workers).take_while(|bytes| *bytes <= MOST_BYTES).count().max(1);
            let (several, rest) = left.split_at(count);
            left = rest;
            let packed: Vec<_> = thread::scope(|scope| {
                let packing: Vec<_> = several.iter().map(|weights| scope.spawn(|| weights.pack())).collect();
                packing.into_iter().map(|worker| worker.join().unwrap_or_else(|panic| resume_unwind(panic))).collect()
            });
            for (weights, parts) in several.iter().zip(packed) {
                for (i, bytes) in parts.map_err(Failure::of)?.iter().enumerate() {
                    let buffer = device.constant(bytes).map_err(Failure::of)?;
                    self.weights.insert(weights.memory + i, (bytes.len(), buffer));
                }
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

    /// True if all weights of a program are here.
    pub fn has(&self, program: &Program) -> bool {
        let memories = program.memories().iter().enumerate();
        let mut wanted = memories.filter(|(_, memory)| memory.kind == Kind::Weights);
        wanted.all(|(i, memory)| self.weights.get(&i).is_some_and(|(n, _)| *n == memory.bytes))
    }

    /// Checks that the device has `needed` bytes of the table's.
    pub fn check(&self, table: Table, needed: u64) -> Result<(), Failure> {
        check(&*self.device(), table, needed)
    }
}

/// Checks that a device has `needed` bytes of the table's.
pub(super) fn check(device: &impl Device, table: Table, needed: u64) -> Result<(), Failure> {
    let free = device.free_memory().map_err(Failure::of)?;
    if needed > free {
        return Err(Failure(format!(
            "the model needs {needed} bytes of the GPU's memory ({table}), and {free} are free; lower the context (-c), the \
             sequences, the tokens of a pass (-ub) or the layers on the GPU (-ngl)"
        )));
    }
    Ok(())
}
