//! A model hub on a port of this machine: its API, links to another host with the bytes, and what goes wrong with hubs.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;

use serde_json::json;
use sha2::{Digest, Sha256};

/// The commit of every repository of this hub.
pub const COMMIT: &str = "0123456789abcdef0123456789abcdef01234567";

/// A request as the hub saw it.
#[derive(Clone, Debug)]
pub struct Seen {
    /// `hub` or `cdn`: which of the two hosts was asked.
    pub host: &'static str,
    /// The method.
    pub method: String,
    /// Path and query.
    pub path: String,
    /// The header `Authorization`.
    pub token: Option<String>,
    /// Bytes of the body that were sent.
    pub sent: u64,
}

/// How the hub behaves. All of it may be changed while it runs.
#[derive(Clone, Debug, Default)]
pub struct Manners {
    /// Bytes after which answers of the host with the bytes end; the connection is closed then.
    pub drops_after: Option<usize>,
    /// The SHA-256 that is told is that of other bytes.
    pub lies: bool,
    /// The status and the `X-Error-Code` of all answers of the API.
    pub refuses: Option<(u16, &'static str)>,
    /// The token that is wanted.
    pub wants: Option<&'static str>,
    /// Number of requests that a link to the bytes is good for; it is answered with 403 from then on.
    pub expires_after: Option<usize>,
    /// Number of requests that the host with the bytes answers with 503 first.
    pub busy: usize,
    /// The host with the bytes sends whole files alone.
    pub no_ranges: bool,
    /// Bytes of all answers together after which the host with the bytes stops in the middle of an answer and holds
    /// the connection.
    pub stalls_after: Option<u64>,
    /// The address of the host with the bytes, where it is another than the hub's own.
    pub cdn: Option<String>,
}

struct Shared {
    files: BTreeMap<String, Vec<u8>>,
    manners: Mutex<Manners>,
    seen: Mutex<Vec<Seen>>,
    /// How often each link was used.
    links: Mutex<Vec<usize>>,
    cdn: String,
}

/// A hub and its host with the bytes. Its repository is `USER/REPO` whatever the two are.
pub struct Hub {
    /// Address of the API.
    pub endpoint: String,
    shared: Arc<Shared>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The SHA-256 of bytes in hexadecimal.
pub fn sha256(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}

impl Hub {
    /// A hub with these files: path in the repository, and bytes.
    pub fn new(files: impl IntoIterator<Item = (&'static str, Vec<u8>)>) -> Hub {
        let (hub, cdn) = (listen(), listen());
        let address = |listener: &TcpListener| format!("http://{}", listener.local_addr().expect("an address"));
        let endpoint = address(&hub);
        let shared = Arc::new(Shared {
            files: files.into_iter().map(|(path, bytes)| (path.to_owned(), bytes)).collect(),
            manners: Mutex::default(),
            seen: Mutex::default(),
            links: Mutex::default(),
            cdn: address(&cdn),
        });
        for (host, listener) in [("hub", hub), ("cdn", cdn)] {
            let shared = shared.clone();
            thread::spawn(move || {
                for stream in listener.incoming().flatten() {
                    let shared = shared.clone();
                    thread::spawn(move || {
                        let _ = stream.set_nodelay(true);
                        let close = stream.try_clone();
                        shared.serve(host, stream);
                        let _ = close.map(|stream: TcpStream| stream.shutdown(Shutdown::Both));
                    });
                }
            });
        }
        Hub { endpoint, shared }
    }

    /// Changes how the hub behaves.
    pub fn manners(&self) -> MutexGuard<'_, Manners> {
        lock(&self.shared.manners)
    }

    /// All requests until now, in the order in which they came.
    pub fn seen(&self) -> Vec<Seen> {
        lock(&self.shared.seen).clone()
    }

    /// Bytes of files that were sent until now.
    pub fn sent(&self) -> u64 {
        sent(&lock(&self.shared.seen))
    }

