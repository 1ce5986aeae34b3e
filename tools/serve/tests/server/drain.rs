//! The end of a server.

use std::thread;
use std::time::Duration;

use serde_json::json;

use crate::client::{get, post};
use crate::local::start;

#[test]
fn what_was_taken_is_finished() {
    let mut local = start(&["--parallel", "2"]);
    let to = local.to;
    let body = |i: usize| json!({"prompt": format!("{i} The game"), "max_tokens": 240, "ignore_eos": true, "seed": i});
    thread::scope(|s| {
        let running: Vec<_> = (0..6).map(|i| s.spawn(move || post(to, "/v1/completions", &body(i)))).collect();
        let engine = local.server.as_ref().and_then(|s| s.engine()).expect("an engine");
        while engine.waiting() < 4 {
            thread::sleep(Duration::from_millis(1));
        }
        let watcher = s.spawn(move || {
            // until the connections are closed it says what it does
            let status = |path: &str| std::panic::catch_unwind(|| get(to, path).status).ok();
            let mut seen = Vec::new();
            while let Some(status) = status("/readyz") {
                seen.push(status);
                thread::sleep(Duration::from_millis(5));
            }
            seen
        });
        // the last of them come in the meantime
        local.drain(Duration::from_millis(500), Duration::from_secs(60));
        for answer in running {
            let answer = answer.join().expect("an answer");
            assert_eq!(answer.status, 200, "{}", answer.text());
            assert_eq!(answer.json()["usage"]["completion_tokens"], 240);
        }
        assert!(watcher.join().expect("a list").contains(&503));
    });
}

#[test]
fn what_takes_too_long_is_ended() {
    let mut local = start(&["--parallel", "1"]);
    let to = local.to;
    thread::scope(|s| {
        let body = json!({"prompt": "The", "ignore_eos": true, "max_tokens": 500, "stream": true});
        let one = s.spawn(move || post(to, "/v1/completions", &body));
        while get(to, "/slots").json()[0]["is_processing"] != true {
            thread::sleep(Duration::from_millis(1));
        }
        while get(to, "/slots").json()[0]["next_token"][0]["n_decoded"] == 0 {
            thread::sleep(Duration::from_millis(1));
        }
        local.drain(Duration::ZERO, Duration::ZERO);
        let (events, done) = one.join().expect("an answer").events();
        let cut = events.last().is_some_and(|e| e["error"]["code"] == 503);
        assert!(cut != done, "{events:?}");
    });
}
