//! Rows whose products are neither too small nor too large.
//!
//! An encoder that looks for the least squares makes weights smaller: the part of a weight that it cannot hold is missing
//! from all products alike. llama.cpp's multiply the scales of some types by a constant against it, IQ3_S by more than is
//! missing. Errors of this kind do not cancel from column to column as others do, and the softmax behind the logits is as
//! much flatter or steeper. Here the scales of a row are multiplied by `sum w x^2 / sum w x x'`, with the importance `w` of
//! the columns, so that the encoded row `x'` is as long in the direction of the row `x` as that is itself: the correction
//! of Banner et al. 2019 for the mean of a tensor's magnitude, by rows. Codes stay. `docs/notes/sizes.md` has what it
//! gains.

use trine_formats::types::numbers::Numbers;
use trine_formats::types::{DecodeFn, EncodeFn, TypeId};

use crate::kernels::{self, Isa};

/// Encodes rows in one type, each on its own.
pub struct RowEncoder {
    encode: EncodeFn,
    unbiased: Option<Unbiased>,
}

/// Takes what encoding adds to a row's products, or takes from them, back.
struct Unbiased {
    decode: DecodeFn,
    numbers: Numbers,
}

impl RowEncoder {
    /// Rows as `encode` makes them.
    pub fn new(encode: EncodeFn) -> RowEncoder {
        RowEncoder { encode, unbiased: None }
    }

    /// The same for rows of `columns` weights of a type, with the scales that their products ask for; types without a
    /// float that all weights of a block are multiples of stay as they are.
    pub fn unbiased(self, ty: TypeId, columns: usize, isa: Isa) -> RowEncoder {
        let unbiased = Numbers::of(ty, columns).zip(kernels::decode_rows(ty, isa));
        RowEncoder { unbiased: unbiased.map(|(numbers, decode)| Unbiased { decode, numbers }), ..self }
    }

    /// Encodes the row `x`; `importance` has one weight per column. `back` is room for a row.
    pub fn encode(&self, x: &[f32], importance: Option<&[f32]>, row: &mut [u8], back: &mut Vec<f32>) {
        (self.encode)(x, importance, row);
        let Some(unbiased) = &self.unbiased else { return };
        back.resize(x.len(), 0.0);
        (unbiased.decode)(row, back);
        let factor = factor(x, importance, back);
        if factor.is_finite() && factor > 0.0 {
            row.chunks_exact_mut(unbiased.numbers.bytes).for_each(|unit| unbiased.numbers.multiply(unit, factor));
        }
    }
}

/// `sum w x^2 / sum w x x'`, summed in order; without importance all `w` are 1.
fn factor(x: &[f32], importance: Option<&[f32]>, back: &[f32]) -> f64 {
    let (mut own, mut both) = (0.0, 0.0);
    for (i, (&x, &back)) in x.iter().zip(back).enumerate() {
        let weighted = f64::from(x) * importance.map_or(1.0, |w| f64::from(w[i]));
        own += weighted * f64::from(x);
        both += weighted * f64::from(back);
    }
    own / both
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample::rng::Mt19937;

    /// Rows of every type that has floats for it are as long in their own direction as they were, to half a step of a
    /// half float; of types that shrink or stretch them by more the encoder alone is not.
    #[test]
    fn rows_keep_their_length_in_their_own_direction() {
        let isa = Isa::detect();
        let mut random = Mt19937::new(7);
        let mut draw = |scale: f64| -> Vec<f32> {
            (0..512).map(|_| ((0..4).map(|_| random.next_f64() - 0.5).sum::<f64>() * scale) as f32).collect()
        };
        let (x, importance) = (draw(1.0), draw(1.0).iter().map(|w| w * w + 0.125).collect::<Vec<f32>>());
        let mut back = Vec::new();
        for (ty, bias) in [
            (TypeId::IQ3_S, 0.01),
            (TypeId::Q2_K, 0.01),
            (TypeId::Q3_K, 0.005),
            (TypeId::IQ4_XS, 0.001),
            (TypeId::Q4_K, 0.0005),
            (TypeId::IQ1_M, 0.003),
            (TypeId::IQ4_KS, 0.0005),
        ] {
            let (Some(encode), Some(info)) = (kernels::encode_rows(ty, isa), ty.info()) else { panic!("{ty}") };
            let mut row = vec![0; info.row_bytes(512).expect("whole blocks") as usize];
            let mut off = |encoder: RowEncoder| {
                encoder.encode(&x, Some(&importance), &mut row, &mut back);
                back.resize(x.len(), 0.0);
                info.decode.expect("a decoder")(&row, &mut back);
                (factor(&x, Some(&importance), &back) - 1.0).abs()
            };
            let (plain, own) = (off(RowEncoder::new(encode)), off(RowEncoder::new(encode).unbiased(ty, 512, isa)));
            assert!(plain > bias && own < 0.0003, "{ty}: {plain} {own}");
        }
    }

    #[test]
    fn exact_rows_and_rows_of_nothing_stay() {
        let isa = Isa::detect();
        let encode = kernels::encode_rows(TypeId::TQ2_0, isa).expect("an encoder");
        let mut back = Vec::new();
        for x in [[0.0f32; 256], std::array::from_fn(|i| (i % 3) as f32 - 1.0)] {
            let [mut plain, mut own] = [[0u8; 66]; 2];
            encode(&x, None, &mut plain);
            RowEncoder::new(encode).unbiased(TypeId::TQ2_0, 256, isa).encode(&x, None, &mut own, &mut back);
            assert_eq!(plain, own);
        }
    }
}
