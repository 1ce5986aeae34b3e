//! Both forms of importance matrix, as llama-imatrix wrote them, and damaged ones.

use std::fs;

use proptest::prelude::*;
use trine_formats::imatrix::{Entry, FileFormat, Imatrix, ImatrixError};
use trine_testkit::raw::File;
use trine_testkit::testdata;

fn golden(name: &str) -> Vec<u8> {
    fs::read(testdata("imatrix").join(name)).unwrap()
}

#[test]
fn both_forms_of_one_matrix_agree() {
    let gguf = Imatrix::parse(&golden("trilm-F16.imatrix.gguf")).unwrap();
    let legacy = Imatrix::parse(&golden("trilm-F16.imatrix.dat")).unwrap();
    assert_eq!((gguf.entries.len(), legacy.entries.len()), (42, 42));
    assert_eq!((gguf.chunk_count, gguf.chunk_size, gguf.legacy), (8, 512, false));
    assert_eq!((legacy.chunk_count, legacy.chunk_size, legacy.legacy), (8, 0, true));
    assert_eq!(gguf.datasets, legacy.datasets);
    assert_eq!(gguf.entries["blk.0.attn_q.weight"].counts, [4096]);
    assert_eq!(legacy.entries["blk.0.attn_q.weight"].counts, [8]);
    for name in gguf.entries.keys() {
        let (a, b) = (gguf.importance(name).unwrap(), legacy.importance(name).unwrap());
        // The legacy form multiplied by the 8 chunks, which is exact.
        assert!(a.iter().map(|x| x.to_bits()).eq(b.iter().map(|x| x.to_bits())), "{name}");
    }
    assert_eq!(gguf.importance("blk.9.attn_q.weight"), None);
}

/// A GGUF importance matrix of one weight with these sums and counts.
fn gguf(sums: &[f32], shape: &[u64], counts: &[f32]) -> Vec<u8> {
    let f32s = |v: &[f32]| v.iter().flat_map(|x| x.to_le_bytes()).collect::<Vec<u8>>();
    let second = (4 * sums.len() as u64).next_multiple_of(32);
    File::new(2, 3)
        .key("imatrix.datasets", 9)
        .u32(8)
        .u64(1)
        .str("text")
        .kv_u32("imatrix.chunk_count", 1)
        .kv_u32("imatrix.chunk_size", 512)
        .tensor("w.in_sum2", shape, 0, 0)
        .tensor("w.counts", &[1, counts.len() as u64], 0, second)
        .pad(32)
        .raw(&f32s(sums))
        .pad(32)
        .raw(&f32s(counts))
        .0
}

#[test]
fn experts_have_their_own_counts_and_those_without_tokens_weigh_one() {
    let m = Imatrix::parse(&gguf(&[1.0, 2.0, 3.0, 4.0, 5.0, 7.0], &[2, 3], &[4.0, 0.0, 3.0])).unwrap();
    assert_eq!(m.importance("w").unwrap(), [0.25, 0.5, 1.0, 1.0, 5.0 / 3.0, 7.0 / 3.0]);
    assert_eq!(m.datasets, ["text"]);
    // Counts are whole numbers; the stored ones are rounded, ties away from zero.
    let m = Imatrix::parse(&gguf(&[1.0, 2.0], &[2], &[2.5])).unwrap();
    assert_eq!(m.entries["w"].counts, [3]);
}

fn legacy(entries: &[(&str, i32, &[f32])]) -> File {
    let mut f = File::default().u32(entries.len() as u32);
    for (name, calls, values) in entries {
        f = f.u32(name.len() as u32).raw(name.as_bytes()).u32(*calls as u32).u32(values.len() as u32);
        for v in *values {
            f = f.u32(v.to_bits());
        }
    }
    f
}

#[test]
fn legacy_values_are_divided_by_the_calls() {
    let file = legacy(&[("a", 3, &[1.0, 2.0]), ("b", 0, &[5.0]), ("c", -1, &[6.0]), ("a", 2, &[8.0])]);
    let m = Imatrix::parse(&file.0).unwrap();
    assert_eq!(m.importance("a").unwrap(), [4.0]);
    assert_eq!(m.importance("b").unwrap(), [5.0]);
    assert_eq!(m.importance("c").unwrap(), [6.0]);
    assert_eq!((m.chunk_count, m.datasets.len()), (0, 0));
    let m = Imatrix::parse(&file.u32(7).u32(4).raw(b"te\0t").0).unwrap();
    assert_eq!((m.chunk_count, m.datasets), (7, vec!["te".to_owned()]));
}

