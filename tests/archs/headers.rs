//! Published files of ternary models by their headers: files with all of their keys, and all of their tensors in their
//! types, are read as what they are and run. Their weights are random ones.

use std::fs;

use trine::Isa;
use trine::Tokenizer;
use trine::formats::gguf::ModelFile;
use trine::formats::gguf::write::NewTensor;
use trine::formats::types::TypeId;
use trine::formats::types::ternary::{Packing, TernaryData};
use trine::model::{LoadOptions, Weights};
use trine::pool::Pool;
use trine::step::{Session, SessionOptions};
use trine_formats::gguf::{Gguf, Limits};
use trine_formats::rotated::Rotated;
use trine_kernels::testing::isas;
use trine_testkit::archs::{Header, Size};
use trine_testkit::gguf;

use crate::rotated::distance;

models! {
    /// All headers.
    HEADERS:
    bitnet_25_iq2_bn "bitnet-25-iq2_bn",
    bitnet_2b_4t "bitnet-b1.58-2b-4t",
    bitnet_embedding_270m "bitnet-embedding-270m",
    bitnet_embedding_06b "bitnet-embedding-0.6b",
    bonsai_2_27b "bonsai-2-27b",
    bonsai_27b "bonsai-27b",
    bonsai_8b "bonsai-8b",
    falcon_e_1b "falcon-e-1b",
    hy_mt2_18b "hy-mt2-1.8b",
    llama3_8b_158 "llama3-8b-1.58",
    neutrino_8b "neutrino-8b",
    trilm_39b "trilm-3.9b",
    vibevoice_asr "vibevoice-asr-lm",
}

/// Types that the ternary tensors of a header have in other files of the same model: its own type, and theirs.
const OTHERS: &[(&str, &str, &[&str])] = &[
    ("bonsai-2-27b", "ptq1_0", &["pq2_0", "q2_0"]),
    ("bonsai-27b", "q1_0", &["q2_0_g128", "q2_0", "pq2_0"]),
    ("bonsai-8b", "q1_0", &["q2_0_g128", "q2_0", "pq2_0", "ptq1_0"]),
    ("hy-mt2-1.8b", "stq1_0", &["q2_0c"]),
    ("trilm-3.9b", "tq2_0", &["tq1_0"]),
];

/// The texts of a header, in every type.
fn texts(name: &str) -> Vec<String> {
    let path = trine_testkit::testdata(&format!("headers/{name}.txt"));
    let text = fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    let of = |old: &str, new: &str| {
        let lines = text.lines().map(|line| match line.split_once(' ') {
            Some(("tensor" | "count" | "weights", rest)) => match rest.split_once(' ') {
                Some((ty, end)) if ty == old => line.replace(rest, &format!("{new} {end}")),
                _ => line.to_owned(),
            },
            _ => line.to_owned(),
        });
        lines.collect::<Vec<_>>().join("\n")
    };
    let others =
        OTHERS.iter().filter(|(of, ..)| *of == name).flat_map(|(_, old, all)| all.iter().map(|new| of(old, new)));
    let others: Vec<String> = others.collect();
    [text.clone()].into_iter().chain(others).collect()
}

#[track_caller]
fn check(name: &str) {
    for text in texts(name) {
        let real = Header::parse(&text, Size::Real);
        numbers_are_the_files(name, &real);
        let small = Header::parse(&text, Size::Small);
        let file = gguf::model(small.file());
        for (read, written) in file.tensors().zip(&small.tensors) {
            assert_eq!((&read.name, read.ty), (&written.name, written.ty), "{name}");
        }
        reads_texts(name, &file);
        runs(name, &file);
    }
}

/// Asserts that the header has the numbers that are known of the published file, and that it is read at its real size.
fn numbers_are_the_files(name: &str, real: &Header) {
    let of_type = |ty: &str| {
        let ty = TypeId::from_name(ty).unwrap_or_else(|| panic!("{name}: no type {ty}"));
        real.tensors.iter().filter(move |t| t.ty == ty)
    };
    for (what, &count) in &real.counts {
        let found = match what.as_str() {
            "keys" => real.meta.len(),
            "tensors" => real.tensors.len(),
            "folded" => Rotated::read(&real.meta).expect("keys").expect("some").weights.len(),
            ty => of_type(ty).count(),
        };
        assert_eq!(found, count, "{name}: {what}");
    }
    for (ty, &weights) in &real.weights {
        assert_eq!(of_type(ty).map(|t| t.shape.iter().product::<u64>()).sum::<u64>(), weights, "{name}: {ty}");
    }
    let layout = real.layout();
    let limits = Limits { partial: true, ..Limits::default() };
    let gguf = Gguf::parse(layout.header(), &limits).unwrap_or_else(|e| panic!("{name}: {e}"));
    assert_eq!(gguf.tensors.len(), real.tensors.len());
    let read: Vec<TypeId> = gguf.tensors.iter().map(|t| t.ty).collect();
    let written: Vec<TypeId> = real.tensors.iter().map(|t| t.ty).collect();
    assert_eq!(read, written, "{name}: types at the real size");
}

