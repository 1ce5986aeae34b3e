//! The definitions are all there is of [`crate::halves`] where there are no vectors.

use crate::Isa;
use crate::shared::halves::{F16Encoding, LINE, Line};

pub fn coefficients(_: Isa, _: &[f32], _: &mut [f64]) -> usize {
    0
}
pub fn round(_: Isa, _: &[f32; LINE]) -> Option<[u16; LINE]> {
    None
}
pub fn put_lane(_: Isa, _: &[f32], _: &mut [Line], _: usize, _: F16Encoding) -> usize {
    0
}
pub fn put_eight(_: Isa, _: &[f32; LINE], _: &mut Line, _: u32, _: u64, _: F16Encoding) -> bool {
    false
}
