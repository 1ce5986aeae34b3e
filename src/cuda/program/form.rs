//! Types of keys and values.

use trine_formats::types::{TypeId, TypeInfo};

use super::ProgramError;

/// The most numbers of a key or of a value: kernels keep them in shared memory.
const MOST: usize = 4096;
/// The types that kernels have.
const TYPES: [TypeId; 8] =
    [TypeId::F32, TypeId::F16, TypeId::BF16, TypeId::Q8_0, TypeId::Q4_0, TypeId::Q4_1, TypeId::Q5_0, TypeId::Q5_1];

/// How the keys or the values of a layer are kept.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Form {
    /// Their type.
    pub ty: TypeId,
    /// Numbers of a key or a value that are turned together before they are kept, a power of two, by a Walsh-Hadamard
    /// transform; queries are turned as keys are, and outputs of attention back as values. 0 where nothing is turned.
    pub turn: usize,
}

impl Form {
    /// Half floats.
    pub const HALF: Form = Form { ty: TypeId::F16, turn: 0 };

    fn info(self) -> Option<&'static TypeInfo> {
        self.ty.info().filter(|_| TYPES.contains(&self.ty))
    }

    /// Bytes of `size` numbers.
    pub(super) fn bytes(self, size: usize) -> Result<usize, ProgramError> {
        let whole = size <= MOST || self == Form::HALF;
        let turned = self.turn == 0 || self.turn.is_power_of_two() && size.is_multiple_of(self.turn);
        let info = self.info().filter(|info| whole && turned && size.is_multiple_of(info.block));
        match info {
            Some(info) => Ok(size / info.block * info.bytes),
            None => {
                let Form { ty, turn } = self;
                Err(ProgramError::Missing(format!("keys and values of {size} numbers as {ty}, {turn} turned together")))
            }
        }
    }

    /// The kernel for the type.
    pub(super) fn kernel(self, what: &str) -> String {
        format!("{what}_{}", self.info().map_or("f16", |info| info.name))
    }

    pub(super) fn is_quantized(self) -> bool {
        self.info().is_some_and(|info| info.is_quantized())
    }
}
