//! F16: IEEE half floats.
//!
//! ```text
//! byte  0    1
//!       +----+
//!       | f16|   1 weight, little endian: sign, 5 exponent bits (bias 15), 10 mantissa bits
//!       +----+
//! ```

use super::num::{f16_to_f32, f32_to_f16};
use super::number::{self, Number};
use super::{Format, TypeId, TypeInfo};

/// F16 in the registry.
pub const INFO: TypeInfo = number::info::<Half, 2>(TypeId::F16, "f16", &[number::value(Format::F16)]);

struct Half;

impl Number<2> for Half {
    fn read(bytes: [u8; 2]) -> f32 {
        f16_to_f32(u16::from_le_bytes(bytes))
    }

    fn write(value: f32) -> [u8; 2] {
        f32_to_f16(value).to_le_bytes()
    }
}
