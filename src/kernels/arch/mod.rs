//! Code that needs an instruction set: the only home of intrinsics and inline assembly, a folder for each architecture.

pub(crate) mod doubles;
pub(crate) mod halves;
pub(crate) mod rows;
pub(crate) mod widely;

#[cfg(target_arch = "aarch64")]
pub(crate) mod aarch64;
#[cfg(target_arch = "aarch64")]
pub(crate) use aarch64 as native;
#[cfg(target_arch = "x86_64")]
pub(crate) mod x86_64;
#[cfg(target_arch = "x86_64")]
pub(crate) use x86_64 as native;
#[cfg(target_arch = "x86_64")]
pub(crate) use x86_64::{bitplane, elements, probe, ternary};

#[cfg(not(target_arch = "x86_64"))]
mod none;
#[cfg(not(target_arch = "x86_64"))]
pub(crate) use none::{bitplane, elements, probe, ternary};

/// Other architectures have the definitions alone.
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
pub(crate) mod native {
    use trine_formats::types::{DecodeFn, EncodeFn, TypeId};

    use super::rows::RowKernel;
    use crate::Isa;
    use crate::packed::Layout;
    use crate::scalar::{CompareRows, QuantizeAct};

    /// The definitions are all there is of [`crate::halves`].
    pub mod halves {
        use crate::Isa;
        use crate::halves::{Form, LINE, Line};

        pub fn coefficients(_: Isa, _: &[f32], _: &mut [f64]) -> usize {
            0
        }
        pub fn round(_: Isa, _: &[f32; LINE]) -> Option<[u16; LINE]> {
            None
        }
        pub fn put_lane(_: Isa, _: &[f32], _: &mut [Line], _: usize, _: Form) -> usize {
            0
        }
        pub fn put_eight(_: Isa, _: &[f32; LINE], _: &mut Line, _: u32, _: u64, _: Form) -> bool {
            false
        }
    }

    pub fn layouts() -> impl Iterator<Item = &'static Layout> {
        std::iter::empty()
    }
    pub fn row_kernels() -> impl Iterator<Item = &'static RowKernel> {
        std::iter::empty()
    }
    pub fn quantize_act(_: TypeId, _: Isa) -> Option<QuantizeAct> {
        None
    }
    pub fn decode_rows(_: TypeId, _: Isa) -> Option<DecodeFn> {
        None
    }
    pub fn encode_rows(_: TypeId, _: Isa) -> Option<EncodeFn> {
        None
    }
    pub fn compare_rows(_: Isa) -> Option<CompareRows> {
        None
    }
}
