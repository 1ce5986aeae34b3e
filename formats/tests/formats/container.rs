//! Files that other programs wrote, copied byte for byte; split sets; and the writer's promises.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use trine_formats::gguf::split::{ShardName, shard_path};
use trine_formats::gguf::write::{Layout, NewTensor, WriteError, Writer, ggml_shape};
use trine_formats::gguf::{Gguf, Limits, Metadata, ModelFile, ScatterWriter, Shard, Value};
use trine_formats::types::TypeId;
use trine_testkit::raw::{File, sample, tensors};
use trine_testkit::{names_in, testdata};

/// All files below `dir` whose name ends in `.gguf`.
fn gguf_files(dir: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.ends_with("hostile") {
            // Damaged on purpose: not what a program writes.
        } else if path.is_dir() {
            gguf_files(&path, found);
        } else if path.extension().is_some_and(|e| e == "gguf") {
            found.push(path);
        }
    }
}

fn shard(path: &str, bytes: Vec<u8>) -> Shard {
    let gguf = Gguf::parse(&bytes, &Limits::default()).unwrap();
    Shard { path: path.into(), gguf, bytes: Arc::new(bytes) }
}

/// Reads a file and writes it again through [`Writer`], in uneven chunks.
fn copy(bytes: &[u8], target: &Path) -> Vec<u8> {
    let gguf = Gguf::parse(bytes, &Limits::default()).unwrap();
    let model = shard("original", bytes.to_vec());
    let mut writer = Writer::create(target, Layout::copy_of(&gguf).unwrap(), &[]).unwrap();
    for t in &gguf.tensors {
        let data = model.data(t).unwrap();
        if t.bytes % 3 == 1 {
            data.chunks(1000).for_each(|chunk| writer.write(chunk).unwrap());
        } else {
            writer.tensor(&t.name, &data).unwrap();
        }
    }
    let size = writer.finish().unwrap();
    let copy = fs::read(target).unwrap();
    assert_eq!(size, copy.len() as u64);
    copy
}

#[test]
fn copies_of_other_programs_files_are_identical() {
    let dir = tempfile::tempdir().unwrap();
    let mut files = Vec::new();
    gguf_files(&testdata(""), &mut files);
    // More files, to be tried by hand: models and vocabularies that are too big to be kept here.
    if let Some(more) = std::env::var_os("TRINE_GGUF_FILES") {
        files.extend(std::env::split_paths(&more));
    }
    assert!(files.len() >= 4, "the test files are missing");
    for file in files {
        let original = fs::read(&file).unwrap();
        let copy = copy(&original, &dir.path().join("copy.gguf"));
        assert!(copy == original, "the copy of {} differs", file.display());
    }
}

#[test]
fn a_copy_keeps_every_value_type_and_unknown_tensor_types() {
    let dir = tempfile::tempdir().unwrap();
    let original = sample();
    let copy = copy(&original.0, &dir.path().join("copy.gguf"));
    // The sample lacks the padding after its last tensor.
    assert_eq!(copy, original.pad(32).0);
}

#[test]
fn version_2_and_other_alignments_are_kept() {
    let dir = tempfile::tempdir().unwrap();
    let mut file = tensors(&[("a", &[8], 0, 0)], 32);
    file.0[4] = 2;
    assert_eq!(copy(&file.0, &dir.path().join("v2.gguf")), file.0);
    let file = File::new(2, 1).kv_u32("general.alignment", 128);
    let file = file.tensor("a", &[3], 24, 0).tensor("b", &[5], 0, 128).pad(128).data(3).pad(128).data(20).pad(128);
    assert_eq!(copy(&file.0, &dir.path().join("aligned.gguf")), file.0);
}

#[test]
fn shapes_are_stored_as_ggml_stores_them() {
    assert_eq!(ggml_shape(&[8, 4, 1, 1]), [8, 4]);
    assert_eq!(ggml_shape(&[8, 1, 2, 1]), [8, 1, 2]);
    assert_eq!(ggml_shape(&[1, 1]), [1]);
    assert_eq!(ggml_shape(&[1]), [1]);
    assert_eq!(ggml_shape(&[8, 0]), [8, 0]);
}

