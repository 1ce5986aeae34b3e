//! `rbench`: the models it makes up, the forms of its tables, its answers to mistakes.

use std::fs;
use std::path::Path;
use std::process::Output;

use assert_cmd::Command;
use serde_json::Value;
use tempfile::tempdir;
use trine::arch::ARCHITECTURES;
use trine_testkit::tool;

fn rbench(args: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_rbench"));
    command.args(args).output().unwrap()
}

fn stdout(args: &[&str]) -> String {
    tool::stdout(rbench(args))
}

/// The one line of an error, without the tool's name.
fn error(args: &[&str]) -> String {
    tool::only_error("rbench", rbench(args))
}

/// A synthetic model as a file.
fn save(spec: &str, path: &Path) {
    let path = path.to_str().unwrap();
    stdout(&["--synthetic", spec, "--save", path, "-p", "1", "-n", "0", "-r", "1"]);
}

#[test]
fn made_up_models_are_what_rquantize_makes_of_them() {
    let dir = tempdir().unwrap();
    let path = |name: &str| dir.path().join(name);
    for (arch, ty, source) in [
        ("llama:tiny", "TQ2_0", "F16-ternary"),
        ("llama:tiny", "TQ1_0", "F16-ternary"),
        ("qwen3:tiny", "Q4_K_M", "F16"),
        ("bitnet:tiny", "Q4_0", "F16"),
        ("bitnet-b1.58:tiny", "I2_S", "F16-ternary"),
        ("qwen3moe:tiny-4x2", "Q4_K_M", "F16"),
    ] {
        let (float, ours, theirs) = (path("float.gguf"), path("ours.gguf"), path("theirs.gguf"));
        save(&format!("{arch}:{source}"), &float);
        save(&format!("{arch}:{ty}"), &ours);
        let mut rquantize = Command::new(env!("CARGO_BIN_EXE_rquantize"));
        let status = rquantize.args([&float, &theirs]).arg(ty).output().unwrap();
        assert!(status.status.success(), "{arch} {ty}");
        assert!(fs::read(&ours).unwrap() == fs::read(&theirs).unwrap(), "{arch} {ty}");
    }
}

#[test]
fn every_architecture_can_be_made_up_and_runs() {
    let archs = || ARCHITECTURES.iter().copied().filter(|a| a.is_plain());
    let dense = archs().filter(|a| !a.block.is_empty());
    let dense = dense.map(|a| {
        let ty = if a.widely_linear { "W2" } else { "Q8_0" };
        format!("{}:tiny:{ty}", a.name)
    });
    let mixtures = archs().filter(|a| !a.expert_block.is_empty());
    let mixtures = mixtures.map(|a| format!("{}:tiny-4x2:Q8_0", a.name));
    let specs: Vec<String> = dense.chain(mixtures).collect();
    assert!(specs.len() >= archs().count());
    let args = ["-p", "2", "-n", "1", "-r", "1", "-t", "1", "-o", "jsonl"];
    let specs_arg = specs.join(",");
    let lines = stdout(&[&["--synthetic", &specs_arg], &args[..]].concat());
    let names: Vec<String> =
        lines.lines().map(|l| serde_json::from_str::<Value>(l).unwrap()["model_filename"].to_string()).collect();
    for spec in &specs {
        let ran = names.iter().filter(|n| n.contains(spec.as_str())).count();
        assert_eq!(ran, 2, "{spec} in {names:?}");
    }
}

