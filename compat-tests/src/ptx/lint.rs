//! What the PTX of exact kernels must not contain.
//!
//! A driver may contract `mul.f32` and `add.f32` without `.rn` to a fused operation, approximations differ between
//! generations, and sums by atomics have the order of chance.

/// Every instruction of `text` that an exact kernel may not have, with its line from 1 and the reason.
pub fn broken_rules(text: &str) -> Vec<String> {
    let mut broken = Vec::new();
    for (number, line) in text.lines().enumerate() {
        let code = line.split("//").next().unwrap_or("");
        for word in code.split([' ', '\t', ';', ',', '{', '}']) {
            if let Some(why) = reason(word) {
                broken.push(format!("line {}: {word}: {why}", number + 1));
            }
        }
    }
    broken
}

/// Why an opcode may not be there.
fn reason(opcode: &str) -> Option<&'static str> {
    let modifiers: Vec<&str> = opcode.split('.').collect();
    let has = |modifier: &str| modifiers[1..].contains(&modifier);
    let float = ["f16", "f16x2", "bf16", "bf16x2", "f32", "f64"]
        .iter()
        .any(|ty| has(ty));
    match modifiers[0] {
        "atom" | "red" if float => Some("a sum in the order of chance"),
        "fma" | "mad" if float => Some("a product and a sum rounded together"),
        "mul" | "add" | "sub" | "div" | "sqrt" if float && !has("rn") => {
            Some("may be contracted without .rn")
        }
        "mma" | "wmma" | "wgmma" if float => Some("sums of another order on every generation"),
        _ if has("approx") || modifiers[0] == "tanh" || modifiers[0] == "ex2" => {
            Some("an approximation")
        }
        _ if has("ftz") => Some("numbers below the normal ones are lost"),
        _ => None,
    }
}
