//! What the metadata says of positions: RoPE and sliding windows.

use trine_formats::gguf::Value;

use super::keys::Keys;
use crate::arch::{Arch, WindowRope};
use crate::ops::rope::{Rope, Yarn};

pub fn rope(k: &mut Keys<'_>, arch: &Arch, head_dim: usize, n_ctx_train: u32) -> Rope {
    let n_rot = k
        .u32("rope.dimension_count")
        .map_or(head_dim, |n| n as usize);
    if n_rot == 0 || !n_rot.is_multiple_of(2) || n_rot > head_dim {
        k.problems.push(format!(
            "{} is {n_rot}, it must be even and at most {head_dim}",
            k.name("rope.dimension_count")
        ));
    } else if !arch.rope.partial && n_rot != head_dim {
        k.problems.push(format!(
            "{} is {n_rot}, this architecture needs {head_dim}",
            k.name("rope.dimension_count")
        ));
    }
    let switch_key = k.name("rope.scaling.finetuned");
    if arch.rope.switch {
        let read = k.meta.get_bool(&switch_key);
        if k.note(read) == Some(false) {
            k.problems.push(format!(
                "{switch_key} is false: models of architecture {} without RoPE are not supported",
                arch.name
            ));
        }
    }
    let base = k.f32("rope.freq_base").unwrap_or(10000.0);
    let base = k.positive("rope.freq_base", base);
    let kind_key = k.name("rope.scaling.type");
    let read = k.meta.get_str(&kind_key);
    let kind = k.note(read).unwrap_or("linear").to_owned();
    let factor = k
        .f32("rope.scaling.factor")
        .or_else(|| k.f32("rope.scale_linear"))
        .unwrap_or(0.0);
    let freq_scale = if factor == 0.0 || kind == "none" {
        1.0
    } else {
        let factor = k.positive("rope.scaling.factor", factor);
        // infinite for a subnormal factor
        k.positive("rope.scaling.factor (inverted)", 1.0 / factor)
    };
    let mut attn_factor = k.f32("rope.scaling.attn_factor").unwrap_or(1.0);
    let mut yarn = None;
    match kind.as_str() {
        "none" | "linear" => {}
        "yarn" if !arch.rope.yarn => k.problems.push(format!(
            "{kind_key} yarn is not supported for {}",
            arch.name
        )),
        "yarn" => {
            let ext = k
                .f32("rope.scaling.yarn_ext_factor")
                .filter(|&f| f >= 0.0)
                .unwrap_or(1.0);
            let fast = k.f32("rope.scaling.yarn_beta_fast").unwrap_or(32.0);
            let slow = k.f32("rope.scaling.yarn_beta_slow").unwrap_or(1.0);
            let n_orig = k
                .u32("rope.scaling.original_context_length")
                .unwrap_or(n_ctx_train);
            if k.f32("rope.scaling.yarn_log_multiplier")
                .is_some_and(|m| m != 0.0)
            {
                k.problems
                    .push("rope.scaling.yarn_log_multiplier is not supported".to_owned());
            }
            if ext != 0.0 {
                attn_factor *= yarn_magnitude(1.0 / freq_scale);
                yarn = Some(Yarn::new(n_rot, n_orig, base, ext, fast, slow));
            }
        }
        other => k.problems.push(format!(
            "{kind_key} '{other}' is not supported; trine has none, linear and yarn"
        )),
    }
    Rope {
        n_rot,
        pairing: arch.rope.pairing,
        base,
        freq_scale,
        attn_factor,
        freq_factors: Vec::new(),
        yarn,
    }
}

/// RoPE of the window layers, which are never scaled: Gemma gives them a base of their own.
pub fn window_rope(k: &mut Keys<'_>, arch: &Arch, global: &Rope) -> Rope {
    let mut rope = Rope {
        freq_scale: 1.0,
        yarn: None,
        ..global.clone()
    };
    match arch.window.map(|w| w.rope) {
        Some(WindowRope::OwnBase) => {
            let base = k.f32("rope.freq_base_swa").unwrap_or(10000.0);
            rope.base = k.positive("rope.freq_base_swa", base);
        }
        _ => rope.attn_factor = 1.0,
    }
    rope
}

/// llama.cpp's magnitude for YaRN: its own factor times the inverse of the one RoPE will apply.
fn yarn_magnitude(factor: f32) -> f32 {
    let log = crate::math::logf(factor);
    let magnitude = if factor <= 1.0 { 1.0 } else { 0.1 * log + 1.0 };
    magnitude * (1.0 / (1.0 + 0.1 * log))
}

/// The window and which layers use it.
pub fn windows(k: &mut Keys<'_>, arch: &Arch, n_layer: usize) -> (Option<usize>, Vec<bool>) {
    let Some(rule) = arch.window else {
        return (None, vec![false; n_layer]);
    };
    let window = k.u32("attention.sliding_window").filter(|&n| n > 0);
    if window.is_none() {
        return (None, vec![false; n_layer]);
    }
    let key = k.name("attention.sliding_window_pattern");
    let layers = if let Some(Value::Array(_)) = k.meta.get(&key) {
        let per_layer = flags(k, &key);
        if per_layer.len() != n_layer {
            k.problems.push(format!(
                "{key} has {} entries for {n_layer} layers",
                per_layer.len()
            ));
        }
        per_layer
    } else {
        let period = k
            .u32("attention.sliding_window_pattern")
            .unwrap_or(rule.period) as usize;
        (0..n_layer)
            .map(|l| period == 0 || l % period < period - 1)
            .collect()
    };
    (window.map(|n| n as usize), layers)
}

/// An array of flags, which some writers store as numbers.
fn flags(k: &mut Keys<'_>, key: &str) -> Vec<bool> {
    if let Ok(Some(numbers)) = k.meta.get_u32s(key) {
        return numbers.iter().map(|&n| n != 0).collect();
    }
    let read = k.meta.get_bools(key).map(|v| v.map(<[bool]>::to_vec));
    k.note(read).unwrap_or_default()
}
