//! Messages where there is no model: one line each.

use std::net::TcpListener;

use trine_hub::{Hub, Limit, Wanted};
use trine_testkit::TempDir;
use trine_testkit::hub::{Hub as Server, Manners};

use super::kit::*;

fn server() -> Server {
    Server::new([("m-F16.gguf", bytes(4000, 1)), ("m-Q8_0.gguf", bytes(2000, 2)), ("README.md", bytes(10, 3))])
}

#[track_caller]
fn told(server: &Server, wanted: &Wanted, token: Option<&str>) -> String {
    let folder = TempDir::new().unwrap();
    let mut settings = settings(&server.endpoint);
    settings.token = token.map(str::to_owned);
    let told = Hub::new(places(&folder), settings).unwrap().fetch(wanted, &()).unwrap_err().to_string();
    assert!(!told.contains('\n'), "{told}");
    told.replace(server.endpoint.trim_start_matches("http://"), "HUB")
}

#[test]
fn each_refusal_of_a_hub_has_its_sentence() {
    let server = server();
    for (status, code, token, words) in [
        (401, "GatedRepo", None, "user/repo is gated: accept its terms at http://HUB/user/repo"),
        (403, "GatedRepo", Some("hf_x"), "user/repo is gated"),
        (401, "RepoNotFound", None, "there is no such repository, or it is private"),
        (404, "RepoNotFound", Some("hf_x"), "HUB has nothing by this name (404)"),
        (401, "", Some("hf_x"), "the token is not valid, or no longer"),
        (401, "", None, "give a token with -hft or HF_TOKEN"),
        (403, "", Some("hf_x"), "the token does not allow it"),
        (500, "", None, "HUB answers 500"),
    ] {
        *server.manners() = Manners { refuses: Some((status, code)), ..Manners::default() };
        let told = told(&server, &wanted("user/repo"), token);
        assert!(told.contains(words), "{status} {code}: {told}");
    }
}

#[test]
fn what_a_repository_does_not_have_is_said_with_what_it_has() {
    let server = server();
    let told_of = |wanted: &Wanted| told(&server, wanted, None);
    assert_eq!(told_of(&wanted("user/repo:Q4_0")), "user/repo has no Q4_0; it has F16 (4.0 kB), Q8_0 (2.0 kB)");
    let file = Wanted { file: Some("x.gguf".to_owned()), ..wanted("user/repo") };
    assert_eq!(told_of(&file), "user/repo has no file 'x.gguf'; its GGUF files are m-F16.gguf, m-Q8_0.gguf");
    let small = Wanted { limit: Some(Limit { bytes: 100, asked: true }), ..wanted("user/repo") };
    assert_eq!(told_of(&small), "user/repo has nothing of at most 100 B: the smallest is Q8_0 (2.0 kB)");
    let empty = Server::new([("README.md", bytes(10, 3))]);
    assert!(told(&empty, &wanted("user/repo"), None).starts_with("user/repo has no GGUF file"));
}

#[test]
fn without_a_network_another_way_is_named() {
    // A port that nobody listens to any more.
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let folder = TempDir::new().unwrap();
    let gone = settings(&format!("http://{port}"));
    let hub = Hub::new(places(&folder), gone.clone()).unwrap();
    let told = hub.fetch(&wanted("user/repo:Q4_0"), &()).unwrap_err().to_string();
    assert!(told.starts_with(&format!("cannot reach {port}: ")), "{told}");
    assert!(told.ends_with("hf download user/repo --include '*Q4_0*.gguf' --local-dir ., and here -m FILE"), "{told}");
    let file = Wanted { file: Some("a b.gguf".to_owned()), ..wanted("user/repo") };
    let told = hub.fetch(&file, &()).unwrap_err().to_string();
    assert!(told.contains(&format!("curl -L -O http://{port}/user/repo/resolve/main/a%20b.gguf")), "{told}");
    let mut offline = gone;
    offline.offline = true;
    let told = Hub::new(places(&folder), offline).unwrap().fetch(&wanted("user/repo"), &()).unwrap_err().to_string();
    assert!(told.starts_with("user/repo is not in the cache, and no connection is opened"), "{told}");
}

#[test]
fn what_was_fetched_is_there_without_a_network() {
    let server = server();
    let folder = TempDir::new().unwrap();
    let path = fetch(&server, &folder).unwrap();
    assert!(path.ends_with("m-Q8_0.gguf"));
    let before = server.seen().len();
    let mut offline = settings(&server.endpoint);
    offline.offline = true;
    assert_eq!(Hub::new(places(&folder), offline).unwrap().fetch(&wanted("user/repo"), &()).unwrap(), path);
    assert_eq!(server.seen().len(), before);
    let gone = settings("http://127.0.0.1:1");
    let listener = Listener::default();
    assert_eq!(Hub::new(places(&folder), gone).unwrap().fetch(&wanted("user/repo:q8_0"), &listener).unwrap(), path);
    assert!(listener.lines.borrow()[0].ends_with("taking what is in the cache"));
}

/// The token is the hub's, whatever host it sends to.
#[test]
fn the_token_is_told_to_the_hub_alone() {
    let server = server();
    server.manners().wants = Some("hf_secret");
    assert!(fetch(&server, &TempDir::new().unwrap()).is_err());
    let folder = TempDir::new().unwrap();
    let mut settings = settings(&server.endpoint);
    settings.token = Some("hf_secret".to_owned());
    Hub::new(places(&folder), settings).unwrap().fetch(&wanted("user/repo"), &()).unwrap();
    let seen = server.seen();
    let mut cdn = seen.iter().filter(|seen| seen.host == "cdn").peekable();
    assert!(cdn.peek().is_some());
    assert!(cdn.all(|seen| seen.token.is_none()), "{seen:?}");
    assert!(seen.iter().any(|seen| seen.token.as_deref() == Some("Bearer hf_secret")));
}

#[test]
fn repositories_with_a_new_name_are_followed_to() {
    let server = server();
    let folder = TempDir::new().unwrap();
    let hub = Hub::new(places(&folder), settings(&server.endpoint)).unwrap();
    assert!(hub.fetch(&wanted("user/old"), &()).unwrap().exists());
}
