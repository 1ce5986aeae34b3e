//! Positions, as the metadata states them: RoPE and sliding windows.

use trine_formats::gguf::Value;

use super::keys::Keys;
use crate::arch::Arch;
use crate::arch::rules::{
    RopeLayers, RopeRule, Sections, SharedKeys, WindowBase, WindowScaling, WindowSize, YarnKeys, YarnLog,
};
use crate::math::{logf, powf};
use crate::ops::rope::{Pairing, Rope, Yarn};

const KIND: &str = "rope.scaling.type";
/// Numbers of YaRN that a user asks for, whatever the file says: the weight of the blend, and the ends of its band. No
/// file has them; tools put them among a file's keys.
const ASKED: [&str; 3] = ["rope.asked.yarn_ext_factor", "rope.asked.yarn_beta_fast", "rope.asked.yarn_beta_slow"];
const SECTIONS: &str = "rope.dimension_sections";

pub fn rope(k: &mut Keys<'_>, arch: &Arch, head_dim: usize, n_ctx_train: u32) -> Rope {
    let stated = k.u32("rope.dimension_count").map(|n| n as usize);
    // files of DeepSeek OCR say that no part of a head turns, and all of it does
    let n_rot = stated.filter(|&n| n > 0 || !arch.rope.fixed).unwrap_or(head_dim);
    let none = arch.rope.layers == RopeLayers::None;
    let n_rot = if none { 0 } else { n_rot };
    if !none && (n_rot == 0 || !n_rot.is_multiple_of(2) || n_rot > head_dim) {
        k.wrong("rope.dimension_count", format!("is {n_rot}, it must be even and at most {head_dim}"));
    } else if !arch.rope.partial && n_rot != head_dim {
        k.wrong("rope.dimension_count", format!("is {n_rot}, this architecture needs {head_dim}"));
    }
    if arch.rope.fixed {
        let pairing = arch.rope.pairing;
        let freq_factors = Vec::new();
        return Rope { n_rot, pairing, base: 10000.0, freq_scale: 1.0, attn_factor: 1.0, freq_factors, yarn: None };
    }
    let key = arch.rope.base;
    let base = k.f32(key).unwrap_or(10000.0);
    let mut base = k.positive(key, base);
    if arch.rope.alpha
        && let Some(alpha) = k.f32("rope.scaling.alpha").filter(|&a| a > 0.0)
    {
        base *= powf(alpha, head_dim as f32 / (head_dim as f32 - 2.0));
        base = k.positive("rope.freq_base", base);
    }
    let read = k.meta.get_str(&k.name(KIND));
    let kind = k.note(read).unwrap_or("linear").to_owned();
    let freq_scale = if kind == "none" { 1.0 } else { stated_scale(k) };
    let pairing = arch.rope.pairing;
    let n_rot = if arch.rope.global_half { n_rot / 2 } else { n_rot };
    if n_rot % 2 == 1 && arch.rope.global_half {
        let what = format!("is {}, and half of it must be even", 2 * n_rot);
        k.wrong("rope.dimension_count", what);
    }
    let mut rope = Rope { n_rot, pairing, base, freq_scale, attn_factor: 1.0, freq_factors: Vec::new(), yarn: None };
    sections(k, arch.rope.sections, &mut rope);
    if !["none", "linear", "longrope", "yarn"].contains(&kind.as_str()) {
        k.wrong(KIND, format!("'{kind}' is not known; it may be none, linear, longrope or yarn"));
    }
    yarn(k, arch, &mut rope, kind == "yarn", n_ctx_train);
    rope
}

/// The factor on positions that the file states.
fn stated_scale(k: &mut Keys<'_>) -> f32 {
    let factor = k.f32("rope.scaling.factor").or_else(|| k.f32("rope.scale_linear")).unwrap_or(0.0);
    if factor == 0.0 {
        return 1.0;
    }
    let factor = k.positive("rope.scaling.factor", factor);
    // infinite for a subnormal factor
    k.positive("rope.scaling.factor (inverted)", 1.0 / factor)
}

