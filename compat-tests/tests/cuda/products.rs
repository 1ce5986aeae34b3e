//! Products by the checked-in kernels have the bits of the definitions.

use trine_compat_tests::inputs::Rng;
use trine_compat_tests::ptx::{Argument, Device, Schedule};
use trine_compat_tests::{is_long, rounds};
use trine_cuda::pack::{activations, rows};
use trine_cuda::plan::{self, Split};
use trine_formats::types::ternary::{
    self, ActScale, Packing, TernaryData, Tiles, dot, dot_codes, quantize_i2_s, quantize_tl,
};
use trine_formats::types::{Part, TypeId, i2_s};

use super::product::{Product, assert_same, launch, module, place};

const TYPES: [TypeId; 4] = [TypeId::TQ2_0, TypeId::TQ1_0, TypeId::Q8_0, TypeId::Q4_0];

/// Tokens around the ends of the kernels' tiles.
const TOKENS: [usize; 12] = [1, 2, 3, 4, 5, 6, 7, 8, 9, 16, 17, 33];

/// Columns: one block, an odd number of blocks, the end of a group, a long row.
fn widths(ty: TypeId) -> Vec<usize> {
    let block = ty.info().expect("a type").block;
    let mut all = vec![block, 3 * block, 256, 512, 2560];
    // TQ1_0 is TQ2_0 once it is laid out.
    if ty != TypeId::TQ1_0 || is_long() {
        all.push(6912);
    }
    if block == 32 {
        all.extend([7 * 32, 9 * 32, 12 * 32, 17 * 32]);
    }
    if is_long() {
        all.push(14336);
    }
    all
}

/// Rows: one, around a tile of 16 and one of 64, and numbers that leave whole tiles and more over.
const ROWS: [usize; 7] = [1, 15, 16, 17, 65, 112, 272];

#[test]
fn any_shape_of_random_bytes() {
    for ty in TYPES {
        for (i, columns) in widths(ty).into_iter().enumerate() {
            for (j, tokens) in TOKENS.into_iter().enumerate() {
                // Every width with every number of tokens; rows in turn, in the long form all of them with few columns.
                let all = is_long() && columns <= 512;
                let rows = if all { &ROWS[..] } else { &ROWS[(i + j) % 5..][..1] };
                for &rows in rows {
                    let product = Product::random(ty, rows, columns, tokens, (columns * 100 + tokens) as u64);
                    product.check(&product.plan(), Schedule::Random(j as u64));
                }
            }
        }
        let product = Product::random(ty, 272, 1024, 8, 5);
        product.check(&product.plan(), Schedule::InTurn);
    }
}

#[test]
fn sums_that_are_numbers() {
    for ty in TYPES {
        for seed in 0..rounds(6) as u64 {
            let product = Product::usual(ty, 48, 1536, 11, seed);
            assert!(product.expected().iter().all(|x| x.is_finite()));
            product.check(&product.plan(), Schedule::InTurn);
            product.check(&product.plan_as(1, 1, false), Schedule::InTurn);
        }
    }
}

#[test]
fn every_scale_there_is() {
    for ty in TYPES {
        let info = ty.info().expect("a type");
        // 256 rows of 256 blocks.
        let mut product = Product::random(ty, 256, 256 * info.block, 1, 11);
        let scale = info.at(Part::Scale);
        for (number, block) in product.weights.chunks_exact_mut(info.bytes).enumerate() {
            // Neighbours along a row are far apart, so that infinities and NaN do not swallow all rows.
            block[scale..scale + 2].copy_from_slice(&(number as u16).to_le_bytes());
        }
        product.check(&product.plan(), Schedule::InTurn);
        // Each scale by itself: rows of one block.
        let of_one = |number: usize| {
            let mut one = product.clone();
            one.columns = info.block;
            one.weights =
                product.weights.chunks_exact(info.bytes).skip(256 * number).take(256).flatten().copied().collect();
            one.acts.truncate(one.acts.len() / 256);
            one
        };
        for number in (0..256).step_by(if is_long() { 1 } else { 5 }) {
            let one = of_one(number);
            one.check(&one.plan(), Schedule::InTurn);
        }
    }
}

