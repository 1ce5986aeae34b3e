//! Files that are read are never written, and are read as one.

use std::fs;
use std::os::unix::fs::symlink;
use std::process::Stdio;
use std::thread::sleep;
use std::time::Duration;

use super::kit::*;

/// Every file that a run reads, under its own name and through links, as its output.
#[test]
fn no_input_is_overwritten() {
    let dir = with_model();
    fs::write(path(&dir, "t.txt"), "The game was good. ".repeat(60)).unwrap();
    fs::write(path(&dir, "rules.txt"), "ffn_down=q8_0").unwrap();
    let matrix = ["-m", "m.gguf", "-f", "t.txt", "-c", "64", "--chunks", "2", "-o", "im.gguf"];
    succeeded(&run(dir.path(), RIMATRIX, &matrix));
    fs::copy(path(&dir, "im.gguf"), path(&dir, "o.gguf.at_1")).unwrap();
    fs::copy(path(&dir, "im.gguf"), path(&dir, "other.gguf")).unwrap();
    for (program, words, input) in [
        (RQUANTIZE, "--imatrix im.gguf m.gguf OUT Q4_0", "im.gguf"),
        (RQUANTIZE, "--imatrix im.gguf m.gguf OUT AP2-3", "im.gguf"),
        (RQUANTIZE, "--tensor-type-file rules.txt m.gguf OUT Q4_0", "rules.txt"),
        (RQUANTIZE, "m.gguf OUT Q4_0", "m.gguf"),
        (RIMATRIX, "-m m.gguf -f t.txt -c 64 --chunks 1 -o OUT", "t.txt"),
        (RIMATRIX, "--in-file im.gguf --in-file other.gguf -o OUT", "other.gguf"),
        (RPERPLEXITY, "-m m.gguf -f t.txt -c 64 --chunks 1 --kl-divergence-base OUT", "t.txt"),
        (RPERPLEXITY, "--compare -m m.gguf m.gguf -f t.txt -c 64 --chunks 1 --plot OUT", "t.txt"),
        (RBENCH, "-m other.gguf --synthetic llama:tiny:F16 --save OUT", "other.gguf"),
    ] {
        let before = fs::read(path(&dir, input)).unwrap();
        let link = path(&dir, "link");
        symlink(input, &link).unwrap();
        let hard = path(&dir, "hard");
        fs::hard_link(path(&dir, input), &hard).unwrap();
        for out in [input, "link", "hard", "./link"] {
            let words: Vec<&str> = words.split(' ').collect();
            let words: Vec<&str> = words.iter().map(|&w| if w == "OUT" { out } else { w }).collect();
            let error = refused(&run(dir.path(), program, &words));
            assert!(error.contains("also"), "{words:?}: {error}");
            assert!(error.contains("input"), "{words:?}: {error}");
            assert_eq!(fs::read(path(&dir, input)).unwrap(), before, "{words:?}");
        }
        fs::remove_file(link).unwrap();
        fs::remove_file(hard).unwrap();
    }
    // A copy in the middle of the run is an output too.
    let words = "-m m.gguf -f t.txt -c 64 --chunks 2 -b 64 --in-file o.gguf.at_1 --save-frequency 1 -o o.gguf";
    let words: Vec<&str> = words.split(' ').collect();
    let error = refused(&run(dir.path(), RIMATRIX, &words));
    assert!(error.contains("o.gguf.at_1"), "{error}");
}

/// A file that takes the model's name while it is quantized has no part in the result.
#[test]
fn one_file_from_header_to_data() {
    let dir = folder();
    let (a, b) = (values(256 * 4096), vec![0.25; 256 * 4096]);
    small(&path(&dir, "a.gguf"), "token_embd.weight", &a);
    small(&path(&dir, "b.gguf"), "token_embd.weight", &b);
    let quantized = |name: &str| {
        succeeded(&run(dir.path(), RQUANTIZE, &[name, "whole.gguf", "Q6_K"]));
        bytes(&dir, "whole.gguf")
    };
    let whole = [quantized("a.gguf"), quantized("b.gguf")];
    for i in 0..40 {
        fs::copy(path(&dir, "a.gguf"), path(&dir, "in.gguf")).unwrap();
        fs::copy(path(&dir, "b.gguf"), path(&dir, "next.gguf")).unwrap();
        let mut child = command(dir.path(), RQUANTIZE, &["in.gguf", "out.gguf", "Q6_K"]);
        let mut child = child.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        sleep(Duration::from_micros(i * 400));
        fs::rename(path(&dir, "next.gguf"), path(&dir, "in.gguf")).unwrap();
        assert!(child.wait().unwrap().success());
        assert!(whole.contains(&bytes(&dir, "out.gguf")), "a mixture");
    }
}

/// Somebody who writes into the model is noticed.
#[test]
fn a_source_that_changes_is_no_source() {
    let dir = folder();
    small(&path(&dir, "a.gguf"), "blk.0.ffn_up.weight", &values(256 * 8192));
    let mut noticed = 0;
    // As often as it takes to be in time.
    for i in 0..400 {
        if i >= 20 && noticed > 0 {
            break;
        }
        fs::copy(path(&dir, "a.gguf"), path(&dir, "in.gguf")).unwrap();
        let _ = fs::remove_file(path(&dir, "out.gguf"));
        let mut child = command(dir.path(), RQUANTIZE, &["in.gguf", "out.gguf", "AP2-5"]);
        let mut child = child.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
        // At any time, and in the middle of the work.
        match i % 2 {
            0 => sleep(Duration::from_millis(20 + i % 20)),
            _ => drop(writes(&mut child, dir.path())),
        }
        let file = fs::File::options().append(true).open(path(&dir, "in.gguf")).unwrap();
        file.set_len(file.metadata().unwrap().len() + 1).unwrap();
        let output = child.wait_with_output().unwrap();
        orderly(output.status, "changed");
        if !output.status.success() {
            let error = refused(&output);
            noticed += usize::from(error.contains("somebody wrote to it"));
            assert!(!path(&dir, "out.gguf").exists());
        }
    }
    assert!(noticed > 0);
}

/// A prompt cache is a file: a pipe may never begin, and a device never end.
#[test]
fn a_prompt_cache_is_a_file() {
    let dir = with_model();
    let made = std::process::Command::new("mkfifo").arg(path(&dir, "fifo")).status();
    assert!(made.unwrap().success());
    for cache in ["fifo", "/dev/zero", "/dev/full"] {
        for more in [&[][..], &["--prompt-cache-ro"]] {
            let words = [&["-m", "m.gguf", "-p", "a", "-n", "1", "--prompt-cache", cache][..], more].concat();
            let output = run_behind(dir.path(), "timeout -s KILL 60 \"$0\" \"$@\"", RGEN, &words);
            let error = refused(&output);
            assert!(error.contains("not a regular file"), "{cache}: {error}");
        }
    }
}