/// The factor on sine and cosine, and YaRN, which is `on` unless a key of the file says otherwise.
fn yarn(k: &mut Keys<'_>, arch: &Arch, rope: &mut Rope, on: bool, n_ctx_train: u32) {
    let keyed = arch.rope.yarn == YarnKeys::All;
    let stated = if keyed { k.f32("rope.scaling.yarn_ext_factor").filter(|&f| f >= 0.0) } else { None };
    let asked = k.f32(ASKED[0]).filter(|&f| f >= 0.0);
    let ext = asked.or(stated).unwrap_or(if on { 1.0 } else { 0.0 });
    let unblended = if keyed { k.f32("rope.scaling.yarn_attn_factor") } else { None }.unwrap_or(1.0);
    let log = yarn_log(k, arch);
    let own = match arch.rope.yarn_log {
        _ if ext == 0.0 => unblended,
        YarnLog::Cancelled => 1.0 / (1.0 + 0.1 * logf(1.0 / rope.freq_scale)),
        rule => yarn_magnitude(1.0 / rope.freq_scale, log, rule == YarnLog::TenfoldBoth),
    };
    rope.attn_factor = match arch.rope.yarn_log {
        YarnLog::Cancelled => own,
        _ => own * k.f32("rope.scaling.attn_factor").unwrap_or(1.0),
    };
    if ext != 0.0 {
        rope.yarn = Some(yarn_band(k, arch, rope, ext, n_ctx_train));
    }
}

const YARN_LOG: &str = "rope.scaling.yarn_log_multiplier";

/// The multiplier of YaRN's logarithm, where the file has one.
fn yarn_log(k: &mut Keys<'_>, arch: &Arch) -> Option<f32> {
    let tenfold = match arch.rope.yarn_log {
        YarnLog::TenfoldDivides | YarnLog::TenfoldBoth => true,
        YarnLog::Divides => false,
        YarnLog::None | YarnLog::Cancelled => return None,
    };
    let log = k.f32(YARN_LOG).filter(|&m| m != 0.0)?;
    Some(if tenfold { log / 0.1 } else { log })
}

/// The square of YaRN's factor with the multiplier, which scores grow by.
pub fn stretched(k: &mut Keys<'_>, arch: &Arch, rope: &Rope) -> f32 {
    let log = logf(1.0 / rope.freq_scale);
    let own = rope.attn_factor * (1.0 + 0.1 * log);
    let scale = own * (1.0 + 0.1 * yarn_log(k, arch).unwrap_or(0.0) * log);
    scale * scale
}

fn yarn_band(k: &mut Keys<'_>, arch: &Arch, rope: &Rope, ext: f32, n_ctx_train: u32) -> Yarn {
    let mut key = |key: &str| if arch.rope.yarn == YarnKeys::None { None } else { k.f32(key) };
    let [fast, slow] = [key("rope.scaling.yarn_beta_fast"), key("rope.scaling.yarn_beta_slow")];
    let [_, asked_fast, asked_slow] = ASKED.map(|key| k.f32(key).filter(|&f| f >= 0.0));
    let fast = asked_fast.or(fast).unwrap_or(arch.rope.beta_fast);
    let slow = asked_slow.or(slow).unwrap_or(1.0);
    let original = Some(original_context(k, n_ctx_train)).filter(|&n| n > 0).unwrap_or(n_ctx_train);
    Yarn::new(rope.n_rot, original, rope.base, ext, fast, slow)
}

/// The context that RoPE was trained with.
pub fn original_context(k: &mut Keys<'_>, n_ctx_train: u32) -> u32 {
    k.u32("rope.scaling.original_context_length").unwrap_or(n_ctx_train)
}

/// Pairs of the last section have position 0 for text: their angle is divided by infinity.
fn sections(k: &mut Keys<'_>, rule: Sections, rope: &mut Rope) {
    if rule == Sections::One {
        return;
    }
    let read = k.u32s(SECTIONS).unwrap_or_default();
    let mut sections = [0usize; 4];
    sections.iter_mut().zip(&read).for_each(|(s, &n)| *s = (n as usize).min(rope.n_rot));
    if rule == Sections::IfAny && (sections[0] == 0 || sections[1] == 0) {
        return;
    }
    rope.pairing = Pairing::Halves;
    let [time, height, width, _] = sections;
    let all: usize = sections.iter().sum();
    if all == 0 {
        k.wrong(SECTIONS, format!("is {read:?}, it must say how many pairs of elements each dimension has"));
        return;
    }
    let still = |pair: usize| {
        let pair = pair % all;
        match rule {
            Sections::Alternating => pair >= 3 * [time, height, width][pair % 3],
            _ => pair >= time + height + width,
        }
    };
    let pairs = 0..rope.n_rot / 2;
    if pairs.clone().any(still) {
        rope.freq_factors = pairs.map(|pair| if still(pair) { f32::INFINITY } else { 1.0 }).collect();
    }
}

