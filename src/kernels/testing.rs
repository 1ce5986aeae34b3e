//! Shared by the tests of kernels and of their callers.

use std::cell::RefCell;
use std::collections::HashSet;
use std::io::Write as _;

use crate::{Isa, Level};

/// xorshift64*: the tests need variety, not quality.
pub struct Random(pub u64);

impl Random {
    /// 64 random bits.
    pub fn bits(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_F491_4F6C_DD1D)
    }

    /// A number below `n`, which is not 0.
    pub fn below(&mut self, n: usize) -> usize {
        (self.bits() >> 33) as usize % n
    }

    /// Roughly normal, with an outlier now and then.
    pub fn float(&mut self) -> f32 {
        let sum: f32 = (0..4).map(|_| (self.bits() >> 40) as f32 / (1u64 << 24) as f32 - 0.5).sum();
        if self.below(100) == 0 { sum * 20.0 } else { sum }
    }

    /// Close to the normal distribution, up to six.
    pub fn normal(&mut self) -> f32 {
        let sum: f32 = (0..12).map(|_| (self.bits() >> 40) as f32 / (1u64 << 24) as f32).sum();
        sum - 6.0
    }

    /// `n` random bytes.
    pub fn bytes(&mut self, n: usize) -> Vec<u8> {
        (0..n).map(|_| self.bits() as u8).collect()
    }
}

/// The instruction sets of this processor, the plainest first. What the others of its architecture are, and why their
/// kernels are not tested here, is said once in each test.
pub fn isas() -> impl Iterator<Item = Isa> {
    for level in Level::ALL.iter().filter(|level| !level.is_foreign()) {
        let missing = level.missing();
        if !missing.is_empty() {
            skipped(level.name(), &missing.join(", "));
        }
    }
    Isa::available()
}

/// Says on standard error that the running test leaves `what` out because this processor has no `missing`; once.
pub fn skipped(what: &str, missing: &str) {
    thread_local! {
        static SAID: RefCell<HashSet<String>> = RefCell::default();
    }
    if SAID.with_borrow_mut(|said| said.insert(what.to_owned())) {
        let thread = std::thread::current();
        let test = thread.name().unwrap_or("?");
        // Not eprintln!: the test harness would hide it, and what was not tested must be seen.
        let _ = writeln!(std::io::stderr(), "SKIPPED {what} in {test}: this processor has no {missing}");
    }
}

/// 2^e, for a normal number.
pub fn power(e: i32) -> f64 {
    f64::from_bits(((1023 + e) as u64) << 52)
}

/// Equal bits, or both NaN.
pub fn same(a: f32, b: f32) -> bool {
    a.to_bits() == b.to_bits() || (a.is_nan() && b.is_nan())
}
