//! The tools on a GPU: NVIDIA's driver is a library that emulates one, and everything between the command line and the
//! kernels is what runs on hardware.
#![cfg(target_os = "linux")]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Output;

use serde_json::{Value, json};
use tempfile::{TempDir, tempdir};
use trine::{Recipe, Target};
use trine_testkit::archs::Listing;
use trine_testkit::{testdata, tool, trilm};

/// A folder whose `libcuda.so.1` is the emulated driver.
fn driver() -> TempDir {
    let dir = tempdir().expect("a folder");
    trine_fake_cuda::install(dir.path()).expect("the emulated driver");
    dir
}

/// A ternary model, in this folder.
fn model(folder: &Path) -> PathBuf {
    let made = folder.join("model.gguf");
    let file = trine::open_file(trilm(), true).expect("a model");
    let target = Target::parse("TQ2_0").expect("a file type");
    trine::quantize(&file, &Recipe::new(target), &made).expect("a smaller file");
    made
}

/// A folder with the driver, a model, tokens and a text.
struct House {
    folder: TempDir,
    model: PathBuf,
}

impl House {
    fn new() -> House {
        let folder = driver();
        let model = model(folder.path());
        let write = |name: &str, text: &str| fs::write(folder.path().join(name), text).expect("room");
        write("ids.txt", "1 437 2025");
        write("text", "Once upon a time there was");
        House { folder, model }
    }

    /// The output of a tool on a device that follows `plan`.
    fn run(&self, program: &str, plan: &str, options: &str) -> Output {
        let mut command = tool::command(program);
        command
            .current_dir(self.folder.path())
            .arg("-m")
            .arg(&self.model)
            .args(options.split_whitespace())
            .env("LD_LIBRARY_PATH", self.folder.path())
            .env("TRINE_FAKE_CUDA", plan);
        command.output().expect("a tool")
    }

    fn hashes(&self, options: &str) -> String {
        let words = format!("--tokens ids.txt -n 0 -c 16 -ub 4 --logits-sha256 {options}");
        tool::stdout(self.run(env!("CARGO_BIN_EXE_rgen"), "", &words))
    }

    /// The one line with which `rgen` ends.
    fn refused(&self, plan: &str) -> String {
        let words = "--tokens ids.txt -n 0 -c 16 -ub 4 --seed 1 --logits-sha256 --device cuda";
        let refusal = tool::refusal("rgen", self.run(env!("CARGO_BIN_EXE_rgen"), plan, words));
        // What is found only when memory is taken comes after the seed was told.
        assert!(refusal.before.iter().all(|l| l == "sampler seed: 1"));
        assert_eq!(refusal.stdout, "");
        refusal.error
    }
}

#[test]
fn the_logits_are_those_of_the_processor() {
    let house = House::new();
    let expected = house.hashes("");
    assert_eq!(expected.lines().count(), 3);
    for options in ["--device cuda", "--device cuda:0 -ngl 2", "-dev cuda -ngl 1", "-dev cuda -ngl 0"] {
        assert_eq!(house.hashes(options), expected, "{options}");
    }
}

#[test]
fn types_of_keys_and_values_and_adapters_are_those_of_the_processor() {
    let house = House::new();
    let plain = house.hashes("");
    let [lora, control] = ["lora-f32", "control"].map(|name| testdata(&format!("adapters/{name}.gguf")));
    let added = format!("--lora-scaled {}:0.5 --control-vector {}", lora.display(), control.display());
    for options in ["-ctk q8_0 -ctv q5_1", &added] {
        let expected = house.hashes(options);
        assert_ne!(expected, plain);
        assert_eq!(house.hashes(&format!("{options} --device cuda -ngl 4")), expected, "{options}");
    }
}

