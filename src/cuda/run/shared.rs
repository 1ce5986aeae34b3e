//! A device that the programs of one model share.

use std::any::Any;
use std::fmt;
use std::sync::{Arc, Mutex};

use super::loaded::{self, Loaded};
use super::runner::Runner;
use super::together::Together;
use super::{Failure, Host, Member, Passes};
use crate::device::Device;
use crate::program::{Program, Weights};

/// A device, with weights once a program was started.
enum DeviceState<D: Device> {
    Empty(D),
    Loaded(Arc<Loaded<D>>),
    /// While weights are on their way.
    Taken,
}

/// A device for the programs of one model.
pub struct Shared<D: Device>(Mutex<DeviceState<D>>);

impl<D: Device> Shared<D> {
    /// A device without weights.
    pub fn new(device: D) -> Shared<D> {
        Shared(Mutex::new(DeviceState::Empty(device)))
    }
}

impl<D: Device + Send + 'static> Shared<D> {
    /// The program with its memory; with the first one the weights are brought to the device.
    fn runner(&self, program: Program, weights: &[Weights<'_>]) -> Result<Runner<D>, Failure> {
        let mut state = self.0.lock().unwrap_or_else(|e| e.into_inner());
        let loaded = match std::mem::replace(&mut *state, DeviceState::Taken) {
            DeviceState::Loaded(loaded) => loaded,
            DeviceState::Empty(device) => match Loaded::new(device, &program, weights) {
                Ok(loaded) => Arc::new(loaded),
                Err((device, failure)) => {
                    *state = DeviceState::Empty(device);
                    return Err(failure);
                }
            },
            DeviceState::Taken => {
                return Err(Failure("the GPU was lost while weights were brought to it".to_owned()));
            }
        };
        *state = DeviceState::Loaded(loaded.clone());
        Runner::new(loaded, program)
    }
}

impl<D: Device> fmt::Debug for Shared<D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Shared").finish_non_exhaustive()
    }
}

impl<D: Device + Send + 'static> Host for Shared<D> {
    fn free_memory(&self) -> Result<u64, Failure> {
        match &*self.0.lock().unwrap_or_else(|e| e.into_inner()) {
            DeviceState::Empty(device) => device.free_memory().map_err(Failure::of),
            DeviceState::Loaded(loaded) => loaded.device().free_memory().map_err(Failure::of),
            DeviceState::Taken => Ok(0),
        }
    }

    fn check(&self, program: &Program) -> Result<(), Failure> {
        let table = program.table();
        match &*self.0.lock().unwrap_or_else(|e| e.into_inner()) {
            DeviceState::Empty(device) => loaded::check(device, table, table.total()),
            DeviceState::Loaded(loaded) => loaded.check(table, table.total() - table.weights),
            DeviceState::Taken => Ok(()),
        }
    }

    fn start(&self, program: Program, weights: &[Weights<'_>]) -> Result<Box<dyn Passes>, Failure> {
        Ok(Box::new(self.runner(program, weights)?))
    }

    fn start_together(&self, parts: Vec<Member<'_>>) -> Result<Box<dyn Passes>, (usize, Failure)> {
        let runners = parts.into_iter().enumerate().map(|(number, Member { host, program, weights })| {
            let host: &dyn Any = host;
            let other = || Failure("GPUs of several kinds".to_owned());
            let runner = host.downcast_ref::<Shared<D>>().ok_or_else(other);
            runner.and_then(|host| host.runner(program, &weights)).map_err(|failure| (number, failure))
        });
        let runners = runners.collect::<Result<Vec<_>, _>>()?;
        Ok(Box::new(Together::new(runners).map_err(|failure| (0, failure))?))
    }
}
