//! Codes that stand for nothing and scales that are no numbers.

use std::fs;

use trine_formats::gguf::{Gguf, Limits};

use super::kit::*;

/// The file with bytes `at` of the data of the first tensor whose name contains `name` set to `value`; `at` counts from
/// the end where it is negative.
fn damage(file: &[u8], name: &str, at: i64, value: &[u8]) -> Vec<u8> {
    let gguf = Gguf::parse(file, &Limits::default()).unwrap();
    let t = gguf.tensors.iter().find(|t| t.name.contains(name)).unwrap();
    let start = (gguf.data_offset + t.offset) as i64;
    let place = if at < 0 { start + t.bytes as i64 + at } else { start + at };
    let mut out = file.to_vec();
    out[place as usize..][..value.len()].copy_from_slice(value);
    out
}

#[test]
fn damage_is_not_copied() {
    let dir = with_model();
    for ty in ["I2_S", "TL1", "TL2"] {
        succeeded(&run(dir.path(), RQUANTIZE, &["m.gguf", "sound.gguf", ty]));
        let sound = bytes(&dir, "sound.gguf");
        let nan = f32::NAN.to_le_bytes();
        let infinite = f32::INFINITY.to_le_bytes();
        // The tail of 32 bytes begins with the scale.
        for (at, value) in [(5, &[0xff][..]), (4096, &[0xff]), (-32, &nan), (-32, &infinite)] {
            fs::write(path(&dir, "bad.gguf"), damage(&sound, "ffn_down.weight", at, value)).unwrap();
            for to in ["COPY", ty, "TQ2_0", "F16"] {
                let output = run(dir.path(), RQUANTIZE, &["bad.gguf", "out.gguf", to]);
                let error = refused(&output);
                assert!(error.contains("ffn_down"), "{ty} {to}: {error}");
                assert!(!path(&dir, "out.gguf").exists(), "{ty} {to}");
            }
            let error = refused(&run(dir.path(), RINSPECT, &["bad.gguf", "--check-tensors"]));
            assert!(error.contains("ffn_down"), "{ty}: {error}");
            if value.len() == 4 {
                let output = run(dir.path(), RGEN, &["-m", "bad.gguf", "-p", "a", "-n", "4"]);
                refused(&output);
            }
        }
        succeeded(&run(dir.path(), RQUANTIZE, &["sound.gguf", "out.gguf", "COPY"]));
        succeeded(&run(dir.path(), RINSPECT, &["sound.gguf", "--check-tensors"]));
        fs::remove_file(path(&dir, "out.gguf")).unwrap();
    }
}

#[test]
fn tables_with_nan_are_not_taken_out() {
    let dir = with_model();
    succeeded(&run(dir.path(), RQUANTIZE, &["m.gguf", "ap.gguf", "AP2-3"]));
    let sound = bytes(&dir, "ap.gguf");
    for (name, value) in [(".ap.lut2", [0, 0x7e]), ("attn_norm", [0, 0x7f])] {
        // Both bytes of a half, or the upper ones of a float.
        let at = if name == "attn_norm" { 2 } else { 6 };
        let value = if name == "attn_norm" { [0xc0, 0x7f] } else { value };
        fs::write(path(&dir, "bad.gguf"), damage(&sound, name, at, &value)).unwrap();
        for words in [&["--width", "2", "bad.gguf", "out.gguf"][..], &["bad.gguf", "out.gguf", "COPY"]] {
            let error = String::from_utf8(run(dir.path(), RQUANTIZE, words).stderr).unwrap();
            assert!(error.contains("rquantize: error: "), "{words:?}: {error}");
            assert!(!path(&dir, "out.gguf").exists());
        }
        let error = refused(&run(dir.path(), RINSPECT, &["bad.gguf", "--check-tensors"]));
        assert!(error.contains(name), "{error}");
    }
}

/// Scales of every type that rquantize writes.
#[test]
fn bad_scales_are_found_in_every_type() {
    let dir = folder();
    small(&path(&dir, "f.gguf"), "blk.0.ffn_up.weight", &values(256 * 4));
    for ty in [
        "F16", "BF16", "Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0", "Q2_K", "Q3_K_S", "Q4_K_S", "Q5_K_S", "Q6_K", "IQ3_S",
        "IQ4_NL", "IQ4_XS", "TQ1_0", "TQ2_0",
    ] {
        let words = ["--pure", "--force", "f.gguf", "q.gguf", ty];
        if !run(dir.path(), RQUANTIZE, &words).status.success() {
            panic!("{ty}");
        }
        succeeded(&run(dir.path(), RINSPECT, &["q.gguf", "--check-tensors"]));
        let sound = bytes(&dir, "q.gguf");
        // All bits set: every scale is a NaN.
        fs::write(path(&dir, "q.gguf"), damage(&sound, "ffn_up", 0, &[0xff; 210])).unwrap();
        let error = refused(&run(dir.path(), RINSPECT, &["q.gguf", "--check-tensors"]));
        assert!(error.contains("ffn_up"), "{ty}: {error}");
        let report = run(dir.path(), RINSPECT, &["q.gguf", "--check-tensors", "--json"]);
        assert_eq!(report.status.code(), Some(1), "{ty}");
    }
}
