//! Many requests of all kinds at once, good and bad, left and finished: nothing is lost, nothing grows, and what is
//! asked twice is answered twice in the same words.
//!
//! The long form, whose figures are in `docs/notes/soak.md`, prints memory and descriptors:
//! `RSERVE_SOAK=10000 cargo test --release --workspace --test server soak -- --nocapture`.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::client::{ask, get, open, raw, request};
use crate::program::{Running, program};

/// Resident memory of a process in KiB.
#[cfg(target_os = "linux")]
fn resident(process: u32) -> usize {
    let status = std::fs::read_to_string(format!("/proc/{process}/status")).expect("a status");
    let line = status.lines().find_map(|l| l.strip_prefix("VmRSS:")).expect("a line");
    line.trim().trim_end_matches("kB").trim().parse().expect("a number")
}

/// Open files and connections of a process.
#[cfg(target_os = "linux")]
fn descriptors(process: u32) -> usize {
    std::fs::read_dir(format!("/proc/{process}/fd")).expect("a folder").count()
}

/// Waits until nothing runs or waits.
fn wait_until_idle(to: SocketAddr) {
    for _ in 0..12_000 {
        let page = get(to, "/metrics").text();
        if ["processing", "deferred"].iter().all(|n| page.contains(&format!("llamacpp:requests_{n} 0\n"))) {
            return;
        }
        thread::sleep(Duration::from_millis(10));
    }
    panic!("something still runs");
}

/// Clients that ask at the same time.
const CLIENTS: usize = 64;

/// Growth that is allowed after the first fifth of the requests, which fills what is filled once: buffers, the cache,
/// grammars.
const MOST_KIB: usize = 16 << 10;
const MOST_DESCRIPTORS: usize = 8;

/// Prompts that are continued again and again without chance.
const PROMPTS: [&str; 4] = ["The game", "Once upon a time", "x", "In 1999 the 3 cats"];

/// A request.
struct Asked {
    path: &'static str,
    body: Vec<u8>,
    /// Statuses that may answer it.
    statuses: &'static [u16],
    /// The number of its prompt among [`PROMPTS`], where its text is compared.
    prompt: Option<usize>,
}

/// The body of a completion without chance, of a prompt of [`PROMPTS`].
fn greedy(prompt: usize) -> Value {
    json!({"prompt": PROMPTS[prompt], "max_tokens": 8, "temperature": 0})
}

/// The text of an answer of `/v1/completions`.
fn text(answer: &Value) -> String {
    answer["choices"][0]["text"].as_str().expect("a text").to_owned()
}

/// Request number `i` of the soak.
fn asked(i: usize) -> Asked {
    const DONE: &[u16] = &[200, 429];
    let one = |path, body: Value, statuses| Asked { path, body: body.to_string().into_bytes(), statuses, prompt: None };
    let stream = i.is_multiple_of(2);
    match i % 10 {
        0 | 1 => {
            let prompt = i / 10 % PROMPTS.len();
            Asked { prompt: Some(prompt), ..one("/v1/completions", greedy(prompt), DONE) }
        }
        2 => one("/v1/completions", json!({"prompt": "x ".repeat(3000)}), &[400]),
        3 => {
            let talk = json!([{"role": "user", "content": format!("{i} cats")}]);
            one("/v1/chat/completions", json!({"messages": talk, "max_tokens": 5, "seed": i, "stream": true}), DONE)
        }
        4 => one("/completion", json!({"prompt": "The", "n_predict": 12, "json_schema": {"enum": [1, i % 5]}}), DONE),
        5 => one("/v1/embeddings", json!({"input": ["The", vec![i % 100; 40]]}), DONE),
        6 => one("/tokenize", json!({"content": format!("{i} tokens of a text").repeat(i % 50)}), &[200]),
        // A body that is cut off, or is none.
        7 => {
            let whole = json!({"prompt": [1, 2, 3], "logit_bias": {"5": -1.5}, "stop": ["a", "\u{1f600}"]}).to_string();
            let mut body = whole.into_bytes();
            body.truncate(i / 10 % body.len());
            body.extend_from_slice(&[[0xff, 0], [b'{', b'[']][i / 10 % 2]);
            Asked { body, ..one("/v1/completions", Value::Null, &[400]) }
        }
        _ => {
            let body = json!({"prompt": format!("{i} The"), "max_tokens": 1 + i % 9, "seed": i, "stream": stream});
            one("/v1/completions", body, DONE)
        }
    }
}

/// Sends a request and leaves it, after some milliseconds that its number says: before anything was answered, or in the
/// middle.
fn leave(to: SocketAddr, i: usize, bytes: &[u8]) {
    let stream = open(to, bytes);
    thread::sleep(Duration::from_millis(i as u64 / 5 % 9));
    drop(stream);
}

#[test]
#[cfg(target_os = "linux")]
fn nothing_grows() {
    let requests = std::env::var("RSERVE_SOAK").ok().and_then(|n| n.parse().ok()).unwrap_or(500);
    let options = ["--parallel", "4", "--max-queue", "48", "--kv-memory", "2M", "--metrics", "--log-format", "none"];
    let template = ["--chat-template", "chatml"];
    let mut server = Running::start(program().args(options).args(template));
    let (to, process) = (server.to, server.child.id());
    // Of a server that does nothing else.
    let texts: Vec<String> =
        (0..PROMPTS.len()).map(|prompt| text(&ask(to, "/v1/completions", &greedy(prompt)))).collect();
    let compared = AtomicUsize::new(0);
    let round = |from: usize, count: usize| {
        let next = AtomicUsize::new(from);
        let client = || {
            loop {
                let i = next.fetch_add(1, Ordering::Relaxed);
                if i >= from + count {
                    return;
                }
                let asked = asked(i);
                let bytes = request("POST", asked.path, &[], &asked.body);
                if i / 10 % 4 == 3 && asked.prompt.is_none() {
                    leave(to, i, &bytes);
                    continue;
                }
                let mut response = raw(to, &bytes);
                // One whose text is compared is asked again until there is room for it.
                while asked.prompt.is_some() && response.status == 429 {
                    thread::sleep(Duration::from_millis(10));
                    response = raw(to, &bytes);
                }
                assert!(asked.statuses.contains(&response.status), "{i} {}: {}", asked.path, response.text());
                if let Some(prompt) = asked.prompt.filter(|_| response.status == 200) {
                    assert_eq!(text(&response.json()), texts[prompt], "{i}");
                    compared.fetch_add(1, Ordering::Relaxed);
                }
            }
        };
        thread::scope(|s| (0..CLIENTS).for_each(|_| drop(s.spawn(client))));
        wait_until_idle(to);
        (resident(process), descriptors(process))
    };
    let begun = Instant::now();
    let (memory, open) = round(0, requests / 5);
    let (memory_now, now) = round(requests / 5, requests - requests / 5);
    println!(
        "{requests} requests of {CLIENTS} clients in {:.0} s: {memory} KiB after a fifth of them became {memory_now}, \
         {open} descriptors {now}; {} texts compared",
        begun.elapsed().as_secs_f64(),
        compared.load(Ordering::Relaxed)
    );
    let grown = memory_now.saturating_sub(memory);
    assert!(grown < MOST_KIB, "{grown} KiB more memory");
    assert!(now <= open + MOST_DESCRIPTORS, "{open} descriptors became {now}");
    assert!(compared.load(Ordering::Relaxed) > 0);
    assert_eq!(get(to, "/health").status, 200);
    assert!(server.child.try_wait().expect("a status").is_none());
}
