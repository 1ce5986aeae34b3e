//! How kernels ask for memory ahead of the weights in work.
//!
//! A load that misses keeps its dependent instructions waiting in the scheduler, which is full long before memory
//! has as many requests as it could serve; a request waits for nothing.
//!
//! A kernel asks for one line at a time, between instructions that have something else to do: even two requests at once
//! make loads wait. Ternary digits came at 10.7 GB/s where all lines of a block were asked for at its beginning, at
//! 12.8 two by two and at 16.4 one by one.

use super::prefetch;

/// The prefetch distance of a product, behind the weights in work; a product may have none.
///
/// It is a type, so that kernels that ask for nothing have no such instructions: some processors lose by them.
pub(crate) trait Ahead: Copy {
    /// Asks for the line so far behind `p` to be brought into the second-level cache.
    fn line(self, p: *const u8);

    /// Asks for share `i` of `of` of the lines that lie so far behind the `bytes` bytes of `block`. All but `block`
    /// should be known when it is compiled: in a loop that is not unrolled, the block is a part of the real one.
    #[inline(always)]
    fn share(self, block: *const u8, bytes: usize, i: usize, of: usize) {
        let lines = bytes.div_ceil(64);
        for line in lines * i / of..lines * (i + 1) / of {
            self.line(block.wrapping_add(64 * line));
        }
    }
}

/// So many bytes.
#[derive(Clone, Copy)]
pub(crate) struct Far(pub(crate) usize);

impl Ahead for Far {
    #[inline(always)]
    fn line(self, p: *const u8) {
        prefetch::line(p.wrapping_add(self.0));
    }
}

/// Nothing is asked for.
#[derive(Clone, Copy)]
pub(crate) struct Never;

impl Ahead for Never {
    #[inline(always)]
    fn line(self, _: *const u8) {}
}

/// So many bytes, 0 for nothing: for kernels of several tokens, which have the time to look each time.
impl Ahead for usize {
    #[inline(always)]
    fn line(self, p: *const u8) {
        if self > 0 {
            Far(self).line(p);
        }
    }
}

/// Calls a kernel with the distance, bytes, as an [`Ahead`].
macro_rules! with_ahead {
    ($ahead:ident => $call:expr) => {
        if $ahead > 0 {
            let $ahead = $crate::arch::x86_64::ahead::Far($ahead);
            $call
        } else {
            let $ahead = $crate::arch::x86_64::ahead::Never;
            $call
        }
    };
}
pub(crate) use with_ahead;
