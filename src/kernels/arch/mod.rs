//! Code that needs an instruction set: the only home of intrinsics and inline assembly, a folder for each architecture.

use kernels::Kernels;

pub(crate) mod doubles;
pub(crate) mod functions;
pub(crate) mod halves;
mod kernels;
pub(crate) mod packed;
pub(crate) mod rows;
pub(crate) mod widely;

#[cfg(target_arch = "aarch64")]
pub(crate) mod aarch64;
#[cfg(all(target_arch = "wasm32", target_feature = "simd128"))]
pub(crate) mod wasm32;
#[cfg(target_arch = "x86_64")]
pub(crate) mod x86_64;
#[cfg(target_arch = "x86_64")]
pub(crate) use x86_64::{bitplane, elements, probe, ternary};

#[cfg(not(target_arch = "x86_64"))]
mod none;
#[cfg(not(target_arch = "x86_64"))]
pub(crate) use none::{bitplane, elements, probe, ternary};

macro_rules! folders {
    ($($(#[$_doc:meta])* $_level:ident $_name:literal: $($_base:ident)? ($($_there:tt)*) {$($_features:tt)*}
       $(in $folder:ident)?;)*) => {
        $($(mod $folder;)?)*

        /// The kernels of all folders; those of this program's architecture stand first.
        pub(crate) static FOLDERS: &[Kernels] = &[
            #[cfg(target_arch = "aarch64")]
            aarch64::KERNELS,
            #[cfg(target_arch = "x86_64")]
            x86_64::KERNELS,
            #[cfg(all(target_arch = "wasm32", target_feature = "simd128"))]
            wasm32::KERNELS,
            $($($folder::KERNELS,)?)*
        ];
    };
}
with_sets!(folders);
