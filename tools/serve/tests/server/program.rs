//! The program as a supervisor sees it: its environment, its exit codes, its word that it is ready.

use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::os::unix::net::UnixDatagram;
use std::process::{Child, ChildStderr, Command, Output, Stdio};
use std::time::Duration;

use serde_json::json;
use trine_testkit::tool;

use crate::client::{ask, get, raw, request};

pub fn program() -> Command {
    started(env!("CARGO_BIN_EXE_rserve"))
}

/// The program as nohup starts it: a terminal that is closed does not end it.
pub fn under_nohup() -> Command {
    let mut command = started("sh");
    command.args(["-c", "trap '' HUP; exec \"$0\" \"$@\"", env!("CARGO_BIN_EXE_rserve")]);
    command
}

fn started(program: &str) -> Command {
    let mut command = tool::command(program);
    let own = std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("RSERVE_"));
    for (name, _) in own {
        command.env_remove(name);
    }
    command.stdin(Stdio::null());
    command
}

#[track_caller]
fn fails(command: &mut Command, code: i32, why: &str) {
    let Output { status, stderr, .. } = command.output().expect("an end");
    let stderr = String::from_utf8_lossy(&stderr);
    assert_eq!(status.code(), Some(code), "{stderr}");
    assert!(stderr.contains(why), "{stderr}");
}

/// The lines of a program on standard error.
pub struct Lines {
    lines: std::io::Lines<BufReader<ChildStderr>>,
    /// The lines that were read.
    pub log: Vec<String>,
}

impl Lines {
    /// Waits for a line with `word` in it.
    pub fn until(&mut self, word: &str) -> String {
        loop {
            let line = self.lines.next().unwrap_or_else(|| panic!("no {word:?}: {:?}", self.log)).expect("a line");
            self.log.push(line.clone());
            if line.contains(word) {
                return line;
            }
        }
    }

    /// Waits for the program's end; what it wrote, without the lines before those that were waited for.
    pub fn rest(self) -> String {
        self.lines.fold(String::new(), |log, line| log + &line.expect("a line") + "\n")
    }
}

/// A running server, with its address. It ends with the test, however that ends.
pub struct Running {
    pub child: Child,
    pub to: SocketAddr,
}

impl Running {
    /// Starts the program on the bundled model and any port, and waits until it says that it is ready.
    pub fn start(command: &mut Command) -> Running {
        let (server, lines) = Running::watched(command);
        // What it says after that is read, so that it is never in the way.
        std::thread::spawn(move || lines.rest());
        server
    }

    /// Does the same, for a test that reads what the program says after that.
    pub fn watched(command: &mut Command) -> (Running, Lines) {
        if !command.get_args().any(|word| word == "--models-dir") {
            command.env("RSERVE_MODEL", trine_testkit::trilm());
        }
        let child = command.env("RSERVE_PORT", "0").stderr(Stdio::piped()).spawn().expect("a process");
        let mut server = Running { child, to: SocketAddr::from(([0; 4], 0)) };
        let stderr = BufReader::new(server.child.stderr.take().expect("a pipe"));
        let mut lines = Lines { lines: stderr.lines(), log: Vec::new() };
        let ready = lines.until(" is ready at http");
        let address = ready.split_once("://").and_then(|(_, url)| url.split([' ', ',']).next()?.parse().ok());
        server.to = address.expect("an address");
        (server, lines)
    }

    /// Sends the program a signal, such as `-HUP`.
    pub fn signal(&self, name: &str) {
        let kill = Command::new("kill").args([name, &self.child.id().to_string()]).status();
        assert!(kill.expect("kill").success());
    }

