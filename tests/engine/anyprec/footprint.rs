//! Sizes from shapes alone.

use trine::quant::anyprec::{Clusters, Footprint};
use trine::quant::{Plan, Recipe};
use trine_formats::anyprec::Header;
use trine_formats::gguf::{Metadata, TensorInfo, Value};
use trine_formats::types::TypeId;

use super::model::{footprint, recipe};

/// The headers of a llama model in F16.
fn headers(embd: u64, kv: u64, ff: u64, layers: u64, vocab: u64) -> Vec<TensorInfo> {
    let mut tensors = Vec::new();
    let mut add = |name: String, shape: &[u64], ty: TypeId| {
        let elements: u64 = shape.iter().product();
        tensors.push(TensorInfo {
            name,
            shape: shape.to_vec(),
            ty,
            offset: 0,
            bytes: elements * ty.info().unwrap().bytes as u64,
        });
    };
    add("token_embd.weight".into(), &[embd, vocab], TypeId::F16);
    add("output.weight".into(), &[embd, vocab], TypeId::F16);
    for i in 0..layers {
        for (name, columns, rows) in [
            ("attn_q", embd, embd),
            ("attn_k", embd, kv),
            ("attn_v", embd, kv),
            ("attn_output", embd, embd),
            ("ffn_gate", embd, ff),
            ("ffn_up", embd, ff),
            ("ffn_down", ff, embd),
        ] {
            add(format!("blk.{i}.{name}.weight"), &[columns, rows], TypeId::F16);
        }
    }
    tensors
}

fn plan(tensors: &[TensorInfo], recipe: &Recipe) -> Plan {
    let mut meta = Metadata::default();
    meta.set("general.architecture", Value::str("llama"));
    let sources = tensors.iter().map(|t| (0, 0, t)).collect();
    Plan::from_headers(&meta, sources, recipe).unwrap()
}

fn header(plan: &Plan) -> &Header {
    &plan.find::<Clusters>().unwrap().codes().header
}

fn llama_2_7b(widths: &[u8]) -> Footprint {
    let mut recipe = recipe("AP3-8");
    recipe.anyprec.widths = Some(widths.to_vec());
    let plan = plan(&headers(4096, 4096, 11008, 32, 32000), &recipe);
    assert!(plan.warnings.is_empty(), "{:?}", plan.warnings);
    footprint(&plan)
}

/// Table 1 of "Any-Precision LLM" for Llama-2-7B, in GB.
#[test]
fn the_paper_s_sizes_of_llama_2_7b() {
    let table: [(&[u8], f64, f64); 6] = [
        (&[3, 6], 5.58, 5.6),
        (&[4, 8], 7.74, 7.7),
        (&[3, 4, 6], 5.62, 5.6),
        (&[3, 4, 8], 7.76, 7.7),
        (&[3, 4, 6, 8], 7.94, 7.9),
        (&[3, 4, 5, 6, 7, 8], 8.37, 8.4),
    ];
    for (widths, computed, paper) in table {
        let f = llama_2_7b(widths);
        assert_eq!((f.weights, f.rows), (6_476_005_376, 1_359_872));
        assert_eq!(f.copied_bytes, 524_288_000);
        let gb = f.file_bytes as f64 / 1e9;
        assert!((gb - computed).abs() < 0.006, "{widths:?}: {gb}");
        assert!((gb - paper).abs() < 0.07, "{widths:?}: {gb}");
    }
    let f = llama_2_7b(&[3, 4, 5, 6, 7, 8]);
    let tables: Vec<f64> = f.widths.iter().map(|w| w.table_bytes as f64 / 1e6).collect();
    for (got, want) in tables.iter().zip([21.8, 43.5, 87.0, 174.0, 348.0, 696.0]) {
        assert!((got - want).abs() < 0.3, "{got} {want}");
    }
    // the prefixes are what a download up to a width takes
    let prefix = |i: usize| f.widths[i].prefix_bytes as f64 / 1e9;
    assert!((prefix(0) - (0.5243 + 3.0 * 0.8095 + 0.0218)).abs() < 0.001);
    assert!((prefix(5) - f.file_bytes as f64 / 1e9).abs() < 1e-6);
}

/// A model of 135M weights is larger at 8 bits, tables included, than in half precision.
#[test]
fn tables_of_short_rows_are_counted_and_warned_of() {
    let smol = headers(576, 192, 1536, 30, 49152);
    let bits = |target: &str| {
        let plan = plan(&smol, &recipe(target));
        let f = footprint(&plan);
        assert_eq!(f.weights, 106_168_320);
        (f.widths.last().unwrap().stored_bits, plan)
    };
    for (target, want) in [("AP3-8", 19.8), ("AP3-6", 8.8), ("AP3-4", 4.6)] {
        let (got, plan) = bits(target);
        assert!((got - want).abs() < 0.06, "{target}: {got}");
        let warned = plan.warnings.join(" ");
        assert_eq!(!warned.is_empty(), target != "AP3-4", "{target}: {warned}");
        assert!(warned.is_empty() || warned.contains(&format!("{got:.2} bits per weight")));
        assert!(plan.notes.is_empty());
    }
    let (_, plan) = bits("AP");
    assert_eq!(header(&plan).bits, [3, 4, 5]);
    assert_eq!(plan.notes, ["3 to 5 bits: rows have as few as 576 weights to a table"]);
    assert!(plan.warnings.is_empty());
}

#[test]
fn parents_that_rows_carry() {
    let parent = |embd: u64, recipe: &Recipe| header(&plan(&headers(embd, embd, 4 * embd, 1, 10), recipe)).parent_bits;
    for (embd, want) in [(576, 5), (2047, 5), (2048, 6), (4095, 6), (4096, 8), (8192, 8)] {
        assert_eq!(parent(embd, &recipe("AP")), want, "{embd}");
    }
    let mut grouped = recipe("AP");
    grouped.anyprec.groups = 2;
    assert_eq!(parent(4096, &grouped), 6);
    let mut wide = recipe("AP");
    wide.anyprec.seed_bits = Some(6);
    assert_eq!(parent(576, &wide), 6);
    let mut named = recipe("AP");
    named.anyprec.parent_bits = Some(7);
    assert_eq!(parent(576, &named), 7);
}

#[test]
fn widths_that_are_kept() {
    let tensors = headers(4096, 4096, 8192, 1, 10);
    let of = |widths: &[u8]| {
        let mut recipe = recipe("AP3-8");
        recipe.anyprec.widths = Some(widths.to_vec());
        let mut meta = Metadata::default();
        meta.set("general.architecture", Value::str("llama"));
        let sources = tensors.iter().map(|t| (0, 0, t)).collect();
        Plan::from_headers(&meta, sources, &recipe)
    };
    let plan = of(&[4, 6]).unwrap();
    assert_eq!((header(&plan).seed_bits, header(&plan).parent_bits), (3, 6));
    assert_eq!(header(&plan).bits, [4, 6]);
    assert_eq!(plan.notes.len(), 1);
    assert!(of(&[3, 8]).unwrap().notes.is_empty());
    for bad in [&[2, 3][..], &[3, 3], &[8, 3], &[], &[9]] {
        let e = of(bad).unwrap_err().to_string();
        assert!(e.contains("are not ascending widths of 3 to 8"), "{bad:?}: {e}");
    }
}
