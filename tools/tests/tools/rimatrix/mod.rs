//! `rimatrix` against llama-imatrix, and its answers to mistakes.

mod experts;
mod fisher;
mod hessian;

pub use experts::mixture;

use std::fs;
use std::io::Read;
use std::process::Stdio;

use assert_cmd::Command;
use tempfile::TempDir;
use trine_testkit::tool::{end_signal, refusal, stdout};
use trine_testkit::{bitnet, sha256, testdata};

fn golden(name: &str) -> Vec<u8> {
    fs::read(testdata("imatrix").join(name)).unwrap()
}

/// A folder with the text where the recorded files say it was, the models, and files to add.
fn folder() -> TempDir {
    let dir = tempfile::tempdir().unwrap();
    fs::create_dir(dir.path().join("im")).unwrap();
    let copy = |from: &str, to: &str| fs::copy(testdata(from), dir.path().join(to)).unwrap();
    copy("imatrix/calib.txt", "im/calib.txt");
    copy("imatrix/trilm-F16.imatrix.gguf", "trilm.gguf");
    copy("imatrix/trilm-F16.imatrix.dat", "trilm.dat");
    copy("imatrix/bitnet-F16.imatrix.gguf", "bitnet.gguf");
    dir
}

fn trilm() -> String {
    let path = trine_testkit::trilm();
    path.to_str().unwrap().to_owned()
}

fn command(dir: &TempDir, words: &str) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_rimatrix"));
    command.current_dir(dir.path()).args(words.split(' '));
    command
}

/// Runs the tool on the text with the TriLM model.
fn collect(dir: &TempDir, words: &str) -> Command {
    collect_in(dir, "im/calib.txt", words)
}

/// Runs the tool on a text with the TriLM model.
fn collect_in(dir: &TempDir, text: &str, words: &str) -> Command {
    let mut command = command(dir, words);
    command.args(["-f", text, "-m", &trilm()]);
    command
}

/// The bytes of the file that the command wrote.
#[track_caller]
fn written(dir: &TempDir, mut command: Command, name: &str) -> Vec<u8> {
    stdout(command.output().unwrap());
    fs::read(dir.path().join(name)).unwrap()
}

#[track_caller]
fn assert_error(mut command: Command, expected: &str) {
    let error = refusal("rimatrix", command.output().unwrap()).error;
    assert!(error.contains(expected), "{expected}: {error}");
}

#[test]
fn the_files_are_those_of_llama_imatrix() {
    let dir = folder();
    let out = collect(&dir, "--chunks 8 -t 3").output().unwrap();
    let out = stdout(out);
    // Printed by llama-imatrix for this model and text.
    assert!(out.starts_with("[1]81.7779,[2]77.9536,[3]71.8845,[4]75.4208,[5]82.0593,"), "{out}");
    assert!(out.contains("Final estimate: PPL = 78.8306 +/- 4.81396\n"));
    assert!(out.ends_with("imatrix.gguf: 42 matrices, 8 chunks of 512 tokens\n"));
    let file = fs::read(dir.path().join("imatrix.gguf")).unwrap();
    assert!(file == golden("trilm-F16.imatrix.gguf"));

    let dat = collect(&dir, "--chunks 8 --no-ppl -t 1 -o t.dat --output-format dat");
    assert!(written(&dir, dat, "t.dat") == golden("trilm-F16.imatrix.dat"));

    fs::write(dir.path().join("model.gguf"), bitnet()).unwrap();
    let words = "-m model.gguf -f im/calib.txt --chunks 8 --no-ppl -o b.gguf";
    let bitnet = written(&dir, command(&dir, words), "b.gguf");
    assert!(bitnet == golden("bitnet-F16.imatrix.gguf"));
}

/// SHA-256 of what llama-imatrix writes with these options for this model and text.
#[test]
fn batching_orders_the_sums_as_in_the_reference() {
    let dir = folder();
    for (words, sha256) in [
        ("-c 128 --chunks 9", "2d0ec2fcf162355db00d05ae2cedc14eba416886af218746cbb722f4c89804c7"),
        ("-c 100 -b 350 -ub 70 --chunks 7", "9f9d7816aa61c368b20c26043351f10f69788bf561eb641f9cd9ae9da5ae65d7"),
        (
            "-c 300 -b 140 -ub 60 --chunks 3 --chunk 2",
            "eecb24b6b3e8e18e41b471df44e10f666f9ce63f0c95c2a8f0238e21f9940fe7",
        ),
        // the last 15 tokens of a chunk do not count
        (
            "-c 500 -ub 485 -b 500 --chunks 2 --process-output",
            "04f58f822b4469eb77c7a6e3e2620f70f8a33670126017a291a5c59688050b6b",
        ),
        // one chunk of 20 waits for the others
        ("-c 24 -b 480 -ub 18 --chunks 25", "29568d9495b23fe564f954d54acd02bb0492cd672e243ac18fd13acf6176ff61"),
        (
            "-c 64 --chunks 30 -ub 96 --in-file trilm.dat --output-format dat",
            "f5cc7fcbb1b8e0d667268b9c6ed45ee458a6f5f25316a74417f85fb84561b1cb",
        ),
    ] {
        let file = written(&dir, collect(&dir, &format!("-o out {words}")), "out");
        assert_eq!(self::sha256(&file), sha256, "{words}");
    }
}

