//! What the processor does at best: loops without a result of interest, for kernels to be measured
//! against.

use super::Isa;

/// Independent chains of a multiplication loop: more than latency times issue rate of any processor.
const CHAINS: usize = 12;

/// Reads `data`, up to whole runs of 256 bytes, with the widest loads there are; the value only keeps
/// the loads alive.
pub fn read(data: &[u8]) -> u64 {
    #[cfg(target_arch = "x86_64")]
    match Isa::detect() {
        // SAFETY: the processor has the instruction set.
        Isa::Avx512 => return unsafe { x86::read_avx512(data) },
        // SAFETY: the processor has the instruction set.
        Isa::Avx2 => return unsafe { x86::read_avx2(data) },
        Isa::Scalar => {}
    }
    let words = data.as_chunks::<8>().0;
    words.iter().fold(0, |a, w| a ^ u64::from_le_bytes(*w))
}

/// Multiplies bytes in registers with `isa` for `rounds` rounds; the number of products (added up
/// as the integer kernels do) and a value that keeps the loop alive.
pub fn multiply_int8(isa: Isa, rounds: u64) -> (u64, i32) {
    #[cfg(target_arch = "x86_64")]
    match isa.min(Isa::detect()) {
        // SAFETY: the processor has the instruction set.
        Isa::Avx512 => return unsafe { x86::int8_avx512(rounds) },
        // SAFETY: the processor has the instruction set.
        Isa::Avx2 => return unsafe { x86::int8_avx2(rounds) },
        Isa::Scalar => {}
    }
    let _ = isa;
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
    #[cfg(target_arch = "x86_64")]
    match isa.min(Isa::detect()) {
        // SAFETY: the processor has the instruction set.
        Isa::Avx512 => return unsafe { x86::f32_avx512(rounds) },
        // SAFETY: the processor has the instruction set.
        Isa::Avx2 => return unsafe { x86::f32_avx2(rounds) },
        Isa::Scalar => {}
    }
    let _ = isa;
    let (a, b) = std::hint::black_box((0.5f32, 0.25f32));
    let mut sums = [0f32; CHAINS];
    for _ in 0..rounds {
        for sum in &mut sums {
            *sum = std::hint::black_box(*sum) * a + b;
        }
    }
    (rounds * CHAINS as u64, sums.iter().sum())
}

#[cfg(target_arch = "x86_64")]
mod x86 {
    use std::arch::x86_64::*;
    use std::hint::black_box;

    use super::CHAINS;

    #[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")]
    pub fn read_avx512(data: &[u8]) -> u64 {
        let mut sums = [_mm512_setzero_si512(); 4];
        for lines in data.as_chunks::<256>().0 {
            for (sum, line) in sums.iter_mut().zip(lines.as_chunks::<64>().0) {
                // SAFETY: 64 bytes; the load needs no alignment.
                let line = unsafe { _mm512_loadu_si512(line.as_ptr().cast()) };
                *sum = _mm512_xor_si512(*sum, line);
            }
        }
        let all = sums.into_iter().reduce(|a, b| _mm512_xor_si512(a, b));
        all.map_or(0, |v| _mm512_reduce_add_epi64(v) as u64)
    }

    #[target_feature(enable = "avx2,fma,f16c")]
    pub fn read_avx2(data: &[u8]) -> u64 {
        let mut sums = [_mm256_setzero_si256(); 8];
        for lines in data.as_chunks::<256>().0 {
            for (sum, line) in sums.iter_mut().zip(lines.as_chunks::<32>().0) {
                // SAFETY: 32 bytes; the load needs no alignment.
                let line = unsafe { _mm256_loadu_si256(line.as_ptr().cast()) };
                *sum = _mm256_xor_si256(*sum, line);
            }
        }
        let all = sums.into_iter().reduce(|a, b| _mm256_xor_si256(a, b));
        let mut lanes = [0u64; 4];
        if let Some(v) = all {
            // SAFETY: 32 bytes; the store needs no alignment.
            unsafe { _mm256_storeu_si256(lanes.as_mut_ptr().cast(), v) };
        }
        lanes.into_iter().fold(0, |a, b| a ^ b)
    }

