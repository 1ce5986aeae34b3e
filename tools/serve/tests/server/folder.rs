//! The models of a folder: chosen by name, loaded when they are asked for, unloaded when their memory is needed.

use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::thread;
use std::time::Duration;

use serde_json::{Value, json};

use crate::client::{ask, get, open, post, raw, request};
use crate::local::{any_precision, start, start_folder, start_with};
use crate::program::program;

/// A folder with the bundled model under these names.
fn folder(names: &[&str]) -> tempfile::TempDir {
    let folder = trine_testkit::folder();
    for name in names {
        std::os::unix::fs::symlink(trine_testkit::trilm(), folder.path().join(format!("{name}.gguf"))).expect("a link");
    }
    folder
}

fn body(model: &str) -> Value {
    json!({"model": model, "prompt": "The game", "max_tokens": 8, "seed": 3})
}

/// The names of the models that are loaded.
fn loaded(to: SocketAddr) -> Vec<String> {
    let models = get(to, "/api/ps").json()["models"].clone();
    let names = models.as_array().expect("a list").iter().filter_map(|m| m["name"].as_str().map(str::to_owned));
    names.collect()
}

/// Waits until these models are loaded and no other.
fn until(to: SocketAddr, names: &[&str]) {
    while loaded(to) != names {
        thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn the_name_chooses() {
    let folder = folder(&["b", "a"]);
    let path = any_precision(folder.path());
    let local = start_folder(folder.path(), &["--metrics"]);
    let to = local.to;
    assert_eq!(get(to, "/health").status, 200);
    assert_eq!(loaded(to), [""; 0]);
    let ids = |of: &Value| -> Vec<(String, String)> {
        let text = |v: &Value| v.as_str().expect("a text").to_owned();
        of["data"].as_array().expect("a list").iter().map(|m| (text(&m["id"]), text(&m["status"]["value"]))).collect()
    };
    let list = |names: &[(&str, &str)]| -> Vec<(String, String)> {
        names.iter().map(|(id, status)| ((*id).to_owned(), (*status).to_owned())).collect()
    };
    let unloaded = list(&[("a", "unloaded"), ("ap", "unloaded"), ("b", "unloaded")]);
    assert_eq!(ids(&get(to, "/v1/models").json()), unloaded);
    let tags = get(to, "/api/tags").json()["models"].clone();
    let names: Vec<&Value> = tags.as_array().expect("a list").iter().map(|m| &m["name"]).collect();
    assert_eq!(names, ["a", "ap", "b"]);
    assert_eq!(tags[0]["details"]["quantization_level"], "F16");
    // Looking at a model does not load it.
    let shown = ask(to, "/api/show", &json!({"model": "b"}));
    assert_eq!(
        (&shown["details"]["family"], &shown["model_info"]["general.architecture"]),
        (&"llama".into(), &"llama".into())
    );
    assert_eq!(loaded(to), [""; 0]);
    // The texts are those of servers of one model.
    let alone = start(&["--alias", "a"]);
    let of_ap = start_with(&path, &["--alias", "ap"]);
    let choices = |to, model: &str| ask(to, "/v1/completions", &body(model))["choices"].clone();
    assert_eq!(choices(to, "a"), choices(alone.to, "a"));
    assert_eq!(choices(to, "ap:2bit"), choices(of_ap.to, "ap:2bit"));
    assert_eq!(ask(to, "/v1/completions", &body("a:latest"))["model"], "a:latest");
    until(to, &["a", "ap"]);
    let ollama = json!({"model": "ap", "prompt": "The game", "raw": true, "options": {"num_predict": 8, "seed": 3}, "stream": false});
    let answer = ask(to, "/api/generate", &ollama);
    assert_eq!(answer["response"], choices(of_ap.to, "ap")[0]["text"]);
    assert_eq!(answer["load_duration"], 0);
    let first = ask(to, "/api/generate", &{
        let mut first = ollama.clone();
        first["model"] = "b".into();
        first
    });
    assert!(first["load_duration"].as_u64().is_some_and(|ns| ns > 0), "{first}");
    let listed = ids(&get(to, "/v1/models").json());
    let widths = [("ap:1bit", "loaded"), ("ap:2bit", "loaded"), ("ap:3bit", "loaded")];
    assert_eq!(listed, list(&[&[("a", "loaded"), ("ap", "loaded")][..], &widths, &[("b", "loaded")]].concat()));
    assert_eq!(get(to, "/v1/models/ap:2bit").json()["id"], "ap:2bit");
    get(to, "/v1/models/c").error(404);
    assert_eq!(
        ask(to, "/tokenize", &json!({"model": "a", "content": "Hi"})),
        ask(alone.to, "/tokenize", &json!({"content": "Hi"}))
    );
    assert_eq!(get(to, "/props?model=ap").json()["model_alias"], "ap");
    assert_eq!(get(to, "/props").json()["trine"]["loaded"], json!(["a", "ap", "b"]));
    assert_eq!(get(to, "/slots?model=a").json().as_array().map(Vec::len), Some(16));
    let metrics = get(to, "/metrics").text();
    for line in [
        "llamacpp:tokens_predicted_total{model=\"b\"} 8",
        "trine:tokens_total{model=\"a\",bits=\"0\",kind=\"generated\"} 16",
    ] {
        assert!(metrics.lines().any(|l| l == line), "{line} in {metrics}");
    }
    for head in metrics.lines().filter(|l| l.starts_with("# TYPE")) {
        assert_eq!(metrics.matches(&format!("{head}\n")).count(), 1, "{head}");
    }
    // Unknown names, and none.
    for path in ["/v1/completions", "/v1/chat/completions", "/v1/embeddings", "/tokenize"] {
        let error = post(to, path, &json!({"model": "../a", "prompt": "x"})).error(404);
        let message = error["message"].as_str().expect("a message");
        assert!(message.contains("'../a' is not here; there are: a, ap, b"), "{message}");
    }
    let none = json!({"prompt": "x"});
    assert!(post(to, "/v1/completions", &none).error(400)["message"].as_str().is_some_and(|m| m.contains("'model'")));
    let unknown = post(to, "/api/show", &json!({"model": "c"}));
    assert!(unknown.error_of(404).as_str().is_some_and(|m| m.contains("'c'")));
}

/// A model costs its file and 4 MiB for keys and values here, so that two fit.
const TWO: [&str; 4] = ["--models-memory", "34M", "--kv-memory", "4M"];

#[test]
fn the_one_not_asked_for_for_the_longest_time_leaves() {
    let folder = folder(&["a", "b", "c"]);
    let local = start_folder(folder.path(), &TWO);
    let to = local.to;
    let choices = |model: &str| ask(to, "/v1/completions", &body(model))["choices"].clone();
    let text = choices("a");
    assert_eq!(loaded(to), ["a"]);
    assert_eq!(choices("b"), text);
    assert_eq!(loaded(to), ["a", "b"]);
    assert_eq!(choices("a"), text);
    assert_eq!(choices("c"), text);
    assert_eq!(loaded(to), ["a", "c"]);
    assert_eq!(choices("b"), text);
    assert_eq!(loaded(to), ["b", "c"]);
}

/// True if the answer begins with status 200. Nothing of it is taken from the connection.
fn is_taken(answer: &TcpStream) -> bool {
    let mut head = [0; b"HTTP/1.1 200".len()];
    loop {
        match answer.peek(&mut head).expect("an answer") {
            0 => panic!("the server closed the connection"),
            n if n == head.len() => break,
            _ => thread::sleep(Duration::from_millis(1)),
        }
    }
    head.ends_with(b"200")
}

#[test]
fn a_model_never_leaves_in_the_middle_of_a_request() {
    let folder = folder(&["a", "b"]);
    let more = [
        "--models-memory",
        "48M",
        "--kv-memory",
        "32M",
        "--parallel",
        "8",
        "--queue-timeout",
        "0.2",
        "--stall-timeout",
        "100",
    ];
    let local = start_folder(folder.path(), &more);
    let to = local.to;
    // A client that reads nothing: its texts are longer than the buffers of a connection.
    let endless = json!({"model": "a", "prompt": "The", "ignore_eos": true, "max_tokens": 500, "n": 8, "n_probs": 100, "stream": true});
    let endless = request("POST", "/v1/completions", &[], endless.to_string().as_bytes());
    // On a busy machine loading takes longer than a request waits.
    let unread = loop {
        let unread = open(to, &endless);
        if is_taken(&unread) {
            break unread;
        }
    };
    until(to, &["a"]);
    while get(to, "/slots?fail_on_no_slot=1").status == 200 {
        thread::sleep(Duration::from_millis(1));
    }
    let refused = post(to, "/v1/completions", &body("b"));
    assert!(refused.error(503)["message"].is_string() && refused.header("retry-after").is_some());
    assert_eq!(loaded(to), ["a"]);
    assert_eq!(get(to, "/health").status, 200);
    // Those who waited in vain kept nobody out.
    let again = json!({"model": "a", "content": "x"});
    assert_eq!(post(to, "/tokenize", &again).status, 200);
    drop(unread);
    while post(to, "/v1/completions", &body("b")).status == 503 {
        thread::sleep(Duration::from_millis(5));
    }
    assert_eq!(loaded(to), ["b"]);
}

#[test]
fn requests_for_several_models_at_once() {
    let folder = folder(&["a", "b", "c"]);
    let local = start_folder(folder.path(), &TWO);
    let expected = {
        let alone = start(&["--alias", "a"]);
        ask(alone.to, "/v1/completions", &body("a"))["choices"].clone()
    };
    let to = local.to;
    thread::scope(|s| {
        let asked = (0..24)
            .map(|i| s.spawn(move || ask(to, "/v1/completions", &body(["a", "b", "c"][i % 3]))["choices"].clone()));
        for answer in asked.collect::<Vec<_>>() {
            assert_eq!(answer.join().expect("an answer"), expected);
        }
    });
    assert!(loaded(to).len() <= 2);
}

#[test]
fn a_model_leaves_when_nobody_asks_for_it() {
    let folder = folder(&["a", "b"]);
    let local = start_folder(folder.path(), &[]);
    let to = local.to;
    let mut asked = body("a");
    asked["keep_alive"] = 0.into();
    ask(to, "/v1/completions", &asked);
    until(to, &[]);
    ask(to, "/v1/completions", &body("b"));
    let expires = get(to, "/api/ps").json()["models"][0]["expires_at"].clone();
    assert!(expires.as_str().is_some_and(|time| time.starts_with("20")), "{expires}");
    // As `ollama stop` asks for it; what is not loaded is not loaded for that.
    for model in ["a", "b"] {
        let stop = ask(to, "/api/generate", &json!({"model": model, "keep_alive": 0}));
        assert_eq!((&stop["done_reason"], &stop["done"]), (&"unload".into(), &true.into()));
    }
    until(to, &[]);
    let load = ask(to, "/api/chat", &json!({"model": "b", "keep_alive": "-1m"}));
    assert_eq!(load["done_reason"], "load");
    assert_eq!(get(to, "/api/ps").json()["models"][0]["expires_at"], "9999-12-31T23:59:59Z");
    let at_once = start_folder(folder.path(), &["--model-idle", "0"]);
    ask(at_once.to, "/v1/completions", &body("a"));
    until(at_once.to, &[]);
    let never = start_folder(folder.path(), &["--model-idle", "-1"]);
    ask(never.to, "/v1/completions", &body("a"));
    assert_eq!(get(never.to, "/api/ps").json()["models"][0]["expires_at"], "9999-12-31T23:59:59Z");
}

#[test]
fn what_cannot_be_loaded_is_said_and_the_others_go_on() {
    let folder = folder(&["a"]);
    let model = std::fs::read(trine_testkit::trilm()).expect("a model");
    std::fs::write(folder.path().join("cut.gguf"), &model[..model.len() / 2]).expect("a file");
    std::fs::write(folder.path().join("none.gguf"), "no model").expect("a file");
    let local = start_folder(folder.path(), &[]);
    let to = local.to;
    for _ in 0..2 {
        for (name, why) in [("cut", "truncated"), ("none", "GGUF")] {
            for stream in [false, true] {
                let mut asked = body(name);
                asked["stream"] = stream.into();
                let error = post(to, "/v1/completions", &asked).error(500);
                let message = error["message"].as_str().expect("a message");
                assert!(
                    message.starts_with(&format!("the model '{name}' cannot be loaded: ")) && message.contains(why),
                    "{message}"
                );
                assert!(!message.contains('\n'));
            }
        }
        ask(to, "/v1/completions", &body("a"));
    }
    assert_eq!(get(to, "/v1/models").json()["data"].as_array().map(Vec::len), Some(3));
    assert!(get(to, "/api/tags").status == 200 && get(to, "/health").status == 200);
    // Files come and go while the server runs.
    std::fs::remove_file(folder.path().join("cut.gguf")).expect("a file");
    post(to, "/v1/completions", &body("cut")).error(404);
    let small = start_folder(folder.path(), &["--models-memory", "8M"]);
    let error = post(small.to, "/v1/completions", &body("a")).error(500);
    assert!(error["message"].as_str().is_some_and(|m| m.contains("--models-memory")), "{error}");
}

/// A queue of those that wait for models has an end, as the queue of texts has.
#[test]
fn hostile_requests_for_models() {
    let folder = folder(&["a"]);
    let local = start_folder(folder.path(), &[]);
    let to = local.to;
    for name in ["", "/etc/passwd", "a.gguf", "a\0", "A", "ä", "a:0bit:latest"] {
        post(to, "/v1/completions", &body(name)).error(404);
    }
    post(to, "/v1/completions", &body(&"a".repeat(300))).error(400);
    post(to, "/v1/completions", &json!({"model": 7, "prompt": "x"})).error(400);
    post(to, "/v1/completions", &json!({"model": "a", "prompt": "x", "keep_alive": {}})).error(400);
    post(to, "/v1/completions", &json!({"model": "a", "prompt": "x", "ttl": -5})).error(400);
    // Whoever does not wait for his model holds nobody up.
    for _ in 0..16 {
        drop(open(to, &request("POST", "/v1/completions", &[], body("a").to_string().as_bytes())));
    }
    ask(to, "/v1/completions", &body("a"));
    assert_eq!(raw(to, &request("GET", "/props?model=%2e%2e", &[], b"")).status, 404);
}

#[test]
fn options_that_are_for_one_model() {
    let folder = folder(&["a"]);
    let refused = |more: &[&str], why: &str| {
        let output = program().args(more).args(["--port", "0"]).output().expect("an end");
        let text = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success() && text.contains(why), "{more:?}: {text}");
    };
    let path = folder.path().to_str().expect("a path");
    refused(&["--models", path, "-m", "x.gguf"], "--model");
    refused(&["--models", path, "--alias", "x"], "--alias");
    refused(&["--models", path, "--lora", "x.gguf"], "--lora");
    refused(&["--models", path, "-md", "x.gguf"], "--model-draft");
    refused(&["-m", "x.gguf", "--models-memory", "4G"], "--models");
    refused(&["--models", "/nowhere/models"], "/nowhere/models");
    refused(&["--models", path, "--model-idle", "soon"], "--model-idle");
    assert!(Path::new(path).is_dir());
}
