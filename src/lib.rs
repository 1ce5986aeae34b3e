//! The engine of trine: bytes in, logits out, the same bits on every machine.
//!
//! The numerics are those of llama.cpp's CPU backend built for plain x86-64 (no SIMD options, no FMA
//! contraction) and run with flash attention off; `docs/determinism.md` states the contract.

pub mod arch;
pub mod cancel;
pub mod chat;
pub mod convert;
pub mod eval;
pub mod fisher;
pub mod kv;
pub mod model;
pub mod ops;
pub mod pool;
pub mod quant;
pub mod sample;
pub mod speculate;
pub mod step;
pub mod tokenizer;

pub use trine_kernels::{Isa, IsaError, Level, math};

use trine_kernels as kernels;
