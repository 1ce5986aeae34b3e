//! More requests than a server can take.

use std::thread;

use serde_json::json;

use crate::client::{ask, get, open, post, request};
use crate::local::start;

#[test]
fn too_many_requests_are_told_when_to_come_again() {
    let local = start(&["--parallel", "2", "--max-queue", "4"]);
    let to = local.to;
    let statuses: Vec<u16> = thread::scope(|s| {
        let ask = |i: usize| {
            let body =
                json!({"prompt": vec![20 + i; 200], "max_tokens": 30, "ignore_eos": true, "cache_prompt": false});
            move || {
                let response = post(to, "/v1/completions", &body);
                if response.status != 200 {
                    response.error(429);
                    let seconds = response.header("retry-after").and_then(|s| s.parse::<u64>().ok());
                    assert!(seconds.is_some_and(|s| (1..=120).contains(&s)));
                }
                response.status
            }
        };
        let threads: Vec<_> = (0..40).map(|i| s.spawn(ask(i))).collect();
        threads.into_iter().map(|t| t.join().expect("an answer")).collect()
    });
    assert!(statuses.contains(&200) && statuses.contains(&429), "{statuses:?}");
    ask(to, "/v1/completions", &json!({"prompt": "The", "max_tokens": 1}));
    assert_eq!(get(to, "/slots?fail_on_no_slot=1").status, 200);
}

#[test]
fn a_client_that_leaves_frees_its_place() {
    let local = start(&["--parallel", "1", "--max-queue", "64"]);
    let to = local.to;
    for stream in [true, false] {
        for _ in 0..20 {
            let body = json!({"prompt": vec![30; 300], "ignore_eos": true, "stream": stream, "cache_prompt": false});
            drop(open(to, &request("POST", "/v1/completions", &[], body.to_string().as_bytes())));
        }
    }
    // it would come after all of them
    ask(to, "/v1/completions", &json!({"prompt": "The", "max_tokens": 1}));
    let slots = get(to, "/slots").json();
    assert_eq!(slots[0]["is_processing"], false);
}

#[test]
fn connections_have_a_limit() {
    let local = start(&["--max-connections", "4"]);
    let idle: Vec<_> = (0..4).map(|_| open(local.to, b"")).collect();
    // the server accepts them in order
    let refused = get(local.to, "/health");
    assert_eq!(refused.error(503)["message"], "too many connections are open");
    drop(idle);
    while get(local.to, "/health").status != 200 {
        thread::sleep(std::time::Duration::from_millis(10));
    }
}
