//! Activation functions, layer by layer, as the metadata states them.

use trine_formats::gguf::Value;

use super::header::Header;
use super::keys::Keys;
use crate::arch::Arch;
use crate::arch::rules::GateClamp;
use crate::model::Problem;
use crate::ops::activation::{Activation, softplus};

/// Bounds of the experts' gates.
pub fn expert_bounds(k: &mut Keys<'_>, clamp: GateClamp, n_layer: usize) -> Vec<f32> {
    match clamp {
        GateClamp::None => Vec::new(),
        _ => per_layer(k, "swiglu_clamp_exp", n_layer).unwrap_or_default(),
    }
}

/// Bounds of the gates of dense networks and of the expert that all tokens go to.
pub fn dense_bounds(k: &mut Keys<'_>, clamp: GateClamp, n_layer: usize) -> Vec<f32> {
    const KEY: &str = "swiglu_clamp_shexp";
    match clamp {
        GateClamp::None | GateClamp::Before => Vec::new(),
        GateClamp::After => per_layer(k, KEY, n_layer).unwrap_or_default(),
        GateClamp::BeforeEverywhere => per_layer(k, KEY, n_layer).unwrap_or_else(|| expert_bounds(k, clamp, n_layer)),
    }
}

/// A number for each layer, or one for all.
fn per_layer(k: &mut Keys<'_>, key: &str, n_layer: usize) -> Option<Vec<f32>> {
    let name = k.name(key);
    if let Some(Value::F32(one)) = k.meta.get(&name) {
        return Some(vec![*one; n_layer]);
    }
    let read = k.meta.get_f32s(&name).map(|v| v.map(<[f32]>::to_vec));
    k.note(read)
}

/// Rows of the up projection: twice the width of the network where it holds the gate too.
pub fn up(file: &dyn Header, n_ff: usize) -> usize {
    let both = 2 * n_ff;
    match file.rows("blk.0.ffn_up.weight") {
        Some(rows) if rows == both as u64 => both,
        _ => n_ff,
    }
}

/// The function of the gates, with the numbers that keys say of it for all layers.
pub fn activation(k: &mut Keys<'_>, arch: &Arch) -> Activation {
    if arch.feed_forward.named {
        return named(k, arch.feed_forward.activation);
    }
    let Activation::Situ(_) = arch.feed_forward.activation else {
        return arch.feed_forward.activation;
    };
    let keys = ["activation.situ_beta", "activation.situ_linear_beta"];
    Activation::Situ(keys.map(|key| k.finite(key)))
}

/// The function that the file names, or this where it names none.
fn named(k: &mut Keys<'_>, default: Activation) -> Activation {
    const KEY: &str = "hidden_activation";
    let read = k.meta.get_str(&k.name(KEY));
    match k.note(read) {
        None => default,
        Some("gelu" | "gelu_pytorch_tanh" | "geglu") => Activation::Gelu,
        Some("silu" | "swish" | "swiglu") => Activation::Silu,
        Some("reglu") => Activation::Relu,
        Some(other) => {
            k.wrong(KEY, format!("is '{}'; trine has gelu, silu and reglu", other.escape_debug()));
            default
        }
    }
}

/// The numbers of [`Activation::Xielu`] in every layer, from keys with a number for all or one for each: the slopes are
/// the soft-plus of what the keys say, and the one below zero has that of the line added (ggml `ggml_xielu`).
pub fn xielu(k: &mut Keys<'_>, arch: &Arch, n_layer: usize) -> Vec<[f32; 4]> {
    if !matches!(arch.feed_forward.activation, Activation::Xielu(_)) {
        return Vec::new();
    }
    let mut all = vec![[0.0; 4]; n_layer];
    for (i, key) in ["alpha_n", "alpha_p", "beta", "eps"].into_iter().enumerate() {
        let name = format!("xielu.{key}");
        let numbers = match k.meta.get(&name) {
            Some(Value::Array(_)) => {
                let read = k.meta.get_f32s(&name).map(|v| v.map(<[f32]>::to_vec));
                k.note(read).unwrap_or_default()
            }
            _ => {
                let read = k.meta.get_f32(&name);
                k.note(read).map_or(Vec::new(), |v| vec![v; n_layer])
            }
        };
        if numbers.len() < n_layer {
            let what = format!("has {} numbers for {n_layer} layers", numbers.len());
            k.problems.push(Problem::Key { key: name, what });
        }
        for (layer, number) in all.iter_mut().zip(numbers) {
            layer[i] = number;
        }
    }
    for [n, a, b, _] in &mut all {
        *n = *b + softplus(*n);
        *a = softplus(*a);
    }
    all
}
