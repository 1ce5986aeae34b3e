//! Texts of places in files.

use std::net::SocketAddr;
use std::path::Path;

use serde_json::{Value, json};

use crate::client::{ask, post};
use crate::local::start;

const PROMPT: &str =
    "The game was the first of the season and the team had not played since the end of the year before it";

fn completion(to: SocketAddr, slot: i32) -> Value {
    let body = json!({"prompt": PROMPT, "n_predict": 12, "temperature": 0, "ignore_eos": true, "id_slot": slot});
    ask(to, "/completion", &body)
}

fn act(to: SocketAddr, slot: usize, action: &str) -> Value {
    ask(to, &format!("/slots/{slot}?action={action}"), &json!({"filename": "one.bin"}))
}

/// Options of a server of two places that keeps files in `folder`.
fn kept(folder: &Path) -> [String; 4] {
    let folder = folder.to_str().expect("a path").to_owned();
    ["--parallel".to_owned(), "2".to_owned(), "--slot-save-path".to_owned(), folder]
}

fn words(options: &[String]) -> Vec<&str> {
    options.iter().map(String::as_str).collect()
}

#[test]
fn a_text_goes_on_from_a_file() {
    let folder = trine_testkit::folder();
    let options = kept(folder.path());
    let local = start(&words(&options));
    let to = local.to;
    let first = completion(to, 1);
    assert_eq!((&first["id_slot"], &first["tokens_cached"]), (&json!(1), &json!(0)));
    let tokens = first["tokens_evaluated"].as_u64().expect("a number");
    // The last generated token is never evaluated.
    let all = tokens + 11;
    let saved = act(to, 1, "save");
    assert_eq!((&saved["n_saved"], &saved["filename"]), (&json!(all), &json!("one.bin")), "{saved}");
    let size = std::fs::metadata(folder.path().join("one.bin")).expect("the file").len();
    assert_eq!(saved["n_written"], size);
    assert!(saved["timings"]["save_ms"].is_number());
    // Nothing is left behind beside it.
    assert_eq!(std::fs::read_dir(folder.path()).expect("a folder").count(), 1);

    assert_eq!(act(to, 1, "erase"), json!({"id_slot": 1, "n_erased": all}));
    assert_eq!(act(to, 1, "erase")["n_erased"], 0);
    assert_eq!(completion(to, 0)["tokens_cached"], 0);
    assert_eq!(act(to, 0, "erase")["n_erased"], all);

    let restored = act(to, 0, "restore");
    assert_eq!((&restored["n_restored"], &restored["n_read"]), (&json!(all), &json!(size)), "{restored}");
    let again = completion(to, -1);
    assert_eq!(again["tokens_cached"], tokens - 1);
    assert_eq!(again["content"], first["content"]);

    // Another server of the same model reads it.
    let other = start(&words(&options));
    assert_eq!(act(other.to, 1, "restore")["n_restored"], all);
    let there = completion(other.to, 0);
    assert_eq!((&there["content"], &there["tokens_cached"]), (&first["content"], &json!(tokens - 1)));
}

#[test]
fn files_that_do_not_fit() {
    let folder = trine_testkit::folder();
    let options = kept(folder.path());
    let local = start(&words(&options));
    let to = local.to;
    let failed = |slot: &str, action: &str, name: Value| {
        let response = post(to, &format!("/slots/{slot}?action={action}"), &json!({"filename": name}));
        response.error(400)["message"].as_str().expect("a message").to_owned()
    };
    assert!(failed("0", "save", json!("a.bin")).contains("nothing was saved"));
    for name in ["", "../a.bin", "a/b", ".hidden", "a\u{7}", "C:\\a", "a."] {
        assert!(failed("0", "save", json!(name)).contains("Invalid filename"), "{name:?}");
    }
    assert!(failed("0", "restore", json!(null)).contains("filename"));
    for slot in ["2", "-1", "x"] {
        assert!(failed(slot, "save", json!("a.bin")).contains("Invalid slot ID"), "{slot}");
    }
    assert!(failed("0", "copy", json!("a.bin")).contains("Invalid action"));
    assert!(failed("0", "restore", json!("none.bin")).contains("none.bin"));
    completion(to, 0);
    act(to, 0, "save");
    let path = folder.path().join("one.bin");
    let whole = std::fs::read(&path).expect("the file");
    for (bytes, why) in [
        (whole[..whole.len() - 100].to_vec(), "damaged"),
        (whole.iter().enumerate().map(|(i, b)| if i == 5000 { b ^ 1 } else { *b }).collect(), "damaged"),
        (b"text".to_vec(), "no saved context"),
    ] {
        std::fs::write(&path, bytes).expect("a file");
        let message = failed("1", "restore", json!("one.bin"));
        assert!(message.contains(why), "{message}");
    }
    // Of keys and values in another form.
    std::fs::write(&path, &whole).expect("a file");
    let other = start(&[&words(&options)[..], &["--cache-type-k", "q8_0"]].concat());
    let response = post(other.to, "/slots/0?action=restore", &json!({"filename": "one.bin"}));
    let message = response.error(400)["message"].as_str().expect("a message").to_owned();
    assert!(message.contains("keys as"), "{message}");
    // Where nothing is kept.
    let without = start(&["--parallel", "2"]);
    for action in ["save", "restore", "erase"] {
        post(without.to, &format!("/slots/0?action={action}"), &json!({"filename": "one.bin"})).error(501);
    }
}

/// Holders of different keys share nothing.
#[test]
fn a_text_is_its_askers() {
    let folder = trine_testkit::folder();
    let keys = folder.path().join("keys.txt");
    std::fs::write(&keys, "alice: of-alice\nbob: of-bob\n").expect("a file");
    std::fs::set_permissions(&keys, std::os::unix::fs::PermissionsExt::from_mode(0o600)).expect("rights");
    let options = kept(folder.path());
    let local = start(&[&words(&options)[..], &["--api-key-file", keys.to_str().expect("a path")]].concat());
    let with = |key: &str, path: &str, body: &Value| {
        let key = format!("Bearer {key}");
        let bytes = crate::client::request("POST", path, &[("authorization", &key)], body.to_string().as_bytes());
        crate::client::raw(local.to, &bytes)
    };
    let body = json!({"prompt": PROMPT, "n_predict": 2, "id_slot": 0});
    assert_eq!(with("of-alice", "/completion", &body).status, 200);
    let file = json!({"filename": "a.bin"});
    with("of-bob", "/slots/0?action=save", &file).error(400);
    assert_eq!(with("of-bob", "/slots/0?action=erase", &file).json()["n_erased"], 0);
    assert_eq!(with("of-alice", "/slots/0?action=save", &file).status, 200);
    // Whoever could read the file would find the prompt in the cache, and whoever could write it would destroy it.
    with("of-bob", "/slots/1?action=restore", &file).error(400);
    assert_eq!(with("of-bob", "/completion", &body).json()["tokens_cached"], 0);
    assert_eq!(with("of-bob", "/slots/0?action=save", &file).status, 200);
    let saved = with("of-alice", "/slots/1?action=restore", &file).json();
    assert!(saved["n_restored"].is_u64(), "{saved}");
    let salted = json!({"filename": "a.bin", "cache_salt": "other"});
    with("of-alice", "/slots/1?action=restore", &salted).error(400);
}
