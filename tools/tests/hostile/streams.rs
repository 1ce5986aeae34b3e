//! Standard output and standard error that are full or that nobody reads.

use std::os::unix::process::ExitStatusExt;

use super::kit::*;

/// Tool, words, and the file that it was asked for.
const RUNS: &[(&str, &str, Option<&str>)] = &[
    (RQUANTIZE, "m.gguf out.gguf Q8_0", Some("out.gguf")),
    (RQUANTIZE, "--json -v m.gguf out.gguf TQ2_0 --allow-requantize", Some("out.gguf")),
    (RQUANTIZE, "--dry-run m.gguf Q4_K_M", None),
    (RQUANTIZE, "--dry-run m.gguf Q8_0", None),
    (RQUANTIZE, "--override-kv a=int:1 --tensor-type nothing=q8_0 m.gguf out.gguf Q8_0", Some("out.gguf")),
    (RQUANTIZE, "m.gguf out.gguf AP2-3", Some("out.gguf")),
    (RQUANTIZE, "--help", None),
    (RINSPECT, "m.gguf --tensors", None),
    (RINSPECT, "m.gguf --json", None),
    (RINSPECT, "absent.gguf", None),
    (RTOKENIZE, "-m m.gguf -p text", None),
    (RGEN, "-m m.gguf -p Once -n 3 -t 1", None),
    (RGEN, "-m m.gguf -p Once -n 3 -t 1 --json", None),
    (RGEN, "-m m.gguf -p Once -n 0 --logits-sha256", None),
    (RPERPLEXITY, "-m m.gguf -f t.txt -c 64 --chunks 1", None),
    (RPERPLEXITY, "-m m.gguf -f t.txt -c 64 --chunks 1 --kl-divergence-base b.kld", Some("b.kld")),
    (RPERPLEXITY, "--compare -m m.gguf m.gguf -f t.txt -c 64 --chunks 1 --no-speed --plot p.svg", Some("p.svg")),
    (RIMATRIX, "-m m.gguf -f t.txt -c 64 --chunks 1 -o i.gguf", Some("i.gguf")),
    (RBENCH, "-m m.gguf -p 4 -n 1 -r 1", None),
    (RBENCH, "--synthetic llama:tiny:F16 --save s.gguf -p 1 -n 0 -r 1", Some("s.gguf")),
];

/// A tool finishes the file that it was asked for, or says by its code that it did not.
#[test]
fn no_success_without_a_result() {
    for fault in [Fault::Full, Fault::Closed] {
        for (on_stdout, on_stderr) in [(true, false), (false, true), (true, true)] {
            for (program, words, target) in RUNS {
                let dir = with_model();
                std::fs::write(path(&dir, "t.txt"), "The game was good. ".repeat(60)).unwrap();
                let words: Vec<&str> = words.split(' ').collect();
                let what = format!("{program} {words:?} {fault:?} {on_stdout} {on_stderr}");
                let sound = run(dir.path(), program, &words);
                let wanted = target.map(|t| bytes(&dir, t));
                if let Some(target) = target {
                    std::fs::remove_file(path(&dir, target)).unwrap();
                }
                let mut faulty = command(dir.path(), program, &words);
                faulty.stdout(std::process::Stdio::null()).stderr(std::process::Stdio::null());
                if on_stdout {
                    faulty.stdout(fault.stream());
                }
                if on_stderr {
                    faulty.stderr(fault.stream());
                }
                let status = faulty.status().unwrap();
                orderly(status, &what);
                assert_eq!(unfinished(dir.path()), [""; 0], "{what}");
                let there = target.filter(|t| path(&dir, t).exists());
                if status.success() {
                    assert!(sound.status.success(), "{what}");
                    assert_eq!(there.is_some(), target.is_some(), "{what}: no result");
                }
                // What is there is whole; JSON and pictures hold times.
                if let (Some(name), Some(wanted)) = (there, &wanted)
                    && !name.ends_with(".svg")
                {
                    assert_eq!(&bytes(&dir, name), wanted, "{what}");
                }
                if on_stdout && !sound.stdout.is_empty() {
                    assert!(!status.success(), "{what}: the text was lost");
                    if fault == Fault::Closed {
                        assert_eq!(status.signal(), Some(SIGPIPE), "{what}");
                    }
                } else {
                    assert_eq!(status.code(), sound.status.code(), "{what}");
                }
            }
        }
    }
}

#[test]
fn a_file_beyond_the_limit_of_the_system_is_an_error() {
    let dir = with_model();
    let words = ["m.gguf", "out.gguf", "Q8_0"];
    let output = run_behind(dir.path(), "ulimit -f 100; exec \"$0\" \"$@\"", RQUANTIZE, &words);
    let error = refused(&output);
    assert!(error.contains("out.gguf"), "{error}");
    assert_eq!(names_in(dir.path()), ["m.gguf"]);
}
