//! Norms, gates, rotations, sums, and rows of tables.

use trine::ops::activation::Activation;
use trine::ops::norm::{Kind, Norm};
use trine::ops::rope::{Pairing, Rope};
use trine::{Isa, ops};
use trine_compat_tests::inputs::Rng;
use trine_compat_tests::ptx::{Argument, Device, Schedule};
use trine_cuda::program::Gate;
use trine_formats::types::TypeId;
use trine_kernels::elements::gelu_table;

use super::{Case, bytes, launch, rows};
use crate::product::{assert_same, module};

const EPS: f32 = 1e-5;

fn norm(row: usize, gains: Vec<f32>) -> Norm {
    Norm { kind: Kind::Rms, eps: EPS, row, gains, bias: None }
}

fn gains(count: usize) -> Vec<f32> {
    (0..count).map(|i| (i % 17) as f32 * 0.37 - 2.0).collect()
}

#[test]
fn norms() {
    for (columns, row, parts) in
        [(1, 1, 1), (64, 64, 1), (100, 100, 1), (257, 257, 1), (2560, 2560, 1), (256, 64, 1), (256, 64, 4)]
    {
        let x = rows(columns.max(8), columns as u64)[..14 * columns].to_vec();
        let gains = gains(row * parts);
        let expected = norm(row, gains.clone()).apply(Isa::scalar(), &x);
        let case = Case::new(&x, columns);
        let found = case.run(|r, x| r.norm(x, gains.clone().leak(), row, EPS));
        assert_same(&found, &expected, &format!("{parts} x {row} of {columns}"));
        let found = case.run(|r, x| {
            r.norm_in_place(x, gains.clone().leak(), row, EPS)?;
            Ok(x)
        });
        assert_same(&found, &expected, &format!("in place, {columns}"));
    }
}

#[test]
fn layer_norms() {
    for (columns, row, parts) in [(1, 1, 1), (2, 2, 1), (67, 67, 1), (1030, 1030, 1), (256, 64, 4)] {
        let mut x = rows(columns.max(8), columns as u64)[..14 * columns].to_vec();
        // Around a mean that is large beside the differences, and a sum midway between two floats, which is added in
        // order.
        x.extend((0..columns).map(|i| 1000.0 + (i % 5) as f32 * 0.01));
        x.extend((0..columns).map(|i| match i {
            0 => 16_777_216.0,
            1 => 1.0,
            _ => 0.0,
        }));
        let gains = gains(row * parts);
        let bias: Vec<f32> = gains.iter().rev().copied().collect();
        let norm = Norm { kind: Kind::Layer, bias: Some(bias.clone()), ..norm(row, gains.clone()) };
        let expected = norm.apply(Isa::scalar(), &x);
        let case = Case::new(&x, columns);
        let found = case.run(|r, x| {
            let y = r.layer_norm(x, gains.clone().leak(), row, EPS)?;
            r.add_row(y, bias.clone().leak())?;
            Ok(y)
        });
        assert_same(&found, &expected, &format!("{parts} x {row} of {columns}"));
        let found = case.run(|r, x| {
            r.layer_norm_in_place(x, gains.clone().leak(), row, EPS)?;
            r.add_row(x, bias.clone().leak())?;
            Ok(x)
        });
        assert_same(&found, &expected, &format!("in place, {columns}"));
    }
}

#[test]
fn means_midway_between_two_floats_are_added_in_order() {
    // 2^24 + 1 lies midway between two floats: no interval around it rounds alike, and so one thread adds in order.
    for columns in [2usize, 64, 1024] {
        let mut x = vec![0f32; columns];
        (x[0], x[columns - 1]) = (4096.0, 1.0);
        let gains = vec![1.0; columns];
        let expected = norm(columns, gains.clone()).apply(Isa::scalar(), &x);
        let found = Case::new(&x, columns).run(|r, x| r.norm(x, gains.clone().leak(), columns, EPS));
        assert_same(&found, &expected, "midway");
    }
}

#[test]
fn sums_before_norms() {
    let columns = 320;
    let x = rows(columns, 3);
    let gains = gains(columns);
    // The sum of a row and its norm, and the norm of that.
    let once = norm(columns, gains.clone()).apply(Isa::scalar(), &x);
    let mut sum = x.clone();
    ops::add(&mut sum, &once);
    let expected = norm(columns, gains.clone()).apply(Isa::scalar(), &sum);
    let mut both = sum.clone();
    ops::add(&mut both, &expected);
    let found = Case::new(&x, columns).run(|r, x| {
        let y = r.norm(x, gains.clone().leak(), columns, EPS)?;
        r.add(x, y);
        let z = r.norm(x, gains.clone().leak(), columns, EPS)?;
        // The row itself is the sum now.
        r.add(x, z);
        Ok(x)
    });
    assert_same(&found, &both, "a sum and its norm");
}

#[test]
fn biases_and_factors() {
    let columns = 70;
    let x = rows(columns, 4);
    let bias = gains(columns);
    let mut expected = x.clone();
    ops::add_rows(&mut expected, &bias);
    ops::scale(&mut expected, 0.3);
    let found = Case::new(&x, columns).run(|r, x| {
        r.add_row(x, bias.clone().leak())?;
        r.scale(x, 0.3);
        Ok(x)
    });
    assert_same(&found, &expected, "a bias and a factor");
}

