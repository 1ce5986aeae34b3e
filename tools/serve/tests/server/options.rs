//! Every option does what its help says.

use std::io::Read;
use std::path::Path;
use std::thread;
use std::time::Duration;

use clap::CommandFactory;
use serde_json::{Value, json};
use trine_serve::args::Args;

use crate::client::{Response, ask, get, open, post, raw, request};
use crate::local::{Local, any_precision, start, start_with};
use crate::program::{Running, program};

/// The answer of a server with these options to one request.
fn completion(more: &[&str], body: &Value) -> Response {
    post(start(more).to, "/v1/completions", body)
}

/// Options that all tools share and whose tests are theirs.
const NOT_OURS: [&str; 8] =
    ["tl-tiles", "i2s-layout", "help", "version", "man", "completion-bash", "completion-zsh", "completion-fish"];

#[test]
fn none_is_without_a_test() {
    let tests = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/server");
    let mut text = String::new();
    for file in std::fs::read_dir(tests).expect("a folder") {
        text += &std::fs::read_to_string(file.expect("a file").path()).expect("a text");
    }
    let untested: Vec<String> = Args::command()
        .get_arguments()
        .filter_map(|a| a.get_long())
        .filter(|long| !NOT_OURS.contains(long))
        .filter(|long| {
            let variable = format!("RSERVE_{}", long.to_ascii_uppercase().replace('-', "_"));
            !text.contains(&format!("\"--{long}\"")) && !text.contains(&variable)
        })
        .map(str::to_owned)
        .collect();
    assert_eq!(untested, [""; 0], "no test gives these options");
}

#[test]
fn what_changes_the_model_changes_the_answer() {
    let body = json!({"prompt": "The game", "max_tokens": 4, "temperature": 0, "logprobs": 5, "seed": 1});
    let choices = |more: &[&str]| {
        let response = completion(more, &body);
        assert_eq!(response.status, 200, "{more:?}: {}", response.text());
        response.json()["choices"].clone()
    };
    let plain = choices(&[]);
    let path = |name: &str| {
        let path = trine_testkit::testdata(&format!("adapters/{name}"));
        path.to_str().expect("a path").to_owned()
    };
    let (lora, control) = (path("lora-f32.gguf"), path("control.gguf"));
    let (half_lora, half_control) = (format!("{lora}:0.5"), format!("{control}:0.5"));
    let mut seen = vec![plain.clone()];
    for more in [
        &["--cache-type-k", "q8_0"][..],
        &["--cache-type-v", "q8_0"],
        &["--lora", &lora],
        &["--lora-scaled", &half_lora],
        &["--control-vector", &control],
        &["--control-vector-scaled", &half_control],
        &["--control-vector", &control, "--control-vector-layer-range", "2", "2"],
        &["--override-kv", "llama.attention.layer_norm_rms_epsilon=float:0.01"],
        &["--rope-freq-base", "20000"],
        &["--rope-freq-scale", "0.5"],
        &["--rope-scaling", "linear", "--rope-scale", "4"],
        &["--rope-scaling", "yarn", "--rope-scale", "8"],
        &["--rope-scaling", "yarn", "--rope-scale", "8", "--yarn-orig-ctx", "64"],
        &["--rope-scaling", "yarn", "--rope-scale", "8", "--yarn-ext-factor", "0.5"],
        &["--rope-scaling", "yarn", "--rope-scale", "8", "--yarn-beta-slow", "8"],
        &["--rope-scaling", "yarn", "--rope-scale", "8", "--yarn-beta-fast", "4"],
    ] {
        let choices = choices(more);
        assert!(!seen.contains(&choices), "{more:?} changes nothing");
        seen.push(choices);
    }
    for more in [
        &["--threads", "1"][..],
        &["--no-mmap"],
        &["--no-repack"],
        &["--device", "cpu"],
        &["--n-gpu-layers", "33"],
        &["--split-mode", "row"],
        &["--tensor-split", "3,1"],
        &["--main-gpu", "1"],
        &["--mlock"],
    ] {
        assert_eq!(choices(more), plain, "{more:?}");
    }
}

