//! Instructions of whole warps against plain matrices.

use half::f16;

use super::run;
use trine_compat_tests::inputs::Rng;
use trine_compat_tests::ptx::{Kind, Launch};

/// Code that loads dwords `4 lane + i` of consecutive blocks of 512 bytes to registers `%r{first + i}`.
fn load(block: usize, first: usize, count: usize) -> String {
    let at = |i| format!("ld.global.u32 %r{}, [%rd3+{}];\n", first + i, 512 * block + 4 * i);
    (0..count).map(at).collect()
}

/// Each lane's addresses in both buffers.
const ADDRESSES: &str = "mul.wide.u32 %rd3, %r1, 16;\nadd.s64 %rd4, %rd2, %rd3;\nadd.s64 %rd3, %rd1, %rd3;\n";
const RESULT: &str = "st.global.v4.u32 [%rd4], {%r30, %r31, %r32, %r33};";

/// Registers of a fragment, `[lane][4]`, in which element `(line, k)` of `bits` bits is put by PTX's own formulas.
fn fragment(
    bits: usize,
    place: impl Fn(usize, usize) -> (usize, usize),
    value: impl Fn(usize, usize) -> u32,
) -> Vec<u32> {
    let mut all = vec![0; 128];
    for (lane, i) in (0..32).flat_map(|lane| (0..4).map(move |i| (lane, i))) {
        for part in 0..32 / bits {
            let (line, k) = place(lane, i * (32 / bits) + part);
            all[4 * lane + i] |= value(line, k) << (bits * part);
        }
    }
    all
}

/// Element `e` of a lane's fragment, as the manual lists them: `(row, column)` of A of `m16n8k32` on bytes.
fn bytes_a(lane: usize, e: usize) -> (usize, usize) {
    let row = if (e / 4).is_multiple_of(2) { lane >> 2 } else { (lane >> 2) + 8 };
    let column = (lane % 4) * 4 + e % 4 + if e < 8 { 0 } else { 16 };
    (row, column)
}

/// `(column, row)` of B of `m16n8k32` on bytes.
fn bytes_b(lane: usize, e: usize) -> (usize, usize) {
    (lane >> 2, (lane % 4) * 4 + e % 4 + if e < 4 { 0 } else { 16 })
}

/// `(row, column)` of A of `m16n8k16` on f16.
fn halves_a(lane: usize, e: usize) -> (usize, usize) {
    let row = if e < 2 || (4..6).contains(&e) { lane >> 2 } else { (lane >> 2) + 8 };
    (row, (lane % 4) * 2 + (e & 1) + if e < 4 { 0 } else { 8 })
}

/// `(column, row)` of B on f16.
fn halves_b(lane: usize, e: usize) -> (usize, usize) {
    (lane >> 2, (lane % 4) * 2 + (e & 1) + 8 * (e / 2))
}

/// Element `i` of C.
fn accumulator(lane: usize, i: usize) -> (usize, usize) {
    ((lane >> 2) + if i < 2 { 0 } else { 8 }, (lane % 4) * 2 + (i & 1))
}

#[test]
fn products_of_bytes_are_exact() {
    let mut rng = Rng::new(1);
    for (ty_a, ty_b) in [("u8", "s8"), ("s8", "s8"), ("u8", "u8"), ("s8", "u8")] {
        for round in 0..3 {
            // Random bytes, and the extremes of each type.
            let mut byte = |_| match round {
                0 => 0x80,
                1 => 0xff,
                _ => rng.bits() as u8,
            };
            let a: Vec<[u8; 32]> = (0..16).map(|_| std::array::from_fn(&mut byte)).collect();
            let b: Vec<[u8; 32]> = (0..8).map(|_| std::array::from_fn(&mut byte)).collect();
            let c: Vec<u32> = (0..128).map(|i| i * 0x0155_5555).collect();
            let mut input = fragment(8, bytes_a, |row, k| a[row][k].into());
            input.extend(fragment(8, |lane, e| bytes_b(lane, e % 8), |n, k| b[n][k].into()));
            input.extend(&c);
            let body = format!(
                "{ADDRESSES}{}{}{}mma.sync.aligned.m16n8k32.row.col.s32.{ty_a}.{ty_b}.s32 \
                 {{%r30,%r31,%r32,%r33}}, {{%r10,%r11,%r12,%r13}}, {{%r14,%r15}}, {{%r20,%r21,%r22,%r23}};\n{RESULT}",
                load(0, 10, 4),
                load(1, 14, 2),
                load(2, 20, 4)
            );
            let (found, report) = run(&body, 16, &input, 512, &Launch::default()).expect("a product");
            assert_eq!(report.products, 1);
            let value = |byte: u8, ty: &str| {
                if ty == "s8" { i64::from(byte as i8) } else { byte.into() }
            };
            for (lane, i) in (0..32).flat_map(|lane| (0..4).map(move |i| (lane, i))) {
                let (row, n) = accumulator(lane, i);
                let sum: i64 = (0..32).map(|k| value(a[row][k], ty_a) * value(b[n][k], ty_b)).sum();
                let expected = (i64::from(c[4 * lane + i]) + sum) as u32;
                assert_eq!(found[4 * lane + i], expected, "{ty_a} {ty_b}, row {row}, column {n}");
            }
        }
    }
}

