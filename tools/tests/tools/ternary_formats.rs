//! Ternary weights through all formats: nothing changes, what cannot be held is named, damage is found.

use std::fs;
use std::path::Path;

use assert_cmd::Command;
use tempfile::TempDir;
use trine_formats::gguf::write::NewTensor;
use trine_formats::gguf::{Metadata, Value};
use trine_formats::types::TypeId;
use trine_testkit::gguf::{self, header};
use trine_testkit::{bitnet, tool, trilm};

fn run(bin: &str, dir: &Path, words: &str) -> std::process::Output {
    Command::from(tool::command(bin)).current_dir(dir).args(words.split_ascii_whitespace()).output().unwrap()
}

const RQUANTIZE: &str = env!("CARGO_BIN_EXE_rquantize");
const RGEN: &str = env!("CARGO_BIN_EXE_rgen");
const RINSPECT: &str = env!("CARGO_BIN_EXE_rinspect");

/// Standard output of a run that must succeed.
fn ok(bin: &str, dir: &Path, words: &str) -> String {
    tool::stdout(run(bin, dir, words))
}

/// Standard error of a run that must fail with code 1.
fn refused(bin: &str, dir: &Path, words: &str) -> String {
    let output = run(bin, dir, words);
    assert_eq!(output.status.code(), Some(1), "{words}");
    String::from_utf8(output.stderr).unwrap()
}

/// A directory with the two models as `trilm.gguf` and `bitnet.gguf`, and token ids in `ids.txt`.
fn bundle() -> TempDir {
    let dir = TempDir::new().unwrap();
    fs::copy(trilm(), dir.path().join("trilm.gguf")).unwrap();
    fs::write(dir.path().join("bitnet.gguf"), bitnet()).unwrap();
    fs::write(dir.path().join("ids.txt"), "5 17 200 31 900 7 7 12 100 4000 55").unwrap();
    dir
}

/// The data of every tensor, by name.
fn tensors(path: &Path) -> Vec<(String, TypeId, Vec<u8>)> {
    let bytes = fs::read(path).unwrap();
    let gguf = header(&bytes);
    let mut all: Vec<_> = gguf
        .tensors
        .iter()
        .map(|t| {
            let start = (gguf.data_offset + t.offset) as usize;
            let data = bytes[start..start + t.bytes as usize].to_vec();
            (t.name.clone(), t.ty, data)
        })
        .collect();
    all.sort();
    all
}

#[test]
fn types_of_forks_hold_the_same_weights() {
    let dir = bundle();
    let at = |name: &str| dir.path().join(name);
    ok(RQUANTIZE, dir.path(), "trilm.gguf i2_s.gguf I2_S");
    let mut from = "i2_s.gguf".to_owned();
    for (ty, id) in [("iq2_bn", 135), ("ptq1_0", 143), ("iq1_bn", 134), ("pq2_0", 142), ("q2_0_g128", 42)] {
        let to = format!("{ty}.gguf");
        let rule = format!("--tensor-type ^blk.*(attn|ffn)_[a-z]+.weight={ty}");
        let said = ok(RQUANTIZE, dir.path(), &format!("--verify {rule} {from} {to} TQ2_0"));
        assert!(said.contains("verified: 42 tensors converted with every one of 4718592 weights"), "{ty}: {said}");
        let gguf = header(&fs::read(at(&to)).unwrap());
        let of_type = gguf.tensors.iter().filter(|t| t.ty.to_string() == ty);
        assert_eq!(of_type.clone().count(), 42, "{ty}");
        assert!(of_type.clone().all(|t| t.ty.file_id() == id), "{ty}");
        let said = ok(RINSPECT, dir.path(), &format!("--check-tensors {to}"));
        assert!(said.contains(ty), "{ty}: {said}");
        from = to;
    }
    // What trine runs has the logits of another ternary type with the same products.
    let hash = |model: &str| {
        let words = format!("-m {model} --tokens ids.txt -n 0 --logits-sha256");
        ok(RGEN, dir.path(), &words)
    };
    assert_eq!(hash("q2_0_g128.gguf"), hash("ptq1_0.gguf"));
    assert_eq!(hash("iq2_bn.gguf"), hash("iq1_bn.gguf"));
    ok(RQUANTIZE, dir.path(), &format!("--verify {from} back.gguf F16"));
    assert_eq!(tensors(&at("back.gguf")), tensors(&at("trilm.gguf")));
}

