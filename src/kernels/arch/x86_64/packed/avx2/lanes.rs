//! What the K-quants with eight chains per row share on AVX2: eight rows are the lanes of a vector, two vectors a
//! group. The rest is as in [`super::super::lanes`].

use std::arch::x86_64::*;
use std::mem::MaybeUninit;

use super::super::k16::CORRECTION;
use super::super::lanes::{BLOCK, CHAINS, ROWS, TILE};
use super::{broadcast, store};

/// Vectors of eight of the 16 rows.
pub(super) const VECTORS: usize = 2;

/// What a tile keeps of a token: eight rows each.
#[derive(Clone, Copy)]
pub(super) struct Token {
    pub(super) chains: [__m256; CHAINS],
    /// The chain of the minima.
    pub(super) minus: __m256,
    /// The product of the scales of the current block.
    pub(super) d: __m256,
}

impl Token {
    /// All chains zero.
    #[inline]
    #[target_feature(enable = "avx2")]
    pub(super) fn new() -> Token {
        let zero = _mm256_setzero_ps();
        Token { chains: [zero; CHAINS], minus: zero, d: zero }
    }

    /// `minus + chain 0 + chain 1 ...`, in this order, to eight outputs.
    #[inline]
    #[target_feature(enable = "avx2")]
    pub(super) fn finish(&self, out: &mut [f32]) {
        let mut sum = self.minus;
        for chain in self.chains {
            sum = _mm256_add_ps(sum, chain);
        }
        store(out, sum);
    }

    /// `chain l + d * sum`, each operation rounded by itself.
    #[inline]
    #[target_feature(enable = "avx2")]
    pub(super) fn step(&mut self, l: usize, sum: __m256i) {
        let product = _mm256_mul_ps(self.d, _mm256_cvtepi32_ps(sum));
        self.chains[l] = _mm256_add_ps(self.chains[l], product);
    }
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
    #[target_feature(enable = "avx2")]
    pub(super) fn start(&mut self, tokens: usize) -> &mut [Token] {
        let tile = &mut self.0[..tokens];
        for token in &mut *tile {
            token.write(Token::new());
        }
        // SAFETY: all of these were written just now.
        unsafe { std::slice::from_raw_parts_mut(tile.as_mut_ptr().cast(), tokens) }
    }
}

/// Both halves of a group's chains one step on, for the tokens from `t` on.
#[inline]
#[target_feature(enable = "avx2")]
pub(super) fn step<const T: usize>(
    tiles: &mut [&mut [Token]; VECTORS],
    t: usize,
    l: usize,
    sums: [[__m256i; VECTORS]; T],
) {
    for (i, sums) in sums.into_iter().enumerate() {
        for (tile, sum) in tiles.iter_mut().zip(sums) {
            tile[t + i].step(l, sum);
        }
    }
}

/// The outputs of a group, 16 rows for every token.
#[inline]
#[target_feature(enable = "avx2")]
pub(super) fn finish(tiles: &[&mut [Token]; VECTORS], out: &mut [f32]) {
    for (t, out) in out.chunks_exact_mut(ROWS).enumerate() {
        for (tile, out) in tiles.iter().zip(out.chunks_exact_mut(8)) {
            tile[t].finish(out);
        }
    }
}

/// Every dword made of bytes of its own, numbered from 0; -1 is a zero.
#[inline]
#[target_feature(enable = "avx2")]
pub(super) fn shuffle_dwords(v: __m256i, bytes: [i8; 4]) -> __m256i {
    let dword = |row: i8| {
        let from = bytes.map(|byte| if byte < 0 { byte } else { 4 * row + byte });
        i32::from_le_bytes(from.map(i8::cast_unsigned))
    };
    let order = _mm_setr_epi32(dword(0), dword(1), dword(2), dword(3));
    _mm256_shuffle_epi8(v, _mm256_broadcastsi128_si256(order))
}

