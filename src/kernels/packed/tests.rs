//! Every packed layout against `dot_ref`, bit for bit, on raw random bytes and encoder output.

use trine_formats::types::ternary::quantize_tl;
use trine_formats::types::{REGISTRY, TypeId, TypeInfo};

use super::{Encoding, Packing, layouts, lookups, multiply_groups};
use crate::shared::packed::Call;
use crate::sizes::row_bytes;
use crate::testing::{self, Random, same, skipped};
use crate::tests::{encoded, tame_rows};
use crate::{AlignedBytes, Isa, ternary};

pub(super) fn arranged(p: Packing, acts: &[u8], n: usize, tokens: usize) -> AlignedBytes {
    let row = (p.act_bytes)(n);
    assert_eq!(row % 64, 0);
    let mut out = AlignedBytes::new(tokens * row);
    for (from, to) in acts.chunks_exact(acts.len() / tokens).zip(out.chunks_exact_mut(row)) {
        to.fill(0xA5);
        p.arrange(from, n, to);
    }
    out
}

/// Packs and multiplies; `None` when the layout refuses the weights.
fn product(p: Packing, w: &[u8], acts: &[u8], n: usize, rows: usize, tokens: usize, ahead: usize) -> Option<Vec<f32>> {
    let row_bytes = w.len() / rows;
    let acts = arranged(p, acts, n, tokens);
    let mut out = vec![0.0; rows * tokens];
    for (g, w) in w.chunks(row_bytes * p.rows).enumerate() {
        let mut group = vec![0xA5; (p.group_bytes)(n)];
        if !p.pack(w, n, &mut group) {
            return None;
        }
        let group_rows = g * p.rows..rows.min((g + 1) * p.rows);
        multiply_groups(p, &group, &acts, n, tokens, ahead, |_, first, tile| {
            for (t, tile) in (first..).zip(tile.chunks_exact(p.rows)) {
                for (r, v) in group_rows.clone().zip(tile) {
                    out[r * tokens + t] = *v;
                }
            }
        });
    }
    Some(out)
}

pub(super) fn compare(info: &TypeInfo, w: &[u8], acts: &[u8], n: usize, tokens: usize, what: &str) {
    let w_row = row_bytes(info, n);
    let a_row = acts.len() / tokens;
    let rows = w.len() / w_row;
    let dot = info.dot_ref.expect("a packed type has a dot product");
    for isa in isas() {
        for p in with_lookups(info.id, isa).chain(software(info.id, isa)) {
            assert_eq!(Some(p.encoding), info.act.map(Encoding::Type));
            // The results are bit-identical at any prefetch distance.
            let ahead = [0, 64, 8192, 1 << 20][rows % 4];
            let Some(out) = product(p, w, acts, n, rows, tokens, ahead) else {
                // nothing but raw bytes may hold what the layout has no room for
                assert_eq!(what, "raw bytes", "{} {}", info.name, p.name);
                continue;
            };
            for (i, a) in out.iter().enumerate() {
                let (r, t) = (i / tokens, i % tokens);
                let b = dot(&w[r * w_row..][..w_row], &acts[t * a_row..][..a_row]);
                assert!(
                    same(*a, b),
                    "{} {} {isa} {what}: n {n}, row {r} of {rows}, token {t} of {tokens}: {a:e} {:08x} is not {b:e} {:08x}",
                    info.name,
                    p.name,
                    a.to_bits(),
                    b.to_bits()
                );
            }
        }
    }
}

/// (rows, tokens, blocks)
fn shapes() -> Vec<(usize, usize, usize)> {
    let mut all = Vec::new();
    for tokens in [1, 2, 3, 4, 5, 6, 7, 8, 9, 11, 13, 16, 17, 31, 33] {
        all.extend([(33, tokens, 1), (7, tokens, 3)]);
    }
    for blocks in [2, 5, 8, 9, 17] {
        all.extend([(32, 1, blocks), (16, 2, blocks), (65, 5, blocks)]);
    }
    all.extend([(1, 130, 2), (33, 47, 3), (5, 61, 4)]);
    all
}

/// All instruction sets, and a word where some layouts are missing.
fn isas() -> impl Iterator<Item = Isa> {
    if cfg!(target_arch = "x86_64") && !Isa::detect().has_vbmi() {
        skipped("layouts of five codes to a byte", "AVX-512 VBMI");
    }
    testing::isas()
}

/// Layouts whose products are multiplied or looked up.
fn with_lookups(ty: TypeId, isa: Isa) -> impl Iterator<Item = Packing> {
    layouts(ty, isa).into_iter().chain(lookups(ty, isa))
}

