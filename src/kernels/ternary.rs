//! The product behind I2_S, TL1 and TL2: ternary rows without block scales times int8 activation rows.
//!
//! `out = ((f32) D - (f32) S) / a`, `D = sum (code + 1) q`: every sum is an exact integer, so any order
//! gives the bits of [`trine_formats::types::ternary::tail`], whose last factor the caller applies.

use crate::Isa;
use crate::arch::ternary as native;
use crate::shared::ternary::HEAD;
use crate::sizes::{MAX_COLUMNS, size};

pub use crate::shared::ternary::{BLOCK, BYTES, Quantizer, act_bytes, pack_row, quantize_act, row_bytes, unpack_row};

/// `out[r * tokens + t] = (D - S) / a` of weight row r and activation row t.
///
/// # Panics
/// When a length does not fit the others.
pub fn mat_rows(isa: Isa, w: &[u8], acts: &[u8], n: usize, tokens: usize, out: &mut [f32]) {
    if tokens == 0 || out.is_empty() {
        return;
    }
    assert!(n <= MAX_COLUMNS, "{n} columns");
    let (row, act) = (row_bytes(n), act_bytes(n));
    assert_eq!(out.len() % tokens, 0, "outputs are whole rows");
    assert_eq!(w.len(), size([out.len() / tokens, row]), "weights");
    assert_eq!(acts.len(), size([tokens, act]), "activations");
    for (w, out) in w.chunks_exact(row.max(1)).zip(out.chunks_exact_mut(tokens)) {
        for (acts, out) in acts.chunks(4 * act).zip(out.chunks_mut(4)) {
            let mut d = [0i32; 4];
            if !native::dot_four(isa, w, acts, act, &mut d) {
                for (act, d) in acts.chunks_exact(act).zip(&mut d) {
                    *d = dot(isa, w, &act[HEAD..]);
                }
            }
            for ((act, d), out) in acts.chunks_exact(act).zip(d).zip(out) {
                let a = f32::from_le_bytes([act[0], act[1], act[2], act[3]]);
                let sum = i32::from_le_bytes([act[4], act[5], act[6], act[7]]);
                *out = (d as f32 - sum as f32) / a;
            }
        }
    }
}

/// `D` of one row and one token.
fn dot(isa: Isa, w: &[u8], q: &[u8]) -> i32 {
    native::dot(isa, w, q).unwrap_or_else(|| dot_scalar(w, q))
}

fn dot_scalar(w: &[u8], q: &[u8]) -> i32 {
    let mut d = 0i32;
    for (w, q) in w.chunks_exact(BYTES).zip(q.chunks_exact(BLOCK)) {
        for (g, q) in q.chunks_exact(BYTES).enumerate() {
            let products = w.iter().zip(q).map(|(&w, &q)| i32::from(w >> (6 - 2 * g) & 3) * i32::from(q as i8));
            d += products.sum::<i32>();
        }
    }
    d
}

#[cfg(test)]
mod tests {
    use trine_formats::types::ternary::quantize_i2_s;

    use super::*;

    /// A fixed sequence of bytes.
    fn bytes(seed: u64, n: usize) -> Vec<u8> {
        let mut s = seed;
        let step = |_| {
            s = s.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            (s >> 56) as u8
        };
        (0..n).map(step).collect()
    }

    #[test]
    fn rows_are_unpacked_to_their_codes() {
        for n in [128, 300] {
            let codes: Vec<i8> = bytes(3, n).iter().map(|b| (b % 3) as i8 - 1).collect();
            let (mut row, mut back) = (vec![0; row_bytes(n)], vec![9; n]);
            pack_row(&codes, &mut row);
            unpack_row(&row, &mut back);
            assert_eq!(back, codes);
        }
    }

    #[test]
    fn every_instruction_set_gives_the_integers_of_the_definition() {
        // Raw bytes: code 3 and activations of -128 too.
        for isa in crate::testing::isas() {
            for (n, rows, tokens) in [(128, 3, 1), (256, 5, 4), (1152, 2, 7), (40, 3, 5), (300, 1, 8)] {
                let w = bytes(1, rows * row_bytes(n));
                let mut acts = bytes(2, tokens * act_bytes(n));
                for act in acts.chunks_exact_mut(act_bytes(n)) {
                    act[..4].copy_from_slice(&3f32.to_le_bytes());
                    act[4..8].copy_from_slice(&17i32.to_le_bytes());
                }
                let mut out = vec![0f32; rows * tokens];
                mat_rows(isa, &w, &acts, n, tokens, &mut out);
                for r in 0..rows {
                    for t in 0..tokens {
                        let q = &acts[t * act_bytes(n) + HEAD..(t + 1) * act_bytes(n)];
                        let d = dot_scalar(&w[r * row_bytes(n)..(r + 1) * row_bytes(n)], q);
                        let want = (d as f32 - 17.0) / 3.0;
                        assert_eq!(out[r * tokens + t].to_bits(), want.to_bits(), "{isa} {n} {r} {t}");
                    }
                }
            }
        }
    }

    #[test]
    fn extreme_rows_do_not_saturate() {
        let n = 8192;
        let w = vec![0xffu8; row_bytes(n)];
        let q = vec![0x80u8; n];
        for isa in crate::testing::isas() {
            assert_eq!(dot(isa, &w, &q), -3 * 128 * n as i32, "{isa}");
        }
    }

    #[test]
    fn a_packed_row_multiplies_as_its_codes_do() {
        let n = 300;
        let codes: Vec<i8> = bytes(3, n).iter().map(|b| (b % 3) as i8 - 1).collect();
        let x: Vec<f32> = bytes(4, n).iter().map(|&b| f32::from(b) - 100.5).collect();
        let (mut w, mut act) = (vec![0; row_bytes(n)], vec![0; act_bytes(n)]);
        pack_row(&codes, &mut w);
        quantize_act(Quantizer::Floored, &x, &mut act);
        let mut out = [0f32];
        mat_rows(Isa::detect(), &w, &act, n, 1, &mut out);
        let mut q = vec![0i8; n];
        let scale = quantize_i2_s(&x, &mut q);
        let want = trine_formats::types::ternary::tail(
            trine_formats::types::ternary::dot_codes(&codes, &q),
            scale.sum,
            scale.a,
            1.0,
        );
        assert_eq!(out[0].to_bits(), want.to_bits());
    }
}