    /// Asks the program to end; its exit code.
    pub fn terminate(&mut self) -> i32 {
        self.signal("-TERM");
        self.child.wait().expect("an end").code().expect("a code")
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn options_may_stand_in_the_environment() {
    fails(program().env("RSERVE_MODEL", "/nowhere/x.gguf"), 1, "/nowhere/x.gguf");
    fails(program().env("RSERVE_MODEL", "x").env("RSERVE_PORT", "99999"), 2, "--port");
    fails(program().env("RSERVE_MODEL", "x").env("RSERVE_METRICS", "perhaps"), 2, "--metrics");
    fails(&mut program(), 2, "rserve -m model.gguf");
    let mut server = Running::start(
        program()
            .env("RSERVE_ALIAS", "from-the-environment")
            .env("RSERVE_API_KEY", "k1,k2")
            .env("RSERVE_DRAIN_DELAY", "0")
            .args(["--alias", "from-the-line"]),
    );
    get(server.to, "/v1/models").error(401);
    let key = [("authorization", "Bearer k2")];
    let models = raw(server.to, &request("GET", "/v1/models", &key, b"")).json();
    assert_eq!(models["data"][0]["id"], "from-the-line");
    assert_eq!(server.terminate(), 0);
}

#[test]
fn systemd_is_told() {
    let folder = trine_testkit::folder();
    let path = folder.path().join("notify");
    let socket = UnixDatagram::bind(&path).expect("a socket");
    socket.set_read_timeout(Some(Duration::from_secs(60))).expect("a timeout");
    let mut server = Running::start(program().env("NOTIFY_SOCKET", &path).env("RSERVE_DRAIN_DELAY", "0"));
    let told = || {
        let mut buffer = [0; 64];
        let n = socket.recv(&mut buffer).expect("a word");
        String::from_utf8_lossy(&buffer[..n]).into_owned()
    };
    assert_eq!(told(), "READY=1");
    assert_eq!(server.terminate(), 0);
    assert_eq!(told(), "STOPPING=1");
}

#[test]
fn a_killed_server_serves_again() {
    let body = json!({"prompt": "The game", "max_tokens": 12, "seed": 1});
    let mut texts = Vec::new();
    for _ in 0..2 {
        let mut server = Running::start(&mut program());
        texts.push(ask(server.to, "/v1/completions", &body)["choices"].clone());
        server.child.kill().expect("a signal");
        server.child.wait().expect("an end");
    }
    assert_eq!(texts[0], texts[1]);
}

/// The socket of a killed server is taken over; that of one that lives, and a file of another kind, are not.
#[test]
fn sockets_of_killed_servers() {
    let folder = trine_testkit::folder();
    let socket = folder.path().join("rserve.sock");
    let name = socket.to_string_lossy().into_owned();
    let on_socket = || {
        let mut command = program();
        command.args(["--host", &format!("127.0.0.1,{name}")]);
        command
    };
    let mut server = Running::start(&mut on_socket());
    server.child.kill().expect("a signal");
    server.child.wait().expect("an end");
    assert!(socket.exists());
    let mut server = Running::start(on_socket().env("RSERVE_DRAIN_DELAY", "0"));
    let model = trine_testkit::trilm();
    fails(program().env("RSERVE_MODEL", &model).args(["--host", &name]), 1, "another server runs there");
    assert!(socket.exists());
    assert_eq!(server.terminate(), 0);
    assert!(!socket.exists());
    std::fs::write(&socket, "a text").expect("a file");
    fails(program().env("RSERVE_MODEL", &model).args(["--host", &name]), 1, "the file is no socket");
    assert_eq!(std::fs::read(&socket).expect("the file"), b"a text");
}

#[test]
fn two_servers_on_one_port() {
    let server = Running::start(&mut program());
    let port = server.to.port().to_string();
    let model = trine_testkit::trilm();
    fails(program().env("RSERVE_MODEL", &model).args(["--port", &port]), 1, &port);
    let long = format!("/tmp/{}.sock", "x".repeat(200));
    fails(program().env("RSERVE_MODEL", &model).args(["--host", &long]), 1, "about 100 characters");
    assert_eq!(get(server.to, "/health").status, 200);
}

/// Whoever reads no log has a server all the same.
#[test]
fn a_log_that_nobody_reads_holds_nobody_up() {
    let (mut server, lines) = Running::watched(program().env("RSERVE_DRAIN_DELAY", "0"));
    // More lines than a pipe and the server's own buffer hold.
    let path = format!("/{}", "x".repeat(180));
    for _ in 0..2000 {
        get(server.to, &path).error(404);
    }
    assert_eq!(get(server.to, "/health").status, 200);
    assert_eq!(server.terminate(), 0);
    let log = lines.rest();
    assert!((300..2000).contains(&log.matches("/xxx").count()), "{}", log.len());
}

/// Neither what was asked nor the key that was shown is in the log.
#[test]
fn the_log_keeps_secrets() {
    let mut command = program();
    command.env("RSERVE_DRAIN_DELAY", "0").args(["--api-key", "secret-canary", "--log-format", "json"]);
    let (mut server, lines) = Running::watched(&mut command);
    let body = json!({"prompt": "prompt canary", "max_tokens": 3, "stop": ["stop canary"]}).to_string();
    for key in ["secret-canary", "wrong-canary"] {
        let key = format!("Bearer {key}");
        raw(server.to, &request("POST", "/v1/completions", &[("authorization", &key)], body.as_bytes()));
    }
    assert_eq!(server.terminate(), 0);
    let log = lines.rest();
    let entries = log.lines().filter_map(|l| serde_json::from_str::<serde_json::Value>(l).ok());
    let codes: Vec<_> = entries.map(|e| e["code"].clone()).collect();
    assert_eq!(codes, [200, 401]);
    assert!(!log.contains("canary"), "{log}");
}

/// Expected: `date -u -d @1735645509` in the forms of llama.cpp.
#[test]
fn templates_tell_the_date() {
    let template = "{{ date_string }}; {{ datetime }}; {{ strftime_now('%F') }}";
    let server = Running::start(program().args(["--chat-template", template]).env("TRINE_NOW", "1735645509"));
    let body = json!({"messages": [{"role": "user", "content": "One"}]});
    assert_eq!(ask(server.to, "/apply-template", &body)["prompt"], "31 Dec 2024; Dec 31 2024; 2024-12-31");
}