#[test]
fn prompt_caches_go_from_one_device_to_another() {
    let house = House::new();
    let run = |prompt: &str, options: &str| {
        let words = format!("-p {prompt} -n 2 --temp 0 -c 32 -ub 4 --prompt-cache cache {options}");
        let done = house.run(env!("CARGO_BIN_EXE_rgen"), "", &words);
        let told = String::from_utf8_lossy(&done.stderr).into_owned();
        (tool::stdout(done), told)
    };
    let file = house.folder.path().join("cache");
    let (expected, _) = run("Once_upon_a_time", "");
    for [first, second] in [["--device cuda", ""], ["", "--device cuda -ngl 3"], ["--device cuda", "--device cuda"]] {
        fs::remove_file(&file).expect("a cache");
        assert_eq!(run("Once_upon_a_time", first).0, expected, "{first}");
        let (text, told) = run("Once_upon_a_time", second);
        assert_eq!(text, expected, "{first} and {second}");
        assert!(told.contains("tokens were evaluated before") && !told.contains(" 0 of "), "{told}");
    }
}

#[test]
fn states_of_recurrent_layers_stay_there_between_passes() {
    let house = House::new();
    let listing = fs::read_to_string(testdata("archs/mamba2-dense.txt")).expect("a listing");
    fs::write(&house.model, Listing::parse(&listing).file()).expect("room for the model");
    fs::write(house.folder.path().join("ids.txt"), "3 60 101 7 9 11").expect("room");
    let expected = house.hashes("");
    assert_eq!(expected.lines().count(), 6);
    for options in ["--device cuda", "--device cuda -ngl 2"] {
        assert_eq!(house.hashes(options), expected, "{options}");
    }
}

#[test]
fn the_kernels_run_and_all_memory_is_given_back() {
    let house = House::new();
    let log = house.folder.path().join("log");
    let plan = format!("log={}", log.display());
    let words = "-p Once -n 1 --temp 0 -c 16 -ub 4 --device cuda";
    let text = tool::stdout(house.run(env!("CARGO_BIN_EXE_rgen"), &plan, words));
    assert!(text.starts_with("Once"), "{text}");
    let calls = fs::read_to_string(log).expect("a log");
    for kernel in ["one_chains_6", "norm_q8_k", "tq2_0_decode_8", "rope", "attend"] {
        assert!(calls.lines().any(|line| line == kernel), "{kernel} in {calls}");
    }
    // The context ends once, and the library itself has looked for memory that was still taken.
    assert!(calls.ends_with("end\n"), "{calls}");
    // Nothing is started for layers on the processor.
    fs::remove_file(house.folder.path().join("log")).expect("a log");
    house.run(env!("CARGO_BIN_EXE_rgen"), &plan, &format!("{words} -ngl 0"));
    let calls = fs::read_to_string(house.folder.path().join("log")).expect("a log");
    assert_eq!(calls, "end\n");
}

#[test]
fn a_token_is_two_graphs_of_launches_where_the_driver_has_graphs() {
    let house = House::new();
    let log = house.folder.path().join("log");
    let told = |plan: &str| {
        let plan = format!("log={} {plan}", log.display());
        let words = "-p Once -n 6 --temp 0 -c 16 -ub 4 --device cuda";
        let text = tool::stdout(house.run(env!("CARGO_BIN_EXE_rgen"), &plan, words));
        let calls = fs::read_to_string(&log).expect("a log");
        fs::remove_file(&log).expect("a log");
        let (graphs, kernels): (Vec<String>, Vec<String>) =
            calls.lines().map(str::to_owned).partition(|line| line.starts_with("a graph of "));
        (text, kernels, graphs)
    };
    let (text, kernels, graphs) = told("");
    // The first token that follows the prompt is launched kernel by kernel, the others as graphs: one of the layers and one
    // of the logits, whose kernels are there already after the prompt.
    let passes = kernels.iter().filter(|kernel| *kernel == "take_rows").count();
    let layers = graphs.iter().filter(|graph| **graph == graphs[1]).count();
    assert_eq!((layers, graphs.len()), (passes - 2, 2 * passes - 3), "{graphs:?} {kernels:?}");
    assert!(passes >= 6, "{passes}");
    // A driver that does not record launches the same kernels.
    for plan in ["fail=cuStreamBeginCapture_v2:801", "fail=cuGraphInstantiateWithFlags:801"] {
        assert_eq!(told(plan), (text.clone(), kernels.clone(), Vec::new()), "{plan}");
    }
}