    #[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")]
    pub fn int8_avx512(rounds: u64) -> (u64, i32) {
        let (a, b) = black_box((_mm512_set1_epi8(3), _mm512_set1_epi8(-5)));
        let mut sums = [_mm512_setzero_si512(); CHAINS];
        for _ in 0..rounds {
            for sum in &mut sums {
                *sum = _mm512_dpbusd_epi32(*sum, a, b);
            }
        }
        let all = sums.into_iter().reduce(|a, b| _mm512_add_epi32(a, b));
        let kept = all.map_or(0, |v| _mm512_reduce_add_epi32(v));
        (rounds * 64 * CHAINS as u64, kept)
    }

    #[target_feature(enable = "avx2,fma,f16c")]
    pub fn int8_avx2(rounds: u64) -> (u64, i32) {
        let (mut a, other) = black_box((_mm256_set1_epi8(3), _mm256_set1_epi8(1)));
        let factors = black_box([_mm256_set1_epi8(-5); CHAINS]);
        let ones = _mm256_set1_epi16(1);
        let mut sums = [_mm256_setzero_si256(); CHAINS];
        for _ in 0..rounds {
            // Another operand every round, or the products would be computed once.
            a = _mm256_xor_si256(a, other);
            for (sum, b) in sums.iter_mut().zip(factors) {
                let pairs = _mm256_maddubs_epi16(a, b);
                *sum = _mm256_add_epi32(*sum, _mm256_madd_epi16(pairs, ones));
            }
        }
        let all = sums.into_iter().reduce(|a, b| _mm256_add_epi32(a, b));
        let kept = all.map_or(0, |v| _mm256_extract_epi32::<0>(v));
        (rounds * 32 * CHAINS as u64, kept)
    }

    #[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")]
    pub fn f32_avx512(rounds: u64) -> (u64, f32) {
        let (a, b) = black_box((_mm512_set1_ps(0.5), _mm512_set1_ps(0.25)));
        let mut sums = [_mm512_setzero_ps(); CHAINS];
        for _ in 0..rounds {
            for sum in &mut sums {
                *sum = _mm512_fmadd_ps(*sum, a, b);
            }
        }
        let all = sums.into_iter().reduce(|a, b| _mm512_add_ps(a, b));
        let kept = all.map_or(0.0, |v| _mm512_reduce_add_ps(v));
        (rounds * 16 * CHAINS as u64, kept)
    }

    #[target_feature(enable = "avx2,fma,f16c")]
    pub fn f32_avx2(rounds: u64) -> (u64, f32) {
        let (a, b) = black_box((_mm256_set1_ps(0.5), _mm256_set1_ps(0.25)));
        let mut sums = [_mm256_setzero_ps(); CHAINS];
        for _ in 0..rounds {
            for sum in &mut sums {
                *sum = _mm256_fmadd_ps(*sum, a, b);
            }
        }
        let all = sums.into_iter().reduce(|a, b| _mm256_add_ps(a, b));
        let kept = all.map_or(0.0, |v| _mm256_cvtss_f32(v));
        (rounds * 8 * CHAINS as u64, kept)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_bytes_are_read() {
        // every whole run of 256 bytes counts
        let mut data = vec![0u8; 1024];
        assert_eq!(read(&data), 0);
        for i in [0, 70, 255, 256, 1023] {
            data[i] = 1 << 3;
            assert_ne!(read(&data), 0, "{i}");
            data[i] = 0;
        }
    }

    #[test]
    fn products_are_counted() {
        for isa in Isa::ALL {
            let per_round = multiply_int8(isa, 1).0;
            assert_eq!(multiply_int8(isa, 100).0, 100 * per_round);
            assert!(multiply_f32(isa, 100).1.is_finite());
        }
        let (n, sum) = multiply_int8(Isa::Avx512, 10);
        if Isa::detect() == Isa::Avx512 {
            assert_eq!(i64::from(sum), n as i64 * -15);
        }
    }
}