#[test]
fn sizes_may_be_free_and_lists_of_them_have_commas_of_both_kinds() {
    let specs = "llama:hidden=256,ffn=512,layers=1,vocab=300:TQ2_0,llama:tiny:Q8_0,qwen3moe:tiny,layers=1-4x2:Q8_0";
    let lines = stdout(&["--synthetic", specs, "-p", "2", "-n", "0", "-r", "1", "-t", "1", "-o", "jsonl"]);
    let rows: Vec<Value> = lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let names: Vec<&str> = rows.iter().map(|row| row["model_filename"].as_str().unwrap()).collect();
    assert_eq!(names.len(), 3, "{names:?}");
    assert!(names[0].contains("hidden=256,ffn=512,layers=1,heads=2,kv_heads=2,head_dim=128,vocab=300,context=4096"));
    assert_eq!(names[1], "llama:tiny:Q8_0");
    assert!(names[2].contains("layers=1") && names[2].contains("-4x2:Q8_0"), "{names:?}");
}

#[test]
fn every_form_has_every_test() {
    let args = |form| {
        #[rustfmt::skip]
        let args = [
            "--synthetic", "llama:tiny:Q8_0", "-p", "3,0", "-n", "2", "-pg", "4,2", "-d", "0,5", "-t", "1,2", "-b", "2",
            "-r", "2", "-o", form,
        ];
        args
    };
    let names = ["pp3", "tg2", "pp4+tg2", "pp3 @ d5", "tg2 @ d5", "pp4+tg2 @ d5"];
    let json: Vec<Value> = serde_json::from_str(&stdout(&args("json"))).unwrap();
    assert_eq!(json.len(), 12);
    for (i, row) in json.iter().enumerate() {
        assert_eq!(row["test"], names[i % 6]);
        assert_eq!(row["n_threads"], 1 + i / 6);
        assert_eq!(row["n_batch"], 2);
        assert_eq!(row["model_type"], "llama 1M Q8_0");
        assert_eq!(row["model_n_params"], 1_443_072);
        let samples = row["samples_ts"].as_array().unwrap();
        let mean = samples.iter().map(|s| s.as_f64().unwrap()).sum::<f64>() / 2.0;
        assert_eq!(samples.len(), 2);
        assert!(mean > 0.0 && (row["avg_ts"].as_f64().unwrap() / mean - 1.0).abs() < 1e-9);
    }
    let lines = stdout(&args("jsonl"));
    assert_eq!(lines.lines().count(), 12);
    for (i, line) in lines.lines().enumerate() {
        let row: Value = serde_json::from_str(line).unwrap();
        assert_eq!(row["test"], names[i % 6]);
    }
    let csv = stdout(&args("csv"));
    assert_eq!(csv.lines().count(), 13);
    let columns = csv.lines().next().unwrap().split(',').count();
    assert!(csv.contains("\"pp4+tg2 @ d5\"") && columns > 15);
    let sql = stdout(&args("sql"));
    assert!(sql.starts_with("CREATE TABLE IF NOT EXISTS rbench_models (\n  version TEXT,\n"));
    let rows: Vec<&str> = sql.lines().filter(|l| l.starts_with("INSERT INTO")).collect();
    assert_eq!(rows.len(), 12);
    assert!(rows.iter().all(|r| r.ends_with(");") && r.contains("VALUES ('")));
    let table = stdout(&args("md"));
    // What all rows of a number of threads have in common stands above them.
    for threads in ["threads 1\n", "threads 2\n"] {
        assert_eq!(table.matches(threads).count(), 1, "{table}");
    }
    let lines: Vec<&str> = table.lines().filter(|line| line.starts_with('|')).collect();
    assert_eq!(lines.len(), 2 * (2 + 6), "{table}");
    assert!(lines.iter().all(|line| line.matches('|').count() == 4), "{table}");
}

