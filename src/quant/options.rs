//! How a plan is carried out.

use crate::kernels::Isa;

/// How to run.
#[derive(Clone, Copy, Debug)]
pub struct RunOptions {
    /// Threads that convert; 0: one per processor.
    pub threads: usize,
    /// Go on when tensors made ternary were not.
    pub force: bool,
    /// Instruction set of the codecs; the bytes do not depend on it.
    pub isa: Isa,
}

impl Default for RunOptions {
    fn default() -> RunOptions {
        RunOptions { threads: 0, force: false, isa: Isa::detect() }
    }
}
