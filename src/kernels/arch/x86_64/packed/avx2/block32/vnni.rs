//! Products by AVX-VNNI: see [`super::super::vnni`].

use std::arch::x86_64::*;

use super::super::broadcast;
use super::super::vnni::{self, EightDwords};
use super::{Dot, Products, Sums, VECTORS};
use crate::Isa;
use crate::packed::block32::{self, Block32, ByteCodes, LINE};
use crate::proof::AvxVnni;

impl Products for AvxVnni {
    const SIGNED: bool = false;

    fn pack<B: Block32>(isa: Isa, w: &[u8], n: usize, out: &mut [u8]) -> bool {
        block32::pack::<B>(isa, w, n, out)
    }

    #[inline]
    #[target_feature(enable = "avx2")]
    unsafe fn one_dot<C: ByteCodes>(codes: &[__m256i; 8], record: *const u8) -> __m256i {
        // SAFETY: a record has eight dwords of activations and its start at byte 36; the caller's processor has
        // AVX-VNNI.
        unsafe {
            let mut sum = broadcast(record.add(36));
            for (k, codes) in codes.iter().enumerate() {
                sum = vnni::dpbusd(sum, *codes, broadcast(record.add(4 * k)));
            }
            sum
        }
    }
}

const _: () = assert!(LINE == vnni::LINE);

impl<const T: usize> Dot<T> for AvxVnni
where
    AvxVnni: EightDwords<T>,
{
    #[inline]
    #[target_feature(enable = "avx2")]
    unsafe fn dot<C: ByteCodes>(codes: *const u8, record: *const u8, stride: usize) -> Sums<T> {
        // SAFETY: eight lines; a record has eight dwords of activations, and its start at byte 36.
        unsafe {
            let starts = std::array::from_fn(|t| [broadcast(record.add(stride * t + 36)); VECTORS]);
            Self::add(codes, record, stride, starts)
        }
    }
}
