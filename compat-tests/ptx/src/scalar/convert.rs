//! From one type to another.

use trine_formats::types::num::{f16_to_f32, f32_to_f16};

use super::{Lanes, Scalar, one};

fn single(bits: u32) -> f32 {
    f32::from_bits(bits)
}

fn bits(x: f32) -> u32 {
    if x.is_nan() { 0x7fff_ffff } else { x.to_bits() }
}

pub(super) fn find(opcode: &str) -> Option<(usize, Scalar)> {
    match opcode {
        // To an integer: bounded by its range, NaN becomes zero.
        "cvt.rni.s32.f32" => one!(|a: u32| single(a).round_ties_even() as i32 as u32),
        "cvt.rzi.s32.f32" => one!(|a: u32| single(a) as i32 as u32),
        "cvt.rmi.s32.f32" => one!(|a: u32| single(a).floor() as i32 as u32),
        "cvt.rni.f32.f32" => one!(|a: u32| bits(single(a).round_ties_even())),
        "cvt.rn.f32.s32" => one!(|a: i32| (a as f32).to_bits()),
        "cvt.rn.f32.u32" => one!(|a: u32| (a as f32).to_bits()),
        "cvt.rn.f32.s64" => one!(|a: i64| (a as f32).to_bits()),
        "cvt.rn.f64.s32" => one!(|a: i32| f64::from(a).to_bits()),
        "cvt.f64.f32" => one!(|a: u32| f64::from(single(a)).to_bits()),
        "cvt.rn.f32.f64" => one!(|a: u64| bits(f64::from_bits(a) as f32)),
        "cvt.f32.f16" => one!(|a: u16| bits(f16_to_f32(a))),
        "cvt.rn.f16.f32" => one!(|a: u32| if single(a).is_nan() { 0x7fff } else { f32_to_f16(single(a)) }),
        _ => integers(opcode),
    }
}

/// Between integers: filled up as the old type has it, cut to what the new one holds.
fn integers(opcode: &str) -> Option<(usize, Scalar)> {
    macro_rules! to {
        ($new:expr, $old:ty, $wide:ty) => {
            match $new {
                "u8" | "s8" => one!(|a: $old| a as $wide as u8),
                "u16" | "s16" => one!(|a: $old| a as $wide as u16),
                "u32" | "s32" => one!(|a: $old| a as $wide as u32),
                "u64" | "s64" => one!(|a: $old| a as $wide as u64),
                _ => None,
            }
        };
    }
    let (new, old) = opcode.strip_prefix("cvt.")?.split_once('.')?;
    match old {
        "u8" => to!(new, u8, u64),
        "s8" => to!(new, i8, i64),
        "u16" => to!(new, u16, u64),
        "s16" => to!(new, i16, i64),
        "u32" => to!(new, u32, u64),
        "s32" => to!(new, i32, i64),
        "u64" => to!(new, u64, u64),
        "s64" => to!(new, i64, i64),
        _ => None,
    }
}
