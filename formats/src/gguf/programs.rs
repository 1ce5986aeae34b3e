//! Which programs know the tensor types of a file.
//!
//! Read from the enumerations of types of llama.cpp 0.5.0, ik_llama.cpp of August 2026 and the llama.cpp that
//! bitnet.cpp is built on. A program that knows the types may still not know the architecture.

use super::Dialect;
use crate::types::TypeId;

/// A program that loads GGUF files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Program {
    /// ggml's own.
    LlamaCpp,
    /// The fork with trellis and interleaved types.
    IkLlamaCpp,
    /// Microsoft's fork with ternary types.
    BitnetCpp,
}

impl Program {
    /// All programs.
    pub const ALL: [Program; 3] = [Program::LlamaCpp, Program::IkLlamaCpp, Program::BitnetCpp];

    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Program::LlamaCpp => "llama.cpp",
            Program::IkLlamaCpp => "ik_llama.cpp",
            Program::BitnetCpp => "bitnet.cpp",
        }
    }

    /// True if it loads tensors of this type.
    pub fn loads(self, ty: TypeId) -> bool {
        // Up to BF16 the forks have what ggml had when they began.
        let old = ty.0 <= TypeId::BF16.0;
        match self {
            _ if ty.info().is_none() => false,
            Program::LlamaCpp => Dialect::of(ty) == Dialect::Ggml && ty.0 == ty.file_id(),
            Program::IkLlamaCpp => {
                let taken = [TypeId::I2_S, TypeId::MXFP4, TypeId::Q1_0];
                old || Dialect::of(ty) == Dialect::IkLlama || taken.contains(&ty)
            }
            Program::BitnetCpp => {
                let ternary = [TypeId::TQ1_0, TypeId::TQ2_0, TypeId::I2_S, TypeId::TL1, TypeId::TL2];
                old || ternary.contains(&ty)
            }
        }
    }
}

/// The programs that load all of `types`.
pub fn programs(types: impl Iterator<Item = TypeId> + Clone) -> Vec<Program> {
    let loads = |program: &Program| types.clone().all(|ty| program.loads(ty));
    Program::ALL.into_iter().filter(loads).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_program_has_the_types_it_is_known_for() {
        let of = |types: &[TypeId]| -> Vec<&str> {
            let programs = programs(types.iter().copied());
            programs.into_iter().map(Program::name).collect()
        };
        let all = ["llama.cpp", "ik_llama.cpp", "bitnet.cpp"];
        assert_eq!(of(&[TypeId::F32, TypeId::Q4_K, TypeId::IQ2_XS]), all);
        assert_eq!(of(&[TypeId::F32, TypeId::TQ2_0]), [all[0], all[2]]);
        assert_eq!(of(&[TypeId::MXFP4]), [all[0], all[1]]);
        assert_eq!(of(&[TypeId::Q2_0]), [all[0]]);
        assert_eq!(of(&[TypeId::F32, TypeId::I2_S]), [all[1], all[2]]);
        // 39 in the file, like MXFP4, and not the same.
        assert_eq!(of(&[TypeId::TL2]), [all[2]]);
        assert_eq!(of(&[TypeId::TL2, TypeId::MXFP4]), [""; 0]);
        assert_eq!(of(&[TypeId::PQ2_0]), [""; 0]);
        assert_eq!(of(&[TypeId::F32, TypeId::IQ2_BN]), [all[1]]);
    }
}