/// Layouts over tiles in memory, in the turn of the portable instruction set.
fn software(ty: TypeId, isa: Isa) -> Vec<Packing> {
    #[cfg(target_arch = "x86_64")]
    if isa == Isa::scalar() {
        return super::best(crate::arch::x86_64::software_layouts(), ty, Isa::detect());
    }
    let _ = (ty, isa);
    Vec::new()
}

#[cfg(panic = "unwind")]
#[test]
fn no_kernel_runs_without_the_proof_of_what_it_needs() {
    let n = 256;
    for p in super::all().chain(super::all_lookups()).filter(|p| p.needs.met_by(Isa::detect())) {
        let (group, acts) = (vec![0; (p.group_bytes)(n)], AlignedBytes::new((p.act_bytes)(n)));
        let run = |isa| {
            let mut out = vec![0.0; p.rows];
            let call = Call { isa, group: &group, acts: &acts, n, tokens: 1, ahead: 0, out: &mut out };
            std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| (p.multiply)(call)))
        };
        assert!(run(Isa::scalar()).is_err(), "{}", p.name);
    }
}

fn packed_types() -> impl Iterator<Item = (&'static TypeInfo, &'static TypeInfo)> {
    REGISTRY.iter().filter_map(|info| {
        let packed = isas().any(|isa| !layouts(info.id, isa).is_empty());
        Some((info, info.act?.info()?)).filter(|_| packed)
    })
}

#[test]
fn packed_kernels_give_the_bits_of_dot_ref_on_encoder_output() {
    for (info, act) in packed_types().filter(|(info, _)| info.encode.is_some()) {
        let mut random = Random(0xC0FF_EE00 + u64::from(info.id.0));
        for (rows, tokens, blocks) in shapes() {
            let n = blocks * info.block.max(act.block).max(32);
            let w = encoded(info, rows, n, &mut random);
            let acts = encoded(act, tokens, n, &mut random);
            compare(info, &w, &acts, n, tokens, "encoded");
        }
    }
}

#[test]
fn packed_kernels_give_the_bits_of_dot_ref_on_any_bytes() {
    for (info, act) in packed_types() {
        let mut random = Random(0xBAD_5EED + u64::from(info.id.0));
        for (rows, tokens, blocks) in shapes() {
            let n = blocks * info.block.max(act.block).max(32);
            let mut w = random.bytes(rows * row_bytes(info, n));
            // Quantized activations come from our own quantizers, whose values are in -127..=127.
            let mut acts = match act.is_quantized() {
                true => encoded(act, tokens, n, &mut random),
                false => random.bytes(tokens * n * act.bytes),
            };
            if act.is_quantized() && random.below(3) == 0 {
                let at = random.below(acts.len() / act.bytes) * act.bytes;
                acts[at..at + 4].copy_from_slice(&f32::NAN.to_le_bytes());
            }
            compare(info, &w, &acts, n, tokens, "raw bytes");
            if info.id == TypeId::F16 {
                // The layout has refused infinities and NaN among the weights; all other bits it takes.
                w.as_chunks_mut().0.iter_mut().for_each(make_finite);
                compare(info, &w, &acts, n, tokens, "raw activations");
            }
            if [TypeId::Q8_0, TypeId::Q8_KV].contains(&info.id) {
                // On AVX2 the layout has refused weights of -128, which no encoder writes; activations it takes.
                let fit = |byte: &mut u8| *byte = if *byte == 0x80 { 0x7F } else { *byte };
                w.iter_mut().for_each(fit);
                let blocks = acts.chunks_exact_mut(act.bytes);
                blocks.for_each(|block| block[2 + random.below(32)] = 0x80);
                compare(info, &w, &acts, n, tokens, "weights that fit");
            }
        }
    }
}

/// Raw bytes give a NaN in most sums. Here all scales are finite and codes are random, or all alike, where sums are
/// largest; so are those of activations of one magnitude.
#[test]
fn packed_kernels_give_the_bits_of_dot_ref_on_raw_codes_with_finite_scales() {
    for (info, act) in packed_types().filter(|(info, _)| info.is_quantized()) {
        let mut random = Random(0xF1A1_7E00 + u64::from(info.id.0));
        let encode = act.encode.expect("activations have an encoder");
        for (rows, tokens, blocks) in [(17, 1, 3), (33, 4, 2), (16, 33, 1)] {
            let n = blocks * info.block.max(act.block).max(32);
            let mut of_one_magnitude = vec![0; tokens * row_bytes(act, n)];
            for (t, act) in of_one_magnitude.chunks_exact_mut(row_bytes(act, n)).enumerate() {
                let x: Vec<f32> = (0..n).map(|i| if i * t % 7 > 3 { 1.0 } else { -1.0 }).collect();
                encode(&x, None, act);
            }
            let random_acts = encoded(act, tokens, n, &mut random);
            for fill in [None, None, Some(0x00), Some(0xFF), Some(0x7F), Some(0x80), Some(0x55), Some(0xAA)] {
                let mut w = random.bytes(rows * row_bytes(info, n));
                if let Some(fill) = fill {
                    w.fill(fill);
                }
                tame_rows(info, &mut w, n, &mut random);
                for acts in [&random_acts, &of_one_magnitude] {
                    compare(info, &w, acts, n, tokens, "raw bytes");
                }
            }
        }
    }
}

