//! BF16: the upper half of an IEEE single float.
//!
//! ```text
//! byte  0     1
//!       +-----+
//!       | bf16|   1 weight, little endian: sign, 8 exponent bits (bias 127), 7 mantissa bits
//!       +-----+
//! ```

use super::num::{bf16_to_f32, f32_to_bf16};
use super::number::{self, Number};
use super::{Format, TypeId, TypeInfo};

/// BF16 in the registry.
pub const INFO: TypeInfo = number::info::<Brain, 2>(TypeId::BF16, "bf16", &[number::value(Format::Bf16)]);

struct Brain;

impl Number<2> for Brain {
    fn read(bytes: [u8; 2]) -> f32 {
        bf16_to_f32(u16::from_le_bytes(bytes))
    }

    fn write(value: f32) -> [u8; 2] {
        f32_to_bf16(value).to_le_bytes()
    }
}