fn split_set() -> Vec<Shard> {
    (0..3)
        .map(|no| {
            let path = shard_path(testdata("gguf/imatrix").to_str().unwrap(), no, 3);
            shard(path.to_str().unwrap(), fs::read(&path).unwrap())
        })
        .collect()
}

#[test]
fn a_split_set_has_the_tensors_of_the_whole() {
    let whole = fs::read(testdata("imatrix/trilm-F16.imatrix.gguf")).unwrap();
    let whole = ModelFile::new(vec![shard("whole", whole)]).unwrap();
    let split = ModelFile::new(split_set()).unwrap();
    assert_eq!((split.n_tensors(), split.shards().len()), (84, 3));
    assert_eq!(split.meta().get_u32("imatrix.chunk_count").unwrap(), Some(8));
    for t in whole.tensors() {
        let part = split.tensor(&t.name).unwrap();
        assert_eq!(part.info.shape, t.shape);
        assert_eq!(*part.data, *whole.tensor_data(t).unwrap());
    }
    let names: Vec<&str> = split.tensors().map(|t| t.name.as_str()).collect();
    assert!(names.iter().copied().eq(whole.tensors().map(|t| t.name.as_str())));
}

#[test]
fn split_sets_that_do_not_fit_together_are_refused() {
    let refused = |shards: Vec<Shard>, message: &str| {
        let error = ModelFile::new(shards).err().expect("accepted").to_string();
        assert!(error.contains(message), "{error}");
    };
    refused(vec![], "no file was given");
    let mut set = split_set();
    set.pop();
    refused(set, "split.count is 3, but 2 file(s) were given");
    let mut set = split_set();
    set.swap(1, 2);
    refused(set, "split.no is 2 in the place of shard 1");
    let edited = |i: usize, key: &str, value: Value| {
        let mut set = split_set();
        set[i].gguf.meta.set(key, value);
        set
    };
    refused(edited(1, "split.count", Value::U16(4)), "split.count is 4, the first shard says 3");
    refused(edited(0, "split.count", Value::U64(1 << 40)), "key 'split.count': 1099511627776 does not fit u32");
    refused(edited(1, "split.no", Value::U16(7)), "split.no is 7 in the place of shard 1");
    refused(edited(0, "split.tensors.count", Value::I32(85)), "split.tensors.count is 85, but the shards hold 84");
    refused(edited(0, "split.count", Value::str("3")), "key 'split.count': is of type str, expected u32");
    let mut set = edited(0, "general.architecture", Value::str("llama"));
    set[2].gguf.meta.set("general.architecture", Value::str("bitnet"));
    refused(set, "a shard of another model");
    let mut set = split_set();
    set[2].gguf.meta.remove("split.no");
    refused(set, "key 'split.no' is missing");
    let mut set = split_set();
    set[2].gguf.tensors[0].name = set[0].gguf.tensors[0].name.clone();
    refused(set, "appears twice");
    let mut set = split_set();
    set[2].gguf.tensors[0].offset = 1 << 40;
    refused(set, "truncated");
    assert_eq!(ShardName::parse(Path::new("../x-00001-of-00002.gguf")).unwrap().prefix, "../x");
}

fn plan() -> Layout {
    let mut meta = Metadata::default();
    meta.set("general.architecture", Value::str("llama"));
    let tensors = [
        NewTensor::new("a", [8], TypeId::F32),
        NewTensor::new("b", [4, 2], TypeId::F16),
        NewTensor::new("c", [0], TypeId::F32),
    ];
    Layout::new(&meta, &tensors).unwrap()
}