#[test]
fn a_number_path_of_other_models_is_refused() {
    let output = crate::program::program()
        .arg("-m")
        .arg(trine_testkit::trilm())
        .args(["--port", "0", "--number-path", "i8"])
        .output()
        .expect("an end");
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && text.contains("widely linear"), "{text}");
}

#[test]
fn a_gpu_without_a_driver_is_refused() {
    // A file that is no library, so that the test is the same on machines with a driver.
    let dir = tempfile::tempdir().expect("a folder");
    for name in ["libcuda.so.1", "libcuda.so", "nvcuda.dll"] {
        std::fs::write(dir.path().join(name), "no library").expect("room");
    }
    let output = crate::program::program()
        .arg("-m")
        .arg(trine_testkit::trilm())
        .args(["--port", "0", "--device", "cuda"])
        .env("LD_LIBRARY_PATH", dir.path())
        .output()
        .expect("an end");
    let error = trine_testkit::tool::only_error("rserve", output);
    assert!(error.contains("no NVIDIA driver is installed ("), "{error}");
}

#[test]
fn widths() {
    let folder = trine_testkit::folder();
    let path = any_precision(folder.path());
    let body = json!({"prompt": "The game", "max_tokens": 2, "seed": 3});
    let bits = |local: &Local, bits: Option<u8>| {
        let mut body = body.clone();
        if let Some(bits) = bits {
            body["bits"] = bits.into();
        }
        let response = post(local.to, "/v1/completions", &body);
        (response.status == 200).then(|| response.json()["trine"]["bits"].clone())
    };
    let all = start_with(&path, &[]);
    assert_eq!(bits(&all, None), Some(3.into()));
    assert_eq!(bits(&all, Some(2)), Some(2.into()));
    let narrow = start_with(&path, &["--bits", "1", "--widths", "1,3"]);
    assert_eq!(bits(&narrow, None), Some(1.into()));
    assert_eq!(bits(&narrow, Some(3)), Some(3.into()));
    assert_eq!(bits(&narrow, Some(2)), None);
}

#[test]
fn what_a_request_does_not_say() {
    let plain = start(&[]);
    let body = json!({"prompt": "The game", "max_tokens": 6});
    let local = start(&["--predict", "3", "--seed", "5", "--temp", "0"]);
    let answer = ask(local.to, "/v1/completions", &json!({"prompt": "The game"}));
    assert_eq!(answer["usage"]["completion_tokens"], 3);
    assert_eq!(answer["trine"]["seed"], 5);
    let text = |to, more: Value| {
        let mut body = body.clone();
        for (key, value) in more.as_object().expect("an object") {
            body[key] = value.clone();
        }
        ask(to, "/v1/completions", &body)["choices"][0]["text"].clone()
    };
    let greedy = text(plain.to, json!({"temperature": 0}));
    assert_eq!(text(local.to, json!({"seed": 9})), greedy);
    assert_ne!(text(plain.to, json!({"seed": 9})), greedy);
}

#[test]
fn limits_of_requests() {
    let long = json!({"prompt": vec![30; 100], "max_tokens": 1});
    completion(&["--ctx-size", "64"], &long).error(400);
    assert_eq!(completion(&["--ctx-size", "128"], &long).status, 200);
    let three = json!({"prompt": "The", "max_tokens": 1, "n": 3});
    completion(&["--max-choices", "2"], &three).error(400);
    assert_eq!(completion(&["--max-choices", "3"], &three).status, 200);
    // As much as the context holds takes longer than that on any machine.
    let endless = json!({"prompt": "The", "ignore_eos": true, "max_tokens": 400});
    let tokens = |more: &[&str]| {
        let usage = completion(more, &endless).json()["usage"].clone();
        usage["completion_tokens"].as_u64().expect("a number")
    };
    assert_eq!(tokens(&[]), 400);
    assert!(tokens(&["--request-timeout", "0.01"]) < 400);
}

/// A server all of whose places are taken for as long as a connection is open, or for a tenth of --stall-timeout: by texts of
/// a client that reads nothing, which are longer than the buffers of a connection.
fn taken(more: &[&str]) -> (Local, std::net::TcpStream) {
    let local = start(&[&["--parallel", "8"][..], more].concat());
    let body = json!({
        "prompt": "The", "ignore_eos": true, "max_tokens": 500, "n": 8, "n_probs": 100, "stream": true,
    });
    let bytes = request("POST", "/v1/completions", &[], body.to_string().as_bytes());
    let stream = open(local.to, &bytes);
    while has_place(&local) {
        thread::sleep(Duration::from_millis(1));
    }
    (local, stream)
}

