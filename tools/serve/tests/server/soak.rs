//! Many requests, good and bad, left and finished: nothing is lost and nothing grows.
//!
//! `RSERVE_SOAK=10000 cargo test --release -p trine-serve --test server soak` is the long form.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use serde_json::{Value, json};

use crate::client::{ask, get, open, post, request};
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

/// A request of some kind, and the statuses that may answer it.
fn body(i: usize) -> (&'static str, Value, &'static [u16]) {
    let text =
        json!({"prompt": format!("{i} The game"), "max_tokens": 1 + i % 9, "seed": i, "stream": i.is_multiple_of(2)});
    match i % 8 {
        0 => ("/v1/completions", json!({"prompt": "x ".repeat(3000)}), &[400]),
        1 => ("/v1/completions", json!({"prompt": 1}), &[400]),
        // The bundled model has no chat template.
        2 => {
            ("/v1/chat/completions", json!({"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 3}), &[400])
        }
        3 => ("/completion", json!({"prompt": "The", "n_predict": 12, "json_schema": {"enum": [1, 2]}}), &[200, 429]),
        4 => ("/v1/embeddings", json!({"input": ["The", vec![i % 100; 40]]}), &[200, 429]),
        _ => ("/v1/completions", text, &[200, 429]),
    }
}

#[test]
#[cfg(target_os = "linux")]
fn nothing_grows() {
    let requests = std::env::var("RSERVE_SOAK").ok().and_then(|n| n.parse().ok()).unwrap_or(400);
    let options = ["--parallel", "4", "--max-queue", "8", "--kv-memory", "2M", "--metrics", "--log-format", "none"];
    let mut server = Running::start(program().args(options));
    let (to, process) = (server.to, server.child.id());
    let round = |from: usize, count: usize| {
        let next = AtomicUsize::new(from);
        let client = || {
            loop {
                let i = next.fetch_add(1, Ordering::Relaxed);
                if i >= from + count {
                    return;
                }
                let (path, body, statuses) = body(i);
                if i % 2 == 1 && statuses.contains(&200) {
                    // Half of them are left, some before anything was answered, some in the middle.
                    let stream = open(to, &request("POST", path, &[], body.to_string().as_bytes()));
                    thread::sleep(Duration::from_millis(i as u64 % 7));
                    drop(stream);
                    continue;
                }
                let response = post(to, path, &body);
                assert!(statuses.contains(&response.status), "{path} {body}: {}", response.text());
            }
        };
        thread::scope(|s| (0..8).for_each(|_| drop(s.spawn(client))));
        wait_until_idle(to);
    };
    let before =
        ask(to, "/v1/completions", &json!({"prompt": "The game", "max_tokens": 8, "seed": 3}))["choices"].clone();
    // The first round fills what is filled once: buffers, the cache, the grammars.
    round(0, requests / 4);
    let (memory, open) = (resident(process), descriptors(process));
    round(requests / 4, requests - requests / 4);
    let (memory_now, now) = (resident(process), descriptors(process));
    println!("{requests} requests: {memory} KiB became {memory_now}, {open} descriptors {now}");
    let grown = memory_now.saturating_sub(memory);
    assert!(grown < 48 << 10, "{grown} KiB more memory");
    assert!(now <= open + 16, "{open} descriptors became {now}");
    let after =
        ask(to, "/v1/completions", &json!({"prompt": "The game", "max_tokens": 8, "seed": 3}))["choices"].clone();
    assert_eq!(after, before);
    assert_eq!(get(to, "/health").status, 200);
    assert!(server.child.try_wait().expect("a status").is_none());
}
