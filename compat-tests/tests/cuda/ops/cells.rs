//! Keys and values of all types beside half floats: attention over them against trine's own.

use trine::kv::CacheTypes;
use trine::ops::attention::{ScoreRules, Window, alibi_slopes};
use trine_compat_tests::ptx::{Emulated, Schedule};
use trine_cuda::ptx::CELLS;
use trine_formats::types::TypeId;
use trine_testkit::is_long;

use super::attention::Case;
use crate::mistakes::with_mistake;
use crate::product::assert_same;

fn emulated(multiprocessors: usize, schedule: Schedule) -> Emulated {
    let mut device = Emulated::new().expect("PTX");
    (device.multiprocessors, device.schedule) = (multiprocessors, schedule);
    device
}

/// A case with keys and values of some types.
fn of(
    [keys, values]: [TypeId; 2],
    (kv_heads, shared): (usize, usize),
    sizes: (usize, usize),
    (before, now): (usize, usize),
    window: Option<Window>,
) -> Case {
    let types = CacheTypes { keys, values };
    Case { types, ..Case::new(40, (kv_heads, shared), sizes, &[(before, now)], window) }
}

#[track_caller]
fn check(case: &Case, multiprocessors: usize, schedule: Schedule, what: &str) {
    let found = case.run_program(emulated(multiprocessors, schedule));
    assert_same(&found.unwrap_or_else(|e| panic!("{what}: {e}")), &case.expected(), what);
}

/// Each type once as keys and once as values, and some pairs where they differ.
fn pairs() -> Vec<[TypeId; 2]> {
    let all = CacheTypes::ALL;
    match is_long() {
        true => all.iter().flat_map(|&keys| all.map(|values| [keys, values])).collect(),
        false => (0..all.len()).flat_map(|i| [[all[i], all[i]], [all[i], all[(i + 3) % all.len()]]]).collect(),
    }
}

fn rules(heads: usize) -> ScoreRules {
    ScoreRules {
        cap: Some([0.25, 2.0]),
        slopes: alibi_slopes(heads, 8.0),
        sinks: (0..heads).map(|head| head as f32 - 0.5).collect(),
        ..Default::default()
    }
}

#[test]
fn every_type_of_keys_and_values() {
    let moving = Some(Window { size: 5, chunked: false });
    for (i, types) in pairs().into_iter().enumerate() {
        let schedule = [Schedule::InTurn, Schedule::Random(3), Schedule::Last(1)][i % 3];
        // Heads that are turned, of whole blocks that are not, and more numbers than a block has threads.
        for (sizes, cells, window) in
            [((64, 64), (9, 3), None), ((32, 96), (11, 1), moving), ((160, 192), (2, 1), None)]
        {
            check(&of(types, (2, 2), sizes, cells, window), 1, schedule, &format!("{types:?} of {sizes:?}"));
        }
    }
}

#[test]
fn caps_slopes_and_sinks_beside_all_types() {
    for types in pairs() {
        let usual = of(types, (1, 3), (32, 32), (17, 2), None);
        let case = Case { rules: Some(rules(3)), ..of(types, (1, 3), (32, 32), (17, 2), None) };
        assert_ne!(usual.expected(), case.expected());
        check(&case, 1, Schedule::Random(2), &format!("{types:?}"));
    }
}

#[test]
fn long_caches_of_all_types() {
    // Scores are those of parts, and so are sums of floats; distances are rounded behind 2048 cells.
    let some = [[TypeId::Q8_0, TypeId::F32], [TypeId::Q5_1, TypeId::F16], [TypeId::BF16, TypeId::Q4_0]];
    for types in if is_long() { pairs() } else { some.to_vec() } {
        check(&of(types, (1, 2), (32, 32), (1030, 1), None), 132, Schedule::Random(1), &format!("{types:?}"));
    }
    let some = [[TypeId::F16, TypeId::Q8_0], [TypeId::Q8_0, TypeId::BF16]];
    for &types in if is_long() { &some[..] } else { &some[..1] } {
        let case = Case { rules: Some(rules(1)), ..of(types, (1, 1), (32, 32), (2100, 1), None) };
        check(&case, 132, Schedule::Last(0), &format!("{types:?} and rules"));
    }
}

#[test]
fn sums_of_large_values_are_added_in_order_where_it_shows() {
    for (i, ty) in [TypeId::F32, TypeId::BF16].into_iter().enumerate() {
        let factors = if is_long() { &[1e-42f32, 1.0, 3e4, 3e37][..] } else { &[[1e-42, 1.0], [1.0, 3e37]][i] };
        for factor in factors {
            let mut case = of([TypeId::Q8_0, ty], (1, 1), (32, 4), (1030, 1), None);
            case.v[0].iter_mut().for_each(|v| *v *= factor);
            check(&case, 132, Schedule::Random(i as u64), &format!("{ty:?} up to {factor}"));
        }
    }
    // Every other value is the opposite of the one before it: sums are as small as rounding errors.
    let mut case = of([TypeId::F32, TypeId::F32], (1, 1), (2, 2), (1023, 1), None);
    case.q.fill(0.0);
    case.v[0].iter_mut().enumerate().for_each(|(i, v)| *v = [1e20, 3.0, -1e20, 1e-20][i / 2 % 4]);
    check(&case, 132, Schedule::InTurn, "sums that vanish");
}