/// TriLM with its embedding once more, as the output matrix.
fn untied() -> Vec<u8> {
    use trine_formats::gguf::TensorInfo;
    use trine_formats::gguf::write::NewTensor;
    let file = fs::read(trilm()).unwrap();
    let gguf = trine_testkit::gguf::header(&file);
    let embedding = gguf.tensors.iter().find(|t| t.name == "token_embd.weight");
    let output = TensorInfo { name: "output.weight".to_owned(), ..embedding.unwrap().clone() };
    let with_data = |t: &TensorInfo| {
        let start = (gguf.data_offset + t.offset) as usize;
        let data = file[start..][..t.bytes as usize].to_vec();
        (NewTensor::from(t), data)
    };
    let tensors = gguf.tensors.iter().chain([&output]);
    let tensors: Vec<_> = tensors.map(with_data).collect();
    trine_testkit::gguf::bytes(&gguf.meta, &tensors)
}

#[test]
fn the_output_matrix_is_collected_where_it_is_asked_for() {
    let dir = folder();
    fs::write(dir.path().join("untied.gguf"), untied()).unwrap();
    let words = "-m untied.gguf -f im/calib.txt -c 128 --chunks 5 -o o";
    let without = written(&dir, command(&dir, words), "o");
    let with = written(&dir, command(&dir, &format!("{words} --process-output")), "o");
    assert!(without != with);
    // Written by llama-imatrix with these options for that model.
    assert_eq!(sha256(&with), "6f6afd3e4dc50c10c4f756ff9f9c3364fa06f659233d29182bcf7a48b96cb3ab");
}

#[test]
fn files_are_added_up_and_converted_without_a_model() {
    let dir = folder();
    let sum = command(&dir, "--in-file trilm.gguf,bitnet.gguf -c 300 -o s --output-format dat");
    assert!(written(&dir, sum, "s") == golden("sum300.dat"));
    let convert = command(&dir, "--in-file trilm.dat -o new.gguf");
    assert!(written(&dir, convert, "new.gguf") == golden("trilm-F16.imatrix.gguf"));
    let json = stdout(command(&dir, "--in-file trilm.gguf --in-file trilm.gguf -o s --json").output().unwrap());
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert_eq!((&json["chunks"], &json["matrices"]), (&16.into(), &42.into()));
    assert_eq!(json["datasets"].as_array().unwrap().len(), 2);
    assert_eq!(json["schema"], "rimatrix.matrix/1");
    assert_eq!(json["provenance"]["models"], serde_json::json!([]));
    let run = stdout(collect(&dir, "-c 64 --chunks 1 -o r --json").output().unwrap());
    let json: serde_json::Value = serde_json::from_str(&run).unwrap();
    assert_eq!(json["provenance"]["tool"], "rimatrix");
    let hash = sha256(&fs::read(trilm()).unwrap());
    assert_eq!(json["provenance"]["models"][0]["sha256"], hash.as_str());
}

#[test]
fn a_resumed_run_ends_as_one_that_was_not_interrupted() {
    let dir = folder();
    let whole = golden("trilm-F16.imatrix.gguf");
    // Nothing to go on from is no mistake: the same command line starts and restarts a run.
    let first = collect(&dir, "--chunks 4 --no-ppl --resume");
    assert!(written(&dir, first, "imatrix.gguf") != whole);
    for _ in 0..2 {
        let rest = collect(&dir, "--chunks 8 --no-ppl --resume");
        assert!(written(&dir, rest, "imatrix.gguf") == whole);
    }
    // With an input file the chunks of that file are not taken for those of the text.
    let words = "-c 64 -b 256 --no-ppl --in-file trilm.gguf -o";
    let at_once = written(&dir, collect(&dir, &format!("{words} a --chunks 12")), "a");
    written(&dir, collect(&dir, &format!("{words} b --chunks 8")), "b");
    let resumed = collect(&dir, &format!("{words} b --chunks 12 --resume"));
    assert!(written(&dir, resumed, "b") == at_once);
    // Copies are kept on the way.
    let copies = collect(&dir, "-c 64 -b 64 --no-ppl --chunks 6 --save-frequency 2 -o c");
    let last = written(&dir, copies, "c");
    for (n, same) in [(2, false), (4, false), (6, true)] {
        let copy = fs::read(dir.path().join(format!("c.at_{n}"))).unwrap();
        assert_eq!(copy == last, same);
    }
}

