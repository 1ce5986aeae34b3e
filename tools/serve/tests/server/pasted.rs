//! Command lines of llama-server's documents: the server is ready, or says in one sentence why it is not. See
//! `testdata/command-lines/README.md`.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use trine_testkit::pasted::pasted;
use trine_testkit::{folder, testdata, trilm};

use crate::client::get;
use crate::program::{Running, program};

#[test]
fn lines_of_llama_server_serve_or_are_refused_with_a_right_sentence() {
    let dir = folder();
    for (from, name) in [
        (trilm(), "model.gguf"),
        (testdata("adapters/lora-f32.gguf"), "lora.gguf"),
        (testdata("adapters/control.gguf"), "control.gguf"),
    ] {
        fs::copy(&from, dir.path().join(name)).expect("a copy");
    }
    fs::create_dir(dir.path().join("models_directory")).expect("a folder");
    fs::write(dir.path().join("chat.jinja"), "{{ messages }}").expect("a template");
    // Keys are for nobody else to read.
    let keys = dir.path().join("keys.txt");
    fs::write(&keys, "key\n").expect("a key");
    fs::set_permissions(&keys, fs::Permissions::from_mode(0o600)).expect("rights");
    let mut served = 0;
    for pasted in pasted("server.txt") {
        // What a failure is about.
        println!("{}", pasted.line);
        let mut command = program();
        command.current_dir(dir.path()).env("RSERVE_DRAIN_DELAY", "0");
        // Any port that is free, whatever the line says.
        command.args(&pasted.words[1..]).args(["--port", "0"]);
        let Some(reason) = pasted.refusal else {
            let mut server = Running::start(&mut command);
            assert_eq!(get(server.to, "/health").status, 200);
            assert_eq!(server.terminate(), 0);
            served += 1;
            continue;
        };
        let output = command.output().expect("an end");
        let told = String::from_utf8_lossy(&output.stderr);
        let errors: Vec<&str> = told.lines().filter(|l| l.contains("error: ")).collect();
        assert!(matches!(output.status.code(), Some(1 | 2)), "{told}");
        // One for each option that cannot be honoured.
        assert!(!errors.is_empty(), "{told}");
        assert!(told.lines().any(|l| l.contains(&reason)), "{told}");
    }
    assert!(served >= 15, "{served}");
}