/// Takes a bit from the exponent of a half float that is an infinity or a NaN.
fn make_finite(half: &mut [u8; 2]) {
    if half[1] & 0x7C == 0x7C {
        half[1] &= !0x40;
    }
}

/// Rows with an infinity or a NaN here and there, few enough that not all sums are NaN.
#[test]
fn packed_floats_give_the_bits_of_dot_ref_with_infinities_and_nan() {
    const SHAPES: [(usize, usize); 4] = [(1, 1), (31, 2), (33, 6), (40, 13)];
    for (ty, infinity) in [(TypeId::F16, 0x7C00u16), (TypeId::BF16, 0x7F80)] {
        let info = ty.info().expect("registered");
        let dot = info.dot_ref.expect("a packed type has a dot product");
        let mut random = Random(0x1F_F1417 + u64::from(ty.0));
        let mut float = |special: bool| {
            let bits = random.bits() as u16;
            let value = match random.below(20) {
                0 if special => infinity,
                1 if special => infinity | 1 << random.below(7),
                // an infinity times zero is a NaN too
                2..6 => 0,
                _ => bits & 0x3FFF,
            };
            value | bits & 0x8000
        };
        // how many outputs were finite, infinite, NaN
        let mut seen = [0; 3];
        for (rows, tokens) in SHAPES {
            for n in [1usize, 3, 4, 30, 33, 64] {
                // at most one in a row, at a column that moves on
                let mut row = |i: usize, special: bool| -> Vec<u8> {
                    let mut one = |c: usize| float(special && c == i * 7 % n);
                    (0..n).flat_map(|c| one(c).to_le_bytes()).collect()
                };
                // the layout of half floats has no room for weights that are not numbers
                let w: Vec<u8> = (0..rows).flat_map(|i| row(i, ty == TypeId::BF16)).collect();
                let acts: Vec<u8> = (0..tokens).flat_map(|i| row(i, true)).collect();
                for w in w.chunks_exact(2 * n) {
                    for act in acts.chunks_exact(2 * n) {
                        let y = dot(w, act);
                        seen[if y.is_finite() { 0 } else { 1 + usize::from(y.is_nan()) }] += 1;
                    }
                }
                compare(info, &w, &acts, n, tokens, "specials");
            }
        }
        assert!(seen.iter().all(|&count| count > 50), "{ty}: {seen:?}");
    }
}

/// Codes, scales, quants and sums that no encoder writes, at the ends of their ranges, where sums are largest.
#[test]
fn packed_k_quants_hold_the_largest_sums() {
    let scales: &[(TypeId, &[usize])] = &[
        (TypeId::Q2_K, &[80, 82]),
        (TypeId::Q3_K, &[108]),
        (TypeId::Q4_K, &[0, 2]),
        (TypeId::Q5_K, &[0, 2]),
        (TypeId::Q6_K, &[208]),
    ];
    for (ty, scales) in scales {
        let Some(info) = ty.info() else { continue };
        let mut w = Vec::new();
        for bytes in [[0, 0], [0xFF, 0xFF], [0x7F, 0x7F], [0x80, 0x80], [0xF0, 0x0F], [0x00, 0xFF]] {
            let start = w.len();
            w.extend(bytes.iter().cycle().take(2 * info.bytes));
            for (block, at) in [0, info.bytes].iter().flat_map(|b| scales.iter().map(move |s| (b, s))) {
                w[start + block + at..][..2].copy_from_slice(&[0x00, 0x3C]);
            }
        }
        let mut acts = Vec::new();
        for quants in [[0x80, 0x80], [0x7F, 0x7F], [0x80, 0x7F], [0x00, 0x80]] {
            for sum in [i16::MIN, i16::MAX, -1] {
                for _ in 0..2 {
                    acts.extend(1.0f32.to_le_bytes());
                    acts.extend(quants.iter().cycle().take(256));
                    acts.extend(std::iter::repeat_n(sum.to_le_bytes(), 16).flatten());
                }
            }
        }
        compare(info, &w, &acts, 512, 12, "extremes");
        for act in acts.chunks_exact(2 * 292) {
            compare(info, &w, act, 512, 1, "extremes");
        }
    }
}

