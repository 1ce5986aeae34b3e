//! Peak rates of the processor: loops without a result of interest, for kernels to be measured against.

use crate::Isa;
use crate::arch::probe as native;
use crate::shared::CHAINS;

/// Reads `data`, up to whole runs of 256 bytes, with the widest loads there are; the value only keeps
/// the loads alive.
///
/// `ahead`: prefetch distance, bytes. On x86-64 every line at that distance is prefetched, with a pause after each:
/// some processors read memory a sixth faster so than by loads alone. 0: no prefetch.
pub fn read(data: &[u8], ahead: usize) -> u64 {
    if let Some(sum) = native::read(Isa::detect(), data, ahead) {
        return sum;
    }
    let words = data.as_chunks::<8>().0;
    words.iter().fold(0, |a, w| a ^ u64::from_le_bytes(*w))
}

/// Drives `data` out of the caches of all processors; false where a program cannot do that.
pub fn evict(data: &[u8]) -> bool {
    native::evict(data)
}

/// Multiplies bytes in registers with `isa` for `rounds` rounds; the number of products (added up
/// as the integer kernels do) and a value that keeps the loop alive.
pub fn multiply_int8(isa: Isa, rounds: u64) -> (u64, i32) {
    if let Some(products) = native::multiply_int8(isa, rounds) {
        return products;
    }
    let (a, b) = std::hint::black_box((3i32, 5i32));
    let mut sums = [0i32; CHAINS];
    for _ in 0..rounds {
        for sum in &mut sums {
            *sum = std::hint::black_box(*sum).wrapping_add(a.wrapping_mul(b));
        }
    }
    (rounds * CHAINS as u64, sums.iter().sum())
}

/// The same with fused multiply-adds of `f32`, which only the float kernels of other programs may use.
pub fn multiply_f32(isa: Isa, rounds: u64) -> (u64, f32) {
    if let Some(products) = native::multiply_f32(isa, rounds) {
        return products;
    }
    let (a, b) = std::hint::black_box((0.5f32, 0.25f32));
    let mut sums = [0f32; CHAINS];
    for _ in 0..rounds {
        for sum in &mut sums {
            *sum = std::hint::black_box(*sum) * a + b;
        }
    }
    (rounds * CHAINS as u64, sums.iter().sum())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_bytes_are_read() {
        // every whole run of 256 bytes counts
        let mut data = vec![0u8; 1024];
        for ahead in [0, 8192] {
            assert_eq!(read(&data, ahead), 0);
            for i in [0, 70, 255, 256, 1023] {
                data[i] = 1 << 3;
                assert_ne!(read(&data, ahead), 0, "{i}");
                data[i] = 0;
            }
        }
    }

    #[test]
    fn products_are_counted() {
        for isa in crate::testing::isas() {
            let per_round = multiply_int8(isa, 1).0;
            assert_eq!(multiply_int8(isa, 100).0, 100 * per_round);
            assert!(multiply_f32(isa, 100).1.is_finite());
        }
        if let Some(isa) = Isa::of(crate::Level::Avx512) {
            let (n, sum) = multiply_int8(isa, 10);
            assert_eq!(i64::from(sum), n as i64 * -15);
        }
    }
}
