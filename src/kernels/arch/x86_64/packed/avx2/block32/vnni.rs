//! Products of bytes by AVX-VNNI: `vpdpbusd` adds four products of a code without a sign and an activation to a sum of
//! 32 bits, so that nothing saturates and all codes are taken as they are.

use super::super::broadcast;
use super::{Dot, Products, Sums, VECTORS};
use crate::packed::block32::{self, Block32, LINE};

/// AVX-VNNI.
pub(super) struct AvxVnni;

impl Products for AvxVnni {
    const SIGNED: bool = false;

    fn pack<B: Block32>(w: &[u8], n: usize, out: &mut [u8]) -> bool {
        block32::pack::<B>(w, n, out)
    }
}

const _: () = assert!(LINE == 128);

/// In assembly because the compiler takes the broadcasts of all dwords to the front and, having no registers for them,
/// spills them; and because its callers are compiled for AVX2 and could not inline a function with more instructions.
macro_rules! dot {
    ($tokens:literal, [$($acc0:ident $acc1:ident $at:literal),*]) => {
        impl Dot<$tokens> for AvxVnni {
            #[inline]
            #[target_feature(enable = "avx2")]
            unsafe fn dot<B: Block32>(codes: *const u8, record: *const u8, stride: usize) -> Sums<$tokens> {
                let starts: Sums<$tokens> = std::array::from_fn(|t| {
                    // SAFETY: a record has its start at byte 36.
                    unsafe { [broadcast(record.add(stride * t + 36)); VECTORS] }
                });
                let [$([mut $acc0, mut $acc1]),*] = starts;
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
                        q = in(reg) record,
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

dot!(1, [a0 a1 ""]);
dot!(2, [a0 a1 "", b0 b1 "+ {stride}"]);
dot!(3, [a0 a1 "", b0 b1 "+ {stride}", c0 c1 "+ 2*{stride}"]);
dot!(4, [a0 a1 "", b0 b1 "+ {stride}", c0 c1 "+ 2*{stride}", d0 d1 "+ {stride3}"]);
