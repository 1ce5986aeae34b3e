use super::*;
use crate::types::num::f16_to_f32;
use crate::types::{REGISTRY, TypeId};

/// Numbers that look random.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }
}

/// A block of activations: its scale, its scaled sum where it has one, and its quants.
struct Act {
    dx: f32,
    sum: f32,
    quants: Vec<i32>,
}

fn acts(ty: TypeId, row: &[u8]) -> Vec<Act> {
    let half = |b: &[u8], at: usize| f16_to_f32(u16::from_le_bytes([b[at], b[at + 1]]));
    let bytes = |b: &[u8]| b.iter().map(|q| i32::from(*q as i8)).collect();
    let info = ty.info().unwrap();
    let block = |b: &[u8]| match ty {
        TypeId::Q8_0 => Act { dx: half(b, 0), sum: 0.0, quants: bytes(&b[2..34]) },
        TypeId::Q8_1 => Act { dx: half(b, 0), sum: half(b, 2), quants: bytes(&b[4..36]) },
        _ => Act { dx: f32::from_le_bytes([b[0], b[1], b[2], b[3]]), sum: 0.0, quants: bytes(&b[4..260]) },
    };
    row.chunks_exact(info.bytes).map(block).collect()
}

/// The product of a row by its form: the formulas as [`Sums`] has them.
fn product(info: &TypeInfo, form: &IntegerForm, row: &[u8], acts: &[Act]) -> f32 {
    let (groups, group) = (info.block / form.group, form.group);
    let (mut acc, mut chains) = (0.0f32, [0.0f32; 8]);
    form.each_block(info, row, |number, block| {
        for level in &block.levels[..info.block] {
            let code = usize::from(form.coding.code(*level));
            let back = match form.coding {
                Coding::Even { lowest, count } => {
                    assert!(code < usize::from(count));
                    lowest + code as i8
                }
                Coding::Table(levels) => levels[code],
                Coding::Bytes => code as u8 as i8,
            };
            assert_eq!(back, *level, "{}", info.name);
        }
        let wide = acts[0].quants.len();
        let act = |g: usize| &acts[(number * info.block + g * group) / wide];
        let quant = |e: usize| acts[(number * info.block + e) / wide].quants[(number * info.block + e) % wide];
        let isum =
            |g: usize| -> i32 { (g * group..(g + 1) * group).map(|e| i32::from(block.levels[e]) * quant(e)).sum() };
        let scale = |g: usize| i32::from(block.scales[g]);
        let all = || -> i32 { (0..groups).map(|g| scale(g) * isum(g)).sum() };
        let minima = || -> i32 { (0..info.block).map(|e| i32::from(block.minima[e / group]) * quant(e)).sum() };
        let of_groups = form.sums == Sums::Blocks && form.group < info.block.min(32);
        let d = |g: usize| block.d[if of_groups { g } else { 0 }];
        let mut add_chains = || {
            for (l, chain) in chains.iter_mut().enumerate() {
                let products = (l..256).step_by(8).map(|e| scale(e / group) * i32::from(block.levels[e]) * quant(e));
                *chain += (d(0) * act(0).dx) * products.sum::<i32>() as f32;
            }
        };
        match form.sums {
            Sums::Blocks => (0..groups).for_each(|g| acc += (d(g) * act(g).dx) * isum(g) as f32),
            Sums::Shifted => acc += (d(0) * act(0).dx) * isum(0) as f32 + block.minimum * act(0).sum,
            Sums::Nested => {
                let t = (0..groups).fold(0.0f32, |t, g| t + act(g).dx * isum(g) as f32);
                acc += d(0) * t;
            }
            Sums::Whole { unit, .. } => acc += (d(0) * act(0).dx) * (all() as f32 * unit),
            Sums::Groups => (0..groups).for_each(|g| acc += ((d(0) * act(0).dx) * scale(g) as f32) * isum(g) as f32),
            Sums::Minima => {
                let dx = act(0).dx;
                acc += (dx * d(0)) * all() as f32 - (dx * block.minimum) * minima() as f32;
            }
            Sums::Chains => add_chains(),
            Sums::ChainsAndMinima => {
                add_chains();
                acc -= (block.minimum * act(0).dx) * minima() as f32;
            }
        }
    });
    match form.sums {
        Sums::Whole { last, .. } => last * acc,
        Sums::Chains | Sums::ChainsAndMinima => chains.iter().fold(acc, |sum, chain| sum + chain),
        _ => acc,
    }
}

#[test]
fn forms_have_the_bits_of_the_definitions() {
    let mut random = Random(0x5EED);
    for info in REGISTRY {
        let (Some(form), Some(dot)) = (info.id.integers(), info.dot_ref) else { continue };
        for blocks in [1, 2, 5] {
            let columns = (blocks * info.block).next_multiple_of(256);
            for _ in 0..20 {
                let bytes = info.row_bytes(columns as u64).unwrap() as usize;
                let row: Vec<u8> = (0..bytes).map(|_| random.next() as u8).collect();
                let x: Vec<f32> = (0..columns).map(|_| (random.next() as i32 >> 12) as f32 / 1e4).collect();
                let act = info.act.unwrap();
                let act_info = act.info().unwrap();
                let mut encoded = vec![0; act_info.row_bytes(columns as u64).unwrap() as usize];
                act_info.encode.unwrap()(&x, None, &mut encoded);
                let (expected, found) = (dot(&row, &encoded), product(info, form, &row, &acts(act, &encoded)));
                let same = expected.to_bits() == found.to_bits() || expected.is_nan() && found.is_nan();
                assert!(same, "{}: {expected} is {found}", info.name);
            }
        }
    }
}

#[test]
fn types_without_a_form_are_known() {
    let without = REGISTRY.iter().filter(|t| t.dot_ref.is_some() && t.id.integers().is_none());
    let names: Vec<&str> = without.map(|t| t.name).collect();
    assert_eq!(names, ["f32", "f16", "q4_0", "bf16", "iq1_s_r1", "iq1_m_r1", "q2_0c", "g8_0", "fv5"]);
}