#[test]
fn perplexities_and_benchmarks_run_there_too() {
    let house = House::new();
    let perplexity = |device: &str| {
        let words = format!("-f text -c 4 -b 4 -ub 4 --chunks 1 --device {device}");
        let output = house.run(env!("CARGO_BIN_EXE_rperplexity"), "", &words);
        tool::stdout(output)
    };
    assert_eq!(perplexity("cuda"), perplexity("cpu"));
    let words = "-p 2 -n 1 -r 1 -b 2 -ub 2 --no-warmup -o jsonl --device cuda";
    let told = tool::stdout(house.run(env!("CARGO_BIN_EXE_rbench"), "", words));
    assert_eq!(told.lines().count(), 2, "{told}");
    // Each number of layers of a list has rows of its own.
    let told = tool::stdout(house.run(env!("CARGO_BIN_EXE_rbench"), "", &format!("{words} -ngl 0-1,all")));
    let rows = told.lines().map(|row| {
        let row: Value = serde_json::from_str(row).expect("a row");
        (row["device"].clone(), row["n_gpu_layers"].clone(), row["test"].clone())
    });
    let expected = [0, 1, -1].map(|n| ["pp2", "tg1"].map(|test| (json!("cuda:0"), json!(n), json!(test))));
    assert_eq!(rows.collect::<Vec<_>>(), expected.concat());
}

#[test]
fn tables_beside_limits_and_llama_bench_say_where_a_model_ran() {
    let house = House::new();
    let rbench = |options: &str| {
        let words = "-p 2 -n 0 -r 1 -b 2 -ub 2 -t 1";
        let words = format!("{words} {options}");
        tool::stdout(house.run(env!("CARGO_BIN_EXE_rbench"), "", &words))
    };
    let table = rbench("--roofline --device cuda");
    assert!(table.contains(", backend cuda:0, "), "{table}");
    let rows = rbench("--roofline -o jsonl --device cuda -ngl 1");
    let row: Value = serde_json::from_str(rows.trim()).expect("a row");
    assert_eq!((&row["device"], &row["n_gpu_layers"]), (&json!("cuda:0"), &json!(1)));
    // 108 multiprocessors at 1.41 GHz, and a memory of 5120 bits at 1.215 GHz; the emulated device is of generation 9.0.
    let bound = |plan: &str, options: &str| {
        let words = format!("-p 0 -n 1 -r 1 -t 1 --roofline -o jsonl --device cuda {options}");
        let output = house.run(env!("CARGO_BIN_EXE_rbench"), plan, &words);
        let row: Value = serde_json::from_str(tool::stdout(output).trim()).expect("a row");
        ["read_gbs", "int8_gmacs", "f32_gmacs", "bound_ts", "weight_bytes_per_token", "kv_bytes_per_position"]
            .map(|field| row[field].as_f64().expect("a number"))
    };
    let clocks = "clocks=108,1410000,1215000,5120";
    let [read, int8, f32, all, bytes, kv] = bound(clocks, "");
    assert_eq!((read, int8, f32), (1555.2, 108.0 * 1.41 * 4096.0, 108.0 * 1.41 * 128.0));
    assert!((all / (1555.2e9 / (bytes + kv)) - 1.0).abs() < 1e-9, "{all}");
    // Twice the clock of the memory is twice the bound. Where the processor has a part, that counts by its own rates.
    let [.., twice, _, _] = bound("clocks=108,1410000,2430000,5120", "");
    assert!((twice / all - 2.0).abs() < 1e-9, "{twice}");
    let [read, .., some, same, _] = bound(clocks, "-ngl 1");
    assert_eq!((read, same), (1555.2, bytes));
    assert!(some > 0.0 && some != all, "{some}");
    let words = "-p 0 -n 1 -r 1 -t 1 --roofline --device cuda";
    let output = house.run(env!("CARGO_BIN_EXE_rbench"), "clocks=108,1410000,0,5120", words);
    let refusal = tool::refusal("rbench", output);
    assert!(
        refusal.error.contains("the peak rates of 'Emulated GPU' (compute capability 9.0) are not known"),
        "{}",
        refusal.error
    );
    let program = house.folder.path().join("llama-bench");
    let script = "#!/bin/sh\necho '[{\"build_commit\": \"abc\", \"avg_ts\": 0.5}]'\n";
    fs::write(&program, script).expect("room");
    let runs = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    fs::set_permissions(&program, runs).expect("a program");
    let table = rbench("--compare-llama . --device cuda");
    assert!(table.contains(", backend cuda:0, "), "{table}");
    let table = rbench("--compare-llama . --device cpu");
    assert!(table.contains(", backend CPU "), "{table}");
}

