//! Requests for memory.

/// Brings the line at `p`, which need not be there, into the second-level cache.
#[inline(always)]
pub(crate) fn line(p: *const u8) {
    // The compiler gathers its own prefetches, which it takes to write memory.
    // SAFETY: every x86-64 processor has the instruction, which takes any address.
    unsafe {
        std::arch::asm!("prefetcht1 [{p}]", p = in(reg) p, options(readonly, nostack, preserves_flags));
    }
}