#[cfg(unix)]
#[test]
fn ctrl_c_keeps_what_is_done() {
    let dir = folder();
    // Repeated, so that the run cannot be over before it is stopped.
    let text = String::from_utf8(golden("calib.txt")).unwrap().repeat(30);
    fs::write(dir.path().join("long.txt"), text).unwrap();
    let words = "-f long.txt -c 64 -b 64 --chunks 4000 -o partial.gguf";
    let mut child = std::process::Command::new(env!("CARGO_BIN_EXE_rimatrix"))
        .current_dir(dir.path())
        .args(words.split(' '))
        .args(["-m", &trilm()])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut out = child.stdout.take().unwrap();
    out.read_exact(&mut [0u8; 60]).unwrap();
    let pid = child.id().to_string();
    let kill = std::process::Command::new("kill").args([end_signal(), &pid]).status();
    assert!(kill.unwrap().success());
    let mut stderr = String::new();
    let reader = std::thread::spawn(move || out.read_to_end(&mut Vec::new()));
    child.stderr.take().unwrap().read_to_string(&mut stderr).unwrap();
    reader.join().unwrap().unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(130), "{stderr}");
    let chunks = stderr.split("stopped after chunk ").nth(1).expect(&stderr);
    let chunks: usize = chunks.split(',').next().unwrap().parse().unwrap();
    assert!((4..4000).contains(&chunks));
    assert!(stderr.ends_with("interrupted\n"), "{stderr}");
    // Exactly those chunks are in the file, and nothing else was left.
    let same = format!("-f long.txt -c 64 -b 64 --no-ppl --chunks {chunks} -o same.gguf -m");
    let mut same = command(&dir, &same);
    same.arg(trilm());
    let same = written(&dir, same, "same.gguf");
    assert!(fs::read(dir.path().join("partial.gguf")).unwrap() == same);
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 7);
}

#[test]
fn mistakes_are_one_line() {
    let dir = folder();
    let write = |name: &str, bytes: &[u8]| fs::write(dir.path().join(name), bytes).unwrap();
    write("empty.txt", b"\n");
    write("binary.txt", b"ab\xff");
    write("cut.gguf", &golden("trilm-F16.imatrix.gguf")[..5000]);
    let small = trine_formats::imatrix::Imatrix::parse(&golden("trilm-F16.imatrix.gguf"));
    let mut small = small.unwrap();
    for entry in small.entries.values_mut() {
        entry.sums.truncate(8);
    }
    write("small.gguf", &small.to_bytes(trine_formats::imatrix::FileFormat::Gguf).unwrap());
    for (words, expected) in [
        ("--chunks 2 -o im/calib.txt", "cannot write 'im/calib.txt': it is also an input"),
        ("--chunks 2 -o none/x", "cannot write 'none/x'"),
        ("-c 30000", "the text is too short"),
        ("-c 2", "at most 256 can run side by side"),
        ("-c 8 -b 32 -ub 8", "16 tokens"),
        ("--from-chunk 100000", "leaves fewer than two chunks of 512"),
        ("--in-file cut.gguf", "--in-file 'cut.gguf'"),
        ("--in-file none.gguf", "'none.gguf' does not exist"),
        ("--in-file small.gguf --chunks 2", "8 columns in the matrix to go on with and 256"),
        ("--resume -o trilm.dat", "the legacy form"),
        ("--resume -o trilm.gguf -c 256", "it was made with -c 512, not 256"),
        ("--resume -o trilm.gguf --in-file bitnet.gguf", "made from other texts"),
        ("--resume -o trilm.gguf -b 1536 --chunks 20", "no whole number of batches"),
        ("--resume -o x --output-format dat", "does not hold the sums"),
    ] {
        assert_error(collect(&dir, words), expected);
    }
    for (words, expected) in [
        ("-m x.gguf -f none.txt", "cannot read 'none.txt'"),
        ("-m x.gguf -f empty.txt", "'empty.txt' is empty"),
        ("-m x.gguf -f binary.txt", "not UTF-8 at byte 2"),
        ("-m trilm.gguf -f im/calib.txt", "names no architecture"),
        ("-m im/calib.txt -f im/calib.txt -o o", "not a GGUF file"),
        ("-f im/calib.txt --in-file trilm.gguf", "give one with -m"),
        ("--in-file trilm.gguf -o trilm.gguf", "it is also an input"),
        ("--in-file trilm.gguf --in-file small.gguf", "256 columns in one file, 8 in another"),
    ] {
        assert_error(command(&dir, words), expected);
    }
    assert!(!dir.path().join("imatrix.gguf").exists());
    command(&dir, "-c 512").assert().code(2);
}

#[test]
fn statistics_have_the_digits_of_llama_imatrix() {
    let folder = testdata("imatrix");
    let show = |words: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_rimatrix"));
        command.current_dir(&folder).arg("--show-statistics").args(words);
        command
    };
    let shown = stdout(show(&["--in-file", "trilm-F16.imatrix.gguf"]).output().unwrap());
    let expected = String::from_utf8(golden("trilm-F16.statistics.txt")).unwrap();
    assert_eq!(shown, expected);
    let two = ["--in-file", "trilm-F16.imatrix.gguf", "--in-file", "bitnet-F16.imatrix.gguf"];
    assert_error(show(&two), "of one file");
}