#[test]
fn a_round_trip_changes_no_weight() {
    let dir = bundle();
    let at = |name: &str| dir.path().join(name);
    for model in ["trilm", "bitnet"] {
        let mut from = format!("{model}.gguf");
        for (ty, file_type, id) in [
            ("I2_S", 40, 36),
            ("TL2", 39, 39),
            ("TQ1_0", 36, 34),
            ("TL1", 38, 38),
            ("TQ2_0", 37, 35),
            ("Q2_0", 41, 42),
            ("BF16", 32, 30),
        ] {
            // the scales are F16 numbers, which BF16 cannot hold
            if ty == "BF16" {
                let message = refused(RQUANTIZE, dir.path(), &format!("{from} no.gguf BF16"));
                assert!(message.contains("blk.0.attn_q.weight: scale"), "{message}");
                assert!(!at("no.gguf").exists());
                continue;
            }
            let to = format!("{model}-{ty}.gguf");
            let said = ok(RQUANTIZE, dir.path(), &format!("--verify {from} {to} {ty}"));
            assert!(said.contains("verified: 42 tensors converted with every one of 4718592 weights"), "{said}");
            let gguf = header(&fs::read(at(&to)).unwrap());
            let found = gguf.meta.get_u32("general.file_type").unwrap();
            assert_eq!(found, Some(file_type), "{ty}");
            let q = gguf.tensors.iter().find(|t| t.name == "blk.0.attn_q.weight");
            assert_eq!(q.unwrap().ty.file_id(), id, "{ty}");
            let embd = gguf.tensors.iter().find(|t| t.name == "token_embd.weight");
            assert_eq!(embd.unwrap().ty, TypeId::F16, "{ty}");
            for key in ["trine.tl1.tiles", "trine.tl2.tiles"] {
                let wanted = key.contains(&ty.to_lowercase());
                assert_eq!(gguf.meta.get(key).is_some(), wanted, "{ty} {key}");
            }
            from = to;
        }
        for ty in ["F16", "F32"] {
            ok(RQUANTIZE, dir.path(), &format!("--verify {from} back-{ty}.gguf {ty}"));
        }
        assert_eq!(tensors(&at("back-F16.gguf")), tensors(&at(&format!("{model}.gguf"))));
        ok(RQUANTIZE, dir.path(), "--verify back-F32.gguf again.gguf I2_S");
        assert_eq!(tensors(&at("again.gguf")), tensors(&at(&format!("{model}-I2_S.gguf"))));
        // what was moved there over four formats is what the quantizer makes of the floats
        for ty in ["TQ1_0", "TQ2_0", "Q2_0"] {
            let options = "--token-embedding-type f16";
            let words = format!("{options} {model}.gguf direct.gguf {ty}");
            ok(RQUANTIZE, dir.path(), &words);
            let direct = fs::read(at("direct.gguf")).unwrap();
            let chained = fs::read(at(&format!("{model}-{ty}.gguf"))).unwrap();
            assert!(direct == chained, "{ty}");
        }
        // a copy keeps the scale behind the codes
        for ty in ["I2_S", "TL2"] {
            let from = format!("{model}-{ty}.gguf");
            ok(RQUANTIZE, dir.path(), &format!("--verify {from} copy.gguf COPY"));
            assert!(fs::read(at("copy.gguf")).unwrap() == fs::read(at(&from)).unwrap(), "the copy of {from} differs");
        }
    }
}

#[test]
fn logits_do_not_depend_on_the_packing() {
    let dir = bundle();
    for model in ["trilm", "bitnet"] {
        let mut all = Vec::new();
        for ty in ["I2_S", "TL1", "TL2"] {
            let file = format!("{ty}.gguf");
            ok(RQUANTIZE, dir.path(), &format!("{model}.gguf {file} {ty}"));
            for options in ["", "-b 1 -t 1", "-ub 3 -t 2"] {
                let words = format!("-m {file} --tokens ids.txt -n 0 --logits-sha256 {options}");
                all.push(ok(RGEN, dir.path(), &words));
            }
            let mut scalar = Command::from(tool::command(RGEN));
            scalar.env("TRINE_ISA", "scalar").current_dir(dir.path());
            scalar.args(["-m", &file, "--tokens", "ids.txt", "-n", "0", "--logits-sha256"]);
            all.push(String::from_utf8(scalar.output().unwrap().stdout).unwrap());
        }
        assert_eq!(all[0].lines().count(), 11, "{}", all[0]);
        assert!(all.iter().all(|a| *a == all[0]), "{model}");
    }
}

