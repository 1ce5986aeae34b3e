//! The report as JSON: complete, with keys in a fixed order.

use std::io::{self, Write};

use serde_json::{Map, Value, json};
use trine::arch::Arch;
use trine_formats::gguf::{GgufStr, Value as Meta, type_note};
use trine_formats::types::TypeId;

use super::{Report, TensorReport, Total, hex, shortest};
use crate::provenance::Provenance;
use crate::shown;

/// Writes the report as one JSON object and a line break.
///
/// # Errors
/// Those of `out`.
pub fn write_json(report: &Report<'_>, out: &mut dyn Write) -> io::Result<()> {
    let shards: Vec<Value> = report
        .model
        .shards()
        .iter()
        .map(|s| {
            json!({
                "path": s.path.display().to_string(),
                "bytes": (*s.bytes).as_ref().len(),
                "version": s.gguf.version,
                "alignment": s.gguf.alignment,
                "data_offset": s.gguf.data_offset,
                "metadata": s.gguf.meta.iter().map(|(k, v)| (k.to_owned(), metadata(v))).collect::<Map<_, _>>(),
            })
        })
        .collect();
    let types: Map<String, Value> = report.types.iter().map(|(ty, t)| (ty.to_string(), total(t))).collect();
    let mut whole = json!({
        "shards": shards,
        "tensors": report.tensors.iter().map(tensor).collect::<Vec<_>>(),
        "types": types,
        "total": total(&report.total),
        "file_bytes": report.file_bytes(),
        "runs": runs(report),
    });
    if report.sound {
        whole["damaged_tensors"] = report.damage().count().into();
    }
    if let Ok(Some(any_precision)) = &report.any_precision {
        whole["any_precision"] = any_precision.json();
    }
    if let Ok(Some(widely)) = &report.widely {
        whole["widely_linear"] = widely.json();
    }
    let whole = Provenance::of("rinspect.model/1").before(whole);
    writeln!(out, "{}", shown::json(&whole, true))
}

/// True if trine runs models of the file's architecture.
fn runs(report: &Report<'_>) -> bool {
    let name = report.model.meta().get_str("general.architecture");
    matches!(name, Ok(Some(name)) if Arch::find(name).is_some())
}

fn total(t: &Total) -> Value {
    json!({ "tensors": t.tensors, "weights": t.weights, "bytes": t.bytes, "bits_per_weight": t.bits_per_weight() })
}

fn tensor(t: &TensorReport) -> Value {
    let mut one = Total::default();
    one.add(&t.info);
    let mut v = json!({
        "name": t.info.name,
        "shape": t.info.shape,
        "type": t.info.ty.to_string(),
        "type_id": t.info.ty.file_id(),
        "bytes": t.info.bytes,
        "shard": t.shard,
        "offset": t.file_offset,
        "bits_per_weight": one.bits_per_weight(),
        "ternary": match t.ternary {
            None => Value::Null,
            Some(None) => false.into(),
            Some(Some(ternary)) => ternary.json(),
        },
    });
    if let Some(damage) = &t.damage {
        v["damage"] = damage.as_str().into();
    }
    if let Some(sha256) = &t.sha256 {
        v["sha256"] = sha256.as_str().into();
    }
    if let Some(note) = note(t.info.ty) {
        v["note"] = note.into();
    }
    v
}

fn note(ty: TypeId) -> Option<&'static str> {
    type_note(ty)
}

/// `{"type": "u32", "value": 7}`; text that is not UTF-8 is `{"hex": "ff"}`.
fn metadata(v: &Meta) -> Value {
    let value = match v {
        Meta::Array(a) => (0..a.len()).filter_map(|i| a.value(i)).map(|v| scalar(&v)).collect(),
        v => scalar(v),
    };
    json!({ "type": v.type_name(), "value": value })
}

fn scalar(v: &Meta) -> Value {
    match v {
        Meta::U8(v) => (*v).into(),
        Meta::I8(v) => (*v).into(),
        Meta::U16(v) => (*v).into(),
        Meta::I16(v) => (*v).into(),
        Meta::U32(v) => (*v).into(),
        Meta::I32(v) => (*v).into(),
        Meta::U64(v) => (*v).into(),
        Meta::I64(v) => (*v).into(),
        Meta::F32(v) => shortest(*v),
        Meta::F64(v) if v.is_finite() => (*v).into(),
        Meta::F64(v) => format!("{v:?}").into(),
        Meta::Bool(v) => (*v).into(),
        Meta::Str(GgufStr(bytes)) => match std::str::from_utf8(bytes) {
            Ok(s) => s.into(),
            Err(_) => json!({ "hex": hex(bytes) }),
        },
        // Arrays hold no arrays.
        Meta::Array(_) => Value::Null,
    }
}