#[test]
fn gates() {
    let columns = 300;
    let mut x = rows(columns, 5);
    // Every exponent and sign, and the limits of the exponential.
    let special = [-88.0, -87.4, -104.0, 89.0, 133.5, -133.5, 3.4e38, f32::from_bits(0x7f80_0001)];
    x.extend((0..columns).map(|i| special[i % special.len()]));
    let mut rng = Rng::new(6);
    x.extend((0..40 * columns).map(|i| match i % 2 {
        0 => f32::from_bits(rng.bits() as u32),
        _ => 400.0 * rng.unit() - 200.0,
    }));
    let up: Vec<f32> = x.iter().rev().copied().collect();
    let mut expected = x.clone();
    Activation::Gelu.apply(Isa::scalar(), &mut expected);
    let found = Case::new(&x, columns).run(|r, x| {
        r.gelu(gelu_table(), x, None)?;
        Ok(x)
    });
    assert_same(&found, &expected, "GELU alone");
    for (gate, function) in
        [(Gate::Silu, Activation::Silu), (Gate::Relu, Activation::Relu), (Gate::SquaredRelu, Activation::SquaredRelu)]
    {
        let mut expected = x.clone();
        function.apply(Isa::scalar(), &mut expected);
        let found = Case::new(&x, columns).run(|r, x| {
            r.gate(gate, x, None);
            Ok(x)
        });
        assert_same(&found, &expected, &format!("{gate:?}"));
        let mut expected = x.clone();
        function.gate(Isa::scalar(), &mut expected, &up);
        let mut device = Device::new();
        let (at, beside) = (device.variable(bytes(&x)), device.constant(bytes(&up)));
        let arguments = [Argument::Buffer(at), Argument::Buffer(beside), Argument::U32(x.len() as u32)];
        let kernel = match gate {
            Gate::Silu => "silu",
            Gate::Relu => "relu",
            Gate::SquaredRelu => "squared_relu",
        };
        let blocks = [x.len().div_ceil(256) as u32, 1];
        launch(&mut device, (module("gate"), kernel), blocks, (256, 0), &arguments, Schedule::InTurn)
            .unwrap_or_else(|e| panic!("{e}"));
        assert_same(&device.floats(at), &expected, &format!("{gate:?} and a factor"));
    }
}

#[test]
fn rotations() {
    let mut rng = Rng::new(8);
    for pairing in [Pairing::Adjacent, Pairing::Halves] {
        for (n_rot, head, heads) in [(2, 4, 3), (10, 10, 1), (32, 40, 5), (64, 64, 4), (128, 256, 2)] {
            let rope = Rope {
                n_rot,
                pairing,
                base: 10000.0,
                freq_scale: 0.25,
                attn_factor: 1.5,
                freq_factors: vec![2.0, 3.0],
                yarn: None,
            };
            let positions = [0, 1, 7, 511, 4096];
            let width = heads * head;
            let mut value = |i: usize| match i % 20 {
                0 => -0.0,
                1 => 1e-42,
                2 => f32::INFINITY,
                _ => 2.0 * rng.unit() - 1.0,
            };
            let x: Vec<f32> = (0..positions.len() * width).map(&mut value).collect();
            let mut expected = x.clone();
            rope.apply(Isa::scalar(), &mut expected, width, head, &rope.table(&positions));
            let pairs = positions.iter().flat_map(|&p| rope.pairs(p));
            let table: Vec<f32> = pairs.flat_map(|(cos, sin)| [cos, sin]).collect();
            let mut device = Device::new();
            let (at, table) = (device.variable(bytes(&x)), device.constant(bytes(&table)));
            let numbers = [heads, head, n_rot / 2, usize::from(pairing == Pairing::Adjacent)];
            let mut arguments = vec![Argument::Buffer(at), Argument::Buffer(table)];
            arguments.extend(numbers.map(|n| Argument::U32(n as u32)));
            let blocks = [(heads * n_rot / 2).div_ceil(128) as u32, positions.len() as u32];
            launch(&mut device, (module("attention"), "rope"), blocks, (128, 0), &arguments, Schedule::Random(2))
                .unwrap_or_else(|e| panic!("{e}"));
            assert_same(&device.floats(at), &expected, &format!("{pairing:?} {n_rot} of {head}"));
        }
    }
}

#[test]
fn rows_of_tables() {
    for ty in
        [TypeId::F32, TypeId::F16, TypeId::BF16, TypeId::Q8_0, TypeId::Q4_0, TypeId::TQ2_0, TypeId::Q4_K, TypeId::Q6_K]
    {
        let info = ty.info().expect("a type");
        let (count, columns) = (40usize, 768);
        let of_row = info.row_bytes(columns as u64).expect("whole blocks") as usize;
        let data = Rng::new(columns as u64).bytes(count * of_row);
        let tokens: Vec<u32> = (0..30).map(|i| (i * 7) % count as u32).collect();
        let mut expected = vec![0.0; tokens.len() * columns];
        for (row, &token) in expected.chunks_exact_mut(columns).zip(&tokens) {
            let bytes = &data[token as usize * of_row..][..of_row];
            info.decode.expect("a decoder")(bytes, row);
        }
        let mut device = Device::new();
        let numbers = tokens.iter().flat_map(|t| t.to_le_bytes()).collect();
        let (table, numbers) = (device.constant(data), device.constant(numbers));
        let out = device.empty(4 * expected.len());
        let arguments =
            [Argument::Buffer(table), Argument::Buffer(numbers), Argument::Buffer(out), Argument::U32(columns as u32)];
        let kernel = format!("embed_{}", info.name.to_lowercase());
        let blocks = [columns.div_ceil(256) as u32, tokens.len() as u32];
        launch(&mut device, (module("embed"), &kernel), blocks, (256, 0), &arguments, Schedule::InTurn)
            .unwrap_or_else(|e| panic!("{e}"));
        assert_same(&device.floats(out), &expected, info.name);
    }
}