/// A tool's output, from the folder of a house.
fn told(house: &House, program: &str, words: &str) -> String {
    let mut command = tool::command(program);
    let command = command.current_dir(house.folder.path());
    tool::stdout(command.args(words.split_whitespace()).output().expect("a tool"))
}

#[test]
fn pruned_matrices_take_the_sparse_kernels_and_a_damaged_one_is_named() {
    let mut house = House::new();
    let source = trilm();
    let source = source.to_str().expect("a path");
    let words = format!("-m {source} -f text -c 4 --chunks 1 --hessian h.gguf");
    told(&house, env!("CARGO_BIN_EXE_rimatrix"), &words);
    let words = format!("--gptq h.gguf --sparse 2:4 {source} sparse.gguf Q4_0");
    told(&house, env!("CARGO_BIN_EXE_rquantize"), &words);
    house.model = house.folder.path().join("sparse.gguf");
    let log = house.folder.path().join("log");
    let plan = format!("log={}", log.display());
    let perplexity = |path: &str| {
        let words = format!("-f text -c 4 -b 4 -ub 4 --chunks 1 --device cuda -ngl 3 {path}");
        let output = house.run(env!("CARGO_BIN_EXE_rperplexity"), &plan, &words);
        let text = tool::stdout(output);
        let (_, number) = text.split_once("PPL = ").expect("a perplexity");
        number.split_whitespace().next().and_then(|n| n.parse::<f64>().ok()).expect("a number")
    };
    let exact = perplexity("");
    fs::remove_file(&log).expect("a log");
    let fast = perplexity("--number-path fast");
    let calls = fs::read_to_string(&log).expect("a log");
    assert!(calls.lines().any(|line| line == "sparse_8"), "{calls}");
    assert!(!calls.lines().any(|line| line.starts_with("marlin")), "{calls}");
    assert!((fast / exact - 1.0).abs() < 0.02, "{fast} {exact}");
    // A third weight in the first four.
    let mut bytes = fs::read(&house.model).expect("a file");
    let gguf = trine_testkit::gguf::header(&bytes);
    let name = "blk.5.ffn_up.weight";
    let tensor = gguf.tensors.iter().find(|t| t.name == name).expect("a tensor");
    let at = (gguf.data_offset + tensor.offset) as usize + 2;
    bytes[at..at + 4].fill(0x11);
    fs::write(&house.model, bytes).expect("room");
    let words = "--tokens ids.txt -n 0 -c 16 -ub 4 --logits-sha256 --device cuda -ngl 3";
    let refused = house.run(env!("CARGO_BIN_EXE_rgen"), "", &format!("{words} --number-path fast"));
    let error = tool::refusal("rgen", refused).error;
    assert!(error.contains(name) && error.contains("4 of the four weights of row 0 from column 0"), "{error}");
    // Whoever does not rely on the pattern multiplies by what is there.
    tool::stdout(house.run(env!("CARGO_BIN_EXE_rgen"), "", words));
}

