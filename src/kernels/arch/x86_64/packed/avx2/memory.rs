//! Vectors of 256 bits from memory and back, and tokens a few at a time.

use std::arch::x86_64::*;

/// Runs the body for tokens `t ..` of a tile, four at a time and then what is left, with their number as a constant.
macro_rules! by_tokens {
    ($t:ident in $tokens:expr, $T:ident => $body:expr) => {{
        let mut $t = 0;
        while $t + 4 <= $tokens {
            const $T: usize = 4;
            $body;
            $t += 4;
        }
        match $tokens - $t {
            1 => {
                const $T: usize = 1;
                $body
            }
            2 => {
                const $T: usize = 2;
                $body
            }
            3 => {
                const $T: usize = 3;
                $body
            }
            _ => {}
        }
    }};
}
pub(super) use by_tokens;

/// 32 bytes.
///
/// # Safety
/// They are readable.
#[inline]
#[target_feature(enable = "avx2")]
pub(super) unsafe fn load(p: *const u8) -> __m256i {
    // SAFETY: the caller has 32 readable bytes at `p`; no alignment is asked for.
    unsafe { _mm256_loadu_si256(p.cast()) }
}

/// The dword at `p` in all lanes.
///
/// # Safety
/// `p` points at four readable bytes.
#[inline]
#[target_feature(enable = "avx2")]
pub(super) unsafe fn broadcast(p: *const u8) -> __m256i {
    // SAFETY: the caller has four readable bytes at `p`; no alignment is asked for.
    _mm256_set1_epi32(unsafe { p.cast::<i32>().read_unaligned() })
}

/// The float at `p` in all lanes.
///
/// # Safety
/// `p` points at four readable bytes.
#[inline]
#[target_feature(enable = "avx2")]
pub(super) unsafe fn broadcast_float(p: *const u8) -> __m256 {
    // SAFETY: the caller has four readable bytes at `p`.
    _mm256_castsi256_ps(unsafe { broadcast(p) })
}

/// Eight f16 as f32.
///
/// # Safety
/// 16 bytes are readable.
#[inline]
#[target_feature(enable = "avx2,f16c")]
pub(super) unsafe fn halves(p: *const u8) -> __m256 {
    // SAFETY: the caller has 16 readable bytes at `p`; no alignment is asked for.
    _mm256_cvtph_ps(unsafe { _mm_loadu_si128(p.cast()) })
}

/// Writes eight floats.
#[inline]
#[target_feature(enable = "avx2")]
pub(super) fn store(to: &mut [f32], v: __m256) {
    let to = &mut to[..8];
    // SAFETY: `to` has eight floats; the store asks for no alignment.
    unsafe { _mm256_storeu_ps(to.as_mut_ptr(), v) }
}
