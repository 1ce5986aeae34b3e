//! What the K-quants with eight chains per row share: sixteen rows are the lanes of a vector, and the chain
//! that the reference keeps for the elements that are l mod 8 is vector l.
//!
//! A block of 256 weights is walked l by l. Its 32 elements l, l + 8, .. are eight dwords s: the elements
//! 32s + l + 8i, i = 0..4, one broadcast of activations each.

use std::arch::x86_64::*;
use std::mem::MaybeUninit;

/// Rows of a group.
pub(super) const ROWS: usize = 16;
/// Weights of a block.
pub(super) const BLOCK: usize = 256;
/// Chains of a row.
pub(super) const CHAINS: usize = 8;
/// Bytes of a Q8_K block.
pub(super) const Q8_K: usize = 292;
/// Tokens whose chains are kept side by side in the first-level cache.
pub(super) const TILE: usize = 32;

/// What a tile keeps of a token: sixteen rows each.
#[derive(Clone, Copy)]
pub(super) struct Token {
    pub(super) chains: [__m512; CHAINS],
    /// The chain of the minima.
    pub(super) minus: __m512,
    /// The product of the scales of the current block.
    pub(super) d: __m512,
}

/// Room for a tile; few tokens must not pay for all of it.
pub(super) struct Tile([MaybeUninit<Token>; TILE]);

impl Tile {
    #[inline(always)]
    pub(super) fn new() -> Tile {
        Tile([const { MaybeUninit::uninit() }; TILE])
    }

    /// The first `tokens`, all chains zero.
    #[inline]
    #[target_feature(enable = "avx512f")]
    pub(super) fn start(&mut self, tokens: usize) -> &mut [Token] {
        let zero = _mm512_setzero_ps();
        let tile = &mut self.0[..tokens];
        for token in &mut *tile {
            token.write(Token {
                chains: [zero; CHAINS],
                minus: zero,
                d: zero,
            });
        }
        // SAFETY: all of these were written just now.
        unsafe { std::slice::from_raw_parts_mut(tile.as_mut_ptr().cast(), tokens) }
    }
}

/// Rows of blocks, and how many there are: `w` is up to 16 file rows of `n` weights.
pub(super) fn count_rows(w: &[u8], row_bytes: usize) -> usize {
    let rows = w.len().checked_div(row_bytes).unwrap_or(0);
    assert!(w.len() == rows * row_bytes && rows <= ROWS, "weights");
    rows
}

/// Dword s of l of a block's quants, at byte `32l + 4s` of `out`.
#[inline]
pub(super) fn by_lane(q: &[u8; BLOCK], out: &mut [u8; BLOCK]) {
    for (s, q) in q.as_chunks::<32>().0.iter().enumerate() {
        for l in 0..CHAINS {
            out[32 * l + 4 * s..][..4].copy_from_slice(&[q[l], q[l + 8], q[l + 16], q[l + 24]]);
        }
    }
}

/// `acc + pairs`: dword by dword, the products of both i16 added. The intrinsic of the same name becomes a
/// multiplication and an addition when the compiler believes that the chain is short of time; what is short here
/// are multipliers.
#[inline]
#[target_feature(enable = "avx512f,avx512vnni")]
pub(super) fn dpwssd(mut acc: __m512i, a: __m512i, b: __m512i) -> __m512i {
    // SAFETY: reads and writes the named registers only.
    unsafe {
        std::arch::asm!(
            "vpdpwssd {acc}, {a}, {b}",
            acc = inout(zmm_reg) acc,
            a = in(zmm_reg) a,
            b = in(zmm_reg) b,
            options(pure, nomem, nostack, preserves_flags)
        );
    }
    acc
}

/// The same with one dword for all lanes of `b`.
///
/// # Safety
/// `b` points at four readable bytes.
#[inline]
#[target_feature(enable = "avx512f,avx512vnni")]
pub(super) unsafe fn dpwssd_broadcast(mut acc: __m512i, a: __m512i, b: *const u8) -> __m512i {
    // SAFETY: reads the four bytes that the caller vouches for.
    unsafe {
        std::arch::asm!(
            "vpdpwssd {acc}, {a}, dword ptr [{b}]{{1to16}}",
            acc = inout(zmm_reg) acc,
            a = in(zmm_reg) a,
            b = in(reg) b,
            options(pure, readonly, nostack, preserves_flags)
        );
    }
    acc
}

/// The dword at `p` in all lanes.
///
/// # Safety
/// `p` points at four readable bytes.
#[inline]
#[target_feature(enable = "avx512f")]
pub(super) unsafe fn broadcast(p: *const u8) -> __m512i {
    // SAFETY: as above.
    _mm512_set1_epi32(unsafe { p.cast::<i32>().read_unaligned() })
}

/// 64 bytes.
///
/// # Safety
/// They are readable.
#[inline]
#[target_feature(enable = "avx512f")]
pub(super) unsafe fn load(p: *const u8) -> __m512i {
    // SAFETY: as above; no alignment is asked for.
    unsafe { _mm512_loadu_si512(p.cast()) }
}

/// The f16 scales of sixteen rows.
///
/// # Safety
/// 32 bytes are readable.
#[inline]
#[target_feature(enable = "avx512f")]
pub(super) unsafe fn scales(p: *const u8) -> __m512 {
    // SAFETY: as above.
    _mm512_cvtph_ps(unsafe { _mm256_loadu_si256(p.cast()) })
}

/// `chain + d * sum`, each operation rounded by itself.
#[inline]
#[target_feature(enable = "avx512f")]
pub(super) fn step(chain: __m512, d: __m512, sum: __m512i) -> __m512 {
    _mm512_add_ps(chain, _mm512_mul_ps(d, _mm512_cvtepi32_ps(sum)))
}

/// `start + chain 0 + chain 1 ...`, in this order, to 16 outputs.
#[inline]
#[target_feature(enable = "avx512f")]
pub(super) fn finish(start: __m512, chains: [__m512; CHAINS], out: &mut [f32]) {
    let mut sum = start;
    for chain in chains {
        sum = _mm512_add_ps(sum, chain);
    }
    let out = &mut out[..ROWS];
    // SAFETY: sixteen floats.
    unsafe { _mm512_storeu_ps(out.as_mut_ptr(), sum) }
}