#[test]
fn damaged_files_are_refused() {
    let refused = |bytes: &[u8], message: &str| {
        let error = Imatrix::parse(bytes).expect_err("accepted").to_string();
        assert!(error.contains(message), "{error}");
    };
    refused(b"", "it is empty");
    refused(&[0; 3], "the number of entries needs 4 bytes where 3 are left (at byte 0)");
    refused(&[0; 4], "the number of entries is 0");
    refused(&[255; 4], "the number of entries is -1");
    refused(&File::default().u32(1).u32(u32::MAX).0, "the length of the name is -1");
    refused(&File::default().u32(1).u32(1 << 30).raw(b"abc").0, "the name needs 1073741824 bytes where 3 are left");
    refused(&legacy(&[("a", 1, &[])]).0, "entry 1 has no values");
    let huge = File::default().u32(1).u32(1).raw(b"a").u32(1).u32(i32::MAX as u32).raw(&[0; 8]);
    refused(&huge.0, "2147483647 values needs 8589934588 bytes where 8 are left");
    refused(&File::default().u32(i32::MAX as u32).0, "entry 1: the length of the name needs 4 bytes");
    let good = legacy(&[("a", 1, &[1.0]), ("b", 1, &[2.0])]).0;
    (0..good.len()).for_each(|n| refused(&good[..n], ""));

    refused(&gguf(&[1.0; 5], &[5], &[1.0, 2.0]), "2 counts cannot belong to 5 sums");
    refused(&gguf(&[1.0], &[1], &[]), "0 counts cannot belong to 1 sums");
    let renamed = |from: &[u8], to: &[u8]| {
        let mut bytes = gguf(&[1.0], &[1], &[1.0]);
        let at = bytes.windows(from.len()).position(|w| w == from).unwrap();
        bytes[at..at + from.len()].copy_from_slice(to);
        bytes
    };
    refused(&renamed(b"w.counts", b"v.counts"), "'v': only one of .in_sum2 and .counts is there");
    refused(&renamed(b"imatrix.chunk_size", b"imatrix.chunk_sizo"), "key 'imatrix.chunk_size': is missing");
    refused(&trine_testkit::raw::sample().0, "key 'imatrix.datasets': is missing");
    refused(&File::new(0, 0).0, "it has no tensors");
}

#[test]
fn files_are_written_byte_for_byte() {
    for name in ["trilm-F16", "bitnet-F16"] {
        let file = golden(&format!("{name}.imatrix.gguf"));
        let dat = golden(&format!("{name}.imatrix.dat"));
        let sums = Imatrix::parse(&file).unwrap();
        assert!(sums.to_bytes(FileFormat::Gguf).unwrap() == file, "{name}");
        assert!(sums.to_bytes(FileFormat::Legacy).unwrap() == dat, "{name}");
        let legacy = Imatrix::parse(&dat).unwrap();
        assert!(legacy.to_bytes(FileFormat::Legacy).unwrap() == dat, "{name}");
        // 8 chunks are a power of two, so nothing was lost on the way.
        let mut back = Imatrix::new(512);
        back.merge(&legacy).unwrap();
        assert!(back.to_bytes(FileFormat::Gguf).unwrap() == file, "{name}");
    }
}

#[test]
fn sums_of_matrices_are_those_of_llama_imatrix() {
    let merged = |chunk_size, files: [&str; 2], form| {
        let mut sum = Imatrix::new(chunk_size);
        for file in files {
            sum.merge(&Imatrix::parse(&golden(file)).unwrap()).unwrap();
        }
        sum.to_bytes(form).unwrap()
    };
    let [trilm, bitnet] = ["trilm-F16.imatrix", "bitnet-F16.imatrix"];
    let (gguf, dat) = (|n: &str| format!("{n}.gguf"), |n: &str| format!("{n}.dat"));
    let bytes = merged(512, [&gguf(trilm), &dat(bitnet)], FileFormat::Gguf);
    assert!(bytes == golden("sum.gguf"));
    let bytes = merged(300, [&gguf(trilm), &gguf(bitnet)], FileFormat::Legacy);
    assert!(bytes == golden("sum300.dat"));
    let bytes = merged(300, [&dat(trilm), &gguf(bitnet)], FileFormat::Legacy);
    assert!(bytes == golden("mixed300.dat"));
}

fn one(name: &str, sums: &[f32], counts: &[i64]) -> Imatrix {
    let mut m = Imatrix::new(4);
    let entry = Entry { sums: sums.to_vec(), counts: counts.to_vec() };
    m.entries.insert(name.to_owned(), entry);
    m.count_chunks().unwrap();
    m
}

