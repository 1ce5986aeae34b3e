//! Keys with an entry for every block, and those that follow from such lists.

use serde_json::Value as JsonValue;
use trine_formats::gguf::{Array, Value};

use super::error::ConvertError;
use super::hparams::{HParams, number};
use super::source::{MAX_WIDTH, Source};
use crate::arch::Key;
use crate::math;

/// The key and the value of one that is made of a list, where `config.json` has the list.
pub(super) fn list(key: &Key, h: &HParams, source: &Source) -> Result<Option<(&'static str, Value)>, ConvertError> {
    const HEADS: &str = "attention.head_count";
    const KV_HEADS: &str = "attention.head_count_kv";
    let layers = source.layers;
    let kv_heads = source.sizes.kv_heads as i32;
    let of_blocks = |heads: &dyn Fn(u32) -> i32| Value::Array(Array::I32((0..layers).map(heads).collect()));
    Ok(match *key {
        Key::Kinds(stated, word, name) => h.texts(stated, layers)?.map(|kinds| {
            let all = kinds.into_iter().map(|kind| kind == word).collect();
            (name, Value::Array(Array::Bool(all)))
        }),
        Key::Numbers(stated, name) => numbers(h, stated, layers)?.map(|all| (name, Value::Array(Array::I32(all)))),
        Key::NumbersOr(stated, name, single) => {
            let all = match numbers(h, stated, layers)? {
                Some(all) => all,
                None => vec![h.need(single)? as i32; layers as usize],
            };
            Some((name, Value::Array(Array::I32(all))))
        }
        Key::ByKind(kind, names, name) => match (h.find(names[0])?, h.find(names[1])?) {
            (Some(own), Some(other)) => {
                let kinds = kinds(h, layers)?;
                let all = kinds.iter().map(|k| if *k == kind { own as i32 } else { other as i32 }).collect();
                Some((name, Value::Array(Array::I32(all))))
            }
            _ => None,
        },
        Key::InKind(kind, stated, name) => {
            let (number, kinds) = (h.need(stated)? as i32, kinds(h, layers)?);
            Some((name, of_blocks(&|n| if kinds[n as usize] == kind { number } else { 0 })))
        }
        Key::OfBlocks(stated, name) => {
            let all = h.of_blocks(stated).unwrap_or_default().into_iter().map(|n| n as i32).collect();
            Some((name, Value::Array(Array::I32(all))))
        }
        Key::WindowLayersTurned(parts) => {
            let windows: Vec<bool> = kinds(h, layers)?.iter().map(|kind| *kind == "sliding_attention").collect();
            let stated = h.get(parts).and_then(JsonValue::as_array).map_or(&[][..], Vec::as_slice);
            let whole = |window: bool| if window { 1.0 } else { 0.5 };
            if let Some((n, part)) = stated
                .iter()
                .enumerate()
                .find(|(n, part)| windows.get(*n).is_some_and(|window| part.as_f64() != Some(whole(*window))))
            {
                return Err(ConvertError::Config(format!(
                    "'{parts}' is {part} for layer {n}, and a file can say 1 for layers with a window, 0.5 for others"
                )));
            }
            Some(("attention.sliding_window_pattern", Value::Array(Array::Bool(windows))))
        }
        Key::DoubleWidth(stated, last) if h.bool(stated)? == Some(true) => {
            let last = h.u32(last)?.unwrap_or(0);
            let width = source.sizes.ff as i32;
            let all = of_blocks(&|n| if n >= layers.saturating_sub(last) { 2 * width } else { width });
            Some(("feed_forward_length", all))
        }
        Key::LeadingOf(stated) => {
            let numbers = h.str(stated).unwrap_or_default().split(',').filter_map(|n| n.trim().parse::<u32>().ok());
            Some(("leading_dense_block_count", Value::U32(numbers.min().unwrap_or(0))))
        }
        Key::Limits(stated, name) => match h.get(stated).and_then(JsonValue::as_array) {
            None => None,
            Some(list) => {
                let bound = |v: &JsonValue| if v.is_null() { Ok(0.0) } else { number(stated, v) };
                let mut all = list.iter().take(layers as usize).map(bound).collect::<Result<Vec<f32>, _>>()?;
                all.resize(layers as usize, 0.0);
                Some((name, Value::Array(Array::F32(all))))
            }
        },
        Key::LeadingZeros(stated) => {
            let all = numbers(h, stated, layers)?.unwrap_or_default();
            let leading = all.iter().take_while(|n| **n == 0).count();
            Some(("leading_dense_block_count", Value::U32(leading as u32)))
        }
        Key::KvHeadsByPattern(pattern, other) => {
            let pattern = numbers(h, pattern, layers)?.unwrap_or_else(|| vec![0; layers as usize]);
            let other = h.need(other)? as i32;
            let heads = |n: u32| if pattern[n as usize] == 1 { other } else { kv_heads };
            Some((KV_HEADS, of_blocks(&heads)))
        }
        Key::KvHeadsIn(stated) => {
            let all = h.get(stated).and_then(JsonValue::as_array).map_or(&[][..], Vec::as_slice);
            let heads = |n: u32| if all.iter().any(|v| v.as_u64() == Some(u64::from(n) + 1)) { kv_heads } else { 0 };
            Some((KV_HEADS, of_blocks(&heads)))
        }
        Key::KvHeadsOfGroups(stated) => {
            let group = h.need(stated)?;
            let behind = layers / group * group;
            let heads = |n: u32| if (n + 1).is_multiple_of(group) || n >= behind { kv_heads } else { 0 };
            Some((KV_HEADS, of_blocks(&heads)))
        }
        Key::ByWidth(stated, name, [wide, other]) => {
            let assumed = if source.sizes.embd >= 4096 { wide } else { other };
            Some((name, Value::U32(h.u32(stated)?.unwrap_or(assumed))))
        }
        Key::AttendsBySteps(stated, name, assumed) => {
            if h.bool("mamba_enabled")? == Some(false) {
                return Err(ConvertError::Config(
                    "'mamba_enabled' is false, and a file has Mamba in some blocks".into(),
                ));
            }
            let step = h.u32("mamba_step")?.unwrap_or(2).max(1);
            let heads = h.u32(stated)?.unwrap_or(assumed) as i32;
            let attends = |n: u32| if layers <= step / 2 { n + 1 == layers } else { n % step == step / 2 };
            Some((name, of_blocks(&|n| if attends(n) { heads } else { 0 })))
        }
        Key::AllOf(stated, name) => {
            let wrong = || ConvertError::Config(format!("has no list '{stated}' of whole numbers"));
            let all = h.get(stated).and_then(JsonValue::as_array).ok_or_else(wrong)?;
            let whole = |n: &JsonValue| n.as_i64().and_then(|n| i32::try_from(n).ok());
            let all = all.iter().map(whole).collect::<Option<Vec<i32>>>().ok_or_else(wrong)?;
            Some((name, Value::Array(Array::I32(all))))
        }
        Key::IfList(stated, name) => match h.get(stated) {
            Some(JsonValue::Array(_)) => numbers(h, stated, layers)?.map(|all| (name, Value::Array(Array::I32(all)))),
            _ => None,
        },
        Key::Cutoffs(stated, name) => {
            /// The number of deviations below which 95 of 100 numbers lie, as PyTorch has it.
            const OF_95: f32 = 1.644_853_6;
            let parts = h.get(stated).and_then(JsonValue::as_array).map_or(&[][..], Vec::as_slice);
            let cutoff = |part: &JsonValue| match part.as_f64() {
                Some(0.0) => Ok(f32::NEG_INFINITY),
                Some(0.95) => Ok(OF_95),
                _ => Err(ConvertError::Config(format!("'{stated}' has {part}, and known are 0.95 and 0"))),
            };
            let all = parts.iter().map(cutoff).collect::<Result<Vec<f32>, _>>()?;
            Some((name, Value::Array(Array::F32(all))))
        }
        Key::TrainedContext(stated, trained, known) => {
            let (n, most) = (h.need(stated)?, h.u32(trained)?.unwrap_or(2048));
            let found = known.iter().find(|[of, trained, _]| [*of, *trained] == [n, most]);
            let [.., context] = found.ok_or_else(|| {
                ConvertError::Config(format!("'{stated}' is {n} and '{trained}' {most}, which no known model has"))
            })?;
            Some(("context_length", Value::U32(*context)))
        }
        Key::BlockHeads => Some((HEADS, blocks(h, source, |b| b.heads)?)),
        Key::BlockKvHeads => Some((KV_HEADS, blocks(h, source, |b| b.key_heads)?)),
        Key::BlockWidths => Some(("feed_forward_length", blocks(h, source, |b| b.width)?)),
        Key::WidthsOf(multipliers, divisor) => Some(("feed_forward_length", widths(h, multipliers, divisor, source)?)),
        Key::Rank(names, name, power, factor) => {
            let assumed =
                (math::pow(source.sizes.embd as f64, power) * factor / 32.0).round_ties_even().max(1.0) * 32.0;
            Some((name, Value::U32(h.find(names)?.unwrap_or(assumed as u32))))
        }
        _ => None,
    })
}

