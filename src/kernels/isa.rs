//! Instruction sets, and the proof that the processor has one.

use std::fmt;

#[cfg(target_arch = "x86_64")]
macro_rules! x86_64 {
    ($($feature:tt)*) => { vec![$(($feature, is_x86_feature_detected!($feature))),*] };
}

macro_rules! levels {
    ($($(#[$doc:meta])* $level:ident $name:literal: $($base:ident)? ($($there:tt)*) {$($features:tt)*} $(in $_:ident)?;)*) => {
        /// An instruction set that kernels are written for.
        ///
        /// Sets extend one another, but not all in one line: of two sets, each may have what the other lacks.
        /// [`Level::base`] says what a set extends, and [`Level::includes`] follows these steps down.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[non_exhaustive]
        pub enum Level {
            $($(#[$doc])* $level,)*
        }

        impl Level {
            /// All instruction sets. Each stands behind those that it extends.
            pub const ALL: &[Level] = &[$(Level::$level),*];

            /// The name that `TRINE_ISA` takes.
            pub const fn name(self) -> &'static str {
                match self {
                    $(Level::$level => $name,)*
                }
            }

            /// The instruction set that this one extends.
            pub const fn base(self) -> Option<Level> {
                match self {
                    $($(Level::$level => Some(Level::$base),)?)*
                    _ => None,
                }
            }

            /// True if it belongs to another architecture than this program, which then has no kernels for it.
            pub const fn is_foreign(self) -> bool {
                match self {
                    $(Level::$level => !cfg!($($there)*),)*
                }
            }

            /// Returns the features that the instruction set adds to its base; true for those that this processor has.
            fn features(self) -> Vec<(&'static str, bool)> {
                match self {
                    $(#[cfg($($there)*)] Level::$level => levels!(@features $($features)*),)*
                    _ => vec![(self.name(), false)],
                }
            }
        }
    };
    (@features) => { Vec::new() };
    (@features $($features:tt)+) => { $($features)+ };
}
with_sets!(levels);

/// For each set a bit for each that it includes. Kernels ask for every group of rows that they multiply.
const INCLUDED: [u32; Level::ALL.len()] = {
    let (mut included, mut i) = ([0; Level::ALL.len()], 0);
    while i < included.len() {
        included[i] = 1 << i;
        if let Some(base) = Level::ALL[i].base() {
            assert!((base as usize) < i, "a set stands behind those that it extends");
            included[i] |= included[base as usize];
        }
        i += 1;
    }
    included
};

impl Level {
    /// True if a processor with this instruction set has `other` too.
    pub const fn includes(self, other: Level) -> bool {
        INCLUDED[self as usize] >> other as u32 & 1 != 0
    }

    /// Returns the features of the instruction set, itself or one it extends, that this processor lacks; empty when it
    /// has all of them.
    pub fn missing(self) -> Vec<&'static str> {
        let mut missing = self.base().map_or_else(Vec::new, Level::missing);
        let features = self.features();
        missing.extend(features.iter().filter(|(_, there)| !there).map(|(f, _)| f));
        missing
    }
}

impl fmt::Display for Level {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Which instruction set the kernels use. The bits of the results do not depend on it.
///
/// A value is the proof that this processor has the instruction set: there is no way to make one but to look at the
/// processor, or to take less than what was found. Kernels rely on it where they run instructions that not every
/// processor has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Isa {
    level: Level,
    /// GFNI, which processors of every level but the first may have: it transposes bits.
    gfni: bool,
    /// AVX-512 VBMI and VBMI2, which came later than the rest of [`Level::Avx512`]: they permute and compress bytes.
    vbmi: bool,
}

/// Why `TRINE_ISA` cannot be followed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum IsaError {
    /// Not one of the names.
    #[error("TRINE_ISA={name:?} is not known; use {known}, or unset it", known = names())]
    Unknown {
        /// Value of the variable.
        name: String,
    },
    /// A known name that this processor cannot run.
    #[error("TRINE_ISA={wanted}: this processor has only {have}; use that or unset it")]
    Unsupported {
        /// The instruction set asked for.
        wanted: Level,
        /// The best this processor has.
        have: Level,
    },
}

/// The names of this architecture's instruction sets, as a list in words.
fn names() -> String {
    let native = Level::ALL.iter().filter(|level| !level.is_foreign());
    let names: Vec<&str> = native.map(|level| level.name()).collect();
    names.join(" or ")
}

impl Isa {
    /// The definitions in portable Rust, which every processor runs.
    pub const fn scalar() -> Isa {
        Isa { level: Level::Scalar, gfni: false, vbmi: false }
    }

    /// The best instruction set of this processor.
    pub fn detect() -> Isa {
        Isa::available().last().unwrap_or(Isa::scalar())
    }

    /// All instruction sets of this processor, the plainest first.
    pub fn available() -> impl Iterator<Item = Isa> {
        Level::ALL.iter().filter_map(|&level| Isa::of(level))
    }

    /// The instruction set `level`; `None` when this processor does not have it.
    pub fn of(level: Level) -> Option<Isa> {
        level.missing().is_empty().then(|| Isa { level, gfni: has_gfni(level), vbmi: has_vbmi(level) })
    }

    /// The instruction set that the environment variable `TRINE_ISA` names, or the best one.
    ///
    /// # Errors
    /// The name is unknown, or the processor cannot run it.
    pub fn from_env() -> Result<Isa, IsaError> {
        match std::env::var_os("TRINE_ISA") {
            None => Ok(Isa::detect()),
            Some(name) if name.is_empty() => Ok(Isa::detect()),
            Some(name) => Isa::from_name(&name.to_string_lossy()),
        }
    }

    fn from_name(name: &str) -> Result<Isa, IsaError> {
        let wanted = Level::ALL.iter().find(|level| level.name() == name);
        let &wanted = wanted.ok_or_else(|| IsaError::Unknown { name: name.to_owned() })?;
        Isa::of(wanted).ok_or_else(|| IsaError::Unsupported { wanted, have: Isa::detect().level })
    }

    /// `level` alone, when this instruction set includes it.
    pub fn lower_to(self, level: Level) -> Option<Isa> {
        self.has(level).then_some(Isa {
            level,
            gfni: self.gfni && level.includes(Level::Avx2),
            vbmi: self.vbmi && level.includes(Level::Avx512),
        })
    }

    /// The same without the instructions that only some processors of the level have.
    #[cfg(test)]
    pub(crate) fn plain(self) -> Isa {
        Isa { level: self.level, ..Isa::scalar() }
    }

    /// The instruction set by name.
    pub const fn level(self) -> Level {
        self.level
    }

    /// The widest plain vectors among what it includes: the level itself, or that on which kernels with other
    /// instructions of the level stand.
    pub(crate) const fn vectors(self) -> Level {
        match self.level {
            Level::AvxVnni => Level::Avx2,
            Level::Amx => Level::Avx512,
            level => level,
        }
    }

    /// True if it includes `level`.
    pub const fn has(self, level: Level) -> bool {
        self.level.includes(level)
    }

    /// True if bits can be transposed by an instruction, GFNI.
    pub(crate) fn has_gfni(self) -> bool {
        self.gfni
    }

    /// True if bytes can be permuted and compressed in vectors of 512 bits, AVX-512 VBMI and VBMI2.
    pub(crate) const fn has_vbmi(self) -> bool {
        self.vbmi
    }

    /// The name that `TRINE_ISA` takes.
    pub fn name(self) -> &'static str {
        self.level.name()
    }
}

impl fmt::Display for Isa {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.level.fmt(f)
    }
}

