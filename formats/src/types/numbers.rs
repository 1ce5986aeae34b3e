//! The numbers of a type's blocks that decide how large its weights are: scales and minima, as floats or as small
//! integers of groups.

use super::grid::Multiples;
use super::num::{bf16_to_f32, f16_to_f32, f32_to_bf16, f32_to_f16, round_half_away};
use super::{Format, Part, TypeId, TypeInfo};

/// The numbers of neighbouring weights of a row, a unit. Weights are linear in the numbers of each kind.
#[derive(Clone)]
pub struct Numbers {
    /// Weights of a unit.
    pub weights: usize,
    /// Bytes of a unit.
    pub bytes: usize,
    /// The kinds of numbers, in the order of [`Numbers::count`].
    pub kinds: Vec<Kind>,
    multiples: Option<&'static Multiples>,
}

/// A kind of number.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// A float at a byte of the unit, which all of its weights share.
    Float(Format, usize),
    /// Scales of so many weights each: integers, in units of a float.
    Scales(usize),
    /// Minima of so many weights each.
    Minima(usize),
}

/// Most groups of a unit.
const GROUPS: usize = 16;

impl Numbers {
    /// The numbers of a type in rows of `columns` weights; none where it has no scale that is a float.
    pub fn of(ty: TypeId, columns: usize) -> Option<Numbers> {
        let info: &TypeInfo = ty.info()?;
        let row = usize::try_from(info.row_bytes(columns as u64)?).ok()?;
        if !info.is_quantized() || info.decode.is_none() {
            return None;
        }
        let fields = info.fields.iter().filter(|field| matches!(field.part, Part::Scale | Part::Min));
        let mut kinds: Vec<Kind> = fields.map(|field| Kind::Float(field.format, field.at)).collect();
        let is_float = |format: Format| matches!(format, Format::F32 | Format::F16 | Format::Bf16 | Format::F16Nibbles);
        if !kinds.iter().all(|kind| matches!(kind, Kind::Float(format, _) if is_float(*format))) {
            return None;
        }
        match (info.row_scale(), kinds.is_empty()) {
            (None, false) => {
                let multiples = ty.multiples();
                if let Some((multiples, grid)) = multiples.zip(ty.grid()) {
                    kinds.push(Kind::Scales(grid.group));
                    kinds.extend((multiples.minima > 0).then_some(Kind::Minima(grid.group)));
                }
                Some(Numbers { weights: info.block, bytes: info.bytes, kinds, multiples })
            }
            // One scale for the whole row.
            (Some(format), true) => {
                let kinds = vec![Kind::Float(format, 0)];
                Some(Numbers { weights: columns, bytes: row, kinds, multiples: None })
            }
            // A product of two scales is not linear in both.
            _ => None,
        }
    }

    /// Weights that share a number of a kind.
    pub fn span(&self, kind: Kind) -> usize {
        match kind {
            Kind::Float(..) => self.weights,
            Kind::Scales(group) | Kind::Minima(group) => group,
        }
    }

    /// Numbers of a unit.
    pub fn count(&self) -> usize {
        self.kinds.iter().map(|&kind| self.weights / self.span(kind)).sum()
    }

    /// The integers of a unit's groups.
    fn groups(&self, unit: &[u8]) -> ([[i16; 2]; GROUPS], usize) {
        let groups = self.kinds.iter().map(|&kind| self.weights / self.span(kind)).max().unwrap_or(1);
        let mut all = [[0; 2]; GROUPS];
        if let Some(multiples) = self.multiples {
            multiples.read(unit, &mut all[..groups]);
        }
        (all, groups)
    }

    /// Reads the numbers of a kind into `values`, one for each span of weights.
    pub fn read(&self, kind: Kind, unit: &[u8], values: &mut [f32]) {
        let which = match kind {
            Kind::Float(format, at) => return values.fill(float_at(format, &unit[at..])),
            Kind::Scales(_) => 0,
            Kind::Minima(_) => 1,
        };
        let (groups, _) = self.groups(unit);
        values.iter_mut().zip(groups).for_each(|(value, group)| *value = f32::from(group[which]));
    }

    /// Writes the numbers of a kind, each rounded to what the unit can hold; one that becomes infinite stays.
    pub fn write(&self, kind: Kind, unit: &mut [u8], values: &[f32]) {
        let which = match kind {
            Kind::Float(format, at) => return put_float(format, &mut unit[at..], values[0]),
            Kind::Scales(_) => 0,
            Kind::Minima(_) => 1,
        };
        let Some(multiples) = self.multiples else { return };
        let (mut groups, count) = self.groups(unit);
        let (lowest, highest) = if which == 0 { multiples.scales } else { (0, multiples.minima) };
        for (group, &value) in groups.iter_mut().zip(values) {
            group[which] = round_half_away(value).clamp(lowest.into(), highest.into()) as i16;
        }
        multiples.write(&groups[..count], unit);
    }

    /// Multiplies all floats of a unit, and so its weights; each rounds to what its format can hold, and one that becomes
    /// infinite stays.
    pub fn multiply(&self, unit: &mut [u8], factor: f64) {
        for &kind in &self.kinds {
            if let Kind::Float(format, at) = kind {
                let value = f64::from(float_at(format, &unit[at..])) * factor;
                put_float(format, &mut unit[at..], value as f32);
            }
        }
    }