/// Asserts that texts become tokens and texts again.
fn reads_texts(name: &str, file: &ModelFile) {
    let tokenizer = Tokenizer::from_metadata(file.meta()).unwrap_or_else(|e| panic!("{name}: {e}"));
    tokenizer.check().unwrap_or_else(|e| panic!("{name}: {e}"));
    let text = "Ternary weights, 1.58 bits each: ±1 and 0.";
    let ids = tokenizer.encode(text, false, false).unwrap_or_else(|e| panic!("{name}: {e}"));
    let bytes: Vec<u8> = ids.iter().flat_map(|&id| tokenizer.piece(id, false)).collect();
    assert_eq!(String::from_utf8_lossy(&bytes).trim_start(), text, "{name}");
}

const TOKENS: [u32; 12] = [1, 7, 99, 3, 64, 12, 5, 77, 1, 2, 250, 100];

/// The logits of the tokens, all at once or one by one.
fn logits(name: &str, file: &ModelFile, isa: Isa, at_once: usize) -> Vec<f32> {
    let model = Weights::load(file, &LoadOptions { isa, ..LoadOptions::default() });
    let model = model.unwrap_or_else(|e| panic!("{name}: {e}"));
    let pool = Pool::new(2).expect("threads");
    let mut session = Session::new(&model, &pool, SessionOptions { n_ctx: 64, n_ubatch: 512 });
    let mut out = Vec::new();
    for tokens in TOKENS.chunks(at_once) {
        session.eval(tokens, 0, &mut |_, logits| out.extend_from_slice(logits)).expect("room for the tokens");
    }
    out
}

/// Asserts that the model runs, with the same bits on every instruction set and in steps of any size, and computes what
/// the model does whose weights are the same numbers, in F32.
fn runs(name: &str, file: &ModelFile) {
    let at_once = logits(name, file, Isa::detect(), TOKENS.len());
    let bits = |x: &[f32]| x.iter().map(|v| v.to_bits()).collect::<Vec<_>>();
    for isa in isas() {
        assert!(bits(&at_once) == bits(&logits(name, file, isa, 5)), "{name}: {isa:?}");
    }
    let row = &at_once[..at_once.len() / TOKENS.len()];
    assert!(at_once.iter().all(|v| v.is_finite()) && row.iter().any(|v| *v != row[0]), "{name}: {row:?}");
    // activations are rounded to 8 bits where weights are ternary
    let near = distance(&logits(name, &decoded(file), Isa::detect(), TOKENS.len()), &at_once);
    assert!(near < 0.1, "{name}: {near}");
}

/// The same model, all of whose weights are F32.
fn decoded(file: &ModelFile) -> ModelFile {
    let made = file.tensors().map(|t| {
        let (columns, data) = (t.columns() as usize, file.tensor(&t.name).expect("its data").data);
        let rows = t.elements() as usize / columns;
        let mut values = vec![0f32; columns * rows];
        if t.ty == TypeId::I2_S {
            let matrix = TernaryData::new(Packing::I2S(Default::default()), columns, rows, &data).expect("a matrix");
            let codes = matrix.codes().expect("codes");
            values.iter_mut().zip(codes).for_each(|(v, code)| *v = f32::from(code) * matrix.scale());
        } else {
            let info = t.ty.info().expect("a known type");
            let bytes = info.row_bytes(columns as u64).expect("whole blocks") as usize;
            let decode = info.decode.expect("a decoder");
            data.chunks_exact(bytes).zip(values.chunks_exact_mut(columns)).for_each(|(row, out)| decode(row, out));
        }
        let data = values.iter().flat_map(|v| v.to_le_bytes()).collect();
        (NewTensor::new(&t.name, t.shape.clone(), TypeId::F32), data)
    });
    gguf::model(gguf::bytes(file.meta(), &made.collect::<Vec<_>>()))
}

#[test]
fn every_header_is_tested() {
    let files = trine_testkit::names_in(&trine_testkit::testdata("headers"));
    let mut names: Vec<String> = HEADERS.iter().map(|name| format!("{name}.txt")).collect();
    names.push("README.md".to_owned());
    names.sort();
    assert_eq!(files, names);
}

/// Writes the headers at their real sizes with zeros for weights, which take no room on most disks, to the directory
/// that `TRINE_HEADERS` names: files for the tools to load.
#[test]
#[ignore = "writes files of many gigabytes of zeros"]
fn write_real_sizes() {
    let dir = std::env::var_os("TRINE_HEADERS").expect("TRINE_HEADERS=FOLDER");
    for name in HEADERS {
        let layout = Header::parse(&texts(name)[0], Size::Real).layout();
        let path = std::path::Path::new(&dir).join(format!("{name}.gguf"));
        fs::write(&path, layout.header()).expect("a writable folder");
        let file = fs::OpenOptions::new().write(true).open(&path).expect("the file");
        file.set_len(layout.file_bytes()).expect("a long file");
    }
}
