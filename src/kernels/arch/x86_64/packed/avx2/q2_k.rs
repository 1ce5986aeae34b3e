//! Q2_K for AVX2 and AVX-VNNI: the bytes of [`crate::shared::packed::k_quants::q2_k`], eight rows at a time.
//!
//! One token: codes are masked in place, planes 1 and 3 as four times what they are; the scales of planes 0 and 2 are
//! multiplied by four, and a shift takes everything back.
//!
//! More: a block is unpacked once to bytes in the first-level cache, and all tokens run over it. AVX-VNNI, which adds
//! up in 32 bits, has the scales multiplied into them; `maddubs` takes the codes, the sums of whose groups fit 16 bits
//! and meet their scales by `madd`.

use std::arch::x86_64::*;

use super::super::ymm::{Ymm, shuffle_dwords};
use super::super::{PrefetchDistance, with_prefetch};
use super::block32::FourDwords;
use super::vnni::{EightDwords, LINE};
use crate::arch::x86_64::rows::lanes::{Lanes, by_tokens};
use crate::arch::x86_64::rows::q2_k::Head;
use crate::proof::{Avx2, AvxVnni, Proof};
use crate::shared::packed::k_quants::q2_k::{ACT, BYTES, CODES, act_bytes, layout};
use crate::shared::packed::k_quants::{BLOCK, ROWS};
use crate::shared::packed::{Call, Layout};

/// Vectors of eight of the 16 rows.
const VECTORS: usize = 2;
/// Groups of 16 weights in a block.
const GROUPS: usize = BLOCK / 16;

pub(in crate::arch::x86_64::packed) static LAYOUTS: &[Layout] =
    &[layout(Avx2::NEEDS, multiply::<Avx2>, 32), layout(AvxVnni::NEEDS, multiply::<AvxVnni>, 32)];

/// An unpacked block: dword k of two times 32 weights side by side, of all rows.
type Room = [[[[__m256i; VECTORS]; 2]; 8]; BLOCK / 64];
const _: () = assert!(2 * 32 * VECTORS == LINE);
/// The scale of each group, twice as i16.
type Scales = [[__m256i; VECTORS]; GROUPS];

/// Products of an instruction set.
trait Products: Proof + Sums<1> + Sums<2> + Sums<3> + Sums<4> {
    /// True if bytes are codes times scales.
    const SCALED: bool;
}

/// Products of T tokens.
trait Sums<const T: usize> {
    /// The integers of a block and of tokens whose activations are `stride` bytes apart.
    ///
    /// # Safety
    /// The processor has the instruction set; the activations are readable.
    unsafe fn sums(room: &Room, scales: &Scales, y: *const u8, stride: usize) -> [[__m256i; VECTORS]; T];
}

impl Products for Avx2 {
    const SCALED: bool = false;
}

impl Products for AvxVnni {
    const SCALED: bool = true;
}

impl<const T: usize> Sums<T> for Avx2
where
    Avx2: FourDwords<T>,
{
    #[inline]
    #[target_feature(enable = "avx2")]
    unsafe fn sums(room: &Room, scales: &Scales, y: *const u8, stride: usize) -> [[__m256i; VECTORS]; T] {
        let zero = [[_mm256_setzero_si256(); VECTORS]; T];
        let mut sums = zero;
        for (g, scales) in scales.iter().enumerate() {
            // The sum of four times two products of at most 3 * 128 fits 16 bits.
            // SAFETY: a group has four dwords of activations and four lines.
            let pairs = unsafe {
                let codes = (&raw const room[g / 4][g % 2 * 4][g / 2 % 2]).cast();
                Avx2::unsigned(codes, y.add(16 * g), stride, zero)
            };
            for (sums, pairs) in sums.iter_mut().zip(pairs) {
                for v in 0..VECTORS {
                    let scaled = _mm256_madd_epi16(pairs[v], scales[v]);
                    sums[v] = _mm256_add_epi32(sums[v], scaled);
                }
            }
        }
        sums
    }
}

