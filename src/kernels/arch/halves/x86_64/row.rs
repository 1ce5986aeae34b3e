//! One row of sums over four lines: what a product of one token is made of.
//!
//! Here every instruction has its place. From memory the rate hangs on the prefetches: each stands
//! behind the work on a field, at an address that is ready before its turn. Four of them in a row, or four that wait
//! for the same address, bring two thirds of what they bring one by one (10 GB/s of 17 on Sapphire Rapids, where plain
//! loads bring 16), and compilers move them together. With AVX2, whose registers are full of sums, words are loaded
//! again for each field: compilers put something down instead, which is slower.

use std::arch::asm;
use std::arch::x86_64::*;

use crate::arch::doubles::widening;
use crate::shared::halves::{BLOCK, LINE, Line, STEPS};

/// Bytes of a row of lines, which the loops count in.
const ROW: usize = BLOCK * size_of::<Line>();
const _: () = assert!(ROW == 256 && LINE == 8 && STEPS == 4);

/// Shuffles that bring two bytes of every word to its upper end, with zeros below: for field 0, and for field 2.
static TO_TOP: [[u8; 16]; 2] = {
    let mut tables = [[0x80; 16]; 2];
    let mut i = 0;
    while i < 4 {
        let (table, word) = (i / 2, i % 2);
        let from = (8 * word + 4 * table) as u8;
        tables[table][8 * word + 6] = from;
        tables[table][8 * word + 7] = from + 1;
        i += 1;
    }
    tables
};

/// A prefetch of line `$line` at the distance, into the first-level cache or the second, or none.
macro_rules! prefetch {
    (first, $line:literal) => {
        concat!("prefetcht0 [{next} + 64 * ", $line, "]\n")
    };
    (second, $line:literal) => {
        concat!("prefetcht1 [{next} + 64 * ", $line, "]\n")
    };
    (none, $line:literal) => {
        ""
    };
}

/// All words of a turn are done: on to the next.
macro_rules! next {
    () => {
        concat!("add {p}, 256\n", "add {next}, 256\n", "add {x}, 32\n", "cmp {p}, {end}\n", "jne 2b\n",)
    };
}

/// Loads of AVX2, which leave a field at the upper ends of the words. Shuffles, since shifts compete with the
/// multiply-adds.
macro_rules! by_table {
    ($at:literal, $t:literal) => {
        concat!("vmovdqu {", $t, "}, [{p} + ", $at, "]\n", "vpshufb {", $t, "}, {", $t, "}, {to_top}\n",)
    };
}
macro_rules! doubled {
    ($at:literal, $t:literal) => {
        concat!("vpshufd {", $t, "}, [{p} + ", $at, "], 0xA0\n")
    };
}
macro_rules! plain {
    ($at:literal, $t:literal) => {
        concat!("vmovdqu {", $t, "}, [{p} + ", $at, "]\n")
    };
}

/// Four words of a field. All that counts lies in their upper halves, for which the arithmetic shift of 32 bits will
/// do.
macro_rules! four {
    ($load:ident, $at:literal, $t:literal, $acc:literal) => {
        concat!(
            $load!($at, $t),
            "vpsrad {",
            $t,
            "}, {",
            $t,
            "}, {shift}\n",
            "vpand {",
            $t,
            "}, {",
            $t,
            "}, {mask}\n",
            "vfmadd231pd {",
            $acc,
            "}, {",
            $t,
            "}, {c}\n",
        )
    };
}

/// Field `$k` of a row of lines.
macro_rules! field256 {
    ($k:literal, $load:ident, $prefetch:ident) => {
        concat!(
            "vbroadcastsd {c}, [{x} + 8 * ",
            $k,
            "]\n",
            four!($load, "0", "t0", "a0"),
            four!($load, "32", "t1", "a1"),
            four!($load, "64", "t2", "a2"),
            four!($load, "96", "t3", "a3"),
            four!($load, "128", "t0", "a4"),
            four!($load, "160", "t1", "a5"),
            four!($load, "192", "t2", "a6"),
            four!($load, "224", "t3", "a7"),
            prefetch!($prefetch, $k),
        )
    };
}

macro_rules! rows256 {
    ($prefetch:ident, $acc:ident, $lines:ident, $quads:ident, $coefs:ident, $ahead:ident, $mask:ident) => {{
        let [[a0, a1], [a2, a3], [a4, a5], [a6, a7]] = $acc;
        asm!(
            "2:",
            "vbroadcasti128 {to_top}, [{tables}]",
            field256!("0", by_table, $prefetch),
            field256!("1", doubled, $prefetch),
            "vbroadcasti128 {to_top}, [{tables} + 16]",
            field256!("2", by_table, $prefetch),
            field256!("3", plain, $prefetch),
            next!(),
            p = inout(reg) $lines => _,
            next = inout(reg) $lines.wrapping_byte_add($ahead) => _,
            end = in(reg) $lines.wrapping_byte_add(ROW * $quads),
            x = inout(reg) $coefs => _,
            tables = in(reg) &TO_TOP,
            shift = const widening(BRAIN).0,
            mask = in(ymm_reg) $mask,
            c = out(ymm_reg) _,
            to_top = out(ymm_reg) _,
            t0 = out(ymm_reg) _,
            t1 = out(ymm_reg) _,
            t2 = out(ymm_reg) _,
            t3 = out(ymm_reg) _,
            a0 = inout(ymm_reg) *a0,
            a1 = inout(ymm_reg) *a1,
            a2 = inout(ymm_reg) *a2,
            a3 = inout(ymm_reg) *a3,
            a4 = inout(ymm_reg) *a4,
            a5 = inout(ymm_reg) *a5,
            a6 = inout(ymm_reg) *a6,
            a7 = inout(ymm_reg) *a7,
            options(readonly, nostack),
        );
    }};
}