/// Small multiples of a power of two, whose products add up exactly.
fn small(rng: &mut Rng) -> f32 {
    rng.below(64) as f32 / 8.0 - 4.0
}

fn bits(x: f32) -> u32 {
    f16::from_f32(x).to_bits().into()
}

#[test]
fn products_of_halves_and_brain_floats_add_up() {
    adds_up("f16", bits);
    // The upper half of a float whose other bits are zero.
    adds_up("bf16", |x| x.to_bits() >> 16);
}

fn adds_up(ty: &str, bits: impl Fn(f32) -> u32) {
    let mut rng = Rng::new(2);
    let a: Vec<[f32; 16]> = (0..16).map(|_| std::array::from_fn(|_| small(&mut rng))).collect();
    let b: Vec<[f32; 16]> = (0..8).map(|_| std::array::from_fn(|_| small(&mut rng))).collect();
    let mut input = fragment(16, halves_a, |row, k| bits(a[row][k]));
    input.extend(fragment(16, |lane, e| halves_b(lane, e % 4), |n, k| bits(b[n][k])));
    input.extend((0..128).map(|i| (i as f32).to_bits()));
    let body = format!(
        "{ADDRESSES}{}{}{}mma.sync.aligned.m16n8k16.row.col.f32.{ty}.{ty}.f32 \
         {{%r30,%r31,%r32,%r33}}, {{%r10,%r11,%r12,%r13}}, {{%r14,%r15}}, {{%r20,%r21,%r22,%r23}};\n{RESULT}",
        load(0, 10, 4),
        load(1, 14, 2),
        load(2, 20, 4)
    );
    let (found, _) = run(&body, 16, &input, 512, &Launch::default()).expect("a product");
    for (lane, i) in (0..32).flat_map(|lane| (0..4).map(move |i| (lane, i))) {
        let (row, n) = accumulator(lane, i);
        let sum: f32 = (0..16).map(|k| a[row][k] * b[n][k]).sum();
        assert_eq!(f32::from_bits(found[4 * lane + i]), (4 * lane + i) as f32 + sum);
    }
}

#[test]
fn sparse_products_take_what_the_metadata_says() {
    let pairs = [(0, 1), (0, 2), (0, 3), (1, 2), (1, 3), (2, 3)];
    for selector in 0..2 {
        let mut rng = Rng::new(3 + selector);
        let b: Vec<[f32; 32]> = (0..8).map(|_| std::array::from_fn(|_| small(&mut rng))).collect();
        let mut dense = vec![[0.0; 32]; 16];
        let mut kept = vec![[0.0; 16]; 16];
        // What lanes of the other selector hold is not looked at.
        let mut metadata = [0xffff_ffff_u32; 32];
        for (row, group) in (0..16).flat_map(|row| (0..8).map(move |group| (row, group))) {
            let (first, second) = pairs[rng.below(6)];
            let lane = row % 8 * 4 + 2 * selector as usize + group / 4;
            let shift = row / 8 * 16 + group % 4 * 4;
            metadata[lane] &= !(15 << shift);
            metadata[lane] |= ((first | second << 2) as u32) << shift;
            for (i, at) in [first, second].into_iter().enumerate() {
                kept[row][2 * group + i] = small(&mut rng);
                dense[row][4 * group + at] = kept[row][2 * group + i];
            }
        }
        let mut input = fragment(16, halves_a, |row, k| bits(kept[row][k]));
        input.extend(fragment(16, halves_b, |n, k| bits(b[n][k])));
        input.extend((0..128).map(|_| 1.0f32.to_bits()));
        input.extend(metadata.iter().flat_map(|&m| [m, 0, 0, 0]));
        for ordered in ["", "::ordered_metadata"] {
            let body = format!(
                "{ADDRESSES}{}{}{}{}mma.sp{ordered}.sync.aligned.m16n8k32.row.col.f32.f16.f16.f32 {{%r30,%r31,%r32,%r33}}, \
                 {{%r10,%r11,%r12,%r13}}, {{%r14,%r15,%r16,%r17}}, {{%r20,%r21,%r22,%r23}}, %r24, {selector};\n{RESULT}",
                load(0, 10, 4),
                load(1, 14, 4),
                load(2, 20, 4),
                load(3, 24, 1)
            );
            let (found, _) = run(&body, 16, &input, 512, &Launch::default()).expect("a product");
            for (lane, i) in (0..32).flat_map(|lane| (0..4).map(move |i| (lane, i))) {
                let (row, n) = accumulator(lane, i);
                let sum: f32 = (0..32).map(|k| dense[row][k] * b[n][k]).sum();
                assert_eq!(f32::from_bits(found[4 * lane + i]), 1.0 + sum, "row {row}, column {n}");
            }
        }
    }
}