fn has_place(local: &Local) -> bool {
    get(local.to, "/slots?fail_on_no_slot=1").status == 200
}

#[test]
fn limits_of_those_that_wait() {
    let body = json!({"prompt": vec![30; 20], "max_tokens": 1});
    let (local, place) = taken(&["--stall-timeout", "1000", "--queue-timeout", "0.1"]);
    post(local.to, "/v1/completions", &body).error(503);
    drop(place);
    let (local, place) = taken(&["--stall-timeout", "1000", "--max-queue-tokens", "30"]);
    // One may wait, two would be more than 30 tokens.
    thread::scope(|s| {
        let (sender, answers) = std::sync::mpsc::channel();
        for _ in 0..2 {
            let (sender, body) = (sender.clone(), &body);
            s.spawn(move || sender.send(post(local.to, "/v1/completions", body).status));
        }
        assert_eq!(answers.recv(), Ok(429));
        drop(place);
        assert_eq!(answers.recv(), Ok(200));
    });
}

#[test]
fn silence_is_filled_while_a_request_waits() {
    let body = json!({"prompt": "The", "max_tokens": 1, "stream": true});
    let bytes = request("POST", "/v1/completions", &[], body.to_string().as_bytes());
    let (local, place) = taken(&["--stall-timeout", "1000", "--sse-ping-interval", "1"]);
    let mut waiting = open(local.to, &bytes);
    let mut told = Vec::new();
    while !told.ends_with(b":\n\n\r\n") {
        let mut byte = [0];
        waiting.read_exact(&mut byte).expect("a comment");
        told.extend(byte);
    }
    assert!(!String::from_utf8_lossy(&told).contains("data: "));
    drop(place);
    let (local, place) = taken(&["--stall-timeout", "2.5", "--sse-ping-interval", "-1"]);
    assert!(raw(local.to, &bytes).text().starts_with("data: "));
    drop(place);
}

#[test]
fn a_client_that_does_not_read_is_let_go() {
    let (local, unread) = taken(&["--stall-timeout", "0.2"]);
    // Without the limit there would be no place before the connection is closed.
    while !has_place(&local) {
        thread::sleep(Duration::from_millis(20));
    }
    drop(unread);
}

#[test]
fn what_is_served() {
    let plain = start(&[]);
    assert_eq!(get(plain.to, "/slots").status, 200);
    assert_eq!(get(plain.to, "/").status, 200);
    let less = start(&["--no-slots", "--no-ui"]);
    get(less.to, "/slots").error(501);
    get(less.to, "/").error(404);
    let last_counts = start(&["--no-slots", "--slots", "--no-ui", "--ui"]);
    assert_eq!(get(last_counts.to, "/slots").status, 200);
    assert_eq!(get(last_counts.to, "/").status, 200);
    let keyed = start(&["--api-key", "k", "--metrics"]);
    get(keyed.to, "/metrics").error(401);
    let public = start(&["--api-key", "k", "--metrics", "--metrics-public"]);
    assert_eq!(get(public.to, "/metrics").status, 200);
}

#[test]
fn a_cache_for_all() {
    let body = json!({"prompt": vec![9; 300], "max_tokens": 1}).to_string();
    let cached = |local: &Local, key: &str| {
        let headers = [("x-api-key", key)];
        let bytes = request("POST", "/v1/completions", &headers, body.as_bytes());
        raw(local.to, &bytes).json()["usage"]["prompt_tokens_details"]["cached_tokens"].as_u64()
    };
    let local = start(&["--api-key", "first,second", "--shared-prefix-cache"]);
    assert_eq!(cached(&local, "first"), Some(0));
    assert!(cached(&local, "second") > Some(0));
}

#[test]
fn a_template_may_be_given_by_its_name() {
    let body = json!({"messages": [{"role": "user", "content": "Hi"}]});
    for (name, expected) in [
        ("chatml", "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n"),
        ("llama2", "[INST] Hi [/INST]"),
        ("{{ messages[0].content }}!", "Hi!"),
    ] {
        let local = start(&["--chat-template", name]);
        let prompt = ask(local.to, "/apply-template", &body);
        assert_eq!(prompt["prompt"], expected, "{name}");
    }
}