/// Name, columns, rows and the weight at a column and row.
type Matrix<'a> = (&'a str, u64, u64, &'a dyn Fn(u64, u64) -> f32);

/// A file of these matrices.
fn synthetic(path: &Path, matrices: &[Matrix<'_>]) {
    let mut meta = Metadata::default();
    meta.set("general.architecture", Value::str("llama"));
    let tensor = |&(name, columns, rows, weight): &Matrix<'_>| {
        let places = (0..rows).flat_map(|r| (0..columns).map(move |c| (r, c)));
        let data = places.flat_map(|(r, c)| weight(r, c).to_le_bytes());
        let tensor = NewTensor::new(name, [columns, rows], TypeId::F32);
        (tensor, data.collect())
    };
    let tensors: Vec<_> = matrices.iter().map(tensor).collect();
    gguf::write(path, &meta, &tensors);
}

fn trit(row: u64, column: u64) -> f32 {
    [-1.0, 0.0, 1.0][((row * 7 + column * 5 + row * column) % 3) as usize]
}

#[test]
fn what_a_type_cannot_hold_is_named() {
    let dir = TempDir::new().unwrap();
    let at = |name: &str| dir.path().join(name);
    let one = |r: u64, c: u64| 0.5 * trit(r, c);
    // as TriLM's shards have them: two halves of the rows, two halves of the columns
    let by_rows = |r: u64, c: u64| trit(r, c) * if r < 32 { 0.5 } else { 0.25 };
    let by_columns = |r: u64, c: u64| trit(r, c) * if c < 256 { 0.5 } else { 0.375 };
    let noise = |r: u64, c: u64| if (r, c) == (3, 40) { 0.1 } else { trit(r, c) };
    synthetic(
        &at("in.gguf"),
        &[
            ("blk.0.attn_q.weight", 512, 64, &one),
            ("blk.0.attn_k.weight", 512, 64, &by_rows),
            ("blk.0.attn_output.weight", 512, 64, &by_columns),
            ("blk.0.ffn_up.weight", 512, 64, &noise),
        ],
    );
    for ty in ["I2_S", "TL1", "TL2"] {
        let message = refused(RQUANTIZE, dir.path(), &format!("in.gguf out.gguf {ty}"));
        assert!(!at("out.gguf").exists(), "{ty}");
        assert!(!message.contains("attn_q"), "{message}");
        for part in [
            "3 of 4 ternary matrices cannot be held exactly",
            "blk.0.attn_k.weight: 2 scales from 0.25 to 0.5, the type has one; scales off by up to 1.00e0",
            "blk.0.attn_output.weight: 2 scales from 0.375 to 0.5",
            "blk.0.ffn_up.weight: not ternary, the first other magnitude is in row 3, column 40",
            "--force",
        ] {
            assert!(message.contains(part), "{ty}: {part}: {message}");
        }
    }
    // blocks of 256 have room for the shards' scales
    let words = "--tensor-type ffn_up=f32 --verify in.gguf tq.gguf TQ1_0";
    ok(RQUANTIZE, dir.path(), words);
    let message = refused(RQUANTIZE, dir.path(), "--tensor-type ffn_up=f32 tq.gguf out.gguf I2_S");
    assert!(message.contains("2 of 3 ternary matrices"), "{message}");
    ok(RQUANTIZE, dir.path(), "--verify tq.gguf back.gguf F32");
    assert_eq!(tensors(&at("back.gguf")), tensors(&at("in.gguf")));
    // by force the file is written, and says of itself that it is not the same
    ok(RQUANTIZE, dir.path(), "--force in.gguf forced.gguf I2_S");
    let message = refused(RQUANTIZE, dir.path(), "--force --verify in.gguf forced.gguf I2_S");
    assert!(message.contains("3 of 4 tensors are not the same"), "{message}");
    assert!(message.contains("blk.0.ffn_up.weight: f32 to i2_s: 1 of 32768 weights differ"), "{message}");
}