    /// Makes the numbers of a kind 1 and those beside which they are added 0, so that the unit decodes to what each of
    /// these numbers is multiplied by.
    pub fn isolate(&self, kind: Kind, unit: &mut [u8]) {
        let ones = match kind {
            Kind::Float(..) => {
                for &other in &self.kinds {
                    if let Kind::Float(format, at) = other {
                        put_float(format, &mut unit[at..], f32::from(u8::from(other == kind)));
                    }
                }
                return;
            }
            Kind::Scales(_) => [1, 0],
            Kind::Minima(_) => [0, 1],
        };
        if let Some(multiples) = self.multiples {
            let (_, count) = self.groups(unit);
            multiples.write(&[ones; GROUPS][..count], unit);
        }
    }
}

fn half_at(bytes: &[u8], at: usize) -> u16 {
    u16::from_le_bytes([bytes[at], bytes[at + 1]])
}

/// The float at the beginning of some bytes.
fn float_at(format: Format, bytes: &[u8]) -> f32 {
    match format {
        Format::F32 => f32::from_bits(u32::from(half_at(bytes, 2)) << 16 | u32::from(half_at(bytes, 0))),
        Format::Bf16 => bf16_to_f32(half_at(bytes, 0)),
        Format::F16Nibbles => {
            f16_to_f32((0..4).fold(0, |all, word| all | (half_at(bytes, 2 * word) >> 12) << (4 * word)))
        }
        _ => f16_to_f32(half_at(bytes, 0)),
    }
}

/// Writes a float to the beginning of some bytes, unless it is too large for its format.
fn put_float(format: Format, bytes: &mut [u8], value: f32) {
    match format {
        Format::F32 if value.is_finite() => bytes[..4].copy_from_slice(&value.to_le_bytes()),
        Format::Bf16 if bf16_to_f32(f32_to_bf16(value)).is_finite() => {
            bytes[..2].copy_from_slice(&f32_to_bf16(value).to_le_bytes());
        }
        Format::F16 | Format::F16Nibbles => {
            let half = f32_to_f16(value);
            match format {
                _ if !f16_to_f32(half).is_finite() => {}
                Format::F16 => bytes[..2].copy_from_slice(&half.to_le_bytes()),
                _ => {
                    for word in 0..4 {
                        let high = &mut bytes[2 * word + 1];
                        *high = *high & 15 | ((half >> (4 * word)) as u8) << 4;
                    }
                }
            }
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::REGISTRY;

    struct Random(u64);

    impl Random {
        fn next(&mut self) -> u32 {
            self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (self.0 >> 32) as u32
        }
    }

    /// The weights of a row as the sums over all numbers of some kinds of what these make alone.
    fn sums(numbers: &Numbers, kinds: &[Kind], row: &[u8], ty: &TypeInfo, columns: usize) -> Vec<f64> {
        let mut sums = vec![0f64; columns];
        for &kind in kinds {
            let mut alone = row.to_vec();
            alone.chunks_exact_mut(numbers.bytes).for_each(|unit| numbers.isolate(kind, unit));
            let mut part = vec![0f32; columns];
            ty.decode.expect("a decoder")(&alone, &mut part);
            let span = numbers.span(kind);
            let mut values = vec![0f32; numbers.weights / span];
            for (i, unit) in row.chunks_exact(numbers.bytes).enumerate() {
                numbers.read(kind, unit, &mut values);
                for (j, value) in values.iter().enumerate() {
                    let from = i * numbers.weights + j * span;
                    for at in from..from + span {
                        sums[at] += f64::from(*value) * f64::from(part[at]);
                    }
                }
            }
        }
        sums
    }

    /// Random blocks of every type are the sums over their floats, and over the integers of their groups, of what these
    /// make alone; numbers that are read and written leave the bytes as they are.
    #[test]
    fn weights_are_linear_in_the_numbers_of_a_kind() {
        let mut names = Vec::new();
        let mut random = Random(3);
        for info in REGISTRY {
            let columns = 2 * info.block.max(64).next_multiple_of(info.block.max(1));
            let Some(numbers) = Numbers::of(info.id, columns) else { continue };
            names.push(info.name);
            let bytes = info.row_bytes(columns as u64).expect("whole blocks") as usize;
            let mut row: Vec<u8> = (0..bytes).map(|_| (random.next() >> 13) as u8).collect();
            let (floats, groups): (Vec<Kind>, Vec<Kind>) =
                numbers.kinds.iter().partition(|kind| matches!(kind, Kind::Float(..)));
            for unit in row.chunks_exact_mut(numbers.bytes) {
                floats
                    .iter()
                    .for_each(|&kind| numbers.write(kind, unit, &[0.5 + random.next() as f32 / 4_294_967_296.0]));
            }
            let mut again = row.clone();
            for unit in again.chunks_exact_mut(numbers.bytes) {
                for &kind in &numbers.kinds {
                    let mut values = vec![0f32; numbers.weights / numbers.span(kind)];
                    numbers.read(kind, unit, &mut values);
                    numbers.write(kind, unit, &values);
                }
            }
            assert_eq!(again, row, "{}", info.name);
            let mut whole = vec![0f32; columns];
            info.decode.expect("a decoder")(&row, &mut whole);
            let largest = f64::from(whole.iter().fold(0f32, |m, w| m.max(w.abs())));
            assert!(largest > 0.0, "{}", info.name);
            for kinds in [&floats, &groups].into_iter().filter(|kinds| !kinds.is_empty()) {
                let sums = sums(&numbers, kinds, &row, info, columns);
                for (w, s) in whole.iter().zip(&sums) {
                    assert!((f64::from(*w) - s).abs() <= 1e-6 * largest, "{} {kinds:?}: {w} {s}", info.name);
                }
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
