//! Facts of the tokens of a pass in one memory, so that one copy brings all of them: their numbers, where they stand, their angles,
//! and the pages of their sequences.

use super::memory::Memory;
use super::{Limits, Operand, ProgramError, Stretch, fixed};

/// Each part begins at a multiple of so many bytes.
const ALIGNMENT: usize = 16;

/// A memory that is part of the one of [`fixed::TOKENS`], and its bytes for each token of a pass.
#[derive(Clone, Copy, Debug)]
struct Part {
    memory: usize,
    of_token: usize,
}

/// The parts in their order.
#[derive(Clone, Debug)]
pub(super) struct Staged(Vec<Part>);

/// The end of some parts in a pass of `tokens` tokens.
fn end(parts: &[Part], tokens: usize) -> usize {
    parts.iter().map(|part| (part.of_token * tokens).next_multiple_of(ALIGNMENT)).sum()
}

impl Staged {
    /// Puts all parts into the memory of the first; the others hold nothing then. Pages come last: of them a pass is told
    /// those of its sequences alone.
    pub fn new(memories: &mut [Memory], rotations: &[(usize, usize)], limits: &Limits) -> Staged {
        let angles = rotations.iter().map(|&(memory, _)| memory);
        let numbers = [fixed::TOKENS, fixed::PLACES, fixed::CELLS, fixed::SLOTS].into_iter();
        let all = numbers.chain(angles).chain([fixed::TABLES]);
        let parts = all.map(|memory| Part { memory, of_token: memories[memory].bytes.div_ceil(limits.tokens) });
        let parts: Vec<Part> = parts.collect();
        parts.iter().for_each(|part| memories[part.memory].bytes = 0);
        memories[fixed::TOKENS].bytes = end(&parts, limits.tokens);
        Staged(parts)
    }

    /// Where a memory begins in that of the tokens, in a pass of `tokens` of them; `None` of a memory that stands by itself.
    pub fn at(&self, memory: usize, tokens: usize) -> Option<usize> {
        let place = self.0.iter().position(|part| part.memory == memory)?;
        Some(end(&self.0[..place], tokens))
    }

    /// Lets the launches of a pass of `tokens` tokens find the parts; `None` for those of logits, which may begin behind a
    /// pass of any number.
    ///
    /// # Errors
    /// Logits that read what a pass was told.
    pub fn find(&self, mut stretches: Vec<Stretch>, tokens: Option<usize>) -> Result<Vec<Stretch>, ProgramError> {
        let calls = stretches.iter_mut().flat_map(|stretch| &mut stretch.calls);
        for operand in calls.flat_map(|call| &mut call.operands) {
            let Operand::Memory(memory, at) = *operand else { continue };
            if self.0.iter().all(|part| part.memory != memory) {
                continue;
            }
            let begin = tokens.and_then(|tokens| self.at(memory, tokens));
            let begin = begin.ok_or_else(|| ProgramError::Missing("logits by the place of a token".to_owned()))?;
            *operand = Operand::Memory(fixed::TOKENS, begin + at);
        }
        Ok(stretches)
    }
}