/// RoPE of the window layers.
pub fn window_rope(k: &mut Keys<'_>, arch: &Arch, global: &Rope, head_dim: usize, n_ctx_train: u32) -> Rope {
    const BASE: &str = "rope.freq_base_swa";
    const DIMENSIONS: &str = "rope.dimension_count_swa";
    let mut rope = global.clone();
    let Some(rule) = arch.window.map(|w| w.rope) else {
        return rope;
    };
    let base = match rule.base {
        WindowBase::Same => rope.base,
        WindowBase::Key => k.f32(BASE).unwrap_or(rope.base),
        WindowBase::KeyOr(base) => k.f32(BASE).unwrap_or(base),
        WindowBase::Plain => k.f32(RopeRule::BASE).unwrap_or(10000.0),
    };
    rope.base = k.positive(BASE, base);
    if arch.rope.global_half {
        rope.n_rot *= 2;
    }
    let given = k.u32(DIMENSIONS);
    if let Some(n) = given.filter(|&n| !rule.own_dimensions && n as usize != rope.n_rot) {
        let (name, all) = (arch.name, rope.n_rot);
        k.wrong(DIMENSIONS, format!("is {n}, and models of architecture {name} turn {all} elements in all layers"));
    }
    let own = given.filter(|_| rule.own_dimensions);
    rope.n_rot = own.map_or(rope.n_rot, |n| n as usize);
    let whole = rope.n_rot > 0 && rope.n_rot.is_multiple_of(2);
    let checked = own.is_some() || arch.attention.sizes_by_window;
    if own.is_some() && !whole || checked && rope.n_rot > head_dim {
        k.wrong(DIMENSIONS, format!("is {}, it must be even and at most {head_dim}", rope.n_rot));
    }
    rope.freq_scale = match rule.scaling {
        WindowScaling::Same => rope.freq_scale,
        WindowScaling::Stated => stated_scale(k),
        WindowScaling::FactorOnly | WindowScaling::None => 1.0,
    };
    if rule.scaling == WindowScaling::None {
        (rope.yarn, rope.attn_factor) = (None, 1.0);
    } else if let Some(yarn) = &global.yarn {
        rope.yarn = Some(yarn_band(k, arch, &rope, yarn.ext_factor, n_ctx_train));
    }
    rope
}

/// llama.cpp's magnitude for YaRN: its own factor, divided by that of the multiplier where there is one, times the
/// inverse of the one RoPE will apply. With `both` its own is that of the multiplier too.
fn yarn_magnitude(factor: f32, log_multiplier: Option<f32>, both: bool) -> f32 {
    let log = logf(factor);
    let scale = |multiplier: f32| {
        if factor <= 1.0 { 1.0 } else { 0.1 * multiplier * log + 1.0 }
    };
    let own = log_multiplier.filter(|_| both).unwrap_or(1.0);
    let magnitude = scale(own) / log_multiplier.map_or(1.0, scale);
    magnitude * (1.0 / (1.0 + 0.1 * log))
}

/// The window and which layers use it.
pub fn windows(k: &mut Keys<'_>, arch: &Arch, n_layer: usize) -> (Option<usize>, Vec<bool>) {
    let none = (None, vec![false; n_layer]);
    let Some(rule) = arch.window else {
        return none;
    };
    const WINDOW: &str = "attention.sliding_window";
    let key = k.u32(WINDOW);
    if rule.size == WindowSize::Needed && key.is_none() {
        k.missing(WINDOW);
    }
    let window = match rule.size {
        WindowSize::Key | WindowSize::Needed => key,
        WindowSize::KeyOr(n) => key.or(Some(n)),
        WindowSize::UnlessZero(n) => Some(n).filter(|_| key != Some(0)),
        WindowSize::Given(n) => key.filter(|&key| key > 0).map(|_| n),
        WindowSize::InModelsOf(layers, n) => key.or(Some(n)).filter(|_| n_layer == layers as usize),
    };
    let Some(window) = window.filter(|&n| n > 0) else {
        return none;
    };
    let key = k.name("attention.sliding_window_pattern");
    let layers = if rule.period == 0 {
        vec![true; n_layer]
    } else if let Some(Value::Array(_)) = k.meta.get(&key) {
        flags(k, "attention.sliding_window_pattern", n_layer)
    } else {
        let period = k.u32("attention.sliding_window_pattern").unwrap_or(rule.period) as usize;
        let windowed = |layer: usize| match period {
            0 => true,
            _ if rule.global_first => !layer.is_multiple_of(period),
            _ => layer % period < period - 1,
        };
        (0..n_layer).map(windowed).collect()
    };
    (Some(window as usize), layers)
}

