//! Both sums against the definition, in tiles of memory and of the processor.

use trine_formats::types::num::{f16_to_f32, f32_to_f16};

use super::outputs::{CELLS, Outputs, Probabilities};
use super::scores::{Out, Queries};
use crate::arch::x86_64::tiles::{Hardware, Software, Tiles};
use crate::halves::{self, BLOCK, F16Encoding, LANES, LINE, Line, STEPS};
use crate::testing::{Random, power, skipped};
use crate::{Isa, Level};

fn half(x: f32) -> f64 {
    f64::from(f16_to_f32(f32_to_f16(x)))
}

/// The least half float.
const TINY: f32 = 1.0 / (1u32 << 24) as f32;

/// Kinds of values, of which the first few are as models have them: nothing may stay open there.
const KINDS: usize = 10;
const PLAIN_KINDS: usize = 3;

fn values(random: &mut Random, kind: usize, n: usize) -> Vec<f32> {
    let mut x: Vec<f32> = (0..n).map(|_| random.normal()).collect();
    let mut each = |f: &mut dyn FnMut(&mut Random, f32) -> f32| {
        x.iter_mut().for_each(|x| *x = f(random, *x));
    };
    match kind {
        0 => {}
        1 => each(&mut |r, x| [x, 10.0 * x][usize::from(r.below(60) == 0)]),
        // few bits, and rows that add up to nothing
        2 => each(&mut |_, x| x.signum()),
        3 => each(&mut |r, x| x * power(r.below(24) as i32 - 24) as f32),
        // any half float that is a number
        4 => each(&mut |r, _| f16_to_f32(r.bits() as u16 & 0xFBFF)),
        5 => each(&mut |r, x| [0.0, -0.0, x * 1e-7][r.below(3)]),
        6 => each(&mut |r, x| [x.signum() * 65504.0, x * 6e-8, 64.0][r.below(3)]),
        7 => x.chunks_exact_mut(2).for_each(|x| x[1] = -x[0]),
        // sums in order lose the small products between large ones, which often cancel each other
        8 => each(&mut |r, _| [32.0, -32.0, TINY, 3.0 * TINY][r.below(4)]),
        _ => {
            let special = [f32::INFINITY, f32::NAN, -1e30, 65520.0];
            let many = 1 + n / 200;
            (0..many).for_each(|_| x[random.below(n)] = special[random.below(4)]);
        }
    }
    x
}

/// Runs a test in tiles of memory, and in the processor's where there are such.
fn on_both(test: impl Fn(bool, &mut Random)) {
    if Isa::of(Level::Avx512).is_none() {
        return skipped("exact sums", &Level::Avx512.missing().join(", "));
    }
    test(false, &mut Random(0xE8AC7));
    match Isa::of(Level::Amx) {
        Some(_) => test(true, &mut Random(0xE8AC8)),
        None => skipped("exact sums in tiles", &Level::Amx.missing().join(", ")),
    }
}

/// One case; how many rows stayed open.
fn scores<T: Tiles>(random: &mut Random, size: usize, rows: usize, kinds: [usize; 2]) -> usize {
    let isa = Isa::of(Level::Avx512).expect("looked for before");
    let q = values(random, kinds[0], rows * size);
    let mut k = values(random, kinds[1], LANES * size);
    if kinds == [2, 2] {
        // Two halves of a key that cancel each other.
        k.chunks_exact_mut(size).for_each(|k| {
            let (one, other) = k.split_at_mut(size / 2);
            other.iter_mut().zip(one).for_each(|(o, x)| *o = -*x);
        });
    }
    let there = [LANES, 1 + random.below(LANES)][random.below(2)];
    let form = F16Encoding::of(isa, &k[..there * size]);
    // What is not there was something else before.
    let mut keys = vec![Line([0x7C00_FFFF_7C01_8000; LINE]); size / STEPS * BLOCK];
    for (lane, k) in k.chunks_exact(size).take(there).enumerate() {
        halves::put_lane(isa, k, &mut keys, lane, form);
    }
    let stride = LANES + random.below(20);
    let mut out = vec![7.0f32; rows * stride];
    let mut open = vec![false; rows];
    let from = random.below(rows);
    let to = Out { at: out.as_mut_ptr(), stride };
    // SAFETY: AVX-512 was looked for, and the caller has the tiles; everything is as large as it has to be.
    unsafe {
        let mut queries = Queries::new(q.chunks_exact(size), size);
        queries.scores::<T>((&keys, form), there, from..rows, to, &mut open);
    }
    for row in from..rows {
        for lane in (0..there).filter(|_| !open[row]) {
            let pairs = q[row * size..][..size].iter().zip(&k[lane * size..]);
            let sum = pairs.fold(0.0, |s, (&q, &k)| s + half(q) * half(k)) as f32;
            let got = out[row * stride + lane];
            assert_eq!(
                got.to_bits(),
                sum.to_bits(),
                "{kinds:?} of {size}: row {row} of {rows}, key {lane} is {got:e}, not {sum:e}"
            );
        }
    }
    open[from..].iter().filter(|open| **open).count()
}

#[test]
fn scores_are_those_of_sums_in_order_or_left_open() {
    on_both(|hardware, random| {
        let test = match hardware {
            true => scores::<Hardware>,
            false => scores::<Software>,
        };
        let (mut cases, mut still_open) = (0, 0);
        for size in [16, 48, 64, 96, 128, 272] {
            for kind in 0..KINDS * KINDS {
                if !hardware && (size > 64) != (kind % 7 == 0) {
                    continue;
                }
                let kinds = [kind % KINDS, kind / KINDS];
                let rows = 1 + random.below(if hardware { 70 } else { 20 });
                let open = test(random, size, rows, kinds);
                if kinds.iter().all(|&kind| kind < PLAIN_KINDS) {
                    assert_eq!(open, 0, "{kinds:?} of {size}");
                } else if kinds[1] == KINDS - 1 {
                    // Infinities and NaN may be among the keys that are not there.
                    still_open += usize::from(open > 0);
                    cases += 1;
                }
            }
        }
        assert!(still_open > cases / 2, "{still_open} of {cases}");
    });
}

