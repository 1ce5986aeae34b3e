//! Products with any-precision rows, by the fastest kernels that a processor has.

use crate::Isa;
#[cfg(target_arch = "x86_64")]
use crate::Level;
#[cfg(target_arch = "x86_64")]
use crate::arch::x86_64::bitplane as x86_64;
use crate::shared::bitplane::scalar;

pub use crate::shared::bitplane::{Arrangement, NumberPath, PlaneRows, in_blocks, reads_packed, sparse};

pub mod packed;
#[cfg(test)]
mod tests;

/// `out[r * tokens + t]` = the product of row `r` and activation row `t`, without sparse weights. `acts` are
/// `tokens` rows of `form`, which is what [`Arrangement::of`] says for these rows.
///
/// # Panics
/// When lengths do not fit, or `acts` are not aligned to 64 bytes.
pub fn multiply(isa: Isa, rows: &PlaneRows<'_>, form: Arrangement, acts: &[u8], tokens: usize, out: &mut [f32]) {
    #[cfg(target_arch = "x86_64")]
    if isa.has(Level::Avx2) {
        return x86_64::multiply(isa, rows, form, acts, tokens, out);
    }
    let _ = isa;
    if rows.check(form, acts, tokens, out) > 0 {
        scalar::multiply(rows, form, acts, tokens, out);
    }
}
