//! What needs an instruction set: the only home of intrinsics and inline assembly, a folder for each architecture.

pub(crate) mod rows;

#[cfg(target_arch = "aarch64")]
pub(crate) mod aarch64;
#[cfg(target_arch = "aarch64")]
pub(crate) use aarch64 as native;
#[cfg(target_arch = "x86_64")]
pub(crate) mod x86_64;
#[cfg(target_arch = "x86_64")]
pub(crate) use x86_64 as native;

/// Other architectures have the definitions alone.
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
pub(crate) mod native {
    use trine_formats::types::{DecodeFn, EncodeFn, TypeId};

    use super::rows::RowKernel;
    use crate::Isa;
    use crate::packed::Layout;
    use crate::scalar::{CompareRows, QuantizeAct};

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