#[test]
fn the_target_appears_only_when_it_is_whole() {
    let dir = tempfile::tempdir().unwrap();
    let target = dir.path().join("model.gguf");
    fs::write(&target, "old").unwrap();

    let mut writer = Writer::create(&target, plan(), &[]).unwrap();
    assert_eq!(
        names_in(dir.path()),
        ["model.gguf".to_owned(), format!("model.gguf.{}.trine.part", std::process::id())]
    );
    writer.tensor("a", &[1; 32]).unwrap();
    drop(writer);
    assert_eq!(names_in(dir.path()), ["model.gguf"]);
    assert_eq!(fs::read(&target).unwrap(), b"old");

    let mut writer = Writer::create(&target, plan(), &[]).unwrap();
    writer.tensor("a", &[1; 32]).unwrap();
    writer.write(&[2; 5]).unwrap();
    let error = writer.finish().unwrap_err();
    assert_eq!(error.to_string(), "the file is not whole: tensor 'b' lacks 11 of its bytes");
    assert_eq!(names_in(dir.path()), ["model.gguf"]);

    let mut writer = Writer::create(&target, plan(), &[]).unwrap();
    writer.tensor("a", &[1; 32]).unwrap();
    writer.tensor("b", &[2; 16]).unwrap();
    writer.tensor("c", &[]).unwrap();
    writer.finish().unwrap();
    assert_eq!(names_in(dir.path()), ["model.gguf"]);
    let bytes = fs::read(&target).unwrap();
    assert!(bytes.ends_with(&[&[1; 32][..], &[2; 16], &[0; 16]].concat()));
    assert_eq!(Gguf::parse(&bytes, &Limits::default()).unwrap().tensors.len(), 3);
}

#[test]
fn data_out_of_order_or_of_another_size_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let mut writer = Writer::create(&dir.path().join("m.gguf"), plan(), &[]).unwrap();
    assert!(matches!(writer.tensor("b", &[0; 16]), Err(WriteError::Order { .. })));
    assert!(matches!(writer.tensor("a", &[0; 31]), Err(WriteError::Length { expected: 32, found: 31, .. })));
    assert!(matches!(writer.write(&[0; 33]), Err(WriteError::Length { found: 33, .. })));
    writer.tensor("a", &[0; 32]).unwrap();
    writer.tensor("b", &[0; 16]).unwrap();
    assert!(matches!(writer.write(&[0]), Err(WriteError::TooMuch(1))));
    writer.finish().unwrap();
}

#[test]
fn pieces_in_any_order_make_the_same_file() {
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name);
    let mut writer = Writer::create(&path("in-order"), plan(), &[]).unwrap();
    writer.tensor("a", &[1; 32]).unwrap();
    writer.tensor("b", &[2; 16]).unwrap();
    writer.finish().unwrap();

    let writer = ScatterWriter::create(&path("scattered"), plan(), &[]).unwrap();
    let chunks = [(1, 8, 8), (0, 0, 30), (1, 0, 8), (2, 0, 0), (0, 30, 2)];
    for (tensor, start, len) in chunks {
        let data = vec![tensor as u8 + 1; len];
        writer.write(tensor, start, &data).unwrap();
    }
    assert!(!path("scattered").exists());
    for (tensor, start, len) in [(0, 31, 2), (0, 0, 1), (1, u64::MAX, 1)] {
        let error = writer.write(tensor, start, &vec![0; len]).unwrap_err();
        assert!(matches!(error, WriteError::Outside { .. }), "{error}");
    }
    assert!(matches!(writer.write(3, 0, &[]), Err(WriteError::TooMuch(0))));
    writer.finish(&plan()).unwrap();
    assert_eq!(fs::read(path("scattered")).unwrap(), fs::read(path("in-order")).unwrap());
    assert_eq!(names_in(dir.path()), ["in-order", "scattered"]);
}

#[test]
fn threads_may_write_chunks_together() {
    let dir = tempfile::tempdir().unwrap();
    let target = dir.path().join("m.gguf");
    let tensors: Vec<NewTensor> = (0..5).map(|i| NewTensor::new(format!("t{i}"), [1001 + i], TypeId::F32)).collect();
    let layout = Layout::new(&Metadata::default(), &tensors).unwrap();
    let writer = ScatterWriter::create(&target, layout.clone(), &[]).unwrap();
    std::thread::scope(|scope| {
        for thread in 0..4usize {
            let (writer, layout) = (&writer, &layout);
            scope.spawn(move || {
                for (t, info) in layout.tensors().iter().enumerate() {
                    for start in (0..info.bytes).step_by(64).skip(thread).step_by(4) {
                        let data = vec![t as u8 + 1; (info.bytes - start).min(64) as usize];
                        writer.write(t, start, &data).unwrap();
                    }
                    writer.sync().unwrap();
                }
            });
        }
    });
    // every byte is there, so one more is too much
    assert!(matches!(writer.write(0, 0, &[1]), Err(WriteError::Outside { .. })));
    writer.finish(&layout).unwrap();
    let mut expected = layout.header().to_vec();
    for (t, info) in layout.tensors().iter().enumerate() {
        expected.resize(expected.len() + info.bytes as usize, t as u8 + 1);
        expected.resize(expected.len().next_multiple_of(32), 0);
    }
    assert_eq!(fs::read(&target).unwrap(), expected);
}

