//! F32: plain IEEE single floats.
//!
//! ```text
//! byte  0        3
//!       +--------+
//!       |  f32   |   1 weight, little endian
//!       +--------+
//! ```

use super::number::{self, Number};
use super::{Format, TypeId, TypeInfo};

/// F32 in the registry.
pub const INFO: TypeInfo = number::info::<Single, 4>(TypeId::F32, "f32", &[number::value(Format::F32)]);

struct Single;

impl Number<4> for Single {
    fn read(bytes: [u8; 4]) -> f32 {
        f32::from_le_bytes(bytes)
    }

    fn write(value: f32) -> [u8; 4] {
        value.to_le_bytes()
    }
}
