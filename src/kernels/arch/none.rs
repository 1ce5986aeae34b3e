//! Operations that have kernels on x86-64 alone: elsewhere the definitions do all of the work.

pub(crate) mod bitplane {
    use crate::Isa;
    use crate::shared::bitplane::packed::{Kind, PackedRows, Shape};
    use crate::shared::bitplane::{Arrangement, PlaneRows};

    pub fn multiply_packed(isa: Isa, _: &PackedRows<'_>, _: Arrangement, _: &[u8], _: usize, _: &mut [f32]) {
        panic!("{isa} reads no packed rows");
    }
    pub fn pack(isa: Isa, _: Kind, _: Shape, _: &[&[u8]], _: usize, _: &mut [u8]) {
        panic!("{isa} reads no packed rows");
    }
    pub fn pack_tables(isa: Isa, _: &PlaneRows<'_>, _: bool, _: &mut [u8], _: &mut [f32]) {
        panic!("{isa} reads no packed rows");
    }
}

pub(crate) mod elements {
    use std::ops::Range;

    use crate::Isa;
    use crate::shared::GELU_ENTRIES;

    pub fn swiglu(_: Isa, _: &mut [f32], _: &[f32]) -> usize {
        0
    }
    pub fn geglu(_: Isa, _: &[u16; GELU_ENTRIES], _: &mut [f32], _: &[f32]) -> usize {
        0
    }
    pub fn rotate_adjacent(_: Isa, _: &mut [f32], _: &[f32], _: &[f32]) -> usize {
        0
    }
    pub fn soft_max(_: Isa, _: &mut [f32], _: Range<usize>, _: f32) -> bool {
        false
    }
}

pub(crate) mod ternary {
    use crate::Isa;

    pub fn dot(_: Isa, _: &[u8], _: &[u8]) -> Option<i32> {
        None
    }
    pub fn dot_four(_: Isa, _: &[u8], _: &[u8], _: usize, _: &mut [i32; 4]) -> bool {
        false
    }
}

pub(crate) mod probe {
    use crate::Isa;

    pub fn read(_: Isa, _: &[u8], _: usize) -> Option<u64> {
        None
    }
    pub fn evict(_: &[u8]) -> bool {
        false
    }
    pub fn multiply_int8(_: Isa, _: u64) -> Option<(u64, i32)> {
        None
    }
    pub fn multiply_f32(_: Isa, _: u64) -> Option<(u64, f32)> {
        None
    }
}