/// Writes the quants of a block in the order in which the kernels walk them: dword s of l, the elements
/// 32s + l + 8i, at byte 32l + 4s.
#[inline]
#[target_feature(enable = "avx2")]
pub(super) fn by_lane(q: &[u8; BLOCK], out: &mut [u8; BLOCK]) {
    // Word l of a half: its element l and the one eight further.
    let pairs = _mm_setr_epi8(0, 8, 1, 9, 2, 10, 3, 11, 4, 12, 5, 13, 6, 14, 7, 15);
    for (s, q) in q.as_chunks::<32>().0.iter().enumerate() {
        // SAFETY: two halves of 16 bytes.
        let [first, second] =
            [0, 16].map(|at| unsafe { _mm_shuffle_epi8(_mm_loadu_si128(q.as_ptr().add(at).cast()), pairs) });
        let mut dwords = [[0u8; 4]; CHAINS];
        let (low, high) = dwords.as_flattened_mut().split_at_mut(16);
        // SAFETY: 16 bytes each.
        unsafe {
            _mm_storeu_si128(low.as_mut_ptr().cast(), _mm_unpacklo_epi16(first, second));
            _mm_storeu_si128(high.as_mut_ptr().cast(), _mm_unpackhi_epi16(first, second));
        }
        for (l, dword) in dwords.iter().enumerate() {
            out[32 * l + 4 * s..][..4].copy_from_slice(dword);
        }
    }
}

/// The integer of a chain of one token: codes times activations times scales, for the eight dwords of a part. With
/// `CORRECTED`, the dword at [`CORRECTION`] bytes behind that of the activations is added to what `maddubs` gives.
///
/// Here the codes stay in registers; see [`PartSums`] for several tokens.
///
/// # Safety
/// The processor has AVX2; 32 bytes of activations are readable, and as many corrections where there are some.
#[inline]
#[target_feature(enable = "avx2")]
pub(super) unsafe fn part_sum<const CORRECTED: bool>(
    scales: &[__m256i; 8],
    codes: &[__m256i; 8],
    y: *const u8,
    ask: impl Fn(usize),
) -> __m256i {
    let mut sum = _mm256_setzero_si256();
    for (j, (codes, scales)) in codes.iter().zip(scales).enumerate() {
        ask(j);
        // SAFETY: the caller's activations have eight dwords, and as many corrections.
        let pairs = unsafe {
            let y = y.add(4 * j);
            let pairs = _mm256_maddubs_epi16(*codes, broadcast(y));
            match CORRECTED {
                true => _mm256_add_epi16(pairs, broadcast(y.add(CORRECTION))),
                false => pairs,
            }
        };
        sum = _mm256_add_epi32(sum, _mm256_madd_epi16(pairs, *scales));
    }
    sum
}

/// The integers of a chain: codes times activations times scales, for the eight dwords of a part and tokens whose
/// activations are `stride` bytes apart.
///
/// `maddubs` multiplies codes with activations; its results and what is added to them must fit 16 bits. `madd` adds
/// two of them, each times its half of the dword in `scales`.
///
/// In assembly because the compiler takes the broadcasts of all dwords to the front and, having no registers for them,
/// spills them.
pub(super) trait PartSums<const T: usize> {
    /// The sums as they are.
    ///
    /// # Safety
    /// AVX2; 32 bytes of activations at `y` and at every `stride` bytes after it for each token.
    unsafe fn plain(scales: &[__m256i; 8], codes: &[__m256i; 8], y: *const u8, stride: usize) -> [__m256i; T];

    /// With the dword at [`CORRECTION`] bytes behind that of the activations added to the results of `maddubs`.
    ///
    /// # Safety
    /// As [`PartSums::plain`], and as many bytes of corrections.
    unsafe fn corrected(scales: &[__m256i; 8], codes: &[__m256i; 8], y: *const u8, stride: usize) -> [__m256i; T];
}

/// The only one that has these products.
pub(super) struct Kernel;