#[cfg(target_arch = "x86_64")]
fn has_gfni(level: Level) -> bool {
    level.includes(Level::Avx2) && is_x86_feature_detected!("gfni")
}

#[cfg(not(target_arch = "x86_64"))]
fn has_gfni(_: Level) -> bool {
    false
}

#[cfg(target_arch = "x86_64")]
fn has_vbmi(level: Level) -> bool {
    level.includes(Level::Avx512) && is_x86_feature_detected!("avx512vbmi") && is_x86_feature_detected!("avx512vbmi2")
}

#[cfg(not(target_arch = "x86_64"))]
fn has_vbmi(_: Level) -> bool {
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_isa_is_named_or_detected() {
        assert_eq!(Isa::from_name("scalar"), Ok(Isa::scalar()));
        assert!(Isa::from_name("sse9").is_err_and(|e| e.to_string().contains("sse9")));
        // a name of another architecture is known, refused, and not proposed
        let foreign = Level::ALL.iter().filter(|level| level.is_foreign());
        for &level in foreign {
            assert!(Isa::of(level).is_none() && !names().contains(level.name()));
            assert!(!Isa::detect().has(level));
        }
        assert!(names().contains(Isa::detect().name()));
        for &level in Level::ALL {
            match Isa::from_name(level.name()) {
                Ok(isa) => assert!(isa.level() == level && Isa::of(level) == Some(isa)),
                Err(IsaError::Unsupported { wanted, have }) => {
                    assert!(wanted == level && have == Isa::detect().level());
                    assert!(!have.includes(level) && !level.missing().is_empty());
                }
                Err(e) => panic!("{e}"),
            }
        }
    }

    #[test]
    fn an_isa_is_lowered_to_what_it_includes_and_to_nothing_else() {
        for isa in Isa::available() {
            for &level in Level::ALL {
                // what was lowered is what the processor shows when it is asked for that alone
                let lowered = isa.lower_to(level);
                assert_eq!(lowered.is_some(), isa.level().includes(level));
                assert!(lowered.is_none_or(|lowered| Some(lowered) == Isa::of(level)));
            }
        }
        assert_eq!(Isa::scalar().lower_to(Level::Avx2), None);
    }

    #[test]
    fn sets_of_two_architectures_include_one_another_in_nothing_but_the_portable_one() {
        use Level::{Amx, Avx2, Avx512, AvxVnni, Dotprod, I8mm, Neon};
        for x86 in [Avx2, AvxVnni, Avx512, Amx] {
            for arm in [Neon, Dotprod, I8mm] {
                assert!(!x86.includes(arm) && !arm.includes(x86));
            }
        }
        assert!(I8mm.includes(Dotprod) && Dotprod.includes(Neon) && !Neon.includes(Dotprod));
        assert!(Amx.includes(Avx512) && !Amx.includes(AvxVnni) && !AvxVnni.includes(Avx512));
    }

    #[test]
    fn sets_stand_behind_those_they_extend() {
        for (i, level) in Level::ALL.iter().enumerate() {
            let base = level.base();
            assert!(base.is_none_or(|base| Level::ALL[..i].contains(&base)));
            assert!(level.includes(Level::Scalar) && level.includes(*level));
        }
    }
}