/// Heads and width of a block.
struct Block {
    heads: u32,
    key_heads: u32,
    width: u32,
}

/// A number of every block, as `block_configs` has them (`DeciModel` of the reference).
fn blocks(h: &HParams, source: &Source, number: fn(&Block) -> u32) -> Result<Value, ConvertError> {
    const KEY: &str = "block_configs";
    let (layers, heads) = (source.layers as usize, source.sizes.heads as u32);
    let wrong = |what: String| ConvertError::Config(format!("'{KEY}' {what}"));
    let all = h.get(KEY).and_then(JsonValue::as_array).filter(|all| all.len() == layers);
    let all = all.ok_or_else(|| wrong(format!("is no list of {layers} blocks")))?;
    let mut numbers = Vec::with_capacity(layers);
    for (n, config) in all.iter().enumerate() {
        let of = |part: &str, key: &str| config.get(part).and_then(|p| p.get(key)).filter(|v| !v.is_null());
        let linear = |part: &str| of(part, "replace_with_linear").and_then(JsonValue::as_bool) == Some(true);
        if linear("ffn") {
            return Err(wrong(format!(
                "has a matrix in the place of the feed-forward network of block {n}, which no file has"
            )));
        }
        let (heads, key_heads) = match of("attention", "n_heads_in_group").map(|v| v.as_u64()) {
            None if linear("attention") => (heads, 0),
            None => (0, 0),
            Some(group) => {
                let group = group.and_then(|n| u32::try_from(n).ok()).filter(|n| *n > 0);
                let group = group.ok_or_else(|| wrong(format!("has no number of heads in a group in block {n}")))?;
                (heads, heads / group)
            }
        };
        let width = match of("ffn", "ffn_mult").map(|v| v.as_f64()) {
            None => 0.0,
            Some(times) => 2.0 * times.unwrap_or(f64::NAN) * source.sizes.embd as f64 / 3.0,
        };
        if !(0.0..=f64::from(MAX_WIDTH)).contains(&width) {
            return Err(wrong(format!("makes the feed-forward network of block {n} {width} wide")));
        }
        let width = (width as u32).next_multiple_of(256);
        numbers.push(number(&Block { heads, key_heads, width }) as i32);
    }
    Ok(Value::Array(Array::I32(numbers)))
}