#[test]
fn scattered_chunks_that_are_missing_are_named() {
    let dir = tempfile::tempdir().unwrap();
    let target = dir.path().join("m.gguf");
    let writer = ScatterWriter::create(&target, plan(), &[]).unwrap();
    writer.write(0, 0, &[1; 32]).unwrap();
    writer.write(1, 8, &[1; 8]).unwrap();
    let error = writer.finish(&plan()).unwrap_err().to_string();
    assert_eq!(error, "the file is not whole: tensor 'b' lacks 8 of its bytes");
    let writer = ScatterWriter::create(&target, plan(), &[]).unwrap();
    writer.write(0, 0, &[1; 32]).unwrap();
    writer.write(1, 0, &[1; 16]).unwrap();
    let other = Layout::new(&Metadata::default(), &[NewTensor::new("a", [8], TypeId::F32)]);
    let error = writer.finish(&other.unwrap()).unwrap_err();
    assert!(matches!(error, WriteError::OtherHeader));
    assert!(names_in(dir.path()).is_empty());
}

#[test]
fn targets_that_cannot_be_written_are_named() {
    let dir = tempfile::tempdir().unwrap();
    let input = dir.path().join("in.gguf");
    fs::write(&input, "precious").unwrap();
    let refused = |target: &Path, message: &str| {
        let error = Writer::create(target, plan(), &[&input]).err().expect("accepted").to_string();
        assert!(error.contains(message), "{error}");
    };
    refused(dir.path(), "it is a directory");
    refused(&dir.path().join("no/such/file.gguf"), "the directory it should lie in does not exist");
    refused(&input, "it is also the input");
    #[cfg(unix)]
    {
        let link = dir.path().join("link.gguf");
        std::os::unix::fs::symlink(&input, &link).unwrap();
        refused(&link, "it is also the input");
        fs::hard_link(&input, dir.path().join("hard.gguf")).unwrap();
        refused(&dir.path().join("hard.gguf"), "it is also the input");
        refused(Path::new("/dev/null"), "it exists and is not a regular file");
    }
    assert_eq!(fs::read(&input).unwrap(), b"precious");
}

#[cfg(target_os = "linux")]
#[test]
fn an_unwritable_directory_is_named() {
    // Nobody, not even root, can create files there.
    let error = Writer::create(Path::new("/proc/model.gguf"), plan(), &[]).err().unwrap().to_string();
    assert!(error.starts_with("cannot create '/proc/model.gguf."), "{error}");
}

#[test]
fn what_cannot_be_read_cannot_be_planned() {
    let refused = |meta: &[(&str, Value)], tensors: &[NewTensor], message: &str| {
        let mut m = Metadata::default();
        meta.iter().for_each(|(k, v)| m.set(k, v.clone()));
        let error = Layout::new(&m, tensors).unwrap_err().to_string();
        assert!(error.contains(message), "{error}");
    };
    let t = |name: &str, shape: &[u64], ty: u32| NewTensor::new(name, shape, TypeId(ty));
    refused(&[("", Value::U8(1))], &[], "is empty");
    refused(&[("a\0", Value::U8(1))], &[], "NUL");
    refused(&[("general.alignment", Value::U32(3))], &[], "not a usable alignment");
    refused(&[], &[t(&"n".repeat(64), &[1], 0)], "64 bytes long");
    refused(&[], &[t("a", &[1], 0), t("a", &[1], 0)], "twice");
    refused(&[], &[t("a", &[], 0)], "0 dimensions");
    refused(&[], &[t("a", &[1; 5], 0)], "5 dimensions");
    refused(&[], &[t("a", &[100], 35)], "no multiple");
    refused(&[], &[t("a", &[1 << 40, 1 << 40], 0)], "more elements");
    refused(&[], &[t("a", &[1], 36)], "the size of type 36 is not known");
    let mut wrong = t("a", &[8], 0);
    wrong.bytes = Some(31);
    refused(&[], &[wrong], "has 31 bytes of data where its shape and type take 32");
}