#[test]
fn experts_without_tokens_are_ones_in_the_legacy_form() {
    let mut m = one("e", &[6.0, 9.0, 5.0, 7.0], &[6, 0]);
    m.entries.insert("unseen".to_owned(), m.entries["e"].clone());
    m.entries.get_mut("unseen").unwrap().counts = vec![0, 0];
    m.datasets = vec!["a".to_owned(), "last".to_owned()];
    // 6 tokens of 4 a chunk are two calls, one of them whole.
    let file = legacy(&[("e", 2, &[2.0, 3.0, 2.0, 2.0])]);
    let file = file.u32(1).u32(4).raw(b"last");
    assert_eq!(m.to_bytes(FileFormat::Legacy).unwrap(), file.0);
    let back = Imatrix::parse(&m.to_bytes(FileFormat::Gguf).unwrap()).unwrap();
    assert_eq!(back, m);
}

#[test]
fn counts_of_one_matrix_spread_over_the_experts_of_another() {
    let mut sum = one("w", &[1.0, 2.0], &[8]);
    sum.merge(&one("w", &[1.0, 1.0], &[1, 2])).unwrap();
    assert_eq!(sum.entries["w"].counts, [9, 10]);
    assert_eq!(sum.chunk_count, 2);
    let calls = Imatrix::parse(&legacy(&[("w", 3, &[1.0, 2.0])]).0).unwrap();
    sum.merge(&calls).unwrap();
    assert_eq!(sum.entries["w"].counts, [21, 22]);
    assert_eq!(sum.entries["w"].sums, [6.0, 11.0]);
}

#[test]
fn what_cannot_be_added_or_written_is_named() {
    let refused = |error: ImatrixError, message: &str| {
        let error = error.to_string();
        assert!(error.contains(message), "{error}");
    };
    let mut sum = one("w", &[1.0, 2.0], &[1, 2]);
    let cases: [(&[f32], &[i64], &str); 3] = [
        (&[1.0], &[1], "'w': 2 columns in one file, 1 in another"),
        (&[1.0, 2.0], &[1], "'w': 2 experts in one file, 1 in another"),
        (&[1.0, 2.0], &[i64::MAX, 1], "'w': the counts overflow"),
    ];
    for (sums, counts, message) in cases {
        let mut other = one("w", sums, &[0]);
        other.entries.get_mut("w").unwrap().counts = counts.to_vec();
        refused(sum.merge(&other).unwrap_err(), message);
    }
    let mut endless = one("w", &[1.0], &[0]);
    endless.entries.get_mut("w").unwrap().counts = vec![1 << 50];
    refused(endless.count_chunks().unwrap_err(), "beyond any text");
    refused(
        endless.to_bytes(FileFormat::Legacy).unwrap_err(),
        "'w': 281474976710656 calls are more than the legacy form can hold",
    );
    let odd = one("w", &[1.0; 3], &[1, 1]);
    refused(odd.to_bytes(FileFormat::Gguf).unwrap_err(), "'w': 2 counts cannot belong to 3 sums");
    let long = one(&"n".repeat(60), &[1.0], &[1]);
    refused(long.to_bytes(FileFormat::Gguf).unwrap_err(), "68");
    let calls = Imatrix::parse(&legacy(&[("w", 3, &[1.0, 2.0])]).0).unwrap();
    refused(calls.to_bytes(FileFormat::Gguf).unwrap_err(), "the legacy form has no sums");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn no_bytes_panic(
        edits in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..6),
        cut in any::<prop::sample::Index>(),
    ) {
        let new = gguf(&[1.0; 6], &[2, 3], &[4.0, 0.0, 3.0]);
        let old = legacy(&[("a", 3, &[1.0, 2.0]), ("b", 0, &[5.0])]).u32(7).u32(4).raw(b"text").0;
        for mut bytes in [new, old] {
            for (at, value) in &edits {
                let at = at.index(bytes.len());
                bytes[at] = *value;
            }
            for bytes in [&bytes[..], &bytes[..cut.index(bytes.len())]] {
                if let Ok(m) = Imatrix::parse(bytes) {
                    m.entries.keys().for_each(|name| assert!(m.importance(name).is_some()));
                    let mut sum = Imatrix::new(512);
                    if sum.merge(&m).is_ok() {
                        let again = sum.to_bytes(FileFormat::Gguf).unwrap();
                        assert_eq!(Imatrix::parse(&again).unwrap().entries.len(), m.entries.len());
                    }
                }
            }
        }
    }
}