#[test]
fn rows_say_what_they_stand_on() {
    let model = trine_testkit::trilm();
    let hash = trine_testkit::sha256(&std::fs::read(&model).unwrap());
    let model = model.to_str().unwrap();
    let own = ["-m", model, "-p", "2", "-n", "0", "-r", "1", "-t", "1", "-o"];
    let list: Value = serde_json::from_str(&stdout(&[&own[..], &["json"]].concat())).unwrap();
    let line: Value = serde_json::from_str(&stdout(&[&own[..], &["jsonl"]].concat())).unwrap();
    for row in [&list[0], &line] {
        let provenance = &row["provenance"];
        assert_eq!(row["schema"], "rbench.models/1");
        assert_eq!(provenance["tool"], "rbench");
        assert_eq!(provenance["threads"], 1);
        assert_eq!(provenance["isa"], row["isa"]);
        assert_eq!(provenance["models"][0]["sha256"], hash.as_str());
    }
    // A synthetic model has no file.
    let made_up = ["--synthetic", "llama:tiny:Q8_0", "-p", "2", "-n", "0", "-r", "1", "-o", "jsonl"];
    let row: Value = serde_json::from_str(&stdout(&made_up)).unwrap();
    assert_eq!(row["provenance"]["models"], serde_json::json!([]));
}

#[test]
fn layers_on_a_gpu_are_a_list_that_says_nothing_without_one() {
    for layers in ["10,20,30", "0-30+10", "all", "-1"] {
        let words = "--synthetic llama:tiny:Q8_0 -p 2 -n 0 -r 1 -t 1,2 -o jsonl -ngl";
        let args: Vec<&str> = words.split(' ').chain([layers]).collect();
        let output = rbench(&args);
        let notes = String::from_utf8_lossy(&output.stderr).matches("note: -ngl: ").count();
        assert_eq!(notes, 1, "{layers}");
        let rows = tool::stdout(output);
        assert!(rows.lines().all(|row| row.contains("\"device\":\"cpu\"")), "{rows}");
        assert!(rows.lines().count() <= 2, "{rows}");
    }
    let layers = "--synthetic llama:tiny:Q8_0 -p 2 -n 0 -ngl few".split(' ');
    let output = rbench(&layers.collect::<Vec<_>>());
    assert_eq!(output.status.code(), Some(2));
    let told = String::from_utf8_lossy(&output.stderr);
    assert!(told.contains("a whole number from 0, or all"), "{told}");
}

#[test]
fn types_of_keys_and_values_are_lists() {
    let words = "--synthetic llama:tiny:Q8_0 -p 2 -n 0 -r 1 -t 1 -ctk f16,q8_0 -ctv f16,q8_0";
    let args: Vec<&str> = words.split(' ').collect();
    let table = stdout(&args);
    assert_eq!(table.lines().filter(|line| line.starts_with('|')).count(), 2 + 4, "{table}");
    assert!(table.contains("| type_k | type_v |"), "{table}");
    let rows = stdout(&[&args[..], &["-o", "jsonl"]].concat());
    let types = rows.lines().map(|row| {
        let row: Value = serde_json::from_str(row).unwrap();
        [row["type_k"].clone(), row["type_v"].clone()]
    });
    let pairs = [["f16", "f16"], ["f16", "q8_0"], ["q8_0", "f16"], ["q8_0", "q8_0"]];
    assert_eq!(types.collect::<Vec<_>>(), pairs.map(|pair| pair.map(Value::from)));
    let roofline = [&args[..], &["--roofline"]].concat();
    assert!(error(&roofline).contains("--roofline measures one way to load a model"));
}