/// A template that shows its variables.
const SHOWN: &str = "{{ enable_thinking }} {{ style }}{{ reasoning_effort }} {{ messages[0].content }}";

#[test]
fn variables_of_templates() {
    let prompt = |more: &[&str], kwargs: Value| {
        let local = start(&[&["--chat-template", SHOWN][..], more].concat());
        let body = json!({"messages": [{"role": "user", "content": "Hi"}], "chat_template_kwargs": kwargs});
        ask(local.to, "/apply-template", &body)["prompt"].clone()
    };
    let kwargs = ["--chat-template-kwargs", "{\"style\": \"brief\", \"enable_thinking\": true}"];
    assert_eq!(prompt(&[], Value::Null), "True  Hi");
    assert_eq!(prompt(&kwargs, Value::Null), "True brief Hi");
    assert_eq!(prompt(&kwargs, json!({"style": "long"})), "True long Hi");
    assert_eq!(prompt(&["--reasoning-budget", "0"], Value::Null), "False  Hi");
    assert_eq!(prompt(&["--reasoning-budget", "0"], json!({"enable_thinking": true})), "True  Hi");
    assert_eq!(prompt(&["--reasoning-budget", "-1"], Value::Null), "True  Hi");
    let off = ["--reasoning", "off"];
    assert_eq!(prompt(&off, Value::Null), "False  Hi");
    assert_eq!(prompt(&off, json!({"enable_thinking": true})), "True  Hi");
    assert_eq!(prompt(&["--reasoning", "auto", "--reasoning-effort", "low"], Value::Null), "True low Hi");
}

#[test]
fn answers_tell_how_they_came_about() {
    let local = start(&["--verbose", "--chat-template", "{{ messages[0].content }}!"]);
    let body = json!({"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 2});
    let answer = ask(local.to, "/v1/chat/completions", &body);
    assert_eq!(answer["__verbose"]["content"], answer["choices"][0]["message"]["content"]);
    assert!(answer["__verbose"]["prompt"].as_str().is_some_and(|text| text.ends_with("Hi!")), "{answer}");
    let mut body = body;
    body["verbose"] = false.into();
    assert_eq!(ask(local.to, "/v1/chat/completions", &body)["__verbose"], Value::Null);
}

#[test]
fn lines_of_the_log_go_to_a_file() {
    let folder = trine_testkit::folder();
    let path = folder.path().join("rserve.log");
    std::fs::write(&path, "before\n").expect("a file");
    let mut server = Running::start(program().arg("--log-file").arg(&path).env("RSERVE_DRAIN_DELAY", "0"));
    assert_eq!(get(server.to, "/health").status, 200);
    assert_eq!(server.terminate(), 0);
    let log = std::fs::read_to_string(&path).expect("a log");
    assert!(log.starts_with("before\nGET /health 200 ") && log.contains("ending when all texts are done"), "{log}");
    // A file that is read is never written.
    let model = folder.path().join("model.bin");
    std::fs::copy(trine_testkit::trilm(), &model).expect("a copy");
    let before = std::fs::read(&model).expect("a file");
    for (model, log) in [(&model, model.clone()), (&model, folder.path().join("x.gguf"))] {
        let output = program().arg("-m").arg(model).arg("--log-file").arg(log).output().expect("an end");
        let error = trine_testkit::tool::only_error("rserve", output);
        assert!(error.contains("--log-file"), "{error}");
    }
    assert!(std::fs::read(&model).expect("a file") == before);
}

/// All that cannot be honoured is said at once.
#[test]
fn refusals_come_together() {
    let output = program().args(["-m", "x.gguf", "--props", "--grammar-file", "g", "--models-max", "2"]).output();
    let output = output.expect("an end");
    let text = String::from_utf8_lossy(&output.stderr);
    assert_eq!((output.status.code(), text.matches("error: ").count()), (Some(2), 3), "{text}");
    for name in ["--props", "--grammar-file", "--models-memory"] {
        assert!(text.contains(name), "{name}: {text}");
    }
}
