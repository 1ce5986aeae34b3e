//! Instructions that the PTX of kernels must not contain.
//!
//! A driver may contract `mul.f32` and `add.f32` without `.rn` to a fused operation, approximations differ between
//! generations, sums by atomics have the order of chance, and a loop that looks at memory until another block has
//! written needs that block to run.

/// Guarantee of a kernel.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Family {
    /// The bits of a processor.
    Exact,
    /// The same with the exponential of glibc, which has products and sums in double precision rounded together. The
    /// compiler makes none of its own (-fmad=false).
    Glibc,
    /// The bits of a processor, by a definition that names products and sums in single precision which are rounded
    /// together. The compiler makes none of its own.
    Fused,
    /// Bits of its own, the same whatever else is computed beside: f16 products, and products and sums rounded
    /// together, where the text says so.
    Fast,
}

/// Every instruction of `text` that a kernel of a family may not have, with its line from 1 and the reason.
pub fn broken_rules(text: &str, family: Family) -> Vec<String> {
    let mut broken = Vec::new();
    for (number, line) in text.lines().enumerate() {
        let code = line.split("//").next().unwrap_or("");
        for word in code.split([' ', '\t', ';', ',', '{', '}']) {
            if let Some(why) = reason(word, family) {
                broken.push(format!("line {}: {word}: {why}", number + 1));
            }
        }
    }
    broken
}

/// Why an opcode may not be there.
fn reason(opcode: &str, family: Family) -> Option<&'static str> {
    let modifiers: Vec<&str> = opcode.split('.').collect();
    let has = |modifier: &str| modifiers[1..].contains(&modifier);
    let float = ["f16", "f16x2", "bf16", "bf16x2", "f32", "f64"].iter().any(|ty| has(ty));
    match modifiers[0] {
        "atom" | "red" if float => Some("a sum in the order of chance"),
        "atom" | "red" if modifiers[0] == "red" || !has("add") || !has("u32") => {
            Some("an atomic operation that is no ticket")
        }
        "ld" if has("volatile") || has("acquire") || has("relaxed") => Some("waits for what others write"),
        "fma" if family == Family::Glibc && opcode == "fma.rn.f64" => None,
        "fma" if family == Family::Fused && opcode == "fma.rn.f32" => None,
        "fma" | "mad" if float && family != Family::Fast => Some("a product and a sum rounded together"),
        "fma" | "mul" | "add" | "sub" | "div" | "sqrt" if float && !has("rn") => Some("may be contracted without .rn"),
        "mma" | "wmma" | "wgmma" if float && family != Family::Fast => {
            Some("sums of another order on every generation")
        }
        _ if has("approx") || modifiers[0] == "tanh" || modifiers[0] == "ex2" => Some("an approximation"),
        _ if has("ftz") => Some("numbers below the normal ones are lost"),
        _ => None,
    }
}
