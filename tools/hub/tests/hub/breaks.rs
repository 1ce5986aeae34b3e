//! Connections that break, links that expire, processes that end: every byte is asked for until it is there, and once.

use std::fs;
use std::thread;

use trine_hub::{Hub, HubError};
use trine_testkit::TempDir;
use trine_testkit::hub::{COMMIT, Hub as Server, sha256};

use super::kit::*;

const SIZE: usize = 100_000;
const FILE: &str = "model-Q4_K_M.gguf";

fn server() -> (Server, Vec<u8>) {
    let bytes = bytes(SIZE, 1);
    (Server::new([(FILE, bytes.clone())]), bytes)
}

/// The name that the unfinished bytes have.
fn incomplete(folder: &TempDir, bytes: &[u8]) -> std::path::PathBuf {
    places(folder).hub.join("models--user--repo/blobs").join(format!("{}.incomplete", sha256(bytes)))
}

#[test]
fn a_file_arrives_once_in_pieces() {
    let (server, bytes) = server();
    let folder = TempDir::new().unwrap();
    let path = fetch(&server, &folder).unwrap();
    assert_eq!(fs::read(&path).unwrap(), bytes);
    assert!(path.ends_with(format!("models--user--repo/snapshots/{COMMIT}/{FILE}")), "{path:?}");
    assert_eq!(server.sent(), SIZE as u64);
    assert_eq!(server.seen().iter().filter(|seen| seen.host == "cdn").count(), 10);
    // The second time nothing but the listing is asked for.
    let before = server.seen().len();
    assert_eq!(fetch(&server, &folder).unwrap(), path);
    assert_eq!((server.sent(), server.seen().len()), (SIZE as u64, before + 1));
    assert!(!incomplete(&folder, &bytes).exists());
}

/// Wherever connections break, what came is kept and its rest asked for.
#[test]
fn connections_that_break_at_every_tenth_cost_no_byte_twice() {
    for piece in [10_000, 1 << 20] {
        for drops_after in [1_000, 7_777, 10_000] {
            let (server, bytes) = server();
            server.manners().drops_after = Some(drops_after);
            let folder = TempDir::new().unwrap();
            let mut settings = settings(&server.endpoint);
            settings.piece = piece;
            let listener = Listener::default();
            let path = Hub::new(places(&folder), settings).unwrap().fetch(&wanted("user/repo"), &listener).unwrap();
            assert_eq!(fs::read(path).unwrap(), bytes);
            assert_eq!(server.sent(), SIZE as u64, "{piece} {drops_after}");
            assert_eq!(*listener.advanced.borrow(), SIZE as u64);
        }
    }
}

/// The bytes that an earlier run, or the hub's own client, has left are the beginning.
#[test]
fn what_is_there_is_not_fetched_again() {
    for have in [1, 9_999, 50_000, SIZE - 1, SIZE] {
        let (server, bytes) = server();
        let folder = TempDir::new().unwrap();
        let part = incomplete(&folder, &bytes);
        fs::create_dir_all(part.parent().unwrap()).unwrap();
        fs::write(&part, &bytes[..have]).unwrap();
        assert_eq!(fs::read(fetch(&server, &folder).unwrap()).unwrap(), bytes);
        assert_eq!(server.sent(), (SIZE - have) as u64);
    }
}

/// A disk that lost something is noticed at the end, and the file fetched anew.
#[test]
fn damaged_parts_are_thrown_away() {
    let (server, bytes) = server();
    let folder = TempDir::new().unwrap();
    let part = incomplete(&folder, &bytes);
    fs::create_dir_all(part.parent().unwrap()).unwrap();
    fs::write(&part, vec![0; 50_000]).unwrap();
    assert_eq!(fs::read(fetch(&server, &folder).unwrap()).unwrap(), bytes);
    assert_eq!(server.sent(), 150_000);
    // More than the file has cannot be its beginning.
    let folder = TempDir::new().unwrap();
    let part = incomplete(&folder, &bytes);
    fs::create_dir_all(part.parent().unwrap()).unwrap();
    fs::write(&part, vec![0; SIZE + 1]).unwrap();
    assert_eq!(fs::read(fetch(&server, &folder).unwrap()).unwrap(), bytes);
}

#[test]
fn wrong_bytes_get_no_name() {
    let (server, _) = server();
    server.manners().lies = true;
    let folder = TempDir::new().unwrap();
    let told = fetch(&server, &folder).unwrap_err();
    assert!(matches!(told, HubError::WrongHash { .. }), "{told}");
    let blobs = places(&folder).hub.join("models--user--repo/blobs");
    assert_eq!(fs::read_dir(blobs).unwrap().count(), 0);
    assert!(!places(&folder).hub.join("models--user--repo/snapshots").exists());
}

/// A link that is no longer good is asked for again, at the hub that gave it.
#[test]
fn links_that_expire_are_asked_for_again() {
    for expires_after in [1, 3] {
        let (server, bytes) = server();
        server.manners().expires_after = Some(expires_after);
        server.manners().drops_after = Some(9_000);
        let folder = TempDir::new().unwrap();
        assert_eq!(fs::read(fetch(&server, &folder).unwrap()).unwrap(), bytes);
        assert_eq!(server.sent(), SIZE as u64);
        let asked = server.seen().iter().filter(|seen| seen.path.contains("/resolve/")).count();
        assert!(asked >= 20 / expires_after, "{asked}");
    }
}

/// A server that is too busy is asked five times, and what came until then stays.
#[test]
fn attempts_end() {
    let (server, bytes) = server();
    server.manners().busy = usize::MAX;
    let folder = TempDir::new().unwrap();
    let told = fetch(&server, &folder).unwrap_err().to_string();
    assert!(told.contains("answers 503; what came is kept"), "{told}");
    server.manners().busy = 0;
    assert_eq!(fs::read(fetch(&server, &folder).unwrap()).unwrap(), bytes);
    assert_eq!(server.sent(), SIZE as u64);
}

#[test]
fn servers_without_ranges_send_whole_files() {
    let (server, bytes) = server();
    server.manners().no_ranges = true;
    let folder = TempDir::new().unwrap();
    let part = incomplete(&folder, &bytes);
    fs::create_dir_all(part.parent().unwrap()).unwrap();
    fs::write(&part, &bytes[..30_000]).unwrap();
    assert_eq!(fs::read(fetch(&server, &folder).unwrap()).unwrap(), bytes);
}

/// Two that want the same file fetch it once; the lock is that of the hub's own client.
#[test]
fn two_at_once_fetch_once() {
    let (server, bytes) = server();
    let folder = TempDir::new().unwrap();
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| assert_eq!(fs::read(fetch(&server, &folder).unwrap()).unwrap(), bytes));
        }
    });
    assert_eq!(server.sent(), SIZE as u64);
    let lock = places(&folder).hub.join(".locks/models--user--repo").join(format!("{}.lock", sha256(&bytes)));
    assert!(lock.exists());
}

#[test]
fn all_shards_are_fetched() {
    let (one, two) = (bytes(30_000, 2), bytes(40_000, 3));
    let server =
        Server::new([("q/m-Q4_K_M-00001-of-00002.gguf", one.clone()), ("q/m-Q4_K_M-00002-of-00002.gguf", two.clone())]);
    let folder = TempDir::new().unwrap();
    let path = fetch(&server, &folder).unwrap();
    assert_eq!(fs::read(&path).unwrap(), one);
    assert_eq!(fs::read(path.with_file_name("m-Q4_K_M-00002-of-00002.gguf")).unwrap(), two);
}
