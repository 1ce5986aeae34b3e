//! Answers while the model is being loaded, and when it cannot be.

use std::process::Command;

use clap::Parser;
use serde_json::json;
use tokio::runtime::Runtime;
use trine_serve::args::Args;
use trine_serve::http::Server;

use crate::client::{ask, get, post};
use crate::local::isolate;
use crate::program::program;

#[test]
fn requests_are_told_to_wait() {
    let folder = trine_testkit::folder();
    let pipe = folder.path().join("template.jinja");
    let made = Command::new("mkfifo").arg(&pipe).status();
    assert!(made.expect("mkfifo").success());
    let (model, template) = (trine_testkit::trilm(), pipe.to_str().expect("a path"));
    let options = [
        "rserve",
        "-m",
        model.to_str().expect("a path"),
        "--port",
        "0",
        "--log-format",
        "none",
        "--chat-template-file",
        template,
    ];
    let args = Args::try_parse_from(options).expect("options");
    let runtime = Runtime::new().expect("threads");
    let server = runtime.block_on(Server::start(&args, isolate()));
    let mut server = server.expect("a server");
    let to = server.urls()[0].trim_start_matches("http://").parse().expect("an address");
    let body = json!({"prompt": "The", "max_tokens": 1});
    // Nobody has written the template yet, so loading cannot be through.
    for path in ["/health", "/readyz", "/v1/models", "/props"] {
        let response = get(to, path);
        assert_eq!(response.error(503)["message"], "Loading model", "{path}");
    }
    let refused = post(to, "/v1/completions", &body);
    assert_eq!(refused.error(503)["message"], "Loading model");
    let wait = refused.header("retry-after").expect("a header");
    assert!(wait.parse::<u64>().is_ok());
    assert_eq!(get(to, "/livez").status, 200);
    std::fs::write(&pipe, "{{ messages[0].content }}").expect("a reader");
    runtime.block_on(server.ready()).expect("a model");
    assert_eq!(get(to, "/health").status, 200);
    ask(to, "/v1/completions", &body);
}

#[test]
fn a_model_that_cannot_be_used_ends_the_program_before_it_is_ready() {
    let folder = trine_testkit::folder();
    let model = std::fs::read(trine_testkit::trilm()).expect("a model");
    let path = folder.path().join("model.gguf");
    let mut wrong_type = model.clone();
    // Behind a tensor's name: how many dimensions, two of them, the type.
    let name = b"token_embd.weight";
    let at = model.windows(name.len()).position(|w| w == name);
    let at = at.expect("the tensor") + name.len() + 4 + 2 * 8;
    wrong_type[at] = 200;
    for (bytes, why) in [
        (&model[..model.len() / 2], "the file is truncated"),
        (&model[..100], "cut off"),
        (&b"no model"[..], "GGUF"),
        (&wrong_type[..], "token_embd.weight: trine cannot multiply by type 200"),
    ] {
        std::fs::write(&path, bytes).expect("a file");
        let output = program().arg("-m").arg(&path).args(["--port", "0"]).output().expect("an end");
        let text = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{text}");
        assert!(text.contains(why) && !text.contains("is ready"), "{text}");
        assert_eq!(text.lines().count(), 1, "{text}");
    }
}