#[test]
fn batched_rows_have_the_columns_of_llama_batched_bench() {
    let args = |more: &[&'static str]| {
        let usual = "--batched --synthetic llama:tiny:Q8_0 -npp 3,8 -ntg 2 -npl 1,3,8 -r 1 -t 1";
        usual.split(' ').chain(more.iter().copied()).map(str::to_owned).collect::<Vec<_>>()
    };
    let out = |more: &[&'static str]| {
        let args = args(more);
        stdout(&args.iter().map(String::as_str).collect::<Vec<_>>())
    };
    let table = out(&[]);
    let lines: Vec<&str> = table.lines().collect();
    assert_eq!(lines[0], "|     PP |     TG |    B |   N_KV | S_PP t/s | S_TG t/s |    S t/s |");
    assert!(lines[7].starts_with("|      8 |      2 |    8 |     80 | "), "{table}");
    // Three sequences beside a prompt of three tokens, eight beside one of eight, after either prompt.
    let notes = lines[9..].join(" ").replace("     ", " ");
    let notes: Vec<&str> = notes.split("llama 1M Q8_0, ").skip(1).collect();
    assert_eq!(notes.len(), 4, "{table}");
    for (line, n) in notes.iter().zip([3, 3, 8, 8]) {
        assert!(line.contains(&format!("a step of {n} sequences")), "{table}");
        assert!(line.contains(&format!("of a prompt of {n} tokens")), "{table}");
    }
    for (more, positions) in [(&["-o", "json"][..], 8 * 8 + 16), (&["-o", "json", "-pps"], 8 + 16)] {
        let rows: Vec<Value> = serde_json::from_str(&out(more)).unwrap();
        let last = rows.last().unwrap();
        assert_eq!((rows.len(), &last["pl"], &last["n_kv"]), (6, &8.into(), &positions.into()));
        let number = |key: &str| last[key].as_f64().unwrap();
        let sum = number("t_pp") + number("t_tg");
        assert!((number("t") / sum - 1.0).abs() < 1e-9);
        assert!((number("speed_tg") * number("t_tg") - 16.0).abs() < 1e-6);
    }
    assert_eq!(out(&["-o", "csv"]).lines().count(), 7);
    let nothing = "--batched --synthetic llama:tiny:Q8_0 -npp 0 -ntg 0";
    let nothing: Vec<&str> = nothing.split(' ').collect();
    assert_eq!(error(&nothing), "nothing to do: give -npp or -ntg a number above 0");
}

#[test]
fn the_roofline_counts_bytes_and_products() {
    let args = ["--roofline", "--synthetic", "llama:tiny:Q8_0", "-p", "4", "-n", "1", "-r", "1", "-o", "json"];
    let json: Vec<Value> = serde_json::from_str(&stdout(&args)).unwrap();
    assert_eq!(json.len(), 2);
    // two layers of q, k, v, o, gate, up and down; 34 bytes for 32 weights
    let layers = 2 * (2 * 256 * 256 + 2 * 256 * 128 + 3 * 256 * 512);
    let output = 256 * 512;
    for row in &json {
        let number = |key: &str| row[key].as_f64().unwrap();
        assert_eq!(number("quantized_macs_per_token"), f64::from(layers));
        assert_eq!(number("weight_bytes_per_token"), f64::from((layers + output) / 32 * 34));
        assert_eq!(number("kv_bytes_per_position"), f64::from(2 * 2 * 128 * 2));
        assert_eq!(number("attention_macs_per_position"), f64::from(2 * 2 * 256));
        assert!(number("bound_ts") > 0.0 && number("share") > 0.0);
    }
}

#[test]
fn a_profile_has_every_operation_with_its_runs_bytes_and_products() {
    let args =
        ["--profile", "--synthetic", "llama:tiny:Q8_0", "-p", "4", "-n", "2", "-r", "3", "-o", "json", "-t", "1"];
    let json: Vec<Value> = serde_json::from_str(&stdout(&args)).unwrap();
    let row = |test: &str, operation: &str| {
        let mut rows = json.iter().filter(|row| row["test"] == test && row["operation"] == operation);
        rows.next().unwrap_or_else(|| panic!("{test} {operation} in {json:?}"))
    };
    // two layers, three repetitions
    let qkv = row("pp4", "products attn_q attn_k attn_v");
    let weights = 256 * (256 + 2 * 128);
    assert_eq!(qkv["runs"], 6);
    assert_eq!(qkv["macs"].as_f64(), Some(f64::from(6 * 4 * weights)));
    let read = qkv["matrix_bytes"].as_f64().unwrap();
    assert!(read >= f64::from(6 * weights / 32 * 34) && read < f64::from(7 * weights / 32 * 34), "{read}");
    assert_eq!(row("tg2", "attend attention")["runs"], 2 * 2 * 3);
    let output = row("tg2", "products output");
    assert_eq!(output["macs"].as_f64(), Some(f64::from(3 * 2 * 256 * 512)));
    for test in ["pp4", "tg2"] {
        let shares = json.iter().filter(|row| row["test"] == test).filter_map(|row| row["share"].as_f64());
        assert!((shares.sum::<f64>() - 1.0).abs() < 1e-9);
    }
}

