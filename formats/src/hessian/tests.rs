use super::*;
use crate::gguf::{Gguf, Limits, Metadata, Value};

fn two() -> Hessians {
    let input = |name: &str, columns| Input { name: name.to_owned(), columns, expert: None };
    Hessians {
        origin: Origin {
            model_sha256: "ab".to_owned(),
            dataset: "text.txt".to_owned(),
            dataset_sha256: "cd".to_owned(),
            chunk_size: 16,
            first_chunk: 3,
            special: true,
        },
        chunks: 7,
        inputs: vec![input("a.weight", 3), input("c.weight", 2)],
        weights: [("a.weight", 0), ("b.weight", 0), ("c.weight", 1)]
            .map(|(name, first)| (name.to_owned(), Reads { first, experts: 0 }))
            .into(),
    }
}

fn file(hessians: &Hessians) -> Vec<u8> {
    let triangle = |i: &Input| (0..i.elements().unwrap()).map(|v| v as f64).collect();
    let sums: Vec<Vec<f64>> = hessians.inputs.iter().map(triangle).collect();
    let mut out = Vec::new();
    let layout = hessians.layout().unwrap();
    hessians.write(&layout, &sums, &mut out).unwrap();
    assert_eq!(out.len() as u64, layout.file_bytes());
    out
}

#[test]
fn what_is_written_is_read() {
    let (hessians, bytes) = (two(), file(&two()));
    let gguf = Gguf::parse(&bytes, &Limits::default()).unwrap();
    let read = Hessians::parse(&gguf.meta, &gguf.tensors).unwrap();
    assert_eq!(read, hessians);
    assert_eq!((read.tokens(), read.bytes()), (7 * 16, Some(9 * 8)));
    let start = (gguf.data_offset + gguf.tensors[0].offset) as usize;
    let last = bytes[start + 5 * 8..].first_chunk().unwrap();
    assert_eq!(f64::from_le_bytes(*last), 5.0);
}

#[test]
fn contradictions_are_refused_by_name() {
    let bytes = file(&two());
    let gguf = Gguf::parse(&bytes, &Limits::default()).unwrap();
    let refused = |change: &dyn Fn(&mut Metadata)| {
        let mut meta = gguf.meta.clone();
        change(&mut meta);
        let error = Hessians::parse(&meta, &gguf.tensors);
        error.expect_err("a contradiction").to_string()
    };
    let array = |v: &[i32]| Value::Array(crate::gguf::Array::I32(v.to_vec()));
    for (key, value, expected) in [
        (TYPE, Value::str("imatrix"), "not 'hessian'"),
        (VERSION, Value::U32(3), "version is 3"),
        (CHUNK_COUNT, Value::U32(0), "no token"),
        (INPUTS, array(&[0, 0]), "not of one length"),
        (INPUTS, array(&[0, 0, 2]), "'c.weight': its input is none of the 2"),
        (INPUTS, array(&[0, -1, 1]), "'b.weight'"),
        (COLUMNS, array(&[3]), "more tensors than inputs"),
        (COLUMNS, array(&[3, 2, 1]), "fewer tensors than inputs"),
        (COLUMNS, array(&[4, 2]), "'a.weight.xtx': 6 elements"),
        (COLUMNS, array(&[-3, 2]), "'a.weight.xtx'"),
    ] {
        let error = refused(&|meta| meta.set(key, value.clone()));
        assert!(error.contains(expected), "{expected}: {error}");
    }
    let error = refused(&|meta| {
        meta.remove(MODEL_SHA256);
    });
    assert!(error.contains(MODEL_SHA256), "{error}");
}

/// Two stacks of three experts that share their inputs, and a matrix by itself.
fn stacked() -> Hessians {
    let mut hessians = two();
    let input =
        |number, tokens| Input { name: "e.weight".to_owned(), columns: 4, expert: Some(Expert { number, tokens }) };
    hessians.inputs.extend([input(0, 5), input(1, 0), input(2, 9)]);
    for name in ["e.weight", "f.weight"] {
        hessians.weights.insert(name.to_owned(), Reads { first: 2, experts: 3 });
    }
    hessians
}

#[test]
fn experts_have_inputs_of_their_own() {
    let (hessians, bytes) = (stacked(), file(&stacked()));
    let gguf = Gguf::parse(&bytes, &Limits::default()).unwrap();
    assert_eq!(gguf.tensors[3].name, "e.weight.1.xtx");
    let read = Hessians::parse(&gguf.meta, &gguf.tensors).unwrap();
    assert_eq!(read, hessians);
    assert_eq!([0, 2, 3, 4].map(|input| read.tokens_of(input)), [7 * 16, 5, 0, 9]);
    let refused = |change: &dyn Fn(&mut Metadata)| {
        let mut meta = gguf.meta.clone();
        change(&mut meta);
        let error = Hessians::parse(&meta, &gguf.tensors);
        error.expect_err("a contradiction").to_string()
    };
    let array = |v: &[i32]| Value::Array(crate::gguf::Array::I32(v.to_vec()));
    for (key, value, expected) in [
        (EXPERTS, array(&[0, 0, 0, 3]), "not of one length"),
        (EXPERTS, array(&[0, 0, 0, 3, 4]), "'f.weight': its input is none of the 5"),
        (EXPERTS, array(&[0, 0, 0, 3, 2]), "'f.weight': its experts are not as many"),
        (EXPERTS, array(&[0, 0, 0, 3, 0]), "'f.weight': its input is that of an expert"),
        (EXPERTS, array(&[0, 0, 1, 3, 3]), "'c.weight': the inputs that it names"),
        (INPUTS, array(&[0, 0, 1, 1, 2]), "'e.weight'"),
        (INPUTS, array(&[0, 0, 1, 2, 1]), "'f.weight'"),
        (TOKENS, array(&[0, 0, 1, 2]), "not of one length"),
        (TOKENS, array(&[0, 0, 1, 2, -1]), "hessian.tokens"),
    ] {
        let error = refused(&|meta| meta.set(key, value.clone()));
        assert!(error.contains(expected), "{expected}: {error}");
    }
}
