//! Programs of several devices that share the rows of matrices, in step.
//!
//! Between two exchanges each device runs by itself. An exchange copies the part that each has made to all others, which
//! wait for it on their own; the launches behind it are started without waiting.

use std::sync::Arc;

use super::loaded::Loaded;
use super::meeting::Meeting;
use super::runner::{Launches, Runner};
use super::{Angles, Failure, Input, Part, Passes};
use crate::device::Device;
use crate::program::{Limits, Piece};

/// The programs of devices that run one model together.
pub(super) struct Together<D: Device> {
    /// One for each device.
    runners: Vec<Runner<D>>,
    meeting: Meeting<D>,
}

impl<D: Device + Send + 'static> Together<D> {
    /// Programs of one model, each with the rows of its device.
    ///
    /// # Errors
    /// No device, or one twice.
    pub fn new(runners: Vec<Runner<D>>) -> Result<Together<D>, Failure> {
        let is_there = |(at, runner): (usize, &Runner<D>)| {
            let mut before = runners[..at].iter();
            before.any(|other| Arc::ptr_eq(&other.loaded(), &runner.loaded()))
        };
        match runners.is_empty() || runners.iter().enumerate().any(is_there) {
            true => Err(Failure("rows of matrices on no GPU, or on one twice".to_owned())),
            false => Ok(Together { runners, meeting: Meeting::default() }),
        }
    }

    /// A device that has what all have.
    fn any(&self) -> &Runner<D> {
        &self.runners[0]
    }

    /// Starts all stretches, with their exchanges.
    fn run(&mut self, launches: Launches) -> Result<(), Failure> {
        let loaded: Vec<Arc<Loaded<D>>> = self.runners.iter().map(Runner::loaded).collect();
        let mut devices: Vec<_> = loaded.iter().map(|loaded| loaded.device()).collect();
        let mut devices: Vec<&mut D> = devices.iter_mut().map(|device| &mut **device).collect();
        let Together { runners, meeting } = self;
        for number in 0..runners[0].stretches(launches) {
            for (runner, device) in runners.iter_mut().zip(&mut devices) {
                runner.start(launches, number, device)?;
            }
            let exchanges = runners.iter().map(|runner| runner.exchange(launches, number));
            let pieces = exchanges.map(|exchange| exchange.map_or(Vec::new(), |exchange| exchange.pieces.clone()));
            let pieces: Vec<Vec<Piece>> = pieces.collect();
            if pieces.iter().any(|pieces| !pieces.is_empty()) {
                meeting.exchange(&mut devices, |devices| send(devices, runners, &pieces))?;
            }
        }
        Ok(())
    }
}

/// Sends the part of each piece that a device has made to all others; `pieces` are those of each device's program.
fn send<D: Device + Send + 'static>(
    devices: &mut [&mut D],
    runners: &mut [Runner<D>],
    pieces: &[Vec<Piece>],
) -> Result<(), Failure> {
    let other = || Failure("GPUs with programs of different models".to_owned());
    for from in 0..devices.len() {
        for to in (0..devices.len()).filter(|&to| to != from) {
            let [device, target] = devices.get_disjoint_mut([from, to]).map_err(|_| other())?;
            let [here, there] = runners.get_disjoint_mut([from, to]).map_err(|_| other())?;
            if pieces[from].len() != pieces[to].len() {
                return Err(other());
            }
            for (piece, same) in pieces[from].iter().zip(&pieces[to]) {
                let part = piece.bounds.get(from..from + 2).filter(|_| piece.bounds == same.bounds);
                let &[start, end] = part.ok_or_else(other)? else { return Err(other()) };
                if start < end {
                    let (source, to) = (here.buffer(piece.memory)?, there.buffer(same.memory)?);
                    device.send((source, start), end - start, target, (to, start)).map_err(Failure::of)?;
                }
            }
        }
    }
    Ok(())
}

impl<D: Device + Send + 'static> Passes for Together<D> {
    fn limits(&self) -> Limits {
        self.any().limits()
    }

    fn tell(&mut self, factors: &[Option<f32>]) -> Result<(), Failure> {
        self.runners.iter_mut().try_for_each(|runner| runner.tell(factors))
    }

    fn pass(&mut self, input: Input<'_>, parts: &[Part<'_>], width: u8, angles: &Angles<'_>) -> Result<(), Failure> {
        for runner in &mut self.runners {
            runner.prepare_pass(input, parts, width, angles)?;
        }
        self.run(Launches::Body)
    }

    fn logits(&mut self, rows: &[usize]) -> Result<Vec<f32>, Failure> {
        for runner in &mut self.runners {
            runner.prepare_logits(rows)?;
        }
        self.run(Launches::Head)?;
        self.any().read_logits(rows.len())
    }

    fn left(&mut self) -> Result<Vec<Vec<f32>>, Failure> {
        self.runners[0].left()
    }

    fn hand(&mut self, left: usize, to: &mut dyn Passes, given: usize) -> Result<(), Failure> {
        self.runners[0].hand(left, to, given)
    }

    fn copy_page(&mut self, from: u32, to: u32) -> Result<(), Failure> {
        self.runners.iter_mut().try_for_each(|runner| runner.copy_page(from, to))
    }

    fn read_page(&mut self, page: u32, positions: usize) -> Result<Vec<Vec<u8>>, Failure> {
        self.runners[0].read_page(page, positions)
    }

    fn write_page(&mut self, page: u32, positions: usize, cells: &[Vec<u8>]) -> Result<(), Failure> {
        self.runners.iter_mut().try_for_each(|runner| runner.write_page(page, positions, cells))
    }

    fn cells(&self) -> usize {
        self.any().cells()
    }

    fn state(&self) -> usize {
        self.any().state()
    }

    fn copy_state(&mut self, from: usize, to: usize) -> Result<(), Failure> {
        self.runners.iter_mut().try_for_each(|runner| runner.copy_state(from, to))
    }

    fn read_state(&mut self, slot: usize) -> Result<Vec<f32>, Failure> {
        self.runners[0].read_state(slot)
    }

    fn write_state(&mut self, slot: usize, state: &[f32]) -> Result<(), Failure> {
        self.runners.iter_mut().try_for_each(|runner| runner.write_state(slot, state))
    }
}