impl<const T: usize> Sums<T> for AvxVnni
where
    AvxVnni: EightDwords<T>,
{
    #[inline]
    #[target_feature(enable = "avx2")]
    unsafe fn sums(room: &Room, _scales: &Scales, y: *const u8, stride: usize) -> [[__m256i; VECTORS]; T] {
        let mut sums = [[_mm256_setzero_si256(); VECTORS]; T];
        for i in 0..BLOCK / 32 {
            // SAFETY: 32 weights have eight dwords of activations and eight lines.
            sums = unsafe {
                let codes = (&raw const room[i / 2][0][i % 2]).cast();
                AvxVnni::add(codes, y.add(32 * i), stride, sums)
            };
        }
        sums
    }
}

fn multiply<P: Products>(call: Call<'_>) {
    let Call { group, acts, n, tokens, ahead, out, .. } = call.check(const { &layout(P::NEEDS, multiply::<P>, 32) });
    // SAFETY: `check` has seen the proof of these instructions and compared all lengths.
    unsafe {
        if tokens == 1 {
            with_prefetch!(ahead => one(group, acts.as_ptr(), ahead, out));
        } else {
            many::<P>(group, acts.as_ptr(), act_bytes(n), ahead, out);
        }
    }
}

/// The scale of a group, twice as i16.
#[inline]
#[target_feature(enable = "avx2")]
fn scale(head: &Head<Ymm>, group: usize) -> __m256i {
    let (line, byte) = (head.lines[group / 4], (group % 4) as i8);
    shuffle_dwords(_mm256_and_si256(line, _mm256_set1_epi8(15)), [byte, -1, byte, -1])
}

/// Where the two bits p = 0..4 of dword c of set 2h + i belong: the group, and the first of its activations.
const fn group(set: usize, p: usize) -> usize {
    8 * (set / 2) + 2 * p + set % 2
}

/// # Safety
/// The processor has AVX2 and F16C; `act` points at the arranged activations of all blocks of the group.
#[target_feature(enable = "avx2,f16c")]
unsafe fn one(group_of_rows: &[u8], act: *const u8, ahead: impl PrefetchDistance, out: &mut [f32]) {
    let mut chains = [_mm256_setzero_ps(); VECTORS];
    for (b, block) in group_of_rows.as_chunks::<BYTES>().0.iter().enumerate() {
        let block = block.as_ptr();
        // SAFETY: block b of the activations is there, as `check` saw.
        unsafe {
            let y = act.add(ACT * b);
            for (v, chain) in chains.iter_mut().enumerate() {
                let head = Head::new(block, v);
                let mut sums = [_mm256_setzero_si256(); 2];
                for set in 0..4 {
                    let lines = block.add(CODES + 256 * set + 32 * v);
                    let from = block.wrapping_add(BYTES / 8 * (4 * v + set));
                    let prefetch = |c| ahead.share(from, BYTES.div_ceil(8), c, 4);
                    let four = set_sums(lines, y.add(16 * group(set, 0)), prefetch);
                    for (p, pairs) in four.into_iter().enumerate() {
                        let mut scale = scale(&head, group(set, p));
                        if p % 2 == 0 {
                            scale = _mm256_slli_epi16::<2>(scale);
                        }
                        let scaled = _mm256_madd_epi16(pairs, scale);
                        sums[p % 2] = _mm256_add_epi32(sums[p % 2], scaled);
                    }
                }
                let sum = _mm256_srai_epi32::<2>(_mm256_add_epi32(sums[0], sums[1]));
                *chain = head.step(*chain, sum, y);
            }
        }
    }
    for (chain, out) in chains.iter().zip(out.chunks_exact_mut(8)) {
        // SAFETY: this function has the instructions.
        unsafe { Ymm::store(out, *chain) };
    }
}

