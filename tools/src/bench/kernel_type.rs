//! Names of the weights whose kernels are measured.

use std::fmt;
use std::str::FromStr;

use trine::quant::parse_type;
use trine_formats::anyprec::MAX_BITS;
use trine_formats::types::{REGISTRY, TypeId};

use super::synth::stages;

/// Fewest bits of a code.
pub const MIN_BITS: u8 = 3;

/// Weights of one kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KernelType {
    /// A tensor type.
    Tensor(TypeId),
    /// Any-precision codes, read at this width.
    AnyPrec(u8),
    /// Widely linear codes with so many stages.
    Widely(usize),
}

impl KernelType {
    /// The place in tables: tensor types in the order of their numbers, then the others.
    pub fn order(self) -> usize {
        match self {
            KernelType::Tensor(ty) => REGISTRY.iter().position(|t| t.id == ty).unwrap_or(REGISTRY.len()),
            KernelType::AnyPrec(width) => REGISTRY.len() + usize::from(width),
            KernelType::Widely(stages) => REGISTRY.len() + 100 + stages,
        }
    }
}

impl FromStr for KernelType {
    type Err = String;

    fn from_str(text: &str) -> Result<KernelType, String> {
        let upper = text.to_ascii_uppercase();
        if let Some(width) = upper.strip_prefix("AP").and_then(|n| n.parse().ok()) {
            let widths = MIN_BITS..=MAX_BITS;
            let known = widths.contains(&width).then_some(KernelType::AnyPrec(width));
            return known.ok_or_else(|| format!("'{text}' is no width; AP{MIN_BITS} to AP{MAX_BITS} are known"));
        }
        if upper.strip_prefix('W').is_some_and(|n| n.parse::<u8>().is_ok()) {
            return stages(text).map(KernelType::Widely);
        }
        parse_type(text).map(KernelType::Tensor).map_err(|e| format!("{e}; or AP3 to AP8, W1 to W4"))
    }
}

impl fmt::Display for KernelType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            KernelType::Tensor(ty) => f.pad(&ty.to_string()),
            KernelType::AnyPrec(width) => f.pad(&format!("AP{width}")),
            KernelType::Widely(stages) => f.pad(&format!("W{stages}")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_as_they_are_written() {
        for name in ["tq2_0", "q4_K", "AP3", "AP8", "W1", "W4"] {
            assert_eq!(name.parse::<KernelType>().map(|ty| ty.to_string()), Ok(name.to_owned()));
        }
        assert_eq!("ap4".parse(), Ok(KernelType::AnyPrec(4)));
        for wrong in ["AP2", "AP9", "W0", "W5", "AP", "W", "Q9"] {
            assert!(wrong.parse::<KernelType>().is_err(), "{wrong}");
        }
    }
}
