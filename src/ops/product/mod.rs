//! Products of the matrices that are not used as the file has them: how they are held, and how their rows and tokens
//! are shared among the threads of the current pool.

use std::sync::{Arc, Mutex};

use crate::kernels::packed::Arena;

pub mod bitplane;
pub mod density;
pub mod packed;
pub mod prefetch;
pub mod probe;
pub mod widely;

/// Memory that matrices take from when they are packed.
pub type SharedArena = Arc<Mutex<Arena>>;
