//! Damaged files: every refusal names the tensor or the key.

use trine::model::{LoadOptions, Weights};
use trine::quant::widely::Options;
use trine_formats::gguf::write::NewTensor;
use trine_formats::gguf::{Gguf, Limits, Metadata, ModelFile, Value};
use trine_formats::types::TypeId;
use trine_testkit::gguf;

use super::models::{random, widely};

/// Keys and tensors of a file, to be damaged.
struct Parts {
    meta: Metadata,
    tensors: Vec<(NewTensor, Vec<u8>)>,
}

impl Parts {
    fn of(file: &ModelFile) -> Parts {
        let data = |name: &str| file.tensor(name).expect("it is there").data.to_vec();
        Parts {
            meta: file.meta().clone(),
            tensors: file.tensors().map(|t| (NewTensor::from(t), data(&t.name))).collect(),
        }
    }

    fn tensor(&mut self, name: &str) -> &mut (NewTensor, Vec<u8>) {
        let found = self.tensors.iter_mut().find(|(t, _)| t.name == name);
        found.expect("the tensor is there")
    }

    fn refusal(&self, case: usize) -> String {
        let length = |(t, data): &(NewTensor, Vec<u8>)| {
            let bytes = Some(data.len() as u64);
            (NewTensor { bytes, ..t.clone() }, data.clone())
        };
        let tensors: Vec<_> = self.tensors.iter().map(length).collect();
        let file = gguf::model(gguf::bytes(&self.meta, &tensors));
        match Weights::load(&file, &LoadOptions::default()) {
            Ok(_) => panic!("the damage of case {case} was not seen"),
            Err(e) => e.to_string(),
        }
    }
}

#[test]
fn damage_is_refused_by_the_name_of_the_tensor_or_the_key() {
    let file = gguf::model(widely(&random("llama", TypeId::F32), &Options::default()));
    type Damage = fn(&mut Parts);
    let cases: &[(Damage, &[&str])] = &[
        (|p| p.tensors.retain(|(t, _)| t.name != "blk.1.ffn_up.wl_scale"), &["blk.1.ffn_up.wl_scale", "missing"]),
        (|p| p.tensors.retain(|(t, _)| t.name != "blk.0.attn_k.wl_codes"), &["blk.0.attn_k.wl_codes", "missing"]),
        (|p| p.tensors.retain(|(t, _)| !t.name.starts_with("blk.0.attn_k.wl")), &["blk.0.attn_k.wl_codes", "missing"]),
        (|p| p.tensors.retain(|(t, _)| !t.name.starts_with("output.wl")), &["output.wl_codes", "fairy2i.wl.lm_head"]),
        (
            |p| {
                let (tensor, data) = p.tensor("blk.0.attn_q.wl_codes");
                tensor.shape[2] -= 1;
                data.truncate(data.len() / 42 * 41);
            },
            &["blk.0.attn_q.wl_codes", "shape", "[4, 3, 42]"],
        ),
        (
            |p| {
                let (tensor, data) = p.tensor("blk.0.attn_v.wl_scale");
                tensor.shape = vec![2, 2, 2, 3];
                *data = data.repeat(3);
            },
            &["blk.0.attn_v.wl_scale", "shape"],
        ),
        (
            |p| p.tensor("blk.1.ffn_down.wl_codes").0.ty = TypeId::F32,
            &["blk.1.ffn_down.wl_codes", "type f32, expected i32"],
        ),
        (|p| p.meta.set("fairy2i.wl.stages", Value::U32(3)), &["wl_codes", "fairy2i.wl.stages"]),
        (|p| p.meta.set("fairy2i.wl.stages", Value::U32(5)), &["fairy2i.wl.stages", "'5'", "1 to 4"]),
        (
            |p| p.meta.set("fairy2i.wl.scale_scope", Value::str("column")),
            &["fairy2i.wl.scale_scope", "'column'", "'tile64'"],
        ),
        (
            |p| {
                p.meta.remove("fairy2i.wl.tie_rule");
            },
            &["fairy2i.wl.tie_rule", "missing"],
        ),
        (|p| p.meta.set("fairy2i.wl.version", Value::U32(2)), &["fairy2i.wl.version", "newer program"]),
        (
            |p| p.tensor("blk.0.ffn_gate.wl_scale").1[4..8].copy_from_slice(&f32::NAN.to_le_bytes()),
            &["blk.0.ffn_gate.wl_scale", "entry 1", "NaN"],
        ),
        (
            |p| p.tensor("blk.0.ffn_gate.wl_scale").1[..4].copy_from_slice(&0f32.to_le_bytes()),
            &["blk.0.ffn_gate.wl_scale", "entry 0", "above 0"],
        ),
        (
            |p| p.tensor("output.wl_scale").1[8..12].copy_from_slice(&(-1f32).to_le_bytes()),
            &["output.wl_scale", "entry 2", "-1"],
        ),
        (
            |p| {
                let (columns, rows) = (84, 84);
                let tensor = NewTensor::new("blk.0.attn_q.weight", [columns, rows], TypeId::F32);
                p.tensors.push((tensor, vec![0; 4 * 84 * 84]));
            },
            &["blk.0.attn_q.weight", "one form"],
        ),
        (
            |p| {
                let tensor = NewTensor::new("blk.7.attn_q.wl_codes", [4, 3, 42], TypeId::I32);
                p.tensors.push((tensor, vec![0; 4 * 4 * 3 * 42]));
            },
            &["blk.7.attn_q.wl_codes", "no place"],
        ),
    ];
    for (i, (damage, words)) in cases.iter().enumerate() {
        let mut parts = Parts::of(&file);
        damage(&mut parts);
        let refusal = parts.refusal(i);
        for word in *words {
            assert!(refusal.contains(word), "case {i}: {refusal} without {word}");
        }
        assert!(!refusal.contains('\n'), "case {i}: {refusal}");
    }
}

#[test]
fn a_file_that_is_cut_off_is_refused_by_the_name_of_a_tensor() {
    let bytes = widely(&random("llama", TypeId::F32), &Options::default());
    let whole = Gguf::parse(&bytes, &Limits::default()).expect("a whole file");
    for t in whole.tensors.iter().filter(|t| t.name.contains(".wl_")) {
        let end = (whole.data_offset + t.offset + t.bytes) as usize;
        let error = Gguf::parse(&bytes[..end - 1], &Limits::default()).err();
        let error = error.expect("a byte is missing").to_string();
        assert!(error.contains(&t.name) && error.contains("truncated"), "{error}");
    }
}
