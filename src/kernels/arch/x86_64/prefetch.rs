//! Requests for memory.

macro_rules! prefetch {
    ($name:ident, $cache:literal, $instruction:literal) => {
        #[doc = concat!("Brings the line at `p`, which need not be there, into the ", $cache, "-level cache.")]
        #[inline(always)]
        pub(crate) fn $name(p: *const u8) {
            // The compiler gathers its own prefetches, which it takes to write memory.
            // SAFETY: every x86-64 processor has the instruction, which takes any address.
            unsafe {
                std::arch::asm!(concat!($instruction, " [{p}]"), p = in(reg) p, options(readonly, nostack, preserves_flags));
            }
        }
    };
}

prefetch!(line, "second", "prefetcht1");
prefetch!(line_to_first, "first", "prefetcht0");
