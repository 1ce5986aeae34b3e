//! Files with the types of ik_llama.cpp: rows that lie interleaved are those that they were made of, and what has no
//! kernels runs with the same bits everywhere.

use trine::{Isa, Recipe, Target};
use trine_formats::gguf::ModelFile;
use trine_formats::gguf::write::NewTensor;
use trine_formats::types::{TypeId, TypeInfo};
use trine_kernels::testing::{Random, isas};
use trine_testkit::gguf;

use crate::common::{Run, hashes, trilm};

const TOKENS: [u32; 16] = [1, 7, 99, 3, 64, 12, 5, 77, 1, 2, 3, 100, 42, 8, 9, 10];

/// The model with all matrices of its blocks as `ty`, whose rows `encode` makes of numbers.
fn with_matrices(ty: TypeId, mut encode: impl FnMut(&TypeInfo, &[f32]) -> Vec<u8>) -> ModelFile {
    let file = trilm();
    let info = ty.info().expect("registered");
    let made = file.tensors().map(|t| {
        let data = file.tensor(&t.name).expect("its data").data.to_vec();
        if t.shape.len() != 2 || !t.name.starts_with("blk.") {
            return (NewTensor::new(&t.name, t.shape.clone(), t.ty), data);
        }
        let mut values = vec![0f32; t.elements() as usize];
        t.ty.info().and_then(|info| info.decode).expect("a float type")(&data, &mut values);
        let rows = values.chunks_exact(t.columns() as usize).flat_map(|row| encode(info, row)).collect();
        (NewTensor::new(&t.name, t.shape.clone(), ty), rows)
    });
    gguf::model(gguf::bytes(file.meta(), &made.collect::<Vec<_>>()))
}

fn encoded(info: &TypeInfo, row: &[f32]) -> Vec<u8> {
    let mut out = vec![0; info.row_bytes(row.len() as u64).expect("whole blocks") as usize];
    info.encode.expect("an encoder")(row, None, &mut out);
    out
}

/// Eight rows of Q8_0 at a time as Q8_0_R8 has them: the scales of a column of blocks, then four codes of each row.
fn interleaved(file: &ModelFile) -> ModelFile {
    let made = file.tensors().map(|t| {
        let data = file.tensor(&t.name).expect("its data").data.to_vec();
        if t.ty != TypeId::Q8_0 {
            return (NewTensor::new(&t.name, t.shape.clone(), t.ty), data);
        }
        let row_bytes = t.columns() as usize / 32 * 34;
        let mut out = Vec::new();
        for group in data.chunks_exact(8 * row_bytes) {
            for block in 0..t.columns() as usize / 32 {
                let of_row = |k: usize| &group[k * row_bytes + 34 * block..][..34];
                (0..8).for_each(|k| out.extend_from_slice(&of_row(k)[..2]));
                for four in 0..8 {
                    (0..8).for_each(|k| out.extend_from_slice(&of_row(k)[2 + 4 * four..][..4]));
                }
            }
        }
        (NewTensor::new(&t.name, t.shape.clone(), TypeId::Q8_0_R8), out)
    });
    gguf::model(gguf::bytes(file.meta(), &made.collect::<Vec<_>>()))
}

#[test]
fn interleaved_rows_run_as_their_base_type_and_become_it() {
    let plain = with_matrices(TypeId::Q8_0, encoded);
    let together = interleaved(&plain);
    assert_eq!(hashes(&together, &TOKENS, Run::default()), hashes(&plain, &TOKENS, Run::default()));

    let dir = trine_testkit::folder();
    let made = |file: &ModelFile, target: &str, name: &str| {
        let path = dir.path().join(name);
        let recipe = Recipe { allow_requantize: true, ..Recipe::new(Target::parse(target).expect("a name")) };
        trine::quantize(file, &recipe, &path).unwrap_or_else(|e| panic!("{e}"));
        trine_testkit::read(&path)
    };
    for target in ["COPY", "Q4_0", "F16"] {
        assert!(made(&together, target, "a") == made(&plain, target, "b"), "{target}");
    }
}

#[test]
fn rows_that_are_no_whole_groups_and_types_that_nobody_can_read_are_refused() {
    let refused = |ty: TypeId, rows: u64, words: &[&str]| {
        let file = trilm();
        let made = file.tensors().map(|t| match t.name == "blk.0.ffn_up.weight" {
            true => {
                let bytes = ty.info().expect("registered").tensor_bytes(t.columns(), rows).expect("a size");
                (NewTensor::new(&t.name, [t.columns(), rows], ty), vec![0; bytes as usize])
            }
            false => {
                let data = file.tensor(&t.name).expect("its data").data.to_vec();
                (NewTensor::new(&t.name, t.shape.clone(), t.ty), data)
            }
        });
        let mut meta = file.meta().clone();
        meta.set("llama.feed_forward_length", trine_formats::gguf::Value::U32(rows as u32));
        let file = gguf::model(gguf::bytes(&meta, &made.collect::<Vec<_>>()));
        let options = trine::model::LoadOptions { isa: Isa::detect(), ..Default::default() };
        let error = trine::model::Weights::load(&file, &options).err().expect("a refusal").to_string();
        let line = error.lines().find(|line| line.contains("ffn_up")).unwrap_or_else(|| panic!("{error}"));
        words.iter().for_each(|word| assert!(line.contains(word), "{line}"));
    };
    refused(TypeId::IQ4_K_R4, 30, &["iq4_k_r4", "30 rows", "groups of 4"]);
    refused(TypeId::Q8_K_R16, 32, &["q8_k_r16", "depend on the machine"]);
}

/// Random codes under small scales.
fn random(ty: TypeId) -> ModelFile {
    let mut random = Random(0x1F0_4B5 + u64::from(ty.0));
    with_matrices(ty, |info, row| {
        let mut bytes = random.bytes(info.row_bytes(row.len() as u64).expect("whole blocks") as usize);
        match info.head {
            0 => bytes.chunks_exact_mut(info.bytes).for_each(|block| block[1] = 0x04),
            2 => bytes[1] = 0x04,
            _ => bytes[3] = 0x38,
        }
        bytes
    })
}

#[test]
fn types_without_kernels_have_the_same_bits_everywhere() {
    for ty in [TypeId::IQ4_KS, TypeId::IQ2_K, TypeId::IQ3_KT, TypeId::Q6_0, TypeId::IQ2_BN] {
        let file = random(ty);
        let usual = Run::default();
        let want = hashes(&file, &TOKENS, usual);
        let zero = trine_testkit::sha256(&vec![0; 4 * 4096]);
        assert!(want.iter().all(|hash| *hash != zero), "{ty}");
        let runs = [Run { threads: 1, ..usual }, Run { n_ubatch: 3, ..usual }, Run { per_call: 1, ..usual }];
        for run in isas().map(|isa| Run { isa, ..usual }).chain(runs) {
            assert_eq!(hashes(&file, &TOKENS, run), want, "{ty} {run:?}");
        }
    }
}
