//! Types of the keys and values in the KV cache.

use trine_formats::types::TypeId;

/// The types of keys and values, both half floats unless something else is asked for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CacheTypes {
    /// Type of the keys.
    pub keys: TypeId,
    /// Type of the values.
    pub values: TypeId,
}

impl Default for CacheTypes {
    fn default() -> CacheTypes {
        CacheTypes::HALVES
    }
}

impl CacheTypes {
    /// Half floats.
    pub const HALVES: CacheTypes = CacheTypes { keys: TypeId::F16, values: TypeId::F16 };

    /// All types that are offered. The reference has IQ4_NL too, which it encodes otherwise there than in files.
    pub const ALL: [TypeId; 8] =
        [TypeId::F32, TypeId::F16, TypeId::BF16, TypeId::Q8_0, TypeId::Q4_0, TypeId::Q4_1, TypeId::Q5_0, TypeId::Q5_1];

    /// True if keys and values are rows of blocks instead of words of f16.
    pub fn is_encoded(self) -> bool {
        self != CacheTypes::HALVES
    }

    /// True if attention goes through the cells once, with a running maximum. The reference has no other way for values
    /// of a quantized type.
    pub fn is_online(self) -> bool {
        is_quantized(self.values)
    }

    /// The types that are stored. That one pass takes keys in single precision as half floats, so they can be kept as
    /// such.
    pub fn stored(self) -> CacheTypes {
        match self.keys {
            TypeId::F32 if self.is_online() => CacheTypes { keys: TypeId::F16, ..self },
            _ => self,
        }
    }
}

/// True if a type has blocks of several numbers.
pub(super) fn is_quantized(ty: TypeId) -> bool {
    ty.info().is_some_and(|t| t.is_quantized())
}

/// Bytes of `n` numbers, whole blocks, in a type.
pub(super) fn bytes(ty: TypeId, n: usize) -> usize {
    let bytes = ty.info().and_then(|t| t.row_bytes(n as u64));
    bytes.map_or(0, |b| b as usize)
}
