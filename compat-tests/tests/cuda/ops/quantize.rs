//! Activation quantizers: quants in the order of the products' lanes, scales and sums, byte by byte.

use trine_compat_tests::ptx::{Argument, Device, Schedule};
use trine_cuda::pack::activations::{self, Activations};
use trine_formats::types::TypeId;
use trine_formats::types::ternary::{ActScale, quantize_i2_s, quantize_tl};

use super::{bytes, launch, rows};
use crate::product::{assert_same, dwords, module};

/// Quantizes rows with a kernel and compares every byte, those that fill up too.
fn check(kernel: &str, x: &[f32], columns: usize, expected: &Activations, floored: Option<bool>) {
    let tokens = x.len() / columns;
    let padded = tokens.next_multiple_of(8);
    let mut device = Device::new();
    let input = Argument::Buffer(device.constant(bytes(x)));
    let quants = device.empty(4 * expected.quants.len());
    let scales = device.empty(4 * expected.scales.len());
    let sums = device.empty(4 * expected.sums.len());
    let mut arguments = vec![input];
    arguments.extend([quants, scales, sums].map(Argument::Buffer));
    let (blocks, threads) = match floored {
        Some(floored) => {
            arguments.push(Argument::U32(floored.into()));
            ([1, padded], 256)
        }
        None => ([columns.div_ceil(256), padded], 32),
    };
    arguments.extend([columns, tokens].map(|n| Argument::U32(n as u32)));
    let done = launch(
        &mut device,
        (module("quantize"), kernel),
        blocks.map(|n| n as u32),
        (threads, 0),
        &arguments,
        Schedule::Random(columns as u64),
    );
    let what = format!("{kernel} {columns}");
    done.unwrap_or_else(|e| panic!("{what}: {e}"));
    let of_row = expected.quants.len() / padded;
    let found = device.bytes(quants).chunks_exact(4 * of_row);
    for (token, (found, expected)) in found.zip(expected.quants.chunks_exact(of_row)).enumerate() {
        assert_eq!(found, dwords(expected), "{what}: token {token}");
    }
    assert_same(&device.floats(scales), &expected.scales, &what);
    let expected: Vec<u8> = expected.sums.iter().flat_map(|s| s.to_le_bytes()).collect();
    assert_eq!(device.bytes(sums), expected, "{what}: sums");
}

#[test]
fn blocks() {
    for (ty, kernel, widths) in [
        (TypeId::Q8_K, "quantize_q8_k", &[256usize, 768, 2560][..]),
        (TypeId::Q8_0, "quantize_q8_0", &[32, 96, 256, 288, 768]),
    ] {
        let info = ty.info().expect("a type");
        for &columns in widths {
            let x = rows(columns, columns as u64);
            let of_row = info.row_bytes(columns as u64).expect("whole blocks") as usize;
            let mut data = vec![0; x.len() / columns * of_row];
            for (row, x) in data.chunks_exact_mut(of_row).zip(x.chunks_exact(columns)) {
                info.encode.expect("an encoder")(x, None, row);
            }
            let expected = activations::encoded(ty, &data, x.len() / columns, columns);
            check(kernel, &x, columns, &expected.expect("a layout"), None);
        }
    }
}

#[test]
fn bytes_under_one_scale() {
    for columns in [128, 256, 640, 2560] {
        let x = rows(columns, !columns as u64);
        for floored in [true, false] {
            let mut quants = vec![0; x.len()];
            let scales: Vec<ActScale> = quants
                .chunks_exact_mut(columns)
                .zip(x.chunks_exact(columns))
                .map(|(q, x)| match floored {
                    true => quantize_i2_s(x, q),
                    false => quantize_tl(x, q),
                })
                .collect();
            let expected = activations::ternary(&quants, &scales, columns).expect("a layout");
            check("quantize_bytes", &x, columns, &expected, Some(floored));
        }
    }
}