#[test]
fn whole_row_ternary_layouts_give_the_bits_of_the_row_kernel() {
    for ty in [TypeId::I2_S, TypeId::TL1, TypeId::TL2] {
        let mut random = Random(0x7E57 + u64::from(ty.0));
        for isa in isas() {
            for p in with_lookups(ty, isa).chain(software(ty, isa)) {
                let Encoding::Int8(rule) = p.encoding else {
                    panic!("one scale per tensor means int8 tokens");
                };
                for (rows, tokens, blocks) in shapes() {
                    let n = blocks * 128 - if blocks % 2 == 0 { 96 } else { 0 };
                    let mut w = random.bytes(rows * ternary::row_bytes(n));
                    let mut acts = vec![0; tokens * ternary::act_bytes(n)];
                    for act in acts.chunks_exact_mut(ternary::act_bytes(n)) {
                        let x: Vec<f32> = (0..n).map(|_| random.float()).collect();
                        ternary::quantize_act(rule, &x, act);
                    }
                    let out = product(p, &w, &acts, n, rows, tokens, 64 * rows).unwrap_or_else(|| {
                        // Code 3 stands for no weight; layouts of base 3 have no room for it.
                        w.iter_mut().for_each(|b| *b &= !(*b >> 1 & 0x55));
                        product(p, &w, &acts, n, rows, tokens, 0).expect("codes 0, 1 and 2 fit")
                    });
                    let mut expected = vec![0.0; rows * tokens];
                    ternary::mat_rows(Isa::scalar(), &w, &acts, n, tokens, &mut expected);
                    assert!(out.iter().zip(&expected).all(|(a, b)| same(*a, *b)), "{ty} {isa} {rows} {tokens} {n}");
                }
            }
        }
    }
    // The quantizer that the rows above rely on is the one of the format.
    let mut q = [0i8; 4];
    quantize_tl(&[1.0, -0.5, 0.25, 0.0], &mut q);
    assert_eq!(q, [127, -64, 32, 0]);
}

/// Rows of any width, numbers of every size next to each other, and products that `f32` cannot hold.
#[test]
fn packed_floats_give_the_bits_of_dot_ref_for_any_width_and_exponent() {
    /// `count` floats whose bits below the sign are in `range`.
    fn floats(random: &mut Random, count: usize, range: std::ops::Range<usize>) -> Vec<u8> {
        let mut one = || {
            let magnitude = range.start + random.below(range.len());
            (magnitude as u16 | (random.bits() as u16 & 0x8000)).to_le_bytes()
        };
        (0..count).flat_map(|_| one()).collect()
    }
    // All numbers; and for bfloats ordinary ones, ones with tiny or huge products, and all bits.
    let ranges: [(TypeId, &[std::ops::Range<usize>]); 2] = [
        (TypeId::F16, &[0..0x7C00, 0x3000..0x4400]),
        (TypeId::BF16, &[0x3000..0x4400, 0..0x7F80, 0x0F00..0x2400, 0x5000..0x6800, 0..0x8000, 0..1]),
    ];
    for (ty, ranges) in ranges {
        let info = ty.info().expect("registered");
        let mut random = Random(0xF10A + u64::from(ty.0));
        for n in [1usize, 2, 3, 4, 5, 30, 33, 64, 258] {
            for (rows, tokens) in [(1, 1), (31, 2), (32, 5), (40, 6), (33, 13)] {
                for weights in ranges {
                    let w = floats(&mut random, rows * n, weights.clone());
                    let mut acts = Vec::new();
                    for _ in 0..tokens {
                        let range = ranges[random.below(ranges.len())].clone();
                        acts.extend(floats(&mut random, n, range));
                    }
                    compare(info, &w, &acts, n, tokens, "floats");
                }
            }
        }
    }
    // What the widening would take for a number is refused.
    for isa in isas() {
        for p in layouts(TypeId::F16, isa) {
            for special in [0x7C00u16, 0xFC00, 0x7E00, 0x7C01, 0xFFFF] {
                let mut w = vec![0; 2 * 37 * 3];
                w[2 * 60..][..2].copy_from_slice(&special.to_le_bytes());
                assert!(product(p, &w, &[0; 74], 37, 3, 1, 0).is_none(), "{special:04x}");
            }
        }
    }
}
