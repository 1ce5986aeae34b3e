//! Launches of passes of one shape: made once, and started as one when the shape comes again.

use super::Failure;
use crate::device::{Argument, Device, Start};
use crate::program::{Call, Operand, ProgramError};

/// Shapes whose launches are kept.
const KEPT: usize = 8;

/// Launches by the shape of their pass; the one that was used last is the last.
pub(super) struct Prepared<K, D: Device>(Vec<Shape<K, D>>);

struct Shape<K, D: Device> {
    key: K,
    calls: Vec<Call>,
    /// True once all kernels have been started with these arguments: they are compiled then.
    ran: bool,
    graph: Option<D::Graph>,
}

impl<K: PartialEq, D: Device> Prepared<K, D> {
    pub fn new() -> Prepared<K, D> {
        Prepared(Vec::new())
    }

    /// Makes sure that the launches of a shape are there.
    ///
    /// # Errors
    /// Those of `calls`, which makes them.
    pub fn prepare(&mut self, key: K, calls: impl FnOnce() -> Result<Vec<Call>, ProgramError>) -> Result<(), Failure> {
        let known = self.0.iter().position(|shape| shape.key == key);
        let shape = match known {
            Some(at) => self.0.remove(at),
            None => Shape { key, calls: calls().map_err(Failure::of)?, ran: false, graph: None },
        };
        if self.0.len() == KEPT {
            self.0.remove(0);
        }
        self.0.push(shape);
        Ok(())
    }

    /// Starts the launches that were prepared last: one by one for the first time, later as a graph where the device has
    /// graphs. Everything that differs from pass to pass is in memory, so a graph serves all of them.
    ///
    /// # Errors
    /// Memory that is not there, and the device's error.
    pub fn start<'b>(&mut self, device: &mut D, buffer: impl Fn(usize) -> Option<&'b D::Buffer>) -> Result<(), Failure>
    where
        D::Buffer: 'b,
    {
        let Some(Shape { calls, ran, graph, .. }) = self.0.last_mut() else { return Ok(()) };
        if let Some(graph) = graph {
            return device.replay(graph).map_err(Failure::of);
        }
        let starts = calls.iter().map(|call| {
            let arguments = call.operands.iter().map(|operand| match *operand {
                Operand::Memory(memory, at) => {
                    let missing = || Failure(format!("memory {memory} is not there"));
                    buffer(memory).map(|buffer| Argument::Address(buffer, at)).ok_or_else(missing)
                }
                Operand::U32(value) => Ok(Argument::U32(value)),
                Operand::F32(value) => Ok(Argument::F32(value)),
            });
            Ok((&call.launch, arguments.collect::<Result<Vec<_>, Failure>>()?))
        });
        let starts = starts.collect::<Result<Vec<Start<'_, D::Buffer>>, Failure>>()?;
        if *ran {
            *graph = device.record(&starts);
            if let Some(graph) = graph {
                return device.replay(graph).map_err(Failure::of);
            }
        }
        *ran = true;
        starts.iter().try_for_each(|(launch, arguments)| device.launch(launch, arguments)).map_err(Failure::of)
    }
}