#[test]
fn scales_that_f16_rounds_are_named() {
    let dir = TempDir::new().unwrap();
    let at = |name: &str| dir.path().join(name);
    let third = |r: u64, c: u64| {
        let w = trit(r, c) / 3.0;
        if w == 0.0 { -0.0 } else { w }
    };
    let zeros = |_: u64, _: u64| 0.0;
    synthetic(&at("in.gguf"), &[("blk.0.attn_q.weight", 256, 32, &third), ("blk.0.attn_k.weight", 256, 32, &zeros)]);
    let said = ok(RQUANTIZE, dir.path(), "--verify in.gguf i2s.gguf I2_S");
    assert!(said.contains("zeros lost their minus sign"), "{said}");
    for ty in ["TQ1_0", "TQ2_0", "Q2_0", "F16", "BF16"] {
        let message = refused(RQUANTIZE, dir.path(), &format!("i2s.gguf out.gguf {ty}"));
        assert!(message.contains("blk.0.attn_q.weight: scale 0.33333334 would"), "{message}");
        assert!(!message.contains("attn_k"), "{message}");
    }
    ok(RQUANTIZE, dir.path(), "--force i2s.gguf forced.gguf TQ2_0");
    ok(RQUANTIZE, dir.path(), "in.gguf direct.gguf TQ2_0");
    assert_eq!(tensors(&at("forced.gguf")), tensors(&at("direct.gguf")));
    for ty in ["TL1", "TL2", "F32"] {
        ok(RQUANTIZE, dir.path(), &format!("--verify i2s.gguf {ty}.gguf {ty}"));
    }
}

#[test]
fn shapes_without_a_layout_are_refused() {
    let dir = TempDir::new().unwrap();
    let weight = |r: u64, c: u64| trit(r, c);
    synthetic(
        &dir.path().join("in.gguf"),
        &[
            ("blk.0.attn_q.weight", 256, 64, &weight),
            ("blk.0.attn_k.weight", 128, 64, &weight),
            ("blk.0.attn_v.weight", 256, 48, &weight),
        ],
    );
    let message = refused(RQUANTIZE, dir.path(), "in.gguf out.gguf TL2");
    for part in [
        "blk.0.attn_k.weight: 64 rows of 128 columns, tl2 takes rows in multiples of 32",
        "blk.0.attn_v.weight: 48 rows of 256 columns",
        "(replacement: i2_s)",
        "--fallback",
    ] {
        assert!(message.contains(part), "{part}: {message}");
    }
    assert!(!message.contains("attn_q"), "{message}");
    let said = ok(RQUANTIZE, dir.path(), "--fallback --verify in.gguf out.gguf TL2");
    assert!(said.contains("types: 2 i2_s, 1 tl2"), "{said}");
    // the other way round the recorded tiles are dropped with the type
    ok(RQUANTIZE, dir.path(), "--verify out.gguf i2s.gguf I2_S");
    let gguf = header(&fs::read(dir.path().join("i2s.gguf")).unwrap());
    assert!(gguf.meta.get("trine.tl2.tiles").is_none());
    let message = refused(RQUANTIZE, dir.path(), "--tl-tiles 64x256=48,96,32 in.gguf out.gguf TL2");
    assert!(message.contains("BM must be a multiple of 32"), "{message}");
    // a quantized type that is not ternary
    ok(RQUANTIZE, dir.path(), "--pure in.gguf q8.gguf Q8_0");
    let message = refused(RQUANTIZE, dir.path(), "q8.gguf out.gguf I2_S");
    assert!(message.contains("quantized already"), "{message}");
}

