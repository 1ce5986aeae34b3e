//! `rope_scaling` of `config.json`, old form and new.

use std::f64::consts::PI;

use serde_json::Value;

use super::error::ConvertError;
use super::hparams::{HParams, number};
use super::source::{MAX_WIDTH, Source};
use crate::arch::rules::WindowRope;
use crate::arch::{self, ARCHITECTURES, Arch, Extent, Key, Target};
use crate::math;

/// How positions are scaled, and the base of the frequencies.
pub(super) struct RopeScaling {
    pub kind: Kind,
    pub theta: f32,
    /// Base in the layers with a sliding window.
    pub theta_swa: Option<f32>,
    /// Context length before positions were scaled, where the file states it in any case.
    pub original: Option<u32>,
    /// Where the base is stretched: by how much, if that is said.
    pub alpha: Option<Option<f64>>,
    factors: Vec<(&'static str, Vec<f32>)>,
}

/// The kinds that GGUF metadata or a tensor of factors express.
pub(super) enum Kind {
    None,
    Linear {
        factor: f32,
    },
    Yarn {
        factor: f32,
        original: u32,
        extra: Vec<(&'static str, f32)>,
    },
    /// Factors per frequency, in a tensor.
    Llama3,
    /// Two sets of them, for short contexts and long ones, and a factor on sine and cosine.
    ByContext {
        attention: f32,
    },
    /// The same without that factor.
    Long,
    /// By a larger base alone.
    Stretched,
}

impl RopeScaling {
    pub fn new(h: &HParams, source: &Source) -> Result<RopeScaling, ConvertError> {
        let arch = source.arch;
        let wrong = |what: String| ConvertError::Config(what);
        let stated = h.get("rope_parameters").or(h.get("rope_scaling"));
        let local = stated.and_then(|s| s.get("sliding_attention"));
        let scaling = stated.and_then(|s| s.get("full_attention")).or(stated);
        let get = |key: &str| scaling.and_then(|s| s.get(key)).filter(|v| !v.is_null());
        let float = |key: &str| get(key).map(|v| number(key, v)).transpose();
        let own_base = arch.window.is_some_and(|w| w.rope == WindowRope::OWN);
        // a list has the base of layers without a window, and that of layers with one
        let listed = ["rope_theta.0", "rope_theta.1"];
        let by_layer = h.get("rope_theta").is_some_and(Value::is_array);
        let theta = match float("rope_theta")? {
            None if by_layer => h.f32(listed[0])?.unwrap_or(source.checkpoint.rope_theta),
            Some(theta) => theta,
            None => {
                match h.first(BASES).or(h.first(source.checkpoint.rope_names)).map_or(Ok(None), |key| h.f32(key))? {
                    Some(theta) => theta,
                    None => source.checkpoint.rope_theta,
                }
            }
        };
        let theta_swa = match local.and_then(|l| l.get("rope_theta")) {
            Some(v) => Some(number("rope_theta", v)?),
            None if by_layer => h.f32(listed[1])?,
            None => h.first(WINDOW_BASES).map_or(Ok(None), |key| h.f32(key))?.or(own_base.then_some(10000.0)),
        };
        let name = get("rope_type").or(get("type")).and_then(Value::as_str).unwrap_or("default");
        let need =
            |key: &str| float(key)?.ok_or_else(|| wrong(format!("rope_scaling of type '{name}' has no '{key}'")));
        let original = || match get("original_max_position_embeddings").and_then(Value::as_u64) {
            Some(n) => u32::try_from(n).map_err(|_| wrong("'original_max_position_embeddings' is above 2^32".into())),
            None => h.need("original_max_position_embeddings"),
        };
        let original_or_assumed = || match get("original_max_position_embeddings") {
            Some(_) => original(),
            None => Ok(h.u32("original_max_position_embeddings")?.unwrap_or(source.checkpoint.context)),
        };
        let stretches = source.checkpoint.more_keys.iter().any(|k| matches!(k, Key::Stretched(..) | Key::TurnedByAxes));
        let mut factors = Vec::new();
        // drafters have such factors in files that no rule of these makes
        let drafts = source.checkpoint.target != Target::None;
        let kind = match name {
            other if of_heads(arch) && !drafts && other != "proportional" => {
                return Err(wrong(format!(
                    "rope_parameters of full_attention are of type '{other}', expected proportional"
                )));
            }
            "default" | "mrope" => Kind::None,
            "dynamic" | "xdrope" if stretches => Kind::Stretched,
            "dynamic" if source.checkpoint.rope_scaling == arch::RopeScaling::AnyOrDynamic => Kind::None,
            "linear" => Kind::Linear { factor: need("factor")? },
            "yarn" => {
                let mut extra = Vec::new();
                for (key, gguf) in [
                    ("extrapolation_factor", "yarn_ext_factor"),
                    ("attention_factor", "yarn_attn_factor"),
                    ("beta_fast", "yarn_beta_fast"),
                    ("beta_slow", "yarn_beta_slow"),
                ] {
                    let other = if key == "attention_factor" { float("attn_factor")? } else { None };
                    extra.extend(float(key)?.or(other).map(|v| (gguf, v)));
                }
                Kind::Yarn { factor: need("factor")?, original: original()?, extra }
            }
            "proportional" if of_heads(arch) => {
                let size = h.size(&["global_head_dim"], None, MAX_WIDTH)?;
                let part = float("partial_rotary_factor")?.unwrap_or(1.0);
                factors.push(("rope_freqs.weight", proportional(size, part)));
                Kind::None
            }
            "llama3" if arch.rope.global_half => {
                let or = |key, default: f64| get(key).map_or(Some(default), Value::as_f64).unwrap_or(default);
                let size = source.sizes.head_dim as u32;
                let of = [("factor", 8.0), ("low_freq_factor", 1.0), ("high_freq_factor", 4.0)].map(|(k, d)| or(k, d));
                let divisors = llama3_of_half(theta, size, of, or("original_max_position_embeddings", 8192.0).trunc());
                factors.push(("rope_freqs.weight", divisors));
                Kind::Llama3
            }
            "llama3" if has_factors(arch) && !of_heads(arch) => {
                let or = |key, default| Ok::<f32, ConvertError>(float(key)?.unwrap_or(default));
                let divisors = llama3(
                    theta,
                    source.sizes.rope_dim as u32,
                    or("factor", 8.0)?,
                    or("low_freq_factor", 1.0)?,
                    or("high_freq_factor", 4.0)?,
                    or("original_max_position_embeddings", 8192.0)?,
                );
                factors.push(("rope_freqs.weight", divisors));
                Kind::Llama3
            }
            "longrope" | "su" if matches!(source.checkpoint.rope_scaling, BY_CONTEXT | LONG) => {
                for (key, tensor) in
                    [("long_factor", "rope_factors_long.weight"), ("short_factor", "rope_factors_short.weight")]
                {
                    let pairs = source.sizes.rope_dim / 2;
                    factors.push((tensor, divisors(get(key), key, pairs)?));
                }
                match source.checkpoint.rope_scaling {
                    LONG => Kind::Long,
                    _ => Kind::ByContext { attention: attention_factor(source.sizes.context, original_or_assumed()?) },
                }
            }
            other => {
                let with_factors = ARCHITECTURES.iter().filter(|a| has_factors(a));
                let with_factors: Vec<&str> = with_factors.map(|a| a.name).collect();
                return Err(wrong(format!(
                    "rope_scaling of type '{other}' is not supported for architecture '{}'; known are default, linear, yarn, and llama3 for {}",
                    arch.name,
                    with_factors.join(", ")
                )));
            }
        };
        let allowed = match source.checkpoint.rope_scaling {
            arch::RopeScaling::Any | arch::RopeScaling::AnyOrDynamic | LONG => true,
            arch::RopeScaling::ByContext => matches!(kind, Kind::None | Kind::ByContext { .. }),
            arch::RopeScaling::None => matches!(kind, Kind::None),
        };
        if !allowed {
            return Err(wrong(format!(
                "rope_scaling of type '{name}' is not supported for architecture '{}'",
                arch.name
            )));
        }
        let original = match source.checkpoint.rope_scaling {
            arch::RopeScaling::ByContext => Some(original_or_assumed()?),
            _ => None,
        };
        let alpha = matches!(kind, Kind::Stretched).then(|| get("alpha").and_then(Value::as_f64));
        Ok(RopeScaling { kind, theta, theta_swa, original, alpha, factors })
    }

