//! The floats of a type's blocks that its weights are linear in: scales and minima.

use trine_formats::types::num::{bf16_to_f32, f16_to_f32, f32_to_bf16, f32_to_f16};
use trine_formats::types::{Format, Part, TypeId, TypeInfo};

/// Scales and minima of neighbouring weights of a row: `w = sum over floats of float * w with this float 1 and the
/// others 0`.
#[derive(Clone, Debug)]
pub struct Floats {
    /// Weights that share the floats.
    pub weights: usize,
    /// Bytes of these weights.
    pub bytes: usize,
    /// Format of each float, and its first byte.
    pub places: Vec<(Format, usize)>,
}

impl Floats {
    /// The floats of a type in rows of `columns` weights; none where it has no scale that is a float.
    pub fn of(ty: TypeId, columns: usize) -> Option<Floats> {
        let info: &TypeInfo = ty.info()?;
        let (block, row) = (info.block, usize::try_from(info.row_bytes(columns as u64)?).ok()?);
        if !info.is_quantized() || info.decode.is_none() {
            return None;
        }
        let fields = info.fields.iter().filter(|field| matches!(field.part, Part::Scale | Part::Min));
        let places: Vec<_> = fields.map(|field| (field.format, field.at)).collect();
        let known = |format: &Format| matches!(format, Format::F32 | Format::F16 | Format::Bf16 | Format::F16Nibbles);
        if !places.iter().all(|(format, _)| known(format)) {
            return None;
        }
        match (info.row_scale(), places.is_empty()) {
            (None, false) => Some(Floats { weights: block, bytes: info.bytes, places }),
            // One scale for the whole row.
            (Some(format), true) => Some(Floats { weights: columns, bytes: row, places: vec![(format, 0)] }),
            // A product of two scales is not linear in both.
            _ => None,
        }
    }

    /// Reads float number `i` of some weights.
    pub fn read(&self, unit: &[u8], i: usize) -> f32 {
        let (format, at) = self.places[i];
        let half = |at: usize| u16::from_le_bytes([unit[at], unit[at + 1]]);
        match format {
            Format::F32 => f32::from_le_bytes([unit[at], unit[at + 1], unit[at + 2], unit[at + 3]]),
            Format::Bf16 => bf16_to_f32(half(at)),
            Format::F16Nibbles => {
                f16_to_f32((0..4).fold(0, |all, word| all | (half(at + 2 * word) >> 12) << (4 * word)))
            }
            _ => f16_to_f32(half(at)),
        }
    }

    /// Writes float number `i` of some weights, rounded to its format.
    pub fn write(&self, unit: &mut [u8], i: usize, value: f32) {
        let (format, at) = self.places[i];
        match format {
            Format::F32 => unit[at..at + 4].copy_from_slice(&value.to_le_bytes()),
            Format::Bf16 => unit[at..at + 2].copy_from_slice(&f32_to_bf16(value).to_le_bytes()),
            Format::F16Nibbles => {
                let half = f32_to_f16(value);
                for word in 0..4 {
                    let high = &mut unit[at + 2 * word + 1];
                    *high = *high & 15 | (half >> (4 * word) & 15) as u8 * 16;
                }
            }
            _ => unit[at..at + 2].copy_from_slice(&f32_to_f16(value).to_le_bytes()),
        }
    }
}

#[cfg(test)]
mod tests {
    use trine_formats::types::REGISTRY;

    use super::*;
    use crate::sample::rng::Mt19937;

    /// Random blocks of every type are the sums over their floats of what these make alone.
    #[test]
    fn weights_are_linear_in_the_floats() {
        let mut names = Vec::new();
        let mut rng = Mt19937::new(3);
        for info in REGISTRY {
            let columns = 2 * info.block.max(64).next_multiple_of(info.block.max(1));
            let Some(floats) = Floats::of(info.id, columns) else { continue };
            names.push(info.name);
            let decode = info.decode.expect("a decoder");
            let bytes = info.row_bytes(columns as u64).expect("whole blocks") as usize;
            let mut row: Vec<u8> = (0..bytes).map(|_| (rng.next_u32() >> 13) as u8).collect();
            let mut set = |row: &mut [u8], value: &mut dyn FnMut(usize) -> f32| {
                for unit in row.chunks_exact_mut(floats.bytes) {
                    (0..floats.places.len()).for_each(|i| floats.write(unit, i, value(i)));
                }
            };
            set(&mut row, &mut |_| 0.5 + rng.next_f64() as f32);
            let mut whole = vec![0f32; columns];
            decode(&row, &mut whole);
            let mut sums = vec![0f64; columns];
            for i in 0..floats.places.len() {
                let mut alone = row.clone();
                set(&mut alone, &mut |j| f32::from(u8::from(i == j)));
                let mut part = vec![0f32; columns];
                decode(&alone, &mut part);
                for ((sums, part), unit) in
                    sums.chunks_mut(floats.weights).zip(part.chunks(floats.weights)).zip(row.chunks_exact(floats.bytes))
                {
                    let value = f64::from(floats.read(unit, i));
                    sums.iter_mut().zip(part).for_each(|(s, &p)| *s += value * f64::from(p));
                }
            }
            let largest = whole.iter().fold(0f32, |m, w| m.max(w.abs()));
            assert!(largest > 0.0, "{}", info.name);
            for (w, s) in whole.iter().zip(&sums) {
                assert!((f64::from(*w) - s).abs() <= 3e-7 * f64::from(largest), "{}: {w} {s}", info.name);
            }
        }
        for name in ["q4_0", "q5_1", "q8_0", "q2_K", "q6_K", "iq1_m", "iq4_xs", "tq2_0", "iq4_ks"] {
            assert!(names.contains(&name), "{name} is missing of {names:?}");
        }
        for name in ["f16", "mxfp4", "nvfp4", "i2_s", "q4_0_r8"] {
            assert!(!names.contains(&name), "{name}");
        }
    }
}
