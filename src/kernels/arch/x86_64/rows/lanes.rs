//! Rows side by side in registers: what the kernels of packed rows are written in.
//!
//! A packed line has a dword, four bytes, of every row. A register holds the dwords of [`Lanes::ROWS`] rows, which meet
//! one dword of activations in all lanes. [`Lanes`] are the registers of an instruction set, [`Set`] is the instruction
//! set; both are implemented under [`crate::arch`]. A [`Kernel`] is written once and compiled for each set by
//! [`Set::run`]: all that it calls is inlined there, so that the compiler may use what the set enables. Closures that
//! others call are no part of that, for they are compiled without it.

use crate::arch::functions::unsafe_functions;
use crate::proof::Proof;

/// A loop that is compiled for several instruction sets.
pub(crate) trait Kernel {
    /// Its arguments.
    type Call<'a>;

    /// Runs the loop. It has to be inlined always.
    ///
    /// # Safety
    /// The processor has the instruction set that the kernel is made for; the arguments are what the kernel asks for.
    unsafe fn run(call: Self::Call<'_>);
}

/// An instruction set, by the type of its proof.
pub(crate) trait Set: Proof + 'static {
    /// Its registers.
    type L: Lanes;
    /// Tokens that its products take together, at most: 4 or 1.
    const TOKENS: usize;
    /// Prefetches on the way of a product of a part.
    const PREFETCHES: usize;

    /// Runs a kernel with the instructions of the set.
    ///
    /// # Safety
    /// The processor has the instruction set; the arguments are what the kernel asks for.
    unsafe fn run<K: Kernel>(call: K::Call<'_>);
}

/// The integers of a register: a dword of each row, seen as bytes, words or itself.
pub(crate) type Ints<S> = <<S as Set>::L as Lanes>::Ints;

/// The registers of an instruction set. Pointers need no alignment.
pub(crate) trait Lanes: 'static {
    /// Rows of a register.
    const ROWS: usize;
    /// Sums that [`Lanes::add_scaled`] needs side by side to hide its latency: 1 or 2.
    const SUMS: usize;
    /// A dword of each row.
    type Ints: Copy;
    /// A float of each row.
    type Floats: Copy;

    unsafe_functions! { "The processor has the registers.";
        /// A register of bytes.
        load(p: *const u8) -> Self::Ints: "A register of bytes is readable.";
        /// Writes a register of bytes.
        store_bytes(p: *mut u8, v: Self::Ints) -> (): "There is room for a register of bytes.";
        /// The dword at `p` in all lanes.
        broadcast(p: *const u8) -> Self::Ints: "Four bytes are readable.";
        /// The byte everywhere.
        bytes(v: u8) -> Self::Ints;
        /// The word everywhere.
        words(v: i16) -> Self::Ints;
        /// The dword everywhere.
        dwords(v: i32) -> Self::Ints;
        /// `a & b`.
        and(a: Self::Ints, b: Self::Ints) -> Self::Ints;
        /// `a | b`.
        or(a: Self::Ints, b: Self::Ints) -> Self::Ints;
        /// Bits of the mask from `a`, the others from `b`.
        select(mask: Self::Ints, a: Self::Ints, b: Self::Ints) -> Self::Ints;
        /// Words shifted to the left. `n` has to be known when it is compiled, here and below.
        shl(a: Self::Ints, n: u32) -> Self::Ints;
        /// Words shifted to the right with zeros.
        shr(a: Self::Ints, n: u32) -> Self::Ints;
        /// Words shifted to the right with their sign.
        sar(a: Self::Ints, n: u32) -> Self::Ints;
        /// Dwords shifted to the right with their sign.
        sar_dwords(a: Self::Ints, n: u32) -> Self::Ints;
        /// `a + b` of bytes.
        add_bytes(a: Self::Ints, b: Self::Ints) -> Self::Ints;
        /// `a - b` of bytes.
        sub_bytes(a: Self::Ints, b: Self::Ints) -> Self::Ints;
        /// `a + b` of words.
        add_words(a: Self::Ints, b: Self::Ints) -> Self::Ints;
        /// `a - b` of words.
        sub_words(a: Self::Ints, b: Self::Ints) -> Self::Ints;
        /// The lower halves of products of words.
        mul_words(a: Self::Ints, b: Self::Ints) -> Self::Ints;
        /// `a + b` of dwords.
        add_dwords(a: Self::Ints, b: Self::Ints) -> Self::Ints;
        /// Every dword made of bytes of its own, numbered from 0; -1 is a zero.
        shuffle(v: Self::Ints, bytes: [i8; 4]) -> Self::Ints;
        /// Bytes that numbers below 16 stand for.
        lookup(table: &[u8; 16], v: Self::Ints) -> Self::Ints;
        /// 16 added to the bytes whose bit at `bits` is set; they are below 16.
        add_fifth(v: Self::Ints, bits: *const u8) -> Self::Ints: "A bit for each byte of a register is readable.";
        /// Products of codes without a sign and activations, summed in pairs of 16 bits, which they have to fit.
        pairs(codes: Self::Ints, acts: Self::Ints) -> Self::Ints;
        /// `acc` plus, dword by dword, the products of both words.
        add_scaled(acc: Self::Ints, words: Self::Ints, scales: Self::Ints) -> Self::Ints;
        /// [`Lanes::add_scaled`] with the dword at `p + OFFSET` in all lanes.
        add_scaled_at[const OFFSET: usize](acc: Self::Ints, words: Self::Ints, p: *const u8) -> Self::Ints:
            "Four bytes are readable at `p + OFFSET`.";
        /// Half floats at `p`, widened.
        halves(p: *const u8) -> Self::Floats: "Two bytes are readable for each row.";
        /// Half of 2^(e - 127) for each row's byte e at `p`; the two smallest are denormal.
        half_powers(p: *const u8) -> Self::Floats: "A byte is readable for each row.";
        /// The float everywhere.
        float(v: f32) -> Self::Floats;
        /// The float at `p` in all lanes.
        broadcast_float(p: *const u8) -> Self::Floats: "Four bytes are readable.";
        /// Integers to the nearest floats.
        floats(v: Self::Ints) -> Self::Floats;
        /// `a + b`.
        add(a: Self::Floats, b: Self::Floats) -> Self::Floats;
        /// `a - b`.
        sub(a: Self::Floats, b: Self::Floats) -> Self::Floats;
        /// `a * b`.
        mul(a: Self::Floats, b: Self::Floats) -> Self::Floats;
        /// A register of floats.
        load_floats(p: *const f32) -> Self::Floats: "A register of floats is readable.";
        /// Writes a register of floats.
        store_floats(p: *mut f32, v: Self::Floats) -> (): "There is room for a register of floats.";
    }

