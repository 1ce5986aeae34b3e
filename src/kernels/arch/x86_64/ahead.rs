//! Prefetching of weights at a distance behind those in work.
//!
//! A load that misses keeps its dependent instructions waiting in the scheduler, which is full long before memory
//! has as many requests as it could serve; a prefetch waits for nothing.
//!
//! A kernel prefetches one line at a time, between instructions that have something else to do: even two prefetches at
//! once make loads wait. Ternary digits came at 10.7 GB/s where all lines of a block were prefetched at its beginning,
//! at 12.8 two by two and at 16.4 one by one.

use super::prefetch;

/// The prefetch distance of a product, behind the weights in work; a product may have none.
///
/// It is a type, so that kernels without a prefetch have no such instructions: some processors lose by them.
pub(crate) trait PrefetchDistance: Copy {
    /// Prefetches the line at this distance behind `p` into the second-level cache.
    fn line(self, p: *const u8);

    /// Prefetches share `i` of `of` of the lines at this distance behind the `bytes` bytes of `block`. All but `block`
    /// should be known when it is compiled: in a loop that is not unrolled, the block is a part of the real one.
    #[inline(always)]
    fn share(self, block: *const u8, bytes: usize, i: usize, of: usize) {
        let lines = bytes.div_ceil(64);
        for line in lines * i / of..lines * (i + 1) / of {
            self.line(block.wrapping_add(64 * line));
        }
    }
}

/// A distance of this number of bytes.
#[derive(Clone, Copy)]
pub(crate) struct Distance(pub(crate) usize);

impl PrefetchDistance for Distance {
    #[inline(always)]
    fn line(self, p: *const u8) {
        prefetch::line(p.wrapping_add(self.0));
    }
}

/// No prefetch.
#[derive(Clone, Copy)]
pub(crate) struct NoPrefetch;

impl PrefetchDistance for NoPrefetch {
    #[inline(always)]
    fn line(self, _: *const u8) {}
}

/// A number of bytes, 0 for no prefetch: for kernels of several tokens, which have the time to look each time.
impl PrefetchDistance for usize {
    #[inline(always)]
    fn line(self, p: *const u8) {
        if self > 0 {
            Distance(self).line(p);
        }
    }
}

/// Calls a kernel with the distance, bytes, as a [`PrefetchDistance`].
macro_rules! with_prefetch {
    ($ahead:ident => $call:expr) => {
        if $ahead > 0 {
            let $ahead = $crate::arch::x86_64::ahead::Distance($ahead);
            $call
        } else {
            let $ahead = $crate::arch::x86_64::ahead::NoPrefetch;
            $call
        }
    };
}
pub(crate) use with_prefetch;
