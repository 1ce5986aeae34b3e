//! Which memory the values of a pass share.

use super::memory::{Kind, Memory, Value};
use super::operation::Operation;
use super::{Limits, ProgramError};

/// Gives every value a memory. Values that are never alive together share one; `given` is alive from the beginning,
/// `kept` are to the end.
pub(super) fn place(
    values: &mut [Value],
    given: &[usize],
    kept: &[usize],
    operations: &[Operation],
    limits: &Limits,
    memories: &mut Vec<Memory>,
) -> Result<(), ProgramError> {
    let mut last = vec![0; values.len()];
    for (at, operation) in operations.iter().enumerate() {
        operation.values(|value| last[value] = at);
    }
    kept.iter().for_each(|&value| last[value] = operations.len());
    let mut placed = vec![false; values.len()];
    let mut free: Vec<usize> = Vec::new();
    for (at, operation) in operations.iter().enumerate() {
        let mut touched: Vec<usize> = given.iter().copied().filter(|_| at == 0).collect();
        operation.values(|value| touched.push(value));
        for &value in &touched {
            if std::mem::replace(&mut placed[value], true) {
                continue;
            }
            let bytes = values[value].parts(limits)?[2];
            // The free memory that is nearest in size: one that is large enough, or the largest, which grows.
            free.sort_by_key(|&m| memories[m].bytes);
            let fits = free.iter().position(|&m| memories[m].bytes >= bytes);
            let taken = fits.or(free.len().checked_sub(1)).map(|i| free.remove(i));
            values[value].memory = taken.unwrap_or(memories.len());
            match memories.get_mut(values[value].memory) {
                Some(memory) => memory.bytes = memory.bytes.max(bytes),
                None => memories.push(Memory { kind: Kind::Values, bytes }),
            }
        }
        touched.sort_unstable();
        touched.dedup();
        free.extend(touched.iter().filter(|&&value| last[value] == at).map(|&value| values[value].memory));
    }
    Ok(())
}