    /// Speaks HTTP over any connection, such as one of TLS, until the other end closes it.
    pub fn serve(&self, stream: impl Read + Write) {
        self.shared.serve("hub", stream);
    }
}

/// Bytes of files among what was seen.
fn sent(seen: &[Seen]) -> u64 {
    seen.iter().filter(|seen| seen.host == "cdn").map(|seen| seen.sent).sum()
}

fn listen() -> TcpListener {
    TcpListener::bind("127.0.0.1:0").expect("a port")
}

/// An answer: status, headers, body.
type Answer = (u16, Vec<(&'static str, String)>, Vec<u8>);

impl Shared {
    fn serve(&self, host: &'static str, stream: impl Read + Write) {
        let mut stream = BufReader::new(stream);
        loop {
            let mut lines = Vec::new();
            loop {
                let mut line = String::new();
                match stream.read_line(&mut line) {
                    Ok(0) | Err(_) => return,
                    Ok(_) if line.trim().is_empty() => break,
                    Ok(_) => lines.push(line.trim().to_owned()),
                }
            }
            let header = |name: &str| {
                let all = lines.iter().skip(1).filter_map(|line| line.split_once(':'));
                let mut found = all.filter(|(key, _)| key.eq_ignore_ascii_case(name));
                found.next().map(|(_, value)| value.trim().to_owned())
            };
            let mut words = lines.first().map(String::as_str).unwrap_or_default().split(' ');
            let (method, path) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
            let range = header("range").filter(|_| !lock(&self.manners).no_ranges);
            let token = header("authorization");
            let (status, headers, body) = match host {
                "hub" => self.hub(path, token.as_deref()),
                _ => self.bytes(path, range.as_deref()),
            };
            let mut head = format!("HTTP/1.1 {status} Status\r\nContent-Length: {}\r\n", body.len());
            headers.iter().for_each(|(name, value)| head.push_str(&format!("{name}: {value}\r\n")));
            head.push_str("\r\n");
            let body = if method == "HEAD" { &[][..] } else { &body[..] };
            let cut = lock(&self.manners).drops_after.filter(|n| host == "cdn" && *n < body.len());
            // Told before it is done: whoever has the last byte may ask at once what was seen.
            let seen = Seen { host, method: method.to_owned(), path: path.to_owned(), token, sent: 0 };
            let number = {
                let mut all = lock(&self.seen);
                all.push(seen);
                all.len() - 1
            };
            let mut broken = stream.get_mut().write_all(head.as_bytes()).is_err();
            let mut stalled = false;
            for block in body[..cut.unwrap_or(body.len())].chunks(16 << 10) {
                let limit = lock(&self.manners).stalls_after.filter(|_| host == "cdn");
                stalled = limit.is_some_and(|limit| sent(&lock(&self.seen)) >= limit);
                if stalled || broken {
                    break;
                }
                lock(&self.seen)[number].sent += block.len() as u64;
                broken = stream.get_mut().write_all(block).is_err();
                if broken {
                    lock(&self.seen)[number].sent -= block.len() as u64;
                }
            }
            broken |= stream.get_mut().flush().is_err();
            if stalled {
                // Until the other end has enough of it.
                let _ = stream.read(&mut [0]);
            }
            if broken || stalled || cut.is_some() {
                return;
            }
        }
    }

    /// The hub itself: its API, and where the bytes are.
    fn hub(&self, path: &str, token: Option<&str>) -> Answer {
        let manners = lock(&self.manners).clone();
        let error = |code: &str| vec![("X-Error-Code", code.to_owned())];
        if let Some((status, code)) = manners.refuses {
            return (status, error(code), Vec::new());
        }
        if manners.wants.is_some_and(|wants| token != Some(&format!("Bearer {wants}"))) {
            return (401, error("RepoNotFound"), Vec::new());
        }
        let (path, _) = path.split_once('?').unwrap_or((path, ""));
        let parts: Vec<&str> = path.trim_start_matches('/').split('/').collect();
        match parts[..] {
            ["api", "models", _, "none", ..] => (404, error("RepoNotFound"), Vec::new()),
            // A repository that was given another name.
            ["api", "models", user, "old", ..] => {
                (307, vec![("Location", format!("/api/models/{user}/new/revision/main?blobs=true"))], Vec::new())
            }
            ["api", "models", _, _, "revision", "main"] => {
                let siblings = self.files.iter().map(|(path, bytes)| {
                    let (sha, size) = (self.told(bytes, &manners), bytes.len());
                    json!({"rfilename": path, "size": size, "blobId": "b".repeat(40), "lfs": {"sha256": sha, "size": size, "pointerSize": 134}})
                });
                let all: Vec<_> = siblings.collect();
                let listing = json!({"id": "user/repo", "sha": COMMIT, "gated": false, "siblings": all});
                (200, Vec::new(), listing.to_string().into_bytes())
            }
            [_, _, "resolve", _, ..] => {
                let file = parts[4..].join("/");
                let Some(bytes) = self.files.get(&file) else {
                    return (404, error("EntryNotFound"), Vec::new());
                };
                let cdn = manners.cdn.as_ref().unwrap_or(&self.cdn);
                let mut links = lock(&self.links);
                links.push(0);
                let headers = vec![
                    ("Location", format!("{cdn}/{file}?signature={}", links.len() - 1)),
                    ("X-Linked-Size", bytes.len().to_string()),
                    ("X-Linked-Etag", format!("\"{}\"", self.told(bytes, &manners))),
                    ("X-Repo-Commit", COMMIT.to_owned()),
                    ("ETag", format!("\"{}\"", self.told(bytes, &manners))),
                ];
                (302, headers, Vec::new())
            }
            _ => self.bytes(path, None),
        }
    }

    fn told(&self, bytes: &[u8], manners: &Manners) -> String {
        if manners.lies { sha256(b"other bytes") } else { sha256(bytes) }
    }

    /// The host with the bytes.
    fn bytes(&self, path: &str, range: Option<&str>) -> Answer {
        let mut manners = lock(&self.manners);
        if manners.busy > 0 {
            manners.busy -= 1;
            return (503, Vec::new(), Vec::new());
        }
        let (path, link) = path.split_once("?signature=").unwrap_or((path, ""));
        if let (Some(most), Ok(link)) = (manners.expires_after, link.parse::<usize>()) {
            let used = &mut lock(&self.links)[link];
            *used += 1;
            if *used > most {
                return (403, Vec::new(), Vec::new());
            }
        }
        let Some(bytes) = self.files.get(path.trim_start_matches('/')) else {
            return (404, Vec::new(), Vec::new());
        };
        let range = range.and_then(|range| range.strip_prefix("bytes=")?.split_once('-'));
        let Some((from, to)) = range else {
            return (200, vec![("ETag", "\"cdn\"".to_owned())], bytes.clone());
        };
        let from: usize = from.parse().expect("a number");
        let to = to.parse().map_or(bytes.len(), |to: usize| bytes.len().min(to + 1));
        let told = format!("bytes {from}-{}/{}", to - 1, bytes.len());
        (206, vec![("Content-Range", told), ("ETag", "\"cdn\"".to_owned())], bytes[from..to].to_vec())
    }
}