#[test]
fn what_is_in_the_way_is_one_line() {
    let house = House::new();
    for (plan, told) in [
        ("devices=0", "the NVIDIA driver fails in cuInit: CUDA_ERROR_NO_DEVICE (100)"),
        ("capability=7.5", "has compute capability 7.5, and the kernels ask for 8.0 or newer"),
        ("version=11020", "is of CUDA 11.2"),
        ("memory=1000000", "bytes of the GPU's memory (weights "),
        ("fail=cuDevicePrimaryCtxRetain:999", "fails in cuDevicePrimaryCtxRetain: CUDA_ERROR_UNKNOWN (999)"),
        ("fail=cuStreamCreate:201", "fails in cuStreamCreate: CUDA_ERROR_INVALID_CONTEXT (201)"),
        // Memory that others took after it was counted.
        ("fail=cuMemAlloc_v2:2", "the GPU has no room for "),
        (
            "fail=cuModuleLoadDataEx:218",
            "does not compile the kernels of 'norm': CUDA_ERROR_INVALID_PTX (218); install a newer driver",
        ),
        ("fail=cuModuleGetFunction:500", "cuModuleGetFunction: CUDA_ERROR_NOT_FOUND (500)"),
        (
            "fail=cuLaunchKernel:719",
            "the GPU failed with CUDA_ERROR_LAUNCH_FAILED (719) in cuLaunchKernel; kernel 'norm_q8_k'",
        ),
        // A kernel that fails shows in a call behind it.
        ("fail=rope:700", "the GPU failed with CUDA_ERROR_ILLEGAL_ADDRESS (700) in cu"),
        ("fail=cuStreamSynchronize:700", "(700) in cuStreamSynchronize; kernel '"),
    ] {
        let error = house.refused(plan);
        assert!(error.contains(told), "{plan}: {error}");
    }
}

#[test]
fn layers_are_cut_over_several_gpus() {
    let house = House::new();
    let expected = house.hashes("");
    let hashes = |options: &str| {
        let words = format!("--tokens ids.txt -n 0 -c 16 -ub 4 --logits-sha256 {options}");
        tool::stdout(house.run(env!("CARGO_BIN_EXE_rgen"), "devices=3", &words))
    };
    for options in
        ["-dev CUDA0,CUDA1 -ts 3,1", "--device cuda:2,cuda:0,cuda:1", "-dev cuda:0,cuda:1 -sm none -mg 1 -ngl 1"]
    {
        assert_eq!(hashes(options), expected, "{options}");
    }
    // Every device that has layers runs kernels, and gives its memory back.
    let log = house.folder.path().join("log");
    let plan = format!("devices=2 log={}", log.display());
    let words = "-p 2 -n 0 -r 1 -b 2 -ub 2 --no-warmup -o jsonl --device cuda:0,cuda:1 -ngl 2";
    let row = tool::stdout(house.run(env!("CARGO_BIN_EXE_rbench"), &plan, words));
    let row: Value = serde_json::from_str(row.trim()).expect("a row");
    assert_eq!(row["device"], json!("cuda:0,cuda:1"));
    let calls = fs::read_to_string(log).expect("a log");
    assert_eq!(calls.lines().filter(|line| *line == "end").count(), 2, "{calls}");
}

