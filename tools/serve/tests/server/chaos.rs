//! Two servers behind HAProxy that are killed and started again all the time, while clients stream texts: every text is
//! the one that a server gives whom nobody kills.
//!
//! The long form, whose figures are in `docs/notes/soak.md`:
//! `RSERVE_CHAOS=2000 cargo test --release --workspace --test server chaos -- --nocapture`.

use std::net::SocketAddr;
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::client::{Response, get, post};
use crate::pair::{ask_in, balancer, body, streamed};
use crate::program::{Running, program};

/// Clients that ask at the same time.
const CLIENTS: usize = 16;
/// Requests by session and seed, so that a text is asked for many times.
const SESSIONS: usize = 6;
const SEEDS: usize = 3;
/// Texts that are finished between two kills, at least.
const BETWEEN: usize = 8;

/// A server on a socket, where one that was killed may have left its file.
fn server(socket: &str) -> Command {
    let mut command = program();
    command.args(["--host", &format!("127.0.0.1,{socket}"), "--log-format", "none"]);
    command
}

/// The text of a request that is asked again as a whole until a server lives to its end.
fn whole(to: SocketAddr, session: usize, seed: usize) -> (String, bool) {
    let mut again = false;
    for _ in 0..2000 {
        let Response { status, body, .. } = ask_in(session, to, &body(session, seed));
        // A body that was broken off is no JSON.
        let answer = serde_json::from_slice::<Value>(&body).ok().filter(|_| status == 200);
        if let Some(answer) = answer {
            return (answer["content"].as_str().expect("a text").to_owned(), again);
        }
        again = true;
        thread::sleep(Duration::from_millis(20));
    }
    panic!("session {session} found no server");
}

#[test]
fn texts_survive_servers_that_are_killed() {
    let requests = std::env::var("RSERVE_CHAOS").ok().and_then(|n| n.parse().ok()).unwrap_or(40);
    let folder = trine_testkit::folder();
    let sockets = ["one.sock", "two.sock"].map(|name| folder.path().join(name).to_string_lossy().into_owned());
    let mut servers = sockets.clone().map(|socket| Running::start(&mut server(&socket)));
    let Some(balancer) = balancer(sockets.clone().map(|socket| format!("unix@{socket}"))) else {
        println!("SKIPPED: there is no haproxy here");
        return;
    };
    // Of a server that does nothing else.
    let expected: Vec<Vec<Value>> = (0..SESSIONS)
        .map(|session| {
            let ask = |seed| post(servers[0].to, "/completion", &body(session, seed)).json()["content"].clone();
            (0..SEEDS).map(ask).collect()
        })
        .collect();
    let (next, finished, moved) = (AtomicUsize::new(0), AtomicUsize::new(0), AtomicUsize::new(0));
    let client = || {
        loop {
            let i = next.fetch_add(1, Ordering::Relaxed);
            if i >= requests {
                return;
            }
            let (session, seed) = (i % SESSIONS, i / SESSIONS % SEEDS);
            let ask = if i % 4 == 3 { whole } else { streamed };
            let (text, broken) = ask(balancer.to, session, seed);
            assert_eq!(expected[session][seed], *text, "request {i}");
            moved.fetch_add(usize::from(broken), Ordering::Relaxed);
            finished.fetch_add(1, Ordering::Relaxed);
        }
    };
    let begun = Instant::now();
    let mut kills = 0;
    thread::scope(|s| {
        let clients: Vec<_> = (0..CLIENTS).map(|_| s.spawn(client)).collect();
        // Which one dies, and after how many texts, follows from the number of the kill.
        let mut due = BETWEEN;
        loop {
            while finished.load(Ordering::Relaxed) < due {
                if clients.iter().all(|client| client.is_finished()) {
                    return;
                }
                thread::sleep(Duration::from_millis(3));
            }
            let victim = kills % 2;
            servers[victim].child.kill().expect("a signal");
            servers[victim].child.wait().expect("an end");
            servers[victim] = Running::start(&mut server(&sockets[victim]));
            assert_eq!(get(servers[victim].to, "/readyz").status, 200);
            kills += 1;
            due = finished.load(Ordering::Relaxed) + BETWEEN + kills * 5 % 7;
        }
    });
    println!(
        "{requests} texts in {:.0} s, {kills} kills, {} texts broken off and gone on elsewhere, all equal",
        begun.elapsed().as_secs_f64(),
        moved.load(Ordering::Relaxed)
    );
    assert!(kills > 0);
}
