//! Half-quadratic quantization: scales and minima that leave a few weights with large errors so that the others have
//! small ones (Badri and Shaji 2023).
//!
//! The error of a block is `sum of w |e|^p` with `p` = 1/2 rather than squares, in which a few outliers decide. It is
//! split in two: what each weight may err freely, which has the norm, and the rest, which has squares. Both are solved
//! in turns. The free part of an error `e` in steps of the scale is `sign(e) max(0, |e| - |e|^(p - 1) / b)`; the rest
//! has a scale and a minimum of least squares, which are rounded to half floats, and codes are the nearest. `b` begins
//! at 10 and grows by a hundredth. The first solution is the encoder's own, and of all those of 20 turns the block gets
//! the one with the least error, so that none is worse than without.
//!
//! Columns weigh alike, or as the importance matrix says. No text is needed. All of it is done in `f64` with nothing
//! but the four operations and square roots, so that the bytes are the same everywhere.

use trine_formats::types::grid::{Grid, Step};
use trine_formats::types::num::{f16_to_f32, f32_to_f16, put_f16};
use trine_formats::types::{EncodeFn, Part, TypeId, TypeInfo};

use crate::kernels::Isa;

/// Turns of a block.
const TURNS: usize = 20;
/// How much the free part of an error is to agree with all of it: at first, and how it grows.
const AGREE: f64 = 10.0;
const GROWTH: f64 = 1.01;

/// The encoder of a type whose blocks have one scale and perhaps a minimum.
pub fn encoder(ty: TypeId, _: Isa) -> Option<EncodeFn> {
    Some(match ty {
        TypeId::Q4_0 => encode::<{ TypeId::Q4_0.0 }>,
        TypeId::Q4_1 => encode::<{ TypeId::Q4_1.0 }>,
        TypeId::Q5_0 => encode::<{ TypeId::Q5_0.0 }>,
        TypeId::Q5_1 => encode::<{ TypeId::Q5_1.0 }>,
        TypeId::Q8_0 => encode::<{ TypeId::Q8_0.0 }>,
        TypeId::IQ4_NL => encode::<{ TypeId::IQ4_NL.0 }>,
        _ => return None,
    })
}

fn encode<const TY: u32>(x: &[f32], importance: Option<&[f32]>, row: &mut [u8]) {
    let ty = TypeId(TY);
    let (Some(info), Some(grid)) = (ty.info(), ty.grid()) else { return };
    let Some(encode) = info.encode else { return };
    encode(x, importance, row);
    let mut solver = Solver { info, grid, has_minimum: matches!(ty, TypeId::Q4_1 | TypeId::Q5_1), codes: Vec::new() };
    for (i, (x, block)) in x.chunks_exact(info.block).zip(row.chunks_exact_mut(info.bytes)).enumerate() {
        let importance = importance.map(|w| &w[i * info.block..][..info.block]);
        solver.improve(x, |j| importance.map_or(1.0, |w| w[j].into()), block);
    }
}

/// Blocks of one type, one after the other.
struct Solver {
    info: &'static TypeInfo,
    grid: &'static Grid,
    has_minimum: bool,
    /// The nearest codes at the scale that is tried.
    codes: Vec<u8>,
}

impl Solver {
    /// Gives an encoded block the best scale, minimum and codes.
    fn improve(&mut self, x: &[f32], importance: impl Fn(usize) -> f64, block: &mut [u8]) {
        let mut best = error(self.info, x, &importance, block);
        let mut step = [Step::default()];
        self.grid.steps(block, &mut step);
        let [mut step] = step;
        self.choose(step, x);
        let mut agree = AGREE;
        for _ in 0..TURNS {
            let Some(next) = self.fit(x, &importance, step, agree) else { return };
            step = next;
            agree *= GROWTH;
            self.choose(step, x);
            let values = x.iter().zip(&self.codes).map(|(&x, &code)| (x, self.grid.value(step, code)));
            let now = norm(values, &importance);
            if now < best {
                best = now;
                put_f16(block, self.info.at(Part::Scale), step.scale);
                if self.has_minimum {
                    put_f16(block, self.info.at(Part::Min), -step.offset);
                }
                self.grid.place(&self.codes, block);
            }
        }
    }

    /// Takes the codes that are nearest.
    fn choose(&mut self, step: Step, x: &[f32]) {
        self.codes.clear();
        self.codes.extend(x.iter().map(|&x| self.grid.nearest(step, x.into())));
    }