#[test]
fn activations_that_are_no_numbers() {
    let scales = [f32::NAN, f32::INFINITY, f32::NEG_INFINITY, 0.0, -0.0, f32::MAX, 1e-45, f32::MIN_POSITIVE];
    for ty in TYPES {
        let mut product = Product::usual(ty, 33, 512, 8, 3);
        let act = ty.info().and_then(|info| info.act).expect("a type");
        let bytes = act.info().expect("a type").bytes;
        let row = product.acts.len() / 8;
        for (token, scale) in scales.into_iter().enumerate() {
            // One block of each token, another one for each.
            let block = &mut product.acts[token * row + token % 2 * bytes..];
            match act {
                TypeId::Q8_K => block[..4].copy_from_slice(&scale.to_le_bytes()),
                _ => block[..2].copy_from_slice(&half::f16::from_f32(scale).to_le_bytes()),
            }
        }
        product.check(&product.plan(), Schedule::InTurn);
        product.check(&product.plan_as(1, 1, false), Schedule::InTurn);
    }
}

#[test]
fn the_largest_sums() {
    for ty in TYPES {
        for byte in [0x80, 0x7f, 0xff, 0x00] {
            let mut product = Product::usual(ty, 16, 512, 9, 1);
            product.weights.fill(byte);
            product.acts.fill(0x80);
            product.check(&product.plan(), Schedule::InTurn);
            product.check(&product.plan_as(1, 1, false), Schedule::InTurn);
        }
    }
}

#[test]
fn how_columns_are_shared_and_who_is_first_changes_nothing() {
    for ty in TYPES {
        let product = Product::usual(ty, 37, 2304, 13, 9);
        let expected = product.expected();
        for (i, (warps, parts)) in [(1, 1), (2, 1), (8, 1), (1, 3), (5, 7), (8, 3), (3, 64)].into_iter().enumerate() {
            let plan = product.plan_as(warps, parts, true);
            assert_eq!(plan.add.is_some(), parts > 1);
            for seed in 0..rounds(18) as u64 {
                let (found, _) = product.run(&plan, Schedule::Random(100 * i as u64 + seed));
                assert_same(&found, &expected, &format!("{ty}, {warps} warps, {parts} parts"));
            }
            let (found, _) = product.run(&plan, Schedule::Last(0));
            assert_same(&found, &expected, &format!("{ty}, {warps} warps, {parts} parts"));
        }
        let many = product.plan_as(1, 1, false);
        for seed in 0..rounds(20) as u64 {
            let (found, _) = product.run(&many, Schedule::Random(seed));
            assert_same(&found, &expected, &format!("{ty}, many tokens"));
        }
        for late in [0, 5] {
            let (found, _) = product.run(&many, Schedule::Last(late));
            assert_same(&found, &expected, &format!("{ty}, warp {late} late"));
        }
    }
}

#[test]
fn kernels_for_many_tokens_have_the_bits_of_those_for_few() {
    for ty in TYPES {
        for (rows, columns, tokens) in [(64, 512, 64), (80, 768, 70), (1, 256, 1), (130, 1280, 129)] {
            let product = Product::random(ty, rows, columns, tokens, 77);
            let (few, _) = product.run(&product.plan_as(4, 1, true), Schedule::InTurn);
            let (many, report) = product.run(&product.plan_as(1, 1, false), Schedule::InTurn);
            assert_same(&many, &few, &format!("{ty} {rows} x {columns} x {tokens}"));
            assert_eq!(report.worst_wavefronts, 1);
        }
    }
}

/// Instructions of PTX for each 4096 weights and eight tokens, so that a compiler or a change that makes many more of
/// them is noticed. What an assembler makes of them is fewer.
#[test]
fn weights_are_unpacked_in_few_instructions() {
    for (ty, most) in [(TypeId::TQ2_0, 270), (TypeId::Q8_0, 850), (TypeId::Q4_0, 930)] {
        let product = Product::usual(ty, 16, 16384, 8, 2);
        let plan = product.plan_as(4, 1, true);
        let report = product.check(&plan, Schedule::InTurn);
        let tiles = 16 * 16384 / 4096;
        assert_eq!(report.products, 8 * tiles, "{ty}");
        let each = report.instructions / tiles;
        assert!((most - most / 10..=most).contains(&each), "{ty}: {each} instructions");
        let kernel = module("decode").kernel(&plan.product.kernel).expect("a kernel");
        assert_eq!(report.executed(kernel, "mma."), report.products);
    }
}

/// Codes of a ternary matrix, and activations with the quantizer of its type.
struct Ternary {
    packing: Packing,
    rows: usize,
    columns: usize,
    tokens: usize,
}

