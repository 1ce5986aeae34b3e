//! Products of bytes by AVX-VNNI: `vpdpbusd` adds four products of a code without a sign and an activation to a sum of
//! 32 bits, so that nothing saturates and all codes are taken as they are.
//!
//! In assembly because callers are compiled for AVX2, which they share with the processors that have no more, and could
//! not inline a function with more instructions.

use std::arch::x86_64::__m256i;

/// The instruction set, for those who multiply by a trait.
pub(super) struct AvxVnni;

/// Bytes between the dwords of a row.
pub(super) const LINE: usize = 128;

/// `acc` plus the products of codes and activations, four to a lane.
///
/// # Safety
/// The processor has AVX-VNNI.
#[inline]
#[target_feature(enable = "avx2")]
pub(super) unsafe fn dpbusd(mut acc: __m256i, codes: __m256i, acts: __m256i) -> __m256i {
    // SAFETY: the processor has the instruction; it reads and writes the named registers only.
    unsafe {
        std::arch::asm!(
            "{{vex}} vpdpbusd {acc}, {codes}, {acts}",
            acc = inout(ymm_reg) acc,
            codes = in(ymm_reg) codes,
            acts = in(ymm_reg) acts,
            options(pure, nomem, nostack, preserves_flags)
        );
    }
    acc
}

/// Products of 16 rows, two vectors of eight, and T tokens.
///
/// The compiler would take the broadcasts of all dwords to the front and, having no registers for them, spill them.
pub(super) trait EightDwords<const T: usize> {
    /// Adds the products of eight dwords, [`LINE`] bytes apart, with those of the tokens, whose activations start at `q` and at
    /// every `stride` bytes after it.
    ///
    /// # Safety
    /// The processor has AVX-VNNI; 64 bytes of eight lines and 32 of every token are readable.
    unsafe fn add(
        codes: *const u8,
        q: *const u8,
        stride: usize,
        acc: [[__m256i; 2]; T],
    ) -> [[__m256i; 2]; T];
}

const _: () = assert!(LINE == 128);

macro_rules! eight_dwords {
    ($tokens:literal, [$($acc0:ident $acc1:ident $at:literal),*]) => {
        impl EightDwords<$tokens> for AvxVnni {
            #[inline]
            #[target_feature(enable = "avx2")]
            unsafe fn add(
                codes: *const u8,
                q: *const u8,
                stride: usize,
                acc: [[__m256i; 2]; $tokens],
            ) -> [[__m256i; 2]; $tokens] {
                let [$([mut $acc0, mut $acc1]),*] = acc;
                macro_rules! dword {
                    ($w0:literal, $w1:literal, $q:literal) => {
                        concat!(
                            "vmovdqu {w0}, ymmword ptr [{w} + ", $w0, "]\n",
                            "vmovdqu {w1}, ymmword ptr [{w} + ", $w1, "]\n",
                            $("vpbroadcastd {y}, dword ptr [{q} ", $at, " + ", $q, "]\n",
                            "{{vex}} vpdpbusd {", stringify!($acc0), "}, {w0}, {y}\n",
                            "{{vex}} vpdpbusd {", stringify!($acc1), "}, {w1}, {y}\n",)*
                        )
                    };
                }
                // SAFETY: the caller's processor has the instruction; reads 64 bytes of eight lines at `w` and 32 bytes at `q`
                // of each token.
                unsafe {
                    std::arch::asm!(
                        dword!("0", "32", "0"),
                        dword!("128", "160", "4"),
                        dword!("256", "288", "8"),
                        dword!("384", "416", "12"),
                        dword!("512", "544", "16"),
                        dword!("640", "672", "20"),
                        dword!("768", "800", "24"),
                        dword!("896", "928", "28"),
                        "/* {stride} {stride3} */", // a use where there is no second or fourth token
                        w = in(reg) codes,
                        q = in(reg) q,
                        stride = in(reg) stride,
                        stride3 = in(reg) 3 * stride,
                        w0 = out(ymm_reg) _,
                        w1 = out(ymm_reg) _,
                        y = out(ymm_reg) _,
                        $($acc0 = inout(ymm_reg) $acc0, $acc1 = inout(ymm_reg) $acc1,)*
                        options(readonly, nostack, preserves_flags),
                    );
                }
                [$([$acc0, $acc1]),*]
            }
        }
    };
}

eight_dwords!(1, [a0 a1 ""]);
eight_dwords!(2, [a0 a1 "", b0 b1 "+ {stride}"]);
eight_dwords!(3, [a0 a1 "", b0 b1 "+ {stride}", c0 c1 "+ 2*{stride}"]);
eight_dwords!(4, [a0 a1 "", b0 b1 "+ {stride}", c0 c1 "+ 2*{stride}", d0 d1 "+ {stride3}"]);