/// The sums of the four groups of a set and one token, those of planes 1 and 3 times four, in two words: at most
/// 4 * 2 * 12 * 128 each. `y`: the activations of the first group.
/// `prefetch(c)` is called four times on the way.
///
/// # Safety
/// The processor has AVX2; four lines and the activations are readable.
#[inline]
#[target_feature(enable = "avx2")]
unsafe fn set_sums(lines: *const u8, y: *const u8, prefetch: impl Fn(usize)) -> [__m256i; 4] {
    let (even, odd) = (_mm256_set1_epi8(0x03), _mm256_set1_epi8(0x0C));
    let mut sums = [_mm256_setzero_si256(); 4];
    for c in 0..4 {
        // SAFETY: the caller's lines.
        let line = unsafe { Ymm::load(lines.add(64 * c)) };
        prefetch(c);
        let upper = _mm256_srli_epi16::<4>(line);
        let planes = [
            _mm256_and_si256(line, even),
            _mm256_and_si256(line, odd),
            _mm256_and_si256(upper, even),
            _mm256_and_si256(upper, odd),
        ];
        for (p, (sum, codes)) in sums.iter_mut().zip(planes).enumerate() {
            // SAFETY: the activations of plane p lie 32 after those of the one before.
            let y = unsafe { Ymm::broadcast(y.add(32 * p + 4 * c)) };
            *sum = _mm256_add_epi16(*sum, _mm256_maddubs_epi16(codes, y));
        }
    }
    sums
}

/// # Safety
/// The processor has AVX2 and F16C, and the instructions of `P`; each token of `out` has the arranged activations of
/// all blocks of the group at `acts`, `stride` bytes after those of the token before.
#[target_feature(enable = "avx2,f16c")]
unsafe fn many<P: Products>(group_of_rows: &[u8], acts: *const u8, stride: usize, ahead: usize, out: &mut [f32]) {
    let tokens = out.len() / ROWS;
    let zero = [_mm256_setzero_si256(); VECTORS];
    let mut room = [[[zero; 2]; 8]; BLOCK / 64];
    let mut scales = [zero; GROUPS];
    out.fill(0.0);
    for (b, block) in group_of_rows.as_chunks::<BYTES>().0.iter().enumerate() {
        let block = block.as_ptr();
        // SAFETY: block b of the activations of all tokens is there, as `check` saw.
        unsafe {
            let heads: [_; VECTORS] = std::array::from_fn(|v| Head::new(block, v));
            for (v, head) in heads.iter().enumerate() {
                for (g, scales) in scales.iter_mut().enumerate() {
                    scales[v] = scale(head, g);
                }
                unpack::<P>(block, v, &scales, ahead, &mut room);
            }
            let y = acts.add(ACT * b);
            by_tokens!(t in tokens, 4, T => {
                let y = y.add(stride * t);
                let sums = <P as Sums<T>>::sums(&room, &scales, y, stride);
                let out = out[ROWS * t..].chunks_exact_mut(8 * VECTORS);
                for (t, (sums, out)) in sums.iter().zip(out).enumerate() {
                    for v in 0..VECTORS {
                        let out = &mut out[8 * v..][..8];
                        let chain = _mm256_loadu_ps(out.as_ptr());
                        Ymm::store(out, heads[v].step(chain, sums[v], y.add(stride * t)));
                    }
                }
            });
        }
    }
}

/// Writes the codes of the rows of vector v, times their scales where products want them so, and prefetches half of the
/// bytes at distance `ahead` behind the block.
///
/// # Safety
/// The processor has AVX2; the block is readable.
#[inline]
#[target_feature(enable = "avx2")]
unsafe fn unpack<P: Products>(
    block: *const u8,
    v: usize,
    scales: &Scales,
    ahead: impl PrefetchDistance,
    room: &mut Room,
) {
    let three = _mm256_set1_epi8(3);
    for set in 0..4 {
        let from = block.wrapping_add(BYTES / 8 * (4 * v + set));
        for c in 0..4 {
            ahead.share(from, BYTES.div_ceil(8), c, 4);
            // SAFETY: a block has sixteen lines of codes.
            let line = unsafe { Ymm::load(block.add(CODES + 64 * (4 * set + c) + 32 * v)) };
            let planes =
                [line, _mm256_srli_epi16::<2>(line), _mm256_srli_epi16::<4>(line), _mm256_srli_epi16::<6>(line)];
            for (p, plane) in planes.into_iter().enumerate() {
                let (mut codes, g) = (_mm256_and_si256(plane, three), group(set, p));
                if P::SCALED {
                    // 3 * 15 is the most, so that no byte carries into the next.
                    codes = _mm256_mullo_epi16(codes, scales[g][v]);
                }
                room[g / 4][4 * (g % 2) + c][g / 2 % 2][v] = codes;
            }
        }
    }
}
