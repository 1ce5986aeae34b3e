//! Two servers behind HAProxy, with the configuration of `deploy/`.

use std::net::{SocketAddr, TcpListener};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::Duration;

use serde_json::{Value, json};

use crate::client::{Response, get, post, raw, request};
use crate::program::{Running, program};

/// A HAProxy that runs, and ends with the test.
pub struct Balancer {
    child: Child,
    pub to: SocketAddr,
}

impl Drop for Balancer {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// HAProxy with the shipped configuration before other servers, by their addresses as it writes them; `None` where the
/// machine does not have it.
pub fn balancer(servers: [String; 2]) -> Option<Balancer> {
    let free = TcpListener::bind("127.0.0.1:0").expect("a port");
    let to = free.local_addr().expect("an address");
    drop(free);
    let shipped = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy/haproxy.cfg");
    let mut text = std::fs::read_to_string(shipped).expect("the configuration");
    let [one, two] = servers;
    for (from, to) in [("127.0.0.1:8000", to.to_string()), ("127.0.0.1:8081", one), ("127.0.0.1:8082", two)] {
        assert!(text.contains(from), "{from}");
        text = text.replace(from, &to);
    }
    let folder = trine_testkit::folder();
    let path = folder.path().join("haproxy.cfg");
    std::fs::write(&path, text).expect("a file");
    let mut command = Command::new("haproxy");
    let command = command.arg("-db").arg("-f").arg(&path);
    let child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().ok()?;
    let balancer = Balancer { child, to };
    for _ in 0..500 {
        if std::net::TcpStream::connect(to).is_ok() && get(to, "/readyz").status == 200 {
            return Some(balancer);
        }
        thread::sleep(Duration::from_millis(20));
    }
    panic!("haproxy does not answer");
}

pub fn ask_in(session: usize, to: SocketAddr, body: &Value) -> Response {
    let session = session.to_string();
    let headers = [("x-session-id", session.as_str())];
    raw(to, &request("POST", "/completion", &headers, body.to_string().as_bytes()))
}

/// A request of a session: 60 tokens behind 180.
pub fn body(session: usize, seed: usize) -> Value {
    let prompt: Vec<usize> = (0..180).map(|i| 20 + (i * 7 + session * 131) % 400).collect();
    json!({"prompt": prompt, "n_predict": 60, "seed": seed, "temperature": 1.0, "ignore_eos": true, "return_tokens": true})
}

#[test]
fn sessions_stick_and_texts_survive_a_server() {
    let server = || Running::start(program().args(["--drain-delay", "1", "--drain-timeout", "30"]));
    let (mut one, mut two) = (server(), server());
    let Some(balancer) = balancer([one.to.to_string(), two.to.to_string()]) else {
        println!("SKIPPED: there is no haproxy here");
        return;
    };
    let to = balancer.to;
    let expected: Vec<Value> = (0..6).map(|session| post(one.to, "/completion", &body(session, 1)).json()).collect();

    // The second request of a session finds its prompt where the first one was. HAProxy may still count the first one
    // when the second comes, and then finds that server too busy; that is rare.
    let mut strayed = Vec::new();
    for session in 10..22 {
        let first = ask_in(session, to, &body(session, 1)).json();
        let second = ask_in(session, to, &body(session, 2)).json();
        assert_eq!(first["tokens_cached"], 0, "{session}");
        if second["tokens_cached"].as_u64() <= Some(100) {
            strayed.push((session, second));
        }
    }
    assert!(strayed.len() < 3, "{strayed:?}");

    // Streams that a killed server breaks off go on at the other one, with the same text.
    let texts: Vec<(String, bool)> = thread::scope(|s| {
        let readers: Vec<_> = (0..6).map(|session| s.spawn(move || streamed(to, session, 1))).collect();
        thread::sleep(Duration::from_millis(60));
        one.child.kill().expect("a signal");
        readers.into_iter().map(|r| r.join().expect("a text")).collect()
    });
    for (i, ((text, _), expected)) in texts.iter().zip(&expected).enumerate() {
        assert_eq!(*text, expected["content"], "session {i}");
    }
    println!("{} texts went on elsewhere", texts.iter().filter(|t| t.1).count());

    // A server that is told to end finishes what it has, and loses nothing.
    let again = server();
    let Some(balancer) = self::balancer([two.to.to_string(), again.to.to_string()]) else {
        panic!("haproxy was here before");
    };
    let to = balancer.to;
    thread::scope(|s| {
        let readers: Vec<_> = (0..6)
            .map(|session| s.spawn(move || ask_in(session, to, &body(session, 1)).json()["content"].clone()))
            .collect();
        two.signal("-TERM");
        for (reader, expected) in readers.into_iter().zip(&expected) {
            assert_eq!(reader.join().expect("a text"), expected["content"]);
        }
    });
    assert!(two.child.wait().expect("an end").success());
}

/// The text of a request by a stream, and whether another server had to continue it.
pub fn streamed(to: SocketAddr, session: usize, seed: usize) -> (String, bool) {
    let (mut text, mut tokens, mut moved): (String, Vec<Value>, bool) = Default::default();
    for _ in 0..2000 {
        let mut body = body(session, seed);
        body["stream"] = true.into();
        body["resume_tokens"] = tokens.clone().into();
        let response = ask_in(session, to, &body);
        if response.status != 200 {
            thread::sleep(Duration::from_millis(50));
            continue;
        }
        for event in response.whole_events() {
            if event["stop"] == true {
                return (text, moved);
            }
            text += event["content"].as_str().unwrap_or_default();
            tokens.extend(event["tokens"].as_array().cloned().unwrap_or_default());
        }
        moved = true;
    }
    panic!("session {session} found no server");
}