/// Adds `quads` words of steps to the sums.
///
/// # Safety
/// As many rows of lines, and four coefficients for each of them.
#[inline]
#[target_feature(enable = "avx2,fma")]
pub unsafe fn avx2<const BRAIN: bool>(
    acc: &mut [[__m256d; 2]; BLOCK],
    lines: *const Line,
    quads: usize,
    coefs: *const f64,
    ahead: usize,
) {
    if quads == 0 {
        return;
    }
    let mask = _mm256_set1_epi64x(widening(BRAIN).1.cast_signed());
    // SAFETY: reads the lines and the coefficients that the caller has, and the tables; there is at least one turn.
    unsafe {
        match ahead {
            0 => rows256!(none, acc, lines, quads, coefs, ahead, mask),
            _ => rows256!(first, acc, lines, quads, coefs, ahead, mask),
        }
    }
}

/// Eight words of a field.
macro_rules! eight {
    ("48", $w:literal, $t:literal, $acc:literal) => {
        concat!("vpsraq {", $t, "}, {", $w, "}, {shift}\n", eight!($t, $acc),)
    };
    ($at:literal, $w:literal, $t:literal, $acc:literal) => {
        concat!(
            "vpsllq {",
            $t,
            "}, {",
            $w,
            "}, 48 - ",
            $at,
            "\n",
            "vpsraq {",
            $t,
            "}, {",
            $t,
            "}, {shift}\n",
            eight!($t, $acc),
        )
    };
    ($t:literal, $acc:literal) => {
        concat!("vpandq {", $t, "}, {", $t, "}, {mask}\n", "vfmadd231pd {", $acc, "}, {", $t, "}, {c}\n",)
    };
}

/// Field `$k`, from bit `$at` on, of a row of lines.
macro_rules! field512 {
    ($k:literal, $at:tt, $prefetch:ident) => {
        concat!(
            "vbroadcastsd {c}, [{x} + 8 * ",
            $k,
            "]\n",
            eight!($at, "w0", "t0", "a0"),
            eight!($at, "w1", "t1", "a1"),
            eight!($at, "w2", "t2", "a2"),
            eight!($at, "w3", "t3", "a3"),
            prefetch!($prefetch, $k),
        )
    };
}

macro_rules! rows512 {
    ($prefetch:ident, $acc:ident, $lines:ident, $quads:ident, $coefs:ident, $ahead:ident, $mask:ident) => {{
        let [a0, a1, a2, a3] = $acc;
        asm!(
            "2:",
            "vmovdqu64 {w0}, [{p}]",
            "vmovdqu64 {w1}, [{p} + 64]",
            "vmovdqu64 {w2}, [{p} + 128]",
            "vmovdqu64 {w3}, [{p} + 192]",
            field512!("0", "0", $prefetch),
            field512!("1", "16", $prefetch),
            field512!("2", "32", $prefetch),
            field512!("3", "48", $prefetch),
            next!(),
            p = inout(reg) $lines => _,
            next = inout(reg) $lines.wrapping_byte_add($ahead) => _,
            end = in(reg) $lines.wrapping_byte_add(ROW * $quads),
            x = inout(reg) $coefs => _,
            shift = const widening(BRAIN).0,
            mask = in(zmm_reg) $mask,
            c = out(zmm_reg) _,
            w0 = out(zmm_reg) _,
            w1 = out(zmm_reg) _,
            w2 = out(zmm_reg) _,
            w3 = out(zmm_reg) _,
            t0 = out(zmm_reg) _,
            t1 = out(zmm_reg) _,
            t2 = out(zmm_reg) _,
            t3 = out(zmm_reg) _,
            a0 = inout(zmm_reg) *a0,
            a1 = inout(zmm_reg) *a1,
            a2 = inout(zmm_reg) *a2,
            a3 = inout(zmm_reg) *a3,
            options(readonly, nostack),
        );
    }};
}

/// As [`avx2`].
///
/// # Safety
/// As there.
#[inline]
#[target_feature(enable = "avx512f,avx512dq")]
pub unsafe fn avx512<const BRAIN: bool>(
    acc: &mut [__m512d; BLOCK],
    lines: *const Line,
    quads: usize,
    coefs: *const f64,
    ahead: usize,
) {
    if quads == 0 {
        return;
    }
    let mask = _mm512_set1_epi64(widening(BRAIN).1.cast_signed());
    // SAFETY: reads the lines and the coefficients that the caller has; there is at least one turn.
    unsafe {
        match ahead {
            0 => rows512!(none, acc, lines, quads, coefs, ahead, mask),
            _ => rows512!(second, acc, lines, quads, coefs, ahead, mask),
        }
    }
}
