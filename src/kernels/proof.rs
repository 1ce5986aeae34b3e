//! Proofs that the processor has an instruction set, as types: whoever has a value may run its instructions.
//!
//! A value comes from an [`Isa`], or from code that is compiled for the instruction set and so runs nowhere else.

use crate::isa::{Isa, Level};

/// Features of the processor that kernels need: an instruction set, and extensions that not every processor of that set
/// has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Needs {
    level: Level,
    /// AVX-512 VBMI and VBMI2.
    vbmi: bool,
}

impl Needs {
    /// An instruction set, and AVX-512 VBMI and VBMI2 if `vbmi` says so.
    pub(crate) const fn new(level: Level, vbmi: bool) -> Needs {
        Needs { level, vbmi }
    }

    /// True if `isa` proves all of it.
    #[inline]
    pub const fn met_by(self, isa: Isa) -> bool {
        isa.has(self.level) && (isa.has_vbmi() || !self.vbmi)
    }

    /// True if it is a higher instruction set than `other`, which it extends.
    pub(crate) fn above(self, other: Needs) -> bool {
        self.level != other.level && self.level.includes(other.level)
    }
}

/// A type whose values prove that this processor has an instruction set.
pub(crate) trait Proof: Copy {
    /// Features that a value proves.
    const NEEDS: Needs;

    /// The proof; `None` where `isa` is none of it.
    fn get(isa: Isa) -> Option<Self>;

    /// The proof.
    ///
    /// # Panics
    /// When `isa` does not prove it.
    #[inline]
    fn of(isa: Isa) -> Self {
        match Self::get(isa) {
            Some(proof) => proof,
            None => panic!("a kernel for {} was called with the proof of {isa} only", Self::NEEDS.level),
        }
    }
}

macro_rules! proofs {
    ($($(#[$meta:meta])* $name:ident: $level:ident, $vbmi:literal;)*) => {$(
        $(#[$meta])*
        #[derive(Clone, Copy, Debug)]
        pub(crate) struct $name(());

        $(#[$meta])*
        impl Proof for $name {
            const NEEDS: Needs = Needs::new(Level::$level, $vbmi);

            #[inline]
            fn get(isa: Isa) -> Option<$name> {
                Self::NEEDS.met_by(isa).then_some($name(()))
            }
        }
    )*};
}

proofs! {
    /// Nothing.
    #[cfg(all(test, target_arch = "x86_64"))]
    Scalar: Scalar, false;
    /// [`Level::Avx2`].
    #[cfg(target_arch = "x86_64")]
    Avx2: Avx2, false;
    /// [`Level::AvxVnni`].
    #[cfg(target_arch = "x86_64")]
    AvxVnni: AvxVnni, false;
    /// [`Level::Avx512`].
    #[cfg(target_arch = "x86_64")]
    Avx512: Avx512, false;
    /// [`Level::Avx512`] with VBMI and VBMI2.
    #[cfg(target_arch = "x86_64")]
    Vbmi: Avx512, true;
    /// [`Level::Amx`].
    #[cfg(target_arch = "x86_64")]
    Amx: Amx, false;
    /// [`Level::Amx`] with VBMI and VBMI2.
    #[cfg(target_arch = "x86_64")]
    AmxVbmi: Amx, true;
    /// [`Level::Neon`].
    #[cfg(target_arch = "aarch64")]
    Neon: Neon, false;
    /// [`Level::Dotprod`].
    #[cfg(target_arch = "aarch64")]
    Dotprod: Dotprod, false;
    /// [`Level::I8mm`].
    #[cfg(target_arch = "aarch64")]
    I8mm: I8mm, false;
    /// [`Level::Simd128`].
    #[cfg(all(target_arch = "wasm32", target_feature = "simd128"))]
    Simd128: Simd128, false;
}

/// Calls a function that is compiled for the instruction set: its loops become vectors of that width.
macro_rules! compiled_for {
    ($isa:expr, $f:ident($($arg:ident: $ty:ty),*) $(-> $out:ty)?) => {{
        #[cfg(target_arch = "x86_64")]
        #[target_feature(enable = "avx2,f16c")]
        fn avx2($($arg: $ty),*) $(-> $out)? {
            $f($($arg),*)
        }
        #[cfg(target_arch = "x86_64")]
        #[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq")]
        fn avx512($($arg: $ty),*) $(-> $out)? {
            $f($($arg),*)
        }
        match $isa.vectors() {
            #[cfg(target_arch = "x86_64")]
            // SAFETY: `isa` proves that the processor has AVX2 and F16C.
            $crate::Level::Avx2 => unsafe { avx2($($arg),*) },
            #[cfg(target_arch = "x86_64")]
            // SAFETY: `isa` proves that the processor has AVX-512 F, BW, VL and DQ.
            $crate::Level::Avx512 => unsafe { avx512($($arg),*) },
            _ => $f($($arg),*),
        }
    }};
}
pub(crate) use compiled_for;

/// Calls a function that is compiled for AVX2, and with `fma` for FMA, or the other where the processor has neither.
macro_rules! compiled_for_avx2 {
    ($isa:expr, $f:ident($($arg:ident: $ty:ty),*) $(-> $out:ty)?, $other:ident) => {
        compiled_for_avx2!("avx2", $isa, $f($($arg: $ty),*) $(-> $out)?, $other)
    };
    (fma, $isa:expr, $f:ident($($arg:ident: $ty:ty),*) $(-> $out:ty)?, $other:ident) => {
        compiled_for_avx2!("avx2,fma", $isa, $f($($arg: $ty),*) $(-> $out)?, $other)
    };
    ($features:literal, $isa:expr, $f:ident($($arg:ident: $ty:ty),*) $(-> $out:ty)?, $other:ident) => {{
        #[cfg(target_arch = "x86_64")]
        #[target_feature(enable = $features)]
        fn avx2($($arg: $ty),*) $(-> $out)? {
            $f($($arg),*)
        }
        match $isa {
            #[cfg(target_arch = "x86_64")]
            // SAFETY: `isa` proves that the processor has AVX2 and FMA.
            isa if isa.has($crate::Level::Avx2) => unsafe { avx2($($arg),*) },
            _ => $other($($arg),*),
        }
    }};
}
pub(crate) use compiled_for_avx2;