#[test]
fn mistakes() {
    assert_eq!(error(&[]), "no model: give -m FILE, or --synthetic ARCH:SIZE:TYPE to make one up");
    let tiny = ["--synthetic", "llama:tiny:Q8_0"];
    let with = |more: &[&'static str]| [&tiny[..], more].concat();
    assert_eq!(error(&with(&["-p", "0", "-n", "0"])), "nothing to do: give -p, -n or -pg a number above 0");
    assert!(error(&with(&["-m", "absent.gguf"])).contains("'absent.gguf' does not exist"));
    assert!(error(&["--kernels", "--types", "I8"]).starts_with("--types: trine has no kernel for i8"));
    for (spec, says) in [
        ("llama:tiny", "write ARCH:SIZE:TYPE"),
        ("gpt:tiny:F16", "give one of llama,"),
        ("qwen3moe:tiny:F16", "have experts: write qwen3moe:tiny-8x2"),
        ("qwen3:tiny-8x2:F16", "have no experts: write qwen3:tiny"),
        ("llama:tiny-2x8:F16", "'-2x8' is no mixture"),
        ("llama:big:F16", "give one of tiny, 700m,"),
        ("llama:tiny,layers=0:F16", "from 1 to"),
        ("llama:hidden=256,layers=1:F16", "a size needs ffn=N"),
        ("llama:tiny,depth=3:F16", "'depth' is no part of a size"),
        ("llama:tiny:Q9", "'Q9' is no file type"),
    ] {
        let output = rbench(&["--synthetic", spec]);
        assert_eq!(output.status.code(), Some(2));
        let stderr = String::from_utf8(output.stderr).unwrap();
        assert!(stderr.contains(says), "{stderr}");
    }
}

#[test]
fn nothing_is_left_of_a_file_that_cannot_be_kept() {
    let dir = tempdir().unwrap();
    let path = dir.path().join("no/such/place.gguf");
    let says = error(&["--synthetic", "llama:tiny:F16", "--save", path.to_str().unwrap()]);
    assert!(says.contains("the directory it should lie in does not exist"), "{says}");
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
}

/// A program by the name of llama-bench that writes `text` and notes how it was called.
#[cfg(unix)]
fn pretend_llama_bench(dir: &Path, text: &str) {
    use std::os::unix::fs::PermissionsExt;
    let program = dir.join("llama-bench");
    let called = dir.join("called");
    let script = format!("#!/bin/sh\necho \"$@\" >>{}\n{text}\n", called.display());
    fs::write(&program, script).unwrap();
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
}

#[cfg(unix)]
#[test]
fn llama_bench_runs_in_turns_with_the_same_settings() {
    let dir = tempdir().unwrap();
    let model = dir.path().join("model.gguf");
    save("llama:tiny:TQ2_0", &model);
    let answer = r#"echo '[{"build_commit": "abc", "avg_ts": 0.5}]'"#;
    pretend_llama_bench(dir.path(), answer);
    let (build, model) = (dir.path().to_str().unwrap(), model.to_str().unwrap());
    let args = ["--compare-llama", build, "-m", model, "-t", "1", "-r", "3"];
    let sizes = ["-p", "5", "-n", "2", "-d", "4", "-o", "json"];
    let rows: Value = serde_json::from_str(&stdout(&[&args[..], &sizes].concat())).unwrap();
    let rows = rows.as_array().unwrap();
    assert_eq!(rows.len(), 2);
    for (row, test) in rows.iter().zip(["pp5 @ d4", "tg2 @ d4"]) {
        assert_eq!(row["test"], test);
        assert_eq!(row["llama_build_commit"], "abc");
        assert_eq!(row["llama_samples_ts"].as_array().unwrap().len(), 3);
        let number = |name: &str| row[name].as_f64().unwrap();
        assert_eq!(number("llama_median_ts"), 0.5);
        assert!(number("least_ratio") <= number("median_ratio"));
        assert!(number("median_ratio") <= number("greatest_ratio"));
        let ours = row["samples_ts"][0].as_f64().unwrap();
        assert!(number("least_ratio") <= ours / 0.5 && ours / 0.5 <= number("greatest_ratio"));
    }
    let called = fs::read_to_string(dir.path().join("called")).unwrap();
    let common = format!("-m {model} -o json -t 1 -d 4 -b 2048 -ub 512 -r 1");
    let want = [format!("{common} -p 5 -n 0\n").repeat(3), format!("{common} -p 0 -n 2\n").repeat(3)];
    assert_eq!(called, want.concat());
    // ik_llama.cpp has other options, and no prompts behind others.
    fs::remove_file(dir.path().join("called")).unwrap();
    let args = ["--compare-ik", build, "-m", model, "-t", "1", "-r", "1", "-o", "jsonl"];
    for sizes in [["-p", "5", "-n", "0", "-d", "0"], ["-p", "0", "-n", "2", "-d", "0,4"]] {
        for line in stdout(&[&args[..], &sizes].concat()).lines() {
            let row: Value = serde_json::from_str(line).unwrap();
            assert_eq!(row["beside"], "ik_llama.cpp");
        }
    }
    let called = fs::read_to_string(dir.path().join("called")).unwrap();
    let common = format!("-m {model} -o json -t 1 -fa 1 -rtr 1 -b 2048 -ub 512 -r 1");
    let want = ["-p 5 -n 0", "-p 0 -n 2", "-p 0 -n 0 -gp 4,2"].map(|test| format!("{common} {test}\n"));
    assert_eq!(called, want.concat());
    let refused = error(&[&args[..], &["-p", "5", "-n", "0", "-d", "4"]].concat());
    assert!(refused.contains("'pp5 @ d4'") && refused.contains("-p 0"), "{refused}");
}

#[cfg(unix)]
#[test]
fn a_llama_bench_that_is_missing_or_fails_is_named() {
    let dir = tempdir().unwrap();
    let model = dir.path().join("model.gguf");
    save("llama:tiny:TQ2_0", &model);
    let (build, model) = (dir.path().to_str().unwrap(), model.to_str().unwrap());
    let args = ["--compare-llama", build, "-m", model, "-p", "1", "-n", "0"];
    assert!(error(&args).contains("has no llama-bench, nor has its bin"));
    pretend_llama_bench(dir.path(), "echo 'it is broken' >&2; exit 3");
    assert!(error(&args).contains("fails: it is broken"));
    pretend_llama_bench(dir.path(), "echo words");
    assert!(error(&args).contains("writes no JSON"));
    let made_up = ["--compare-llama", build, "--synthetic", "llama:tiny:TQ2_0"];
    assert!(error(&made_up).contains("--save FILE keeps it"));
}

#[test]
fn tables_of_papers_that_are_none_are_refused_with_their_names() {
    for (args, expected) in [
        (&["--reproduce", "bitnet-table8"][..], "give one of bitnet-table7, trilm-fig10, fairyfuse-fig4"),
        (&["--reproduce", "bitnet-table7:2b"], "has no row '2b': give some of 700m,1.5b"),
        (&["--reproduce", "bitnet-table7", "-p", "5"], "cannot be used with '--n-prompt"),
    ] {
        let output = rbench(args);
        let said = String::from_utf8(output.stderr).unwrap();
        assert!(output.status.code() == Some(2) && said.contains(expected), "{said}");
    }
}
