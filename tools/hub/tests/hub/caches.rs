//! Files that other programs have left: the hub's own client, llama.cpp, ollama.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

use trine_hub::{Hub, Name, Store, find, installed, remove};
use trine_testkit::TempDir;
use trine_testkit::hub::{COMMIT, Hub as Server, sha256};

use super::kit::*;

const FILE: &str = "model-Q4_K_M.gguf";

fn write(path: &Path, bytes: &[u8]) {
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, bytes).unwrap();
}

/// The folders as `huggingface_hub` 2.4.0 leaves them after `hf_hub_download`, recorded from a run of it.
#[test]
fn files_of_the_hubs_own_client_are_not_fetched_again() {
    let bytes = bytes(5000, 1);
    let server = Server::new([(FILE, bytes.clone())]);
    let folder = TempDir::new().unwrap();
    let repo = places(&folder).hub.join("models--user--repo");
    write(&repo.join("blobs").join(sha256(&bytes)), &bytes);
    write(&repo.join("refs/main"), COMMIT.as_bytes());
    fs::create_dir_all(repo.join("snapshots").join(COMMIT)).unwrap();
    symlink(format!("../../blobs/{}", sha256(&bytes)), repo.join("snapshots").join(COMMIT).join(FILE)).unwrap();
    let path = fetch(&server, &folder).unwrap();
    assert_eq!((server.sent(), fs::read(&path).unwrap()), (0, bytes));
}

/// Another commit whose file is the same has its bytes already.
#[test]
fn bytes_of_another_commit_get_a_second_name() {
    let bytes = bytes(5000, 1);
    let server = Server::new([("deep/er/model-Q4_K_M.gguf", bytes.clone())]);
    let folder = TempDir::new().unwrap();
    let repo = places(&folder).hub.join("models--user--repo");
    write(&repo.join("blobs").join(sha256(&bytes)), &bytes);
    let path = fetch(&server, &folder).unwrap();
    assert_eq!((server.sent(), fs::read(&path).unwrap()), (0, bytes.clone()));
    let to = fs::read_link(&path).unwrap();
    assert_eq!(to, Path::new(&format!("../../../../blobs/{}", sha256(&bytes))));
    assert_eq!(fs::read_to_string(repo.join("refs/main")).unwrap(), COMMIT);
}

#[test]
fn files_of_earlier_versions_of_llama_cpp_are_not_fetched_again() {
    let bytes = bytes(5000, 1);
    let server = Server::new([(FILE, bytes.clone())]);
    let folder = TempDir::new().unwrap();
    let old = places(&folder).llama_cpp.join(format!("user_repo_{FILE}"));
    write(&old, &bytes);
    assert_eq!(fetch(&server, &folder).unwrap(), old);
    let mut offline = settings(&server.endpoint);
    offline.offline = true;
    assert_eq!(Hub::new(places(&folder), offline).unwrap().fetch(&wanted("user/repo:Q4_K_M"), &()).unwrap(), old);
    // One that was cut short is none.
    write(&old, &bytes[1..]);
    assert_ne!(fetch(&server, &folder).unwrap(), old);
}

#[test]
fn models_are_listed_found_and_removed_by_name() {
    let (small, large) = (bytes(1000, 1), bytes(5000, 2));
    let server = Server::new([("m-Q2_K.gguf", small.clone()), ("m-Q4_K_M.gguf", large)]);
    let folder = TempDir::new().unwrap();
    let places = places(&folder);
    let hub = Hub::new(places.clone(), settings(&server.endpoint)).unwrap();
    let path = hub.fetch(&wanted("user/Repo-GGUF"), &()).unwrap();
    let second = hub.fetch(&wanted("user/Repo-GGUF:Q2_K"), &()).unwrap();
    let digest = sha256(b"weights");
    write(&places.ollama[0].join("blobs").join(format!("sha256-{digest}")), b"weights");
    let manifest = format!(
        r#"{{"schemaVersion":2,"layers":[{{"mediaType":"application/vnd.ollama.image.template","digest":"sha256:{digest}"}},
        {{"mediaType":"application/vnd.ollama.image.model","digest":"sha256:{digest}","size":7}}]}}"#
    );
    write(&places.ollama[0].join("manifests/registry.ollama.ai/library/llama3/latest"), manifest.as_bytes());
    write(&places.ollama[0].join("manifests/registry.ollama.ai/me/mine/7b"), manifest.as_bytes());
    write(&places.ollama[0].join("manifests/registry.ollama.ai/me/broken/7b"), b"{");
    let names: Vec<String> = installed(&places).into_iter().map(|m| m.name).collect();
    assert_eq!(names, ["user/Repo-GGUF:Q2_K", "user/Repo-GGUF:Q4_K_M", "llama3:latest", "me/mine:7b"]);
    for name in ["user/Repo-GGUF", "repo-gguf", "Repo-GGUF:q4_k_m", "hf.co/user/repo-gguf", "m-Q4_K_M", "m-Q4_K_M.gguf"]
    {
        assert_eq!(find(&places, name).first().map(|m| &m.path), Some(&path), "{name}");
    }
    assert_eq!(find(&places, "repo-gguf:q2_k")[0].path, second);
    let ollama = find(&places, "llama3");
    assert_eq!((ollama.len(), ollama[0].store, ollama[0].size), (1, Store::Ollama, 7));
    assert!(find(&places, "llama").is_empty() && find(&places, "").is_empty());
    assert_eq!(remove(&places, &Name::parse("user/Repo-GGUF:q2_k").unwrap()).unwrap(), 1000);
    assert!(!second.exists() && path.exists());
    assert_eq!(remove(&places, &Name::parse("user/Repo-GGUF").unwrap()).unwrap(), 5000);
    assert!(remove(&places, &Name::parse("user/Repo-GGUF").unwrap()).is_err());
}

/// Addresses of files: those of the hub lie in its cache, others by themselves.
#[test]
fn files_from_addresses() {
    let (one, two) = (bytes(30_000, 1), bytes(20_000, 2));
    let server = Server::new([("x-00001-of-00002.gguf", one.clone()), ("x-00002-of-00002.gguf", two.clone())]);
    let folder = TempDir::new().unwrap();
    let hub = Hub::new(places(&folder), settings("http://127.0.0.1:1")).unwrap();
    let address = format!("{}/x-00001-of-00002.gguf", server.endpoint);
    let path = hub.fetch_url(&address, &()).unwrap();
    assert_eq!(fs::read(&path).unwrap(), one);
    assert_eq!(fs::read(path.with_file_name("x-00002-of-00002.gguf")).unwrap(), two);
    let asked = server.seen().iter().filter(|seen| seen.method == "GET").count();
    assert_eq!(hub.fetch_url(&address, &()).unwrap(), path);
    assert_eq!(server.seen().iter().filter(|seen| seen.method == "GET").count(), asked);
    let own = Hub::new(places(&folder), settings(&server.endpoint)).unwrap();
    let path =
        own.fetch_url(&format!("{}/user/repo/resolve/main/x-00001-of-00002.gguf", server.endpoint), &()).unwrap();
    assert!(path.to_string_lossy().contains("models--user--repo/snapshots"), "{path:?}");
    for wrong in ["x.gguf", "ftp://host/x.gguf", "http://host/", "http:///x", "http://host/.."] {
        assert!(own.fetch_url(wrong, &()).is_err(), "{wrong}");
    }
}