#[test]
fn gpus_share_rows_of_matrices_and_send_one_another_their_outputs() {
    let house = House::new();
    let expected = house.hashes("");
    let log = house.folder.path().join("log");
    let run = |plan: &str, options: &str| {
        let words = format!("--tokens ids.txt -n 0 -c 16 -ub 1 --logits-sha256 {options}");
        let plan = format!("devices=3 log={} {plan}", log.display());
        let output = house.run(env!("CARGO_BIN_EXE_rgen"), &plan, &words);
        let calls = fs::read_to_string(&log).unwrap_or_default();
        let _ = fs::remove_file(&log);
        let count = |what: &str| calls.lines().filter(|line| line.starts_with(what)).count();
        (output, ["send", "reach", "a graph of", "end"].map(count))
    };
    let two = "-dev cuda:0,cuda:1 -sm row -ts 3,1";
    let (output, [sent, reached, graphs, ended]) = run("", two);
    assert_eq!(tool::stdout(output), expected);
    // Seven matrices of six layers, of which one multiplies gates where it is, and that of the logits, in both directions
    // and for three tokens, of which the second and third are graphs.
    assert_eq!((sent, reached, ended), (2 * 3 * (6 * 6 + 1), 2, 2));
    assert!(graphs > 2 * 2 * 6 * 4, "{graphs}");
    for (plan, options) in [
        ("", "-dev cuda:2,cuda:0,cuda:1 -sm tensor -ngl 3"),
        ("", "-dev cuda:1 -sm row"),
        ("reaches=0", two),
        // A driver that copies to no other device, and one without events.
        ("fail=cuMemcpyPeerAsync:801", two),
        ("fail=cuEventCreate:801", two),
        ("fail=cuStreamWaitEvent:801", two),
        ("fail=cuStreamBeginCapture_v2:801", two),
    ] {
        let (output, [sent, reached, ..]) = run(plan, options);
        assert_eq!(tool::stdout(output), expected, "{plan} {options}");
        assert_eq!(sent > 0, !plan.contains("Peer") && options != "-dev cuda:1 -sm row", "{plan} {options}");
        assert_eq!(reached > 0, options != "-dev cuda:1 -sm row" && plan != "reaches=0", "{plan} {options}");
    }
    // Layers hand on their outputs in the same way.
    let (output, [sent, ..]) = run("", "-dev cuda:0,cuda:1");
    assert_eq!((tool::stdout(output), sent), (expected.clone(), 3));
    // Copies and waits that are left out are found: by the hashes, and by the library, which follows the order of queues.
    let (output, _) = run("skip=cuMemcpyPeerAsync", two);
    assert_ne!(tool::stdout(output), expected);
    let (output, _) = run("skip=cuStreamWaitEvent", two);
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(text.contains("fake driver: a copy into memory that the other device may still use"), "{text}");
}

#[test]
fn what_is_in_the_way_of_several_gpus_is_one_line() {
    let house = House::new();
    for (plan, options, told) in [
        ("devices=2", "cuda:0,cuda:2", "--device cuda:0,cuda:2"),
        ("devices=2", "cuda:0,cuda:1 -ts 1,1,1", "--tensor-split: 3 shares for 2 of --device cuda:0,cuda:1"),
        ("devices=2", "cuda -ts 1,1", "--tensor-split: 2 shares for 1 of --device cuda:0"),
        ("devices=2", "cuda:0,cuda:1 -sm none -ts 1,1", "--tensor-split is for --split-mode layer and row"),
        (
            "devices=2",
            "cuda:0,cuda:1 -sm row --number-path fast",
            "half precision times rows of matrices that GPUs share",
        ),
        ("devices=2 memory=80000000000,1000000", "cuda:0,cuda:1 -sm row -ts 1,1", "cuda:1: the model needs "),
        ("devices=2 fail=cuMemAlloc_v2:2", "cuda:0,cuda:1 -sm row", "cuda:0: the GPU has no room for "),
        ("devices=2", "cuda:0,cuda:1 -sm none -mg 2", "--main-gpu 2: --device cuda:0,cuda:1 has 2, counted from 0"),
        ("devices=2 memory=80000000000,1000000", "cuda:0,cuda:1 -ts 1,1", "cuda:1: the model needs "),
    ] {
        let words = format!("--tokens ids.txt -n 0 -c 16 -ub 4 --seed 1 --logits-sha256 --device {options}");
        let refusal = tool::refusal("rgen", house.run(env!("CARGO_BIN_EXE_rgen"), plan, &words));
        assert!(refusal.error.contains(told), "{options}: {}", refusal.error);
    }
    for (options, told) in [("cuda:0,cuda:0", "each once"), ("cuda:0,cuda:1 -sm layer,row", "one at a time")] {
        let output = house.run(env!("CARGO_BIN_EXE_rgen"), "devices=2", &format!("-p a -n 1 --device {options}"));
        assert_eq!(output.status.code(), Some(2), "{options}");
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(text.lines().next().is_some_and(|line| line.contains(told)), "{options}: {text}");
    }
}