#[test]
fn cells_that_are_no_numbers() {
    for types in pairs().into_iter().step_by(2) {
        let all = [f32::NAN, 1e38, f32::NEG_INFINITY, f32::INFINITY, 1e6, 1e-43];
        for &value in if is_long() { &all[..] } else { &all[..3] } {
            let new = || of(types, (1, 2), (32, 64), (9, 2), None);
            let what = format!("{types:?}: {value}");
            let (mut key, mut of_value, mut query, mut zero) = (new(), new(), new(), new());
            key.k[0][32 * 4 + 3] = value;
            check(&key, 1, Schedule::InTurn, &format!("{what} in a key"));
            of_value.v[0][64 * 5 + 2] = value;
            check(&of_value, 1, Schedule::InTurn, &format!("{what} in a value"));
            query.q[4] = value;
            check(&query, 1, Schedule::InTurn, &format!("{what} in a query"));
            // Blocks without any other number.
            zero.k[0].fill(0.0);
            zero.v[0].fill(-0.0);
            zero.k[0][..32].fill(value);
            zero.v[0][64 * 3..64 * 4].fill(value);
            check(&zero, 1, Schedule::InTurn, &format!("{what} and zeros"));
        }
    }
}

#[test]
fn blocks_with_equal_extremes() {
    for types in pairs().into_iter().step_by(2) {
        let mut case = of(types, (1, 1), (32, 32), (5, 1), None);
        // The greatest magnitude twice, with both signs; ties between codes.
        for x in [&mut case.k[0], &mut case.v[0]] {
            for (i, x) in x.iter_mut().enumerate() {
                *x = [-3.5, 3.5, 0.5, -0.25, 1.75, 0.0, -0.0, 3.0][(i / 3 + i) % 8];
            }
        }
        check(&case, 1, Schedule::InTurn, &format!("{types:?}"));
    }
}

#[test]
fn mistakes_are_found() {
    let shows = |types: [TypeId; 2], kernel: &str, change: &dyn Fn(&str) -> String| {
        let case = Case { rules: Some(rules(2)), ..of(types, (1, 2), (64, 64), (140, 2), None) };
        let expected = case.expected();
        [Schedule::InTurn, Schedule::Random(1), Schedule::Last(0)].into_iter().any(|schedule| {
            let mut device = emulated(132, schedule);
            device.replace(CELLS.name, with_mistake(CELLS, kernel, change));
            let found = case.run_program(device);
            found.map_or(true, |found| found.iter().zip(&expected).any(|(a, b)| a.to_bits() != b.to_bits()))
        })
    };
    let barriers: &dyn Fn(&str) -> String = &|t| t.replace("bar.sync", "bar.warp.sync -1; // ");
    let first: &dyn Fn(&str) -> String = &|t| t.replacen("bar.sync", "// ", 1);
    for (types, kernels) in [
        ([TypeId::Q8_0, TypeId::Q4_1], ["store_q8_0", "store_q4_1", "score_q8_0", "add_q4_1"]),
        ([TypeId::Q5_1, TypeId::Q5_0], ["store_q5_1", "store_q5_0", "score_q5_1", "add_q5_0"]),
        ([TypeId::BF16, TypeId::F32], ["store_bf16", "store_f32", "score_bf16", "weigh_f32"]),
    ] {
        assert!(!shows(types, kernels[2], &|t| format!("{t} ")), "no mistake");
        for kernel in &kernels[2..] {
            assert!(shows(types, kernel, barriers), "{kernel}: barriers of a warp");
        }
    }
    let quantized = [TypeId::Q8_0, TypeId::Q4_1];
    assert!(shows(quantized, "store_q8_0", first), "numbers that are not there yet");
    assert!(shows(quantized, "store_q8_0", &|t| t.replacen("sub.rn.f32", "add.rn.f32", 1)), "no transform");
    assert!(
        shows(quantized, "store_q8_0", &|t| t.replacen("shfl.sync.bfly", "shfl.sync.down", 1)),
        "half of the lanes"
    );
    assert!(shows(quantized, "score_q8_0", &|t| t.replacen("dp4a.s32.s32", "dp4a.u32.s32", 1)), "bytes without signs");
    assert!(shows(quantized, "score_q8_0", &|t| t.replacen("div.rn.f32", "mul.rn.f32", 2)), "no scale of queries");
    assert!(shows(quantized, "add_q4_1", &|t| t.replacen("setp.gt.f32", "setp.lt.f32", 1)), "the least");
    assert!(shows(quantized, "add_q4_1", &|t| t.replace("add.rn.f32", "sub.rn.f32")), "differences");
    assert!(
        shows([TypeId::BF16, TypeId::F32], "weigh_f32", &|t| t.replacen("add.rn.f64", "sub.rn.f64", 1)),
        "a difference"
    );
    assert!(shows([TypeId::BF16, TypeId::F32], "store_bf16", &|t| t.replace("32767", "0")), "another rounding");
}