    /// The step of least squares once weights err freely; `None` where there is none.
    fn fit(&self, x: &[f32], importance: &impl Fn(usize) -> f64, step: Step, agree: f64) -> Option<Step> {
        let scale = f64::from(step.scale);
        let [mut n, mut l, mut ll, mut t, mut lt] = [0.0; 5];
        for (j, (&x, &code)) in x.iter().zip(&self.codes).enumerate() {
            let level: f64 = self.grid.value(Step { scale: 1.0, offset: 0.0, second: false }, code).into();
            let error = (f64::from(x) - f64::from(self.grid.value(step, code))) / scale;
            let target = f64::from(x) - free(error, agree) * scale;
            let w = importance(j);
            n += w;
            l += w * level;
            ll += w * (level * level);
            t += w * target;
            lt += w * (level * target);
        }
        let (scale, minimum) = match self.has_minimum {
            true => {
                let scale = (n * lt - l * t) / (n * ll - l * l);
                (scale, (t - scale * l) / n)
            }
            false => (lt / ll, 0.0),
        };
        let half = |x: f64| f16_to_f32(f32_to_f16(x as f32));
        let next = Step { scale: half(scale), offset: -half(minimum), second: false };
        (next.scale.is_finite() && next.scale != 0.0 && next.offset.is_finite()).then_some(next)
    }
}

/// The part of an error that costs nothing.
fn free(error: f64, agree: f64) -> f64 {
    let size = error.abs();
    let part = (size - 1.0 / (agree * size.sqrt())).max(0.0);
    if error < 0.0 { -part } else { part }
}

/// The norm of the errors of values.
fn norm(values: impl Iterator<Item = (f32, f32)>, importance: &impl Fn(usize) -> f64) -> f64 {
    let errors = values.map(|(x, value)| (f64::from(x) - f64::from(value)).abs().sqrt());
    errors.enumerate().fold(0.0, |sum, (j, error)| sum + importance(j) * error)
}

/// The norm of the errors of a block.
fn error(info: &TypeInfo, x: &[f32], importance: &impl Fn(usize) -> f64, block: &[u8]) -> f64 {
    let mut values = vec![0.0; x.len()];
    if let Some(decode) = info.decode {
        decode(block, &mut values);
    }
    norm(x.iter().copied().zip(values), importance)
}

#[cfg(test)]
mod tests {
    use super::*;

    const TYPES: [TypeId; 6] = [TypeId::Q4_0, TypeId::Q4_1, TypeId::Q5_0, TypeId::Q5_1, TypeId::Q8_0, TypeId::IQ4_NL];

    /// About normal, a few of them far out.
    fn weights(n: usize, mut state: u64) -> Vec<f32> {
        let mut uniform = move || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 40) as f32 / (1u64 << 24) as f32 - 0.5
        };
        let far = |u: f32| if u > 0.47 { 5.0 } else { 1.0 };
        (0..n).map(|_| 0.05 * far(uniform()) * (uniform() + uniform() + uniform())).collect()
    }

    fn encoded(encode: EncodeFn, info: &TypeInfo, x: &[f32], importance: Option<&[f32]>) -> Vec<u8> {
        let mut row = vec![0; x.len() / info.block * info.bytes];
        encode(x, importance, &mut row);
        row
    }

    #[test]
    fn no_block_is_worse_than_the_encoders_and_many_are_better() {
        let x = weights(32 * 64, 5);
        let columns: Vec<f32> = weights(x.len(), 6).iter().map(|w| w * w + 1e-6).collect();
        for (ty, importance) in TYPES.into_iter().flat_map(|ty| [(ty, None), (ty, Some(&columns[..]))]) {
            let info = ty.info().unwrap();
            let usual = encoded(info.encode.unwrap(), info, &x, importance);
            let ours = encoded(encoder(ty, Isa::detect()).unwrap(), info, &x, importance);
            let mut better = 0;
            for (i, (usual, ours)) in usual.chunks(info.bytes).zip(ours.chunks(info.bytes)).enumerate() {
                let own = |block| {
                    let weight = |j: usize| importance.map_or(1.0, |w| w[32 * i + j].into());
                    error(info, &x[32 * i..][..32], &weight, block)
                };
                assert!(own(ours) <= own(usual), "{ty}, block {i}");
                better += usize::from(own(ours) < own(usual));
            }
            assert!(better >= 8, "{ty}: {better} of 64 blocks are better");
        }
    }

    #[test]
    fn large_errors_are_free_and_small_ones_are_not() {
        assert_eq!([free(0.2, AGREE), free(-0.2, AGREE), free(0.0, AGREE)], [0.0; 3]);
        assert_eq!(free(4.0, AGREE), 3.95);
        assert_eq!(free(-4.0, AGREE), -3.95);
        assert!(free(0.5, 2.0 * AGREE) > free(0.5, AGREE));
    }
}
