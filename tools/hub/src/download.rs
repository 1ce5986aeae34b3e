//! Fetching one file in pieces.
//!
//! Several connections ask for a piece each, and one thread writes the pieces in order. The file is therefore whole up
//! to its end at any moment: whoever goes on later, this program or another, needs to know its length and nothing else.
//! Pieces that are ahead wait in memory, [`CONNECTIONS`] of them at most. A connection that breaks in the middle of a
//! piece is followed by one that asks for its rest.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read, Write};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use sha2::{Digest, Sha256};
use ureq::http::Method;

use crate::web::{Answer, Web, WebError};
use crate::{HubError, Watcher, api, url};

/// Connections at a time.
const CONNECTIONS: u64 = 4;

/// Attempts in a row that bring nothing before it is given up.
const ATTEMPTS: u32 = 5;

/// Bytes that are read at a time.
const BLOCK: usize = 128 << 10;

/// How often somebody who waits before the next attempt looks whether the work is over.
const LOOK: Duration = Duration::from_millis(20);

/// A file on a server.
pub struct Source<'a> {
    /// Connections.
    pub web: &'a Web,
    /// Address that is asked first; it may lead to others.
    pub url: String,
    /// Name for messages.
    pub name: String,
    /// Bytes of the file.
    pub size: u64,
    /// The tag that the server's answers have as long as the file is the same, where it tells.
    pub etag: Option<String>,
    /// Bytes that one request asks for.
    pub piece: u64,
    /// The pause before the second attempt; those after it are twice as long each.
    pub pause: Duration,
}

/// A piece on its way.
#[derive(Default)]
struct Part {
    /// Bytes that came and are not written yet.
    bytes: Vec<u8>,
    is_whole: bool,
}

/// State that the connections and the writer share.
struct Transfer {
    /// Number of the piece that is written.
    head: u64,
    /// Number of the next piece that nobody asked for.
    next: u64,
    parts: BTreeMap<u64, Part>,
    /// The first thing that went wrong.
    failed: Option<Failure>,
    /// True if all connections are to end.
    over: bool,
}

enum Failure {
    /// The server sends whole files alone.
    NoRanges,
    /// Anything else.
    Final(HubError),
}

/// The result of one request.
enum Trouble {
    /// Worth another attempt.
    Passing(String),
    /// Not worth one.
    Lasting(Failure),
    /// Nobody wants the bytes any more.
    Over,
}

struct Work<'a> {
    source: &'a Source<'a>,
    /// First byte of the first piece.
    start: u64,
    /// Bytes of a piece.
    piece: u64,
    /// True if pieces may be asked for; otherwise what is there already is read again and left out.
    ranges: bool,
    /// Where the hub sent those who asked; links of this kind expire.
    leads_to: Mutex<Option<String>>,
    state: Mutex<Transfer>,
    changed: Condvar,
}