impl Ternary {
    fn check(&self, seed: u64, (warps, parts): (usize, usize), extreme: bool) {
        let Ternary { packing, rows, columns, tokens } = *self;
        let mut rng = Rng::new(seed);
        let codes: Vec<i8> = (0..rows * columns).map(|_| if extreme { 1 } else { rng.below(3) as i8 - 1 }).collect();
        let scale = [0.5, -3.0e-5, f32::MAX, 1e-40][seed as usize % 4];
        let data = packing.pack(columns, rows, scale, &codes).expect("a matrix");
        let data = TernaryData::new(packing, columns, rows, &data).expect("a matrix");
        let lut = packing.type_id() != TypeId::I2_S;
        let mut quants = vec![0; tokens * columns];
        let scales: Vec<ActScale> = quants
            .chunks_exact_mut(columns)
            .enumerate()
            .map(|(token, q)| {
                let mut x: Vec<f32> = (0..columns).map(|_| 4.0 * rng.unit() - 2.0).collect();
                match token % 8 {
                    3 => x[1] = f32::NAN,
                    4 => x[2] = f32::INFINITY,
                    5 => x.fill(0.0),
                    6 => x.fill(-7.5),
                    _ => {}
                }
                if lut { quantize_tl(&x, q) } else { quantize_i2_s(&x, q) }
            })
            .collect();
        let expected: Vec<f32> = quants
            .chunks_exact(columns)
            .zip(&scales)
            .flat_map(|(q, act)| {
                codes.chunks_exact(columns).map(move |codes| match lut {
                    true => ternary::tail(dot(codes, q), 0, act.a, scale),
                    false => ternary::tail(dot_codes(codes, q), act.sum, act.a, scale),
                })
            })
            .collect();
        let shape = (rows, columns, tokens);
        let plan = plan::product_as(packing.type_id(), shape, Split { warps, parts }, true).expect("a plan");
        let packed = rows::ternary(&data).expect("rows");
        let acts = activations::ternary(&quants, &scales, columns).expect("activations");
        let mut device = Device::new();
        let codes = Argument::Buffer(device.constant(super::product::dwords(&packed.codes)));
        let [quants, act_scales, act_sums] = place(&mut device, &acts);
        let out = device.empty(4 * rows * tokens);
        let workspace = Argument::Buffer(device.empty(plan.workspace));
        let [rows, columns, tokens] = [rows, columns, tokens].map(|n| Argument::U32(n as u32));
        let (w, centred) = (Argument::F32(scale), Argument::U32(lut.into()));
        let output = Argument::Buffer(out);
        let arguments = [codes, quants, act_scales, act_sums, output, workspace, w, centred, rows, columns, tokens];
        let run = launch(&plan.product, &arguments, Schedule::Random(seed));
        let what = format!("{packing:?} {shape:?}");
        device.launch(module("ternary"), &plan.product.kernel, &run).unwrap_or_else(|e| panic!("{what}: {e}"));
        if let Some(add) = &plan.add {
            let parts = Argument::U32(plan.product.blocks[2]);
            let arguments = [workspace, act_scales, act_sums, output, w, centred, rows, tokens, parts];
            let run = launch(add, &arguments, Schedule::InTurn);
            device.launch(module("ternary"), &add.kernel, &run).unwrap_or_else(|e| panic!("{what}: {e}"));
        }
        assert_same(&device.floats(out), &expected, &what);
    }
}

#[test]
fn matrices_with_one_scale() {
    let tiles = |rows, columns, micro| Tiles { rows, columns, micro };
    let i2_s = Packing::I2S(i2_s::Interleave::Usual);
    let arm = Packing::I2S(i2_s::Interleave::Arm64);
    let cases = [
        (i2_s, 17, 128, 1),
        (i2_s, 272, 640, 8),
        (i2_s, 32, 6912, 9),
        (arm, 33, 192, 33),
        (Packing::Tl1(tiles(32, 128, 32)), 64, 256, 8),
        (Packing::Tl2(tiles(32, 96, 32)), 64, 384, 17),
    ];
    for (seed, (packing, rows, columns, tokens)) in cases.into_iter().enumerate() {
        let matrix = Ternary { packing, rows, columns, tokens };
        matrix.packing.check(columns, rows).unwrap_or_else(|e| panic!("{packing:?}: {e}"));
        for (i, split) in [(1, 1), (8, 1), (2, 3), (1, 7)].into_iter().enumerate() {
            matrix.check((seed + i) as u64, split, false);
        }
        matrix.check(seed as u64, (4, 1), true);
    }
}