    /// Tensors with divisors of the frequencies, by their names in the file.
    pub fn factors(&self) -> &[(&'static str, Vec<f32>)] {
        &self.factors
    }
}

const BY_CONTEXT: arch::RopeScaling = arch::RopeScaling::ByContext;
const LONG: arch::RopeScaling = arch::RopeScaling::Long;

/// Names of the base of RoPE's frequencies.
const BASES: &[&str] = &["global_rope_theta", "rope_global_theta", "rope_theta_global", "rope_theta"];
/// The same in layers with a window.
const WINDOW_BASES: &[&str] =
    &["local_rope_theta", "rope_local_theta", "rope_theta_local", "swa_rope_theta", "rope_local_base_freq"];

/// True if files of the architecture can have one set of factors per frequency.
fn has_factors(arch: &Arch) -> bool {
    arch.end_tensors().any(|t| t.gguf == "rope_freqs.weight")
}

/// True if they are those of all pairs of a head's elements.
fn of_heads(arch: &Arch) -> bool {
    arch.end_tensors().any(|t| t.gguf == "rope_freqs.weight" && t.shape == [Extent::HeadPairs])
}

/// Divisors for heads of `size` elements, of which RoPE turns the first `part`: those of the other pairs are so large
/// that these stand still.
fn proportional(size: u32, part: f32) -> Vec<f32> {
    let turned = (f64::from(size) * f64::from(part) / 2.0) as usize;
    (0..size as usize / 2).map(|pair| if pair < turned { 1.0 } else { 1e30 }).collect()
}

/// [`llama3`] for the half of heads of `size` elements that layers without a window turn; the divisors of other pairs
/// are 1. From the frequencies on in double precision, as the reference computes them.
fn llama3_of_half(theta: f32, size: u32, [factor, low, high]: [f64; 3], original: f64) -> Vec<f32> {
    let dim = size / 2;
    let divisor = |i: u32| {
        let frequency = 1.0 / math::powf(theta, i as f32 / dim as f32);
        let wavelength = 2.0 * PI / f64::from(frequency);
        if wavelength < original / high {
            1.0
        } else if wavelength > original / low {
            factor
        } else {
            let smooth = (original / wavelength - low) / (high - low);
            1.0 / ((1.0 - smooth) / factor + smooth)
        }
    };
    let turned = (0..dim).step_by(2).map(|i| divisor(i) as f32);
    let mut all: Vec<f32> = turned.collect();
    all.resize((size / 2) as usize, 1.0);
    all
}

/// A list of divisors, one for every pair of elements that RoPE turns.
fn divisors(list: Option<&Value>, key: &str, pairs: u64) -> Result<Vec<f32>, ConvertError> {
    let list = list
        .and_then(Value::as_array)
        .ok_or_else(|| ConvertError::Config(format!("rope_scaling has no list '{key}'")))?;
    if list.len() as u64 != pairs {
        return Err(ConvertError::Config(format!(
            "'{key}' has {} numbers, and RoPE turns {pairs} pairs of elements",
            list.len()
        )));
    }
    list.iter().map(|v| number(key, v)).collect()
}

/// Phi 3's factor on sine and cosine for contexts of `context` positions, trained on `original`.
fn attention_factor(context: u64, original: u32) -> f32 {
    let scale = context as f64 / f64::from(original);
    if scale > 1.0 { (1.0 + math::log(scale) / math::log(f64::from(original))).sqrt() as f32 } else { 1.0 }
}

/// Llama 3.1's: low frequencies are divided by `factor`, high ones kept, those between blended.
/// In f32, as the reference computes them.
fn llama3(theta: f32, dim: u32, factor: f32, low: f32, high: f32, original: f32) -> Vec<f32> {
    let low_wavelength = original / low;
    let high_wavelength = original / high;
    (0..dim)
        .step_by(2)
        .map(|i| {
            let frequency = 1.0 / math::powf(theta, i as f32 / dim as f32);
            let wavelength = (2.0 * PI) as f32 / frequency;
            if wavelength < high_wavelength {
                1.0
            } else if wavelength > low_wavelength {
                factor
            } else {
                let smooth = (original / wavelength - low) / (high - low);
                1.0 / ((1.0 - smooth) / factor + smooth)
            }
        })
        .collect()
}