    /// `chain + d * sum`, each operation rounded by itself.
    ///
    /// # Safety
    /// The processor has the registers.
    #[inline(always)]
    unsafe fn step(chain: Self::Floats, d: Self::Floats, sum: Self::Ints) -> Self::Floats {
        // SAFETY: the caller has the instruction set.
        unsafe { Self::add(chain, Self::mul(d, Self::floats(sum))) }
    }

    /// Writes a float of each row.
    ///
    /// # Safety
    /// The processor has the registers.
    #[inline(always)]
    unsafe fn store(out: &mut [f32], v: Self::Floats) {
        // SAFETY: the caller has the instruction set; the slice is as long as a register.
        unsafe { Self::store_floats(out[..Self::ROWS].as_mut_ptr(), v) }
    }
}

/// Repeats the body with constants: what has to stay in registers must not be indexed by a variable, and the compiler
/// does not unroll a loop of this length by itself.
macro_rules! unroll {
    ($i:ident in [$($value:literal)*] $body:block) => {
        $({
            const $i: usize = $value;
            $body
        })*
    };
}
pub(crate) use unroll;

/// Runs the body for tokens `t ..` of a tile, at most `$most` (4, 2 or 1) at a time, with their number as a constant.
macro_rules! by_tokens {
    ($t:ident in $tokens:expr, $most:expr, $T:ident => $body:expr) => {{
        let mut $t = 0;
        if $most == 1 {
            while $t < $tokens {
                const $T: usize = 1;
                $body;
                $t += 1;
            }
        } else if $most == 2 {
            while $t + 2 <= $tokens {
                const $T: usize = 2;
                $body;
                $t += 2;
            }
            if $t < $tokens {
                const $T: usize = 1;
                $body
            }
        } else {
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
        }
    }};
}
pub(crate) use by_tokens;

/// Evaluates a call of a set, which prefetches by `$prefetch` the share `$share` at distance `$ahead`, if it is the
/// `$first` of the calls that share the codes; the others prefetch nothing. Calls of several tokens have the time to
/// look each time, those of one token are there twice.
macro_rules! prefetching_first {
    ($set:ty, $first:expr, $ahead:ident, |$i:ident| $share:expr, $prefetch:ident => $call:expr) => {
        if <$set as $crate::arch::x86_64::rows::lanes::Set>::TOKENS > 1 {
            let $ahead = if $first { $ahead } else { 0 };
            let $prefetch = |$i: usize| $share;
            $call
        } else if $ahead > 0 && $first {
            let $prefetch = |$i: usize| $share;
            $call
        } else {
            let $prefetch = |_: usize| ();
            $call
        }
    };
}
pub(crate) use prefetching_first;