/// One dword of all tokens.
macro_rules! dword {
    ([$($acc:ident $at:literal),*], $w:literal, $y:literal, $correction:literal $add:literal) => {
        concat!(
            "vmovdqa {w}, ymmword ptr [{codes} + ", $w, "]\n",
            "vmovdqa {s}, ymmword ptr [{scales} + ", $w, "]\n",
            $("vpbroadcastd {y}, dword ptr [{q} ", $at, " + ", $y, "]\n",
            $correction, $at, $add, $y, "]\n",
            "vpmaddubsw {y}, {w}, {y}\n",
            "vpaddw {y}, {y}, {c}\n",
            "vpmaddwd {y}, {y}, {s}\n",
            "vpaddd {", stringify!($acc), "}, {", stringify!($acc), "}, {y}\n",)*
        )
    };
    ([$($acc:ident $at:literal),*], $w:literal, $y:literal,) => {
        concat!(
            "vmovdqa {w}, ymmword ptr [{codes} + ", $w, "]\n",
            "vmovdqa {s}, ymmword ptr [{scales} + ", $w, "]\n",
            $("vpbroadcastd {y}, dword ptr [{q} ", $at, " + ", $y, "]\n",
            "vpmaddubsw {y}, {w}, {y}\n",
            "vpmaddwd {y}, {y}, {s}\n",
            "vpaddd {", stringify!($acc), "}, {", stringify!($acc), "}, {y}\n",)*
        )
    };
}

macro_rules! part_sums {
    ($tokens:literal, $accs:tt) => {
        impl PartSums<$tokens> for Kernel {
            part_sums!(plain $tokens, $accs,);
            part_sums!(corrected $tokens, $accs, "vpbroadcastd {c}, dword ptr [{q} " " + 256 + ");
        }
    };
    ($name:ident $tokens:literal, [$($acc:ident $at:literal),*], $($correction:literal $add:literal)?) => {
        #[inline]
        #[target_feature(enable = "avx2")]
        unsafe fn $name(scales: &[__m256i; 8], codes: &[__m256i; 8], y: *const u8, stride: usize) -> [__m256i; $tokens] {
            $(let mut $acc = _mm256_setzero_si256();)*
            // SAFETY: reads 256 bytes of scales and of codes, and of each token what the caller vouches for.
            unsafe {
                std::arch::asm!(
                    dword!([$($acc $at),*], "0", "0", $($correction $add)?),
                    dword!([$($acc $at),*], "32", "4", $($correction $add)?),
                    dword!([$($acc $at),*], "64", "8", $($correction $add)?),
                    dword!([$($acc $at),*], "96", "12", $($correction $add)?),
                    dword!([$($acc $at),*], "128", "16", $($correction $add)?),
                    dword!([$($acc $at),*], "160", "20", $($correction $add)?),
                    dword!([$($acc $at),*], "192", "24", $($correction $add)?),
                    dword!([$($acc $at),*], "224", "28", $($correction $add)?),
                    "/* {stride} {stride3} {c} */", // a use where there is none
                    codes = in(reg) codes,
                    scales = in(reg) scales,
                    q = in(reg) y,
                    stride = in(reg) stride,
                    stride3 = in(reg) 3 * stride,
                    w = out(ymm_reg) _,
                    s = out(ymm_reg) _,
                    y = out(ymm_reg) _,
                    c = out(ymm_reg) _,
                    $($acc = inout(ymm_reg) $acc,)*
                    options(readonly, nostack, preserves_flags),
                );
            }
            [$($acc),*]
        }
    };
}

const _: () = assert!(CORRECTION == 256);
part_sums!(1, [a ""]);
part_sums!(2, [a "", b "+ {stride}"]);
part_sums!(3, [a "", b "+ {stride}", c0 "+ 2*{stride}"]);
part_sums!(4, [a "", b "+ {stride}", c0 "+ 2*{stride}", d "+ {stride3}"]);