/// Probabilities of a row: a soft-max, or what is none.
fn probabilities(random: &mut Random, kind: usize, p: &mut [f32]) {
    let scale = [1.0, 4.0, 20.0][random.below(3)];
    p.iter_mut().for_each(|p| *p = crate::math::expf(random.normal() * scale));
    let total: f32 = p.iter().sum();
    p.iter_mut().for_each(|p| *p /= total);
    let at = random.below(p.len());
    match kind {
        0 => {}
        1 => {
            p.fill(0.0);
            p[at] = 1.0;
        }
        2 => p.iter_mut().for_each(|p| *p *= 1e-6),
        3 => p[at] = [f32::NAN, -0.25, 1.25, f32::INFINITY][random.below(4)],
        _ => p.fill(0.9),
    }
}

/// A kind of values and probabilities made for each other.
const LOST: usize = KINDS;

/// True if nothing stayed open.
fn outputs<T: Tiles>(random: &mut Random, lanes: usize, cells: usize, kind: usize) -> bool {
    let isa = Isa::of(Level::Avx512).expect("looked for before");
    let rows = 1 + random.below(20);
    let stride = cells.next_multiple_of(LANES);
    let (lines, quads) = (lanes / LINE, LANES / STEPS);
    let mut v = values(random, kind.min(KINDS - 1), cells * lanes);
    let tiles = stride / LANES;
    let mut words = vec![Line([0x7C00_FFFF_7C01_8000; LINE]); tiles * quads * lines];
    let mut forms = Vec::new();
    let mut p = vec![0f32; rows * stride];
    let mut kinds: Vec<usize> = (0..rows).map(|_| random.below(5)).collect();
    let mut seen: Vec<usize> = (0..rows).map(|_| 1 + random.below(cells)).collect();
    for (row, p) in p.chunks_exact_mut(stride).enumerate() {
        probabilities(random, kinds[row], &mut p[..seen[row]]);
    }
    if kind == LOST {
        // Large values and their opposites, and a chunk of small products between them: a sum in order loses these.
        for (cell, v) in v.chunks_exact_mut(lanes).enumerate() {
            let chunk = cell / CELLS;
            v.fill([65504.0, TINY, -65504.0, TINY][chunk % 4]);
            for row in p.chunks_exact_mut(stride) {
                row[cell] = [1.0 / 512.0, TINY][chunk % 2];
            }
        }
        seen.fill(cells);
        kinds.fill(0);
    }
    for (tile, v) in v.chunks(LANES * lanes).enumerate() {
        let words = &mut words[tile * quads * lines..][..quads * lines];
        forms.push(F16Encoding::of(isa, v));
        for (step, v) in v.chunks_exact(lanes).enumerate() {
            halves::put_step(isa, v, words, quads, step, forms[tile]);
        }
    }
    let mut sums = Outputs::new(rows, lanes);
    let mut whole = true;
    for begin in (0..stride).step_by(CELLS) {
        let end = stride.min(begin + CELLS);
        let tile = begin / LANES;
        let values =
            halves::Tiles { words: &words[tile * quads * lines..], lines, wanted: (0, lines), quads, at_once: 1 };
        // SAFETY: AVX-512 was looked for, and the caller has the tiles; everything is as large as it has to be.
        whole &= unsafe {
            let p = Probabilities { at: p.as_ptr().add(begin), stride, cells: end - begin };
            let forms = &forms[tile..end.div_ceil(LANES)];
            let there = cells.min(end) - begin;
            let seen = |row: usize| seen[row].clamp(begin, end) - begin;
            sums.add::<T>(values, forms, there, p, 0..rows, seen)
        };
    }
    let special = forms.contains(&F16Encoding::Special);
    assert!(!whole || !special, "values that are no numbers");
    let mut all = whole;
    for row in (0..rows).filter(|_| whole) {
        let mut out = vec![0f32; lanes];
        // SAFETY: AVX-512 was looked for.
        let certain = unsafe { sums.finish(row, &mut out) };
        all &= certain || kinds[row] >= 3;
        for (lane, got) in out.iter().enumerate().filter(|_| certain) {
            let sum = (0..seen[row])
                .fold(0.0, |s, cell| s + half(p[row * stride + cell]) * half(v[cell * lanes + lane]))
                as f32;
            assert_eq!(
                got.to_bits(),
                sum.to_bits(),
                "{kind} {} over {cells} cells: row {row}, lane {lane} is {got:e}, not {sum:e}",
                kinds[row]
            );
        }
        assert!(!certain || kinds[row] != 3 || seen[row] == 0, "{kind}, row {row}");
    }
    all
}

#[test]
fn outputs_are_those_of_sums_in_order_or_left_open() {
    on_both(|hardware, random| {
        let test = match hardware {
            true => outputs::<Hardware>,
            false => outputs::<Software>,
        };
        for lanes in [32, 96] {
            for kind in 0..KINDS {
                for cells in [1, 30, 64, 100, 128, 150, 333] {
                    if !hardware && (lanes > 32 || cells > 150) {
                        continue;
                    }
                    let whole = test(random, lanes, cells, kind);
                    assert!(whole || kind >= PLAIN_KINDS, "{kind}, {cells} cells");
                }
            }
            assert!(!test(random, lanes, 3 * CELLS, LOST), "lost for sure");
        }
    });
}