/// The width of the residual stream times the numbers of a list, one for every block, each rounded to a multiple of
/// `divisor` and not by more than a tenth down.
fn widths(h: &HParams, multipliers: &str, divisor: &str, source: &Source) -> Result<Value, ConvertError> {
    let layers = source.layers as usize;
    let wrong = || ConvertError::Config(format!("'{multipliers}' is no list of {layers} numbers, one for every layer"));
    let all = h.get(multipliers).and_then(JsonValue::as_array).filter(|all| all.len() == layers).ok_or_else(wrong)?;
    let divisor = f64::from(h.need(divisor)?);
    let width = |multiplier: &JsonValue| {
        let exact = multiplier.as_f64()? * source.sizes.embd as f64;
        let rounded = ((exact + divisor / 2.0) / divisor).floor().max(1.0) * divisor;
        let width = if rounded < 0.9 * exact { rounded + divisor } else { rounded };
        (width <= f64::from(MAX_WIDTH)).then_some(width as i32)
    };
    let all = all.iter().map(width).collect::<Option<Vec<i32>>>().ok_or_else(wrong)?;
    Ok(Value::Array(Array::I32(all)))
}

/// The kinds of attention of all blocks, those of blocks that are not run left out; full where nothing is said.
fn kinds(h: &HParams, layers: u32) -> Result<Vec<&str>, ConvertError> {
    const KEY: &str = "layer_types";
    let Some(all) = h.get(KEY).and_then(JsonValue::as_array) else {
        return Err(ConvertError::Config(format!("has no list '{KEY}'")));
    };
    let kind = |n: usize| all.get(n).and_then(JsonValue::as_str).unwrap_or("full_attention");
    Ok((0..layers as usize).map(kind).collect())
}

/// A list of whole numbers, one for every block.
fn numbers(h: &HParams, key: &str, layers: u32) -> Result<Option<Vec<i32>>, ConvertError> {
    let Some(value) = h.get(key) else {
        return Ok(None);
    };
    let all = value.as_array().and_then(|all| {
        let whole = |v: &JsonValue| v.as_i64().or(v.as_bool().map(i64::from)).and_then(|n| i32::try_from(n).ok());
        all.iter().map(whole).collect::<Option<Vec<i32>>>()
    });
    match all {
        Some(all) if all.len() == layers as usize => Ok(Some(all)),
        _ => Err(ConvertError::Config(format!("'{key}' is no list of {layers} whole numbers, one for every layer"))),
    }
}

/// `classifier.output_labels` in the order of the outputs. The two labels that a model has which nobody named are none.
pub(super) fn labels(h: &HParams) -> Result<Option<(&'static str, Value)>, ConvertError> {
    let Some(stated) = h.get("id2label").and_then(JsonValue::as_object).filter(|all| !all.is_empty()) else {
        return Ok(None);
    };
    let mut all = Vec::new();
    for (id, label) in stated {
        let (Ok(id), Some(label)) = (id.parse::<u32>(), label.as_str()) else {
            return Err(ConvertError::Config(format!("'id2label' has {label} for '{id}', expected texts for numbers")));
        };
        all.push((id, label));
    }
    all.sort_unstable();
    if all.len() == 2 && all[0] == (0, "LABEL_0") {
        return Ok(None);
    }
    let texts = all.into_iter().map(|(_, label)| label).collect();
    Ok(Some(("classifier.output_labels", Value::Array(Array::Str(texts)))))
}