/// Per layer, the earlier one to whose keys and values it attends, where it has none of its own; empty where all have.
pub fn shared_keys(k: &mut Keys<'_>, arch: &Arch, windowed: &[bool]) -> Vec<Option<usize>> {
    let layers = windowed.len();
    let from = match arch.attention.shared_keys {
        SharedKeys::None => layers,
        SharedKeys::From(from) => from as usize,
        SharedKeys::Last => layers.saturating_sub(k.u32("attention.shared_kv_layers").unwrap_or(0) as usize),
    };
    if from >= layers {
        return Vec::new();
    }
    if from < 2 || [windowed[from - 2], windowed[from - 1]] != [true, false] {
        k.wrong(
            "attention.sliding_window_pattern",
            format!(
                "has to give a window to the last but one of the first {from} layers and none to the last: \
                 later layers attend to their keys"
            ),
        );
        return Vec::new();
    }
    let source = |layer: usize| if windowed[layer] { from - 2 } else { from - 1 };
    (0..windowed.len()).map(|layer| (layer >= from).then(|| source(layer))).collect()
}

/// Which layers have RoPE, of a model whose `windowed` layers have windows, `None` without any, and whose first
/// `leading` layers have no experts.
pub fn turned(k: &mut Keys<'_>, arch: &Arch, windowed: Option<&[bool]>, leading: usize, n_layer: usize) -> Vec<bool> {
    const FINETUNED: &str = "rope.scaling.finetuned";
    const PATTERN: &str = "attention.rope_pattern";
    let rule = arch.rope.layers;
    let all = match rule {
        RopeLayers::None => Some(false),
        RopeLayers::All => Some(true),
        RopeLayers::Finetuned => Some(k.bool(FINETUNED).unwrap_or(true)),
        RopeLayers::InModelsOf(layers) => Some(n_layer == layers as usize),
        RopeLayers::WindowedOrAll | RopeLayers::ButFirstOf(_) if windowed.is_none() => Some(true),
        RopeLayers::Pattern if !matches!(k.meta.get(&k.name(PATTERN)), Some(Value::Array(_))) => Some(true),
        RopeLayers::Pattern => return flags(k, PATTERN, n_layer),
        _ => None,
    };
    if let Some(all) = all {
        return vec![all; n_layer];
    }
    let in_window = |layer: usize| windowed.is_some_and(|w| w.get(layer) == Some(&true));
    let but_last = |layer: usize, of: usize| !(layer + 1).is_multiple_of(of);
    let turned = |layer: usize| match rule {
        RopeLayers::WindowedOrLeading => in_window(layer) || layer < leading,
        RopeLayers::ButLastOf(of) => but_last(layer, of as usize),
        RopeLayers::ButLastOfOrLast(of) if windowed.is_some() => but_last(layer, of as usize),
        RopeLayers::ButLastOfOrLast(_) => but_last(layer, n_layer),
        RopeLayers::ButFirstOf(of) => !layer.is_multiple_of(of as usize),
        _ => in_window(layer),
    };
    (0..n_layer).map(turned).collect()
}

/// An array of flags, one per layer, which some writers store as numbers.
pub fn flags(k: &mut Keys<'_>, key: &str, n_layer: usize) -> Vec<bool> {
    let name = k.name(key);
    let mut flags: Vec<bool> = match k.meta.get_u32s(&name) {
        Ok(Some(numbers)) => numbers.iter().map(|&n| n != 0).collect(),
        _ => {
            let read = k.meta.get_bools(&name).map(|v| v.map(<[bool]>::to_vec));
            k.note(read).unwrap_or_default()
        }
    };
    if flags.len() != k.layers {
        k.entries(key, flags.len(), k.layers);
    }
    flags.truncate(n_layer);
    flags
}