#[test]
fn tiles_and_layouts_that_a_file_does_not_name() {
    let dir = bundle();
    let at = |name: &str| dir.path().join(name);
    let logits = |options: &str| {
        let words = format!("{options} --tokens ids.txt -n 0 --logits-sha256");
        ok(RGEN, dir.path(), &words)
    };
    ok(RQUANTIZE, dir.path(), "bitnet.gguf usual.gguf I2_S");
    let want = logits("-m usual.gguf");
    // tiles of the user's, then the same file without its record of them
    let tiles = "--tl-tiles 256x256=64,192,32 --tl-tiles 128x256=32,192,32 --tl-tiles 768x256=96,192,32 --tl-tiles 256x768=128,48";
    ok(RQUANTIZE, dir.path(), &format!("{tiles} usual.gguf tl2.gguf TL2"));
    assert_eq!(logits("-m tl2.gguf"), want);
    let bytes = fs::read(at("tl2.gguf")).unwrap();
    let file = header(&bytes);
    let mut meta = file.meta;
    assert!(meta.remove("trine.tl2.tiles"));
    let data = |offset: u64, n: u64| &bytes[(file.data_offset + offset) as usize..][..n as usize];
    let tensors = file.tensors.iter();
    let tensors: Vec<_> = tensors.map(|t| (NewTensor::from(t), data(t.offset, t.bytes).to_vec())).collect();
    gguf::write(&at("bare.gguf"), &meta, &tensors);
    for (bin, words) in
        [(RGEN, "-m bare.gguf -n 0 --tokens ids.txt"), (RINSPECT, "bare.gguf"), (RQUANTIZE, "bare.gguf out.gguf I2_S")]
    {
        let message = refused(bin, dir.path(), words);
        assert!(message.contains("blk.0.attn_q.weight"), "{words}: {message}");
    }
    assert_eq!(logits(&format!("-m bare.gguf {tiles}")), want);
    ok(RINSPECT, dir.path(), &format!("bare.gguf {tiles}"));
    let input = tiles.replace("--tl-tiles", "--input-tl-tiles");
    ok(RQUANTIZE, dir.path(), &format!("{input} --verify bare.gguf back.gguf I2_S"));
    assert_eq!(fs::read(at("back.gguf")).unwrap(), fs::read(at("usual.gguf")).unwrap());
    // files of ARM builds look the same and are not
    ok(RQUANTIZE, dir.path(), "--i2s-layout arm64 --verify usual.gguf arm.gguf I2_S");
    assert_ne!(logits("-m arm.gguf"), want);
    assert_eq!(logits("-m arm.gguf --i2s-layout arm64"), want);
    ok(RQUANTIZE, dir.path(), "--input-i2s-layout arm64 --verify arm.gguf back.gguf I2_S");
    assert_eq!(fs::read(at("back.gguf")).unwrap(), fs::read(at("usual.gguf")).unwrap());
}

#[test]
fn damage_is_found_and_the_tensor_named() {
    let dir = bundle();
    let at = |name: &str| dir.path().join(name);
    let name = "blk.3.ffn_down.weight";
    for ty in ["I2_S", "TL1", "TL2"] {
        ok(RQUANTIZE, dir.path(), &format!("trilm.gguf good.gguf {ty}"));
        ok(RINSPECT, dir.path(), "good.gguf");
        let good = fs::read(at("good.gguf")).unwrap();
        let gguf = header(&good);
        let t = gguf.tensors.iter().find(|t| t.name == name).unwrap();
        let start = (gguf.data_offset + t.offset) as usize;
        let scale = start + t.bytes as usize - 32;
        // a code that stands for nothing, and scales that are no numbers
        let damages: [(usize, &[u8], &str); 3] = [
            (start + 5, &[0xff], "stands for no weight"),
            (scale, &[0, 0, 0xc0, 0x7f], "NaN"),
            (scale, &[0, 0, 0x80, 0xff], "inf"),
        ];
        for (place, bytes, what) in damages {
            let mut bad = good.clone();
            bad[place..place + bytes.len()].copy_from_slice(bytes);
            fs::write(at("bad.gguf"), bad).unwrap();
            for (bin, words) in [
                (RGEN, "-m bad.gguf -n 0 --tokens ids.txt"),
                (RINSPECT, "bad.gguf"),
                (RQUANTIZE, "bad.gguf out.gguf F16"),
            ] {
                let message = refused(bin, dir.path(), words);
                assert!(message.contains(name) && message.contains(what), "{ty} {words} {what}: {message}");
                assert!(!at("out.gguf").exists());
            }
        }
        // the tail cut off
        fs::write(at("bad.gguf"), &good[..good.len() - 40]).unwrap();
        for (bin, words) in [(RGEN, "-m bad.gguf -n 0 --tokens ids.txt"), (RINSPECT, "bad.gguf")] {
            let message = refused(bin, dir.path(), words);
            let last = gguf.tensors.last().unwrap();
            assert!(message.contains(&last.name), "{ty} {words}: {message}");
        }
    }
}
