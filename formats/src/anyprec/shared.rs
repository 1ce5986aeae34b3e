//! Tables that rows share, each row with a factor of its own.

use crate::types::num::{f16_to_f32, f32_to_f16};

/// The weight of a centroid of a shared table in a row with this factor: their product, which single precision holds
/// exactly, rounded to half precision. All are in half precision.
pub fn scaled(scale: u16, centroid: u16) -> u16 {
    f32_to_f16(f16_to_f32(scale) * f16_to_f32(centroid))
}

/// The tables of rows of their own: for each row `2^width` values in half precision, little-endian.
///
/// `classes` and `scales` have one for each row, `tables` has `2^width` values for each class. A row of a class without
/// a table gets zeros.
pub fn expand(classes: &[u8], scales: &[u8], tables: &[u8], width: u8) -> Vec<u8> {
    let bytes = 2usize << width;
    let mut out = Vec::with_capacity(classes.len() * bytes);
    for (&class, scale) in classes.iter().zip(scales.as_chunks().0) {
        let (scale, start) = (u16::from_le_bytes(*scale), usize::from(class) * bytes);
        let table = tables.get(start..start + bytes).unwrap_or(&[]);
        for &centroid in table.as_chunks().0 {
            out.extend(scaled(scale, u16::from_le_bytes(centroid)).to_le_bytes());
        }
        out.resize(out.len() + bytes - table.len(), 0);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn products_are_rounded_once() {
        let half = f32_to_f16;
        for (scale, centroid, want) in [(2.0, 1.5, 3.0), (-0.5, 3.0, -1.5), (0.0, 7.0, 0.0)] {
            assert_eq!(scaled(half(scale), half(centroid)), half(want));
        }
        // 1 + 2^-10 squared is 1 + 2^-9 + 2^-20, whose last term half precision does not hold.
        assert_eq!(scaled(0x3c01, 0x3c01), 0x3c02);
        // Beyond the middle between two halves: 1025 * 1536 / 2^20 = 1.50146484375 + ... rounds up to even.
        assert_eq!(scaled(0x3c01, 0x3e01), 0x3e03);
    }

    #[test]
    fn every_row_gets_its_table() {
        let bytes = |values: &[f32]| -> Vec<u8> { values.iter().flat_map(|&v| f32_to_f16(v).to_le_bytes()).collect() };
        let tables = bytes(&[1.0, 2.0, -3.0, 4.0]);
        let got = expand(&[1, 0, 1], &bytes(&[2.0, 0.5, -1.0]), &tables, 1);
        assert_eq!(got, bytes(&[-6.0, 8.0, 0.5, 1.0, 3.0, -4.0]));
    }
}