/// Writes the rest of a file, of which `have` bytes are in `out` and in `hash`.
///
/// # Errors
/// See [`HubError`]. What came until then is in `out` and in `hash`.
pub fn fetch(
    source: &Source<'_>,
    out: &mut File,
    hash: &mut Sha256,
    mut have: u64,
    watcher: &dyn Watcher,
) -> Result<(), HubError> {
    let first = Work::new(source, have, source.piece, true).run(out, hash, &mut have, watcher);
    let second = match first {
        Err(Failure::NoRanges) => Work::new(source, have, u64::MAX, false).run(out, hash, &mut have, watcher),
        other => other,
    };
    second.map_err(|failure| match failure {
        Failure::NoRanges => {
            HubError::Broken { file: source.name.clone(), why: "its server sends no parts of files".to_owned() }
        }
        Failure::Final(e) => e,
    })
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl<'a> Work<'a> {
    fn new(source: &'a Source<'a>, start: u64, piece: u64, ranges: bool) -> Work<'a> {
        let state = Transfer { head: 0, next: 0, parts: BTreeMap::new(), failed: None, over: false };
        let leads_to = Mutex::new(None);
        Work { source, start, piece: piece.max(1), ranges, leads_to, state: Mutex::new(state), changed: Condvar::new() }
    }

    fn pieces(&self) -> u64 {
        (self.source.size - self.start).div_ceil(self.piece)
    }

    fn run(&self, out: &mut File, hash: &mut Sha256, have: &mut u64, watcher: &dyn Watcher) -> Result<(), Failure> {
        let connections = self.pieces().min(CONNECTIONS);
        thread::scope(|scope| {
            for n in 0..connections {
                let thread = thread::Builder::new().name(format!("fetch {n}"));
                // As many as can be started; one is needed.
                if thread.spawn_scoped(scope, || self.connection()).is_err() && n == 0 {
                    lock(&self.state).failed = Some(Failure::Final(HubError::Broken {
                        file: self.source.name.clone(),
                        why: "no thread can be started".to_owned(),
                    }));
                }
            }
            let written = self.write(out, hash, have, watcher);
            lock(&self.state).over = true;
            self.changed.notify_all();
            written
        })
    }

    /// Writes what comes, in order.
    fn write(&self, out: &mut File, hash: &mut Sha256, have: &mut u64, watcher: &dyn Watcher) -> Result<(), Failure> {
        let pieces = self.pieces();
        loop {
            let mut state = lock(&self.state);
            let bytes = loop {
                if state.head == pieces {
                    return Ok(());
                }
                let head = state.head;
                let part = state.parts.entry(head).or_default();
                if !part.bytes.is_empty() {
                    break std::mem::take(&mut part.bytes);
                }
                if part.is_whole {
                    state.parts.remove(&head);
                    state.head += 1;
                    self.changed.notify_all();
                } else if let Some(failed) = state.failed.take() {
                    return Err(failed);
                } else {
                    state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
                }
            };
            drop(state);
            let name = &self.source.name;
            out.write_all(&bytes).map_err(|e| Failure::Final(HubError::io("write", name)(e)))?;
            hash.update(&bytes);
            *have += bytes.len() as u64;
            watcher.advance(bytes.len() as u64);
        }
    }

    /// Fetches one piece after the other that nobody else fetches.
    fn connection(&self) {
        loop {
            let mut state = lock(&self.state);
            while !state.over && state.failed.is_none() && state.next >= state.head + CONNECTIONS {
                state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
            }
            if state.over || state.failed.is_some() || state.next == self.pieces() {
                return;
            }
            let number = state.next;
            state.next += 1;
            state.parts.entry(number).or_default();
            drop(state);
            let done = self.fetch_piece(number);
            let mut state = lock(&self.state);
            match done {
                Ok(()) => state.parts.entry(number).or_default().is_whole = true,
                Err(failure) => {
                    state.failed.get_or_insert(failure);
                }
            }
            self.changed.notify_all();
        }
    }

    /// Fetches a piece, in as many attempts as it takes.
    fn fetch_piece(&self, number: u64) -> Result<(), Failure> {
        let mut at = self.start + number * self.piece;
        let end = at.saturating_add(self.piece).min(self.source.size);
        let mut attempts = 0;
        while at < end {
            let before = at;
            let Err(trouble) = self.attempt(number, &mut at, end, attempts > 0) else { continue };
            match trouble {
                Trouble::Over => return Ok(()),
                Trouble::Lasting(failure) => return Err(failure),
                Trouble::Passing(_) if at > before => attempts = 0,
                Trouble::Passing(why) => {
                    attempts += 1;
                    if attempts == ATTEMPTS {
                        return Err(Failure::Final(HubError::Broken { file: self.source.name.clone(), why }));
                    }
                    self.rest(self.source.pause * (1 << (attempts - 1)));
                }
            }
        }
        Ok(())
    }

    /// Waits, unless the work is over.
    fn rest(&self, time: Duration) {
        let mut left = time;
        while !left.is_zero() && !self.is_over() {
            let now = left.min(LOOK);
            thread::sleep(now);
            left -= now;
        }
    }

    fn is_over(&self) -> bool {
        let state = lock(&self.state);
        state.over || state.failed.is_some()
    }

    /// Asks once for the bytes from `at` to `end`, and moves `at` behind those that came. After an attempt that brought
    /// nothing the hub itself is asked, whatever link another connection has found.
    fn attempt(&self, number: u64, at: &mut u64, end: u64, anew: bool) -> Result<(), Trouble> {
        let known = lock(&self.leads_to).clone().filter(|_| !anew);
        let address = known.as_ref().unwrap_or(&self.source.url);
        let mut headers = Vec::new();
        if self.ranges {
            headers.push(("range", format!("bytes={at}-{}", end - 1)));
            headers.extend(self.source.etag.clone().filter(|tag| !tag.starts_with("W/")).map(|tag| ("if-range", tag)));
        }
        let answer = match self.source.web.ask(Method::GET, address, &headers) {
            Ok(answer) => answer,
            Err(WebError::Connection(why)) => {
                // The other end of a link may be gone while the hub knows a better one.
                *lock(&self.leads_to) = None;
                return Err(Trouble::Passing(why));
            }
            Err(WebError::Final(e)) => return Err(Trouble::Lasting(Failure::Final(e))),
        };
        self.check(&answer, *at, known.is_some())?;
        let skipped = if answer.status() == 200 && !self.ranges { *at } else { 0 };
        *lock(&self.leads_to) = Some(answer.url.clone());
        self.read(number, answer, skipped, at, end)
    }

    /// Looks at the head of an answer to a request for the bytes from `at` on. `was_known` says that it came from where
    /// an earlier answer led.
    fn check(&self, answer: &Answer, at: u64, was_known: bool) -> Result<(), Trouble> {
        let name = || self.source.name.clone();
        let changed = || Trouble::Lasting(Failure::Final(HubError::Changed(name())));
        let is_same = |tag: &str| self.source.etag.as_ref().is_none_or(|known| known == tag);
        match answer.status() {
            200 | 206 if !answer.header("etag").is_none_or(is_same) => Err(changed()),
            206 => {
                let range = answer.header("content-range").and_then(|range| range.strip_prefix("bytes "));
                let parts = range.and_then(|range| range.split_once('/'));
                let first = parts.and_then(|(range, _)| range.split_once('-')?.0.trim().parse::<u64>().ok());
                let total = parts.and_then(|(_, total)| total.trim().parse::<u64>().ok());
                match (first, total) {
                    (Some(first), _) if first != at => Err(changed()),
                    (Some(_), Some(total)) if total != self.source.size => Err(changed()),
                    (Some(_), _) => Ok(()),
                    (None, _) => Err(Trouble::Lasting(Failure::NoRanges)),
                }
            }
            200 if self.ranges => Err(Trouble::Lasting(Failure::NoRanges)),
            200 => Ok(()),
            416 => Err(changed()),
            status @ (400 | 401 | 403 | 404 | 410) if was_known => {
                *lock(&self.leads_to) = None;
                Err(Trouble::Passing(format!("{} answers {status}", url::host(&answer.url))))
            }
            status @ (408 | 425 | 429 | 500..) => {
                Err(Trouble::Passing(format!("{} answers {status}", url::host(&answer.url))))
            }
            _ => Err(Trouble::Lasting(Failure::Final(api::refusal(
                self.source.web,
                answer,
                &self.source.name,
                &self.source.url,
            )))),
        }
    }

    /// Reads a body. The first `skipped` bytes of it are there already.
    fn read(&self, number: u64, answer: Answer, mut skipped: u64, at: &mut u64, end: u64) -> Result<(), Trouble> {
        let mut body = answer.response.into_body().into_reader();
        let mut block = vec![0; BLOCK];
        while *at < end {
            let most = (end - *at).saturating_add(skipped).min(BLOCK as u64) as usize;
            let n = match body.read(&mut block[..most]) {
                Ok(0) => return Err(Trouble::Passing("the connection ended early".to_owned())),
                Ok(n) => n,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => continue,
                Err(e) => return Err(Trouble::Passing(e.to_string())),
            };
            let left_out = skipped.min(n as u64);
            skipped -= left_out;
            let bytes = &block[left_out as usize..n];
            *at += bytes.len() as u64;
            let mut state = lock(&self.state);
            // What is ahead is bounded by the pieces; the one that is written is bounded by how fast the disk is.
            while !state.over
                && state.failed.is_none()
                && state.parts.get(&number).is_some_and(|p| p.bytes.len() as u64 > self.source.piece)
            {
                state = self.changed.wait_timeout(state, LOOK).unwrap_or_else(PoisonError::into_inner).0;
            }
            if state.over {
                return Err(Trouble::Over);
            }
            state.parts.entry(number).or_default().bytes.extend_from_slice(bytes);
            drop(state);
            self.changed.notify_all();
        }
        Ok(())
    }
}
