//! Systems that start no more threads, and numbers that nobody can mean.

use super::kit::*;

/// The threads that rayon would start by itself are started by the tools, as many as `-t` says.
#[test]
fn threads_are_those_that_were_asked_for() {
    let dir = with_model();
    for (program, words) in [
        (RGEN, "-m m.gguf -p a -n 1 -t 1"),
        (RINSPECT, "m.gguf -t 1"),
        (RQUANTIZE, "--verify m.gguf out.gguf TQ2_0 1"),
        (RBENCH, "-m m.gguf -t 1 -p 1 -n 0 -r 1"),
    ] {
        let words: Vec<&str> = words.split(' ').collect();
        // 100 000 threads would need more address space than this.
        let shell = "ulimit -v 8000000; RAYON_NUM_THREADS=100000 exec \"$0\" \"$@\"";
        let output = run_behind(dir.path(), shell, program, &words);
        let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
        orderly(output.status, &format!("{program}: {stderr}"));
        assert!(output.status.success() || program == RQUANTIZE, "{program}: {stderr}");
    }
}

/// A thread whose stack finds no room is one line.
#[test]
fn threads_that_cannot_start_are_an_error() {
    let dir = with_model();
    std::fs::write(path(&dir, "t.txt"), "The game was good. ".repeat(60)).unwrap();
    for (program, words) in [
        (RGEN, "-m m.gguf -p a -n 1"),
        (RGEN, "-m m.gguf -p a -n 1 -t 2"),
        (RINSPECT, "m.gguf"),
        (RQUANTIZE, "m.gguf out.gguf Q8_0"),
        (RQUANTIZE, "m.gguf out.gguf AP2-3"),
        (RPERPLEXITY, "-m m.gguf -f t.txt -c 64 --chunks 1"),
        (RIMATRIX, "-m m.gguf -f t.txt -c 64 --chunks 1"),
        (RIMATRIX, "--fisher -m m.gguf -f t.txt --samples 1 --seq-len 8"),
        (RBENCH, "-m m.gguf -p 1 -n 0 -r 1"),
    ] {
        let words: Vec<&str> = words.split(' ').collect();
        // Stacks of 64 GiB: RUST_MIN_STACK is what every thread is started with that names no size of its own.
        let shell = "ulimit -v 4000000; RUST_MIN_STACK=68719476736 exec \"$0\" \"$@\"";
        let output = run_behind(dir.path(), shell, program, &words);
        let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
        orderly(output.status, &format!("{program} {words:?}: {stderr}"));
        if !output.status.success() {
            let error = refused(&output);
            assert!(error.contains("thread"), "{program}: {error}");
        }
    }
}

#[test]
fn numbers_beyond_all_bounds_are_refused() {
    let dir = with_model();
    let huge = ["9223372036854775808", "18446744073709551615", "4294967296", "2147483648"];
    for n in huge {
        for words in [
            format!("-m m.gguf -p {n}"),
            format!("-m m.gguf -n {n}"),
            format!("-m m.gguf -d {n}"),
            format!("-m m.gguf -pg {n},{n}"),
            format!("-m m.gguf -pg 1,{n}"),
            format!("-m m.gguf -r {n}"),
            format!("-m m.gguf --batched -npp {n}"),
            format!("-m m.gguf --batched -npl {n}"),
        ] {
            let words: Vec<&str> = words.split(' ').collect();
            let output = run(dir.path(), RBENCH, &words);
            assert_eq!(output.status.code(), Some(2), "{words:?}");
        }
        for option in ["-c", "-b", "-ub"] {
            let words = ["-m", "m.gguf", "-p", "a", "-n", "1", option, n];
            let output = run(dir.path(), RGEN, &words);
            assert_eq!(output.status.code(), Some(2), "{words:?}");
        }
    }
}

/// Grammars that take too much are one line, and soon.
#[test]
fn grammars_have_limits() {
    let dir = with_model();
    let numbers = r#"{"allOf":[{"type":"integer","multipleOf":9973},{"type":"integer","multipleOf":10007}]}"#;
    let marks = format!("root ::= \"a\"{}", "?".repeat(100_000));
    let row = format!("root ::= {}", ".? ".repeat(20_000));
    for (option, source, why) in [
        ("--json-schema-file", r#"{"type":"integer","multipleOf":2147483648}"#, "'multipleOf' 2147483648"),
        ("--json-schema-file", numbers, "given up: it used more than 2 seconds"),
        ("--grammar-file", &*marks, "more than 4 repetitions of repetitions"),
        ("--grammar-file", &*row, "more than 2048 parts"),
    ] {
        std::fs::write(path(&dir, "g"), source).unwrap();
        // What is not refused by then is ended by the system.
        let words = ["-m", "m.gguf", "-p", "a", "-n", "1", option, "g"];
        let output = run_behind(dir.path(), "ulimit -t 20; exec \"$0\" \"$@\"", RGEN, &words);
        let error = refused(&output);
        assert!(error.contains(why), "{error}");
    }
}
