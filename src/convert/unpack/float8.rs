//! Floats of eight and four bits.

use trine_formats::safetensors::Dtype;

/// The value of an E4M3 float without infinities (`F8_E4M3`): bias 7; 0x7F is no number.
pub fn e4m3(bits: u8) -> f32 {
    float8(bits, 3, 7, bits & 0x7F == 0x7F)
}

/// The value of an E5M2 float (`F8_E5M2`): bias 15. What is no finite number becomes none.
pub fn e5m2(bits: u8) -> f32 {
    float8(bits, 2, 15, bits & 0x7C == 0x7C)
}

/// The value of an exponent (`F8_E8M0`): bias 127, without a sign; 0xFF is no number.
pub fn e8m0(bits: u8) -> f32 {
    match bits {
        0 => f32::from_bits(1 << 22),
        0xFF => f32::NAN,
        bits => f32::from_bits(u32::from(bits) << 23),
    }
}

fn float8(bits: u8, mantissa_bits: u32, bias: i32, none: bool) -> f32 {
    if none {
        return f32::NAN;
    }
    let (magnitude, unit) = (u32::from(bits & 0x7F), 1u32 << mantissa_bits);
    let (exponent, mantissa) = ((magnitude / unit) as i32, (magnitude % unit) as f32);
    let power = |k: i32| f32::from_bits(((127 + k) as u32) << 23);
    let value = match exponent {
        0 => mantissa * power(1 - bias - mantissa_bits as i32),
        _ => (unit as f32 + mantissa) * power(exponent - bias - mantissa_bits as i32),
    };
    if bits & 0x80 == 0 { value } else { -value }
}

/// The values of the codes of E2M1 floats.
pub const E2M1: [f32; 16] = [0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0, -0.0, -0.5, -1.0, -1.5, -2.0, -3.0, -4.0, -6.0];

/// The value of an element of eight bits; `None` for other types.
pub fn element(dtype: Dtype) -> Option<fn(u8) -> f32> {
    match dtype {
        Dtype::F8E4M3 => Some(e4m3),
        Dtype::F8E5M2 => Some(e5m2),
        Dtype::F8E8M0 => Some(e8m0),
        Dtype::I8 => Some(|bits| f32::from(bits as i8)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Values of the OCP specification of 8-bit floats.
    #[test]
    fn values_of_the_standard() {
        for (bits, value) in
            [(0x00, 0.0), (0x01, 0.001_953_125), (0x08, 0.015_625), (0x38, 1.0), (0x7E, 448.0), (0xBC, -1.5)]
        {
            assert_eq!(e4m3(bits), value, "{bits:#x}");
        }
        for (bits, value) in [(0x01, 1.0 / 65536.0), (0x04, 1.0 / 16384.0), (0x3C, 1.0), (0x7B, 57344.0), (0xC2, -3.0)]
        {
            assert_eq!(e5m2(bits), value, "{bits:#x}");
        }
        let least = f32::MIN_POSITIVE;
        for (bits, value) in [(0u8, least / 2.0), (1, least), (126, 0.5), (127, 1.0), (128, 2.0), (254, 2.0 / least)] {
            assert_eq!(e8m0(bits), value, "{bits:#x}");
        }
        assert!(e8m0(0xFF).is_nan());
        assert!(e4m3(0x7F).is_nan() && e4m3(0xFF).is_nan() && e5m2(0x7C).is_nan() && e5m2(0xFE).is_nan());
    }
}
