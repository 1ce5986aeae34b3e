//! Element-wise operations, norms and soft-max in vectors, each with the bits of its scalar definition.
//!
//! Multiplications and additions are never fused. The definitions are here too: other instruction
//! sets run them as they are, and the tests compare with them.

use crate::math::{NEAR, pexp, pexp_near};

mod gate;
mod hadamard;
mod norm;
mod rotate;
mod soft_max;

pub use gate::{geglu, gelu_table, squared_reglu, swiglu};
pub use hadamard::hadamard;
pub use norm::{layer_norm, layer_norm_in_place, rms_norm, rms_norm_in_place};
pub use rotate::{rotate_adjacent, rotate_halves};
pub use soft_max::{soft_max, soft_max_with_sink};

/// [`pexp`] of all values, for instruction sets without a version by hand.
#[inline(always)]
fn pexp_all(x: &mut [f32]) {
    let (sixteens, rest) = x.as_chunks_mut();
    sixteens.iter_mut().for_each(pexp_sixteen);
    rest.iter_mut().for_each(|x| *x = pexp(*x));
}

#[inline(always)]
fn pexp_sixteen(x: &mut [f32; 16]) {
    // Both loops become vectors; the second is slow and rare.
    if x.iter().fold(true, |near, x| near & (x.abs() < NEAR)) {
        x.iter_mut().for_each(|x| *x = pexp_near(*x));
    } else {
        x.iter_mut().for_each(|x| *x = pexp(*x));
    }
}
