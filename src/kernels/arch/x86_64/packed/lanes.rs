//! What the K-quants with eight chains per row share: sixteen rows are the lanes of a vector, and the chain
//! that the reference keeps for the elements that are l mod 8 is vector l.
//!
//! A block of 256 weights is walked l by l. Its 32 elements l, l + 8, .. are eight dwords s: the elements
//! 32s + l + 8i, i = 0..4, one broadcast of activations each.

use std::arch::x86_64::*;

use std::mem::MaybeUninit;

pub(super) use crate::packed::k_quants::{BLOCK, CHAINS, Q8_K, ROWS};

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
            token.write(Token { chains: [zero; CHAINS], minus: zero, d: zero });
        }
        // SAFETY: all of these were written just now.
        unsafe { std::slice::from_raw_parts_mut(tile.as_mut_ptr().cast(), tokens) }
    }
}

/// Words of two vectors, one after the other: where word i of dword s of l = 0 and 1 comes from, s = 0..4.
const WORDS: [i16; 32] = {
    let mut words = [0; 32];
    let mut k = 0;
    while k < 32 {
        let (l, s, i) = (k / 16, k / 2 % 4, k % 2);
        words[k] = (16 * s + 8 * i + l) as i16;
        k += 1;
    }
    words
};

/// The quants of a block in the order in which the kernels walk them: dword s of l at byte 32l + 4s.
#[inline]
#[target_feature(enable = "avx512f,avx512bw")]
pub(super) fn by_lane(q: &[u8; BLOCK]) -> [__m512i; 4] {
    // Word i of l = 0..8 of half s: elements l + 16i and l + 8 + 16i, side by side.
    let pairs = _mm_setr_epi8(0, 8, 1, 9, 2, 10, 3, 11, 4, 12, 5, 13, 6, 14, 7, 15);
    let mut halves = [_mm512_setzero_si512(); 4];
    for (halves, q) in halves.iter_mut().zip(q.as_chunks::<64>().0) {
        // SAFETY: 64 bytes.
        let q = unsafe { load(q.as_ptr()) };
        *halves = _mm512_shuffle_epi8(q, _mm512_broadcast_i32x4(pairs));
    }
    // SAFETY: 32 words.
    let mut words = unsafe { load(WORDS.as_ptr().cast()) };
    let mut out = halves;
    for out in &mut out {
        let first = _mm512_permutex2var_epi16(halves[0], words, halves[1]);
        let second = _mm512_permutex2var_epi16(halves[2], words, halves[3]);
        *out = _mm512_mask_blend_epi16(0xFF00_FF00, first, second);
        words = _mm512_add_epi16(words, _mm512_set1_epi16(2));
    }
    out
}

/// Writes a vector to 64 bytes.
#[inline]
#[target_feature(enable = "avx512f")]
pub(super) fn store(to: &mut [u8; 64], v: __m512i) {
    // SAFETY: 64 bytes; no alignment is asked for.
    unsafe { _mm512_storeu_si512(to.as_mut_ptr().cast(), v) }
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

/// The same with the dword at `b + OFFSET` for all lanes.
///
/// # Safety
/// Its four bytes are readable.
#[inline]
#[target_feature(enable = "avx512f,avx512vnni")]
pub(super) unsafe fn dpwssd_at<const OFFSET: usize>(mut acc: __m512i, a: __m512i, b: *const u8) -> __m512i {
    // SAFETY: reads the four bytes that the caller vouches for.
    unsafe {
        std::arch::asm!(
            "vpdpwssd {acc}, {a}, dword ptr [{b} + {offset}]{{1to16}}",
            acc = inout(zmm_reg) acc,
            a = in(zmm_reg) a,
            b = in(reg) b,
            offset = const OFFSET,
            options(pure, readonly, nostack, preserves_flags)
        );
    }
    acc
}

/// Repeats the body with constants: what has to stay in registers must not be indexed by a variable, and
/// the compiler does not unroll a loop of this length by itself.
macro_rules! unroll {
    ($i:ident in [$($value:literal)*] $body:block) => {
        $({
            const $i: usize = $value;
            $body
        })*
    };
}
pub(super) use unroll;

/// The dword at `p` in all lanes.
///
/// # Safety
/// `p` points at four readable bytes.
#[inline]
#[target_feature(enable = "avx512f")]
pub(super) unsafe fn broadcast(p: *const u8) -> __m512i {
    // SAFETY: the caller has four readable bytes at `p`; no alignment is asked for.
    _mm512_set1_epi32(unsafe { p.cast::<i32>().read_unaligned() })
}

/// 64 bytes.
///
/// # Safety
/// They are readable.
#[inline]
#[target_feature(enable = "avx512f")]
pub(super) unsafe fn load(p: *const u8) -> __m512i {
    // SAFETY: the caller has 64 readable bytes at `p`; no alignment is asked for.
    unsafe { _mm512_loadu_si512(p.cast()) }
}

/// The f16 scales of sixteen rows.
///
/// # Safety
/// 32 bytes are readable.
#[inline]
#[target_feature(enable = "avx512f")]
pub(super) unsafe fn scales(p: *const u8) -> __m512 {
    // SAFETY: the caller has 32 readable bytes at `p`; no alignment is asked for.
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