/// Code that brings 512 bytes to shared memory, 16 bytes a lane.
const FILL: &str = "mov.u32 %r3, s;\nmad.lo.s32 %r3, %r1, 16, %r3;\nld.global.v4.u32 {%r10,%r11,%r12,%r13}, [%rd3];\n\
                    st.shared.v4.u32 [%r3], {%r10,%r11,%r12,%r13};\nbar.warp.sync -1;\n";

#[test]
fn ldmatrix_gives_each_lane_its_dwords() {
    let halves: Vec<u16> = (0..256).map(|i| i * 251).collect();
    let input: Vec<u32> = halves.as_chunks::<2>().0.iter().map(|p| u32::from(p[0]) | u32::from(p[1]) << 16).collect();
    for (count, trans) in [(1, ""), (2, ""), (4, ""), (1, ".trans"), (2, ".trans"), (4, ".trans")] {
        let registers: Vec<String> = (0..count).map(|i| format!("%r{}", 30 + i)).collect();
        let zeros: String = (count..4).map(|i| format!("mov.u32 %r{}, 0;\n", 30 + i)).collect();
        let body = format!(
            "{ADDRESSES}{FILL}{zeros}ldmatrix.sync.aligned.m8n8.x{count}{trans}.shared.b16 {{{}}}, [%r3];\n{RESULT}",
            registers.join(",")
        );
        let (found, _) = run(&body, 512, &input, 512, &Launch::default()).expect("matrices");
        for (lane, i) in (0..32).flat_map(|lane| (0..count).map(move |i| (lane, i))) {
            let half = |h: usize| {
                let (row, column) = (lane / 4, lane % 4 * 2 + h);
                let (row, column) = if trans.is_empty() { (row, column) } else { (column, row) };
                u32::from(halves[64 * i + 8 * row + column])
            };
            assert_eq!(found[4 * lane + i], half(0) | half(1) << 16, "x{count}{trans}, lane {lane}, register {i}");
        }
    }
}

#[test]
fn shuffles_take_from_the_lane_of_their_rule() {
    let input: Vec<u32> = (0..32).map(|i| 100 + i).collect();
    let result = |mode: &str, by: u32, clamp: u32| {
        let body = format!(
            "mul.wide.u32 %rd3, %r1, 4;\nadd.s64 %rd4, %rd1, %rd3;\nadd.s64 %rd5, %rd2, %rd3;\nld.global.u32 %r10, [%rd4];\n\
             shfl.sync.{mode}.b32 %r11|%p1, %r10, {by}, {clamp}, -1;\nselp.b32 %r12, 1000, 0, %p1;\nadd.s32 %r11, %r11, %r12;\n\
             st.global.u32 [%rd5], %r11;"
        );
        run(&body, 16, &input, 128, &Launch::default()).expect("a shuffle").0
    };
    let expect = |f: &dyn Fn(u32) -> Option<u32>| -> Vec<u32> {
        (0..32).map(|lane| f(lane).map_or(100 + lane, |from| 1100 + from)).collect()
    };
    assert_eq!(result("bfly", 5, 31), expect(&|lane| Some(lane ^ 5)));
    assert_eq!(result("down", 3, 31), expect(&|lane| (lane + 3 < 32).then_some(lane + 3)));
    assert_eq!(result("up", 3, 0), expect(&|lane| lane.checked_sub(3)));
    assert_eq!(result("idx", 9, 31), expect(&|_| Some(9)));
    // Segments of eight lanes.
    let clamp = 0x1807;
    assert_eq!(result("idx", 2, clamp | 0x18), expect(&|lane| Some(lane / 8 * 8 + 2)));
    assert_eq!(result("down", 3, clamp), expect(&|lane| (lane % 8 < 5).then_some(lane + 3)));
    assert_eq!(result("up", 3, 0x1800), expect(&|lane| (lane % 8 >= 3).then(|| lane - 3)));
}

#[test]
fn a_part_of_a_warp_cannot_do_what_the_whole_has_to() {
    for instruction in [
        "bar.sync 0;",
        "bar.warp.sync -1;",
        "ldmatrix.sync.aligned.m8n8.x1.shared.b16 {%r30}, [%r3];",
        "shfl.sync.bfly.b32 %r10, %r1, 1, 31, -1;",
        "mma.sync.aligned.m16n8k32.row.col.s32.u8.s8.s32 {%r30,%r31,%r32,%r33}, {%r1,%r1,%r1,%r1}, {%r1,%r1}, {%r1,%r1,%r1,%r1};",
    ] {
        let body = format!("mov.u32 %r3, s;\nsetp.lt.u32 %p1, %r1, 31;\n@%p1 {instruction}");
        let fault = run(&body, 512, &[0], 0, &Launch::default()).expect_err("a fault");
        assert_eq!(fault.kind, Kind::PartialWarp, "{fault}");
    }
}
