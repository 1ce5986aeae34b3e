//! Launches of passes of one shape: made once, and those between two exchanges started as one when the shape comes
//! again.

use super::Failure;
use crate::device::{Argument, Device, Start};
use crate::program::{Call, Exchange, Operand, ProgramError, Stretch};

/// Shapes whose launches are kept.
const KEPT: usize = 8;

/// Launches by the shape of their pass; the one that was used last is the last.
pub(super) struct Prepared<K, D: Device>(Vec<Shape<K, D>>);

struct Shape<K, D: Device> {
    key: K,
    stretches: Vec<Ready<D>>,
}

/// A stretch, and how it is started.
struct Ready<D: Device> {
    calls: Vec<Call>,
    exchange: Option<Exchange>,
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
    /// Those of `stretches`, which makes them.
    pub fn prepare(
        &mut self,
        key: K,
        stretches: impl FnOnce() -> Result<Vec<Stretch>, ProgramError>,
    ) -> Result<(), Failure> {
        let known = self.0.iter().position(|shape| shape.key == key);
        let shape = match known {
            Some(at) => self.0.remove(at),
            None => {
                let stretches = stretches().map_err(Failure::of)?.into_iter();
                let ready = |Stretch { calls, exchange }| Ready { calls, exchange, ran: false, graph: None };
                Shape { key, stretches: stretches.map(ready).collect() }
            }
        };
        if self.0.len() == KEPT {
            self.0.remove(0);
        }
        self.0.push(shape);
        Ok(())
    }

    /// Number of the stretches that were prepared last.
    pub fn count(&self) -> usize {
        self.0.last().map_or(0, |shape| shape.stretches.len())
    }

    /// The exchange behind a stretch of those that were prepared last.
    pub fn exchange(&self, number: usize) -> Option<&Exchange> {
        self.0.last()?.stretches.get(number)?.exchange.as_ref()
    }

    /// Starts a stretch of those that were prepared last: its launches one by one for the first time, later as a graph
    /// where the device has graphs. Everything that differs from pass to pass is in memory, so a graph serves all of them.
    ///
    /// # Errors
    /// Memory that is not there, and the device's error.
    pub fn start<'b>(
        &mut self,
        number: usize,
        device: &mut D,
        buffer: impl Fn(usize) -> Option<&'b D::Buffer>,
    ) -> Result<(), Failure>
    where
        D::Buffer: 'b,
    {
        let stretch = self.0.last_mut().and_then(|shape| shape.stretches.get_mut(number));
        let Some(Ready { calls, ran, graph, .. }) = stretch.filter(|stretch| !stretch.calls.is_empty()) else {
            return Ok(());
        };
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
