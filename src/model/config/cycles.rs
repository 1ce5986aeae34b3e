//! Stacks of blocks that run again and again.

use super::keys::Keys;

/// Two stacks of blocks, the low one and the high one, on two residual streams: in every cycle the low one runs several
/// times, then the high one once, each on the sum of both streams. Every run has keys and values of its own.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Cycles {
    /// Blocks of a stack.
    pub stack: usize,
    /// Runs of the low stack in a cycle.
    pub low: usize,
}

impl Cycles {
    /// The keys of an architecture that has them, whose blocks are counted run by run.
    pub fn read(k: &mut Keys<'_>, runs: usize) -> Cycles {
        const MOST: u32 = 512;
        let mut number = |key: &str| k.count(&format!("hrm.{key}"), MOST);
        let stack = number("layers_per_stack");
        let (high, low) = (number("h_cycles"), number("l_cycles"));
        let all = stack.saturating_mul(high).saturating_mul(low + 1);
        if all != runs {
            k.wrong(
                "block_count",
                format!("is {runs}, and {high} cycles of {low} runs and one more have {all} blocks"),
            );
        }
        Cycles { stack, low }
    }

    /// True if stack number `run` updates the high stream.
    pub fn is_high(&self, run: usize) -> bool {
        run % (self.low + 1) == self.low
    }

    /// The block of the file that is run in slot `slot`.
    pub fn block(&self, slot: usize) -> usize {
        let first = match self.is_high(slot / self.stack) {
            true => self.stack,
            false => 0,
        };
        first + slot % self.stack
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn low_stacks_run_before_the_high_one() {
        let cycles = Cycles { stack: 2, low: 2 };
        let blocks: Vec<usize> = (0..12).map(|slot| cycles.block(slot)).collect();
        assert_eq!(blocks, [0, 1, 0, 1, 2, 3, 0, 1, 0, 1, 2, 3]);
    }
}
