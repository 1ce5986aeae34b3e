//! Architectures that can be rotated.

/// Architectures whose products with matrices of the names that the keys know are rotated, every one of them.
pub const ARCHITECTURES: &[&str] = &["llama", "qwen3", "qwen3moe", "qwen35", "qwen35moe", "qwen3next"];
