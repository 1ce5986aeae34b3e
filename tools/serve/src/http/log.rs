//! A line for each request: neither prompts nor keys are in it, but the name of the key's holder.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU8, AtomicU16, AtomicUsize, Ordering::Relaxed};
use std::time::Instant;

use serde_json::json;

use super::keys::Turn;
use super::lines;
use crate::args::LogFormat;
use crate::engine::{Done, Vector};

/// The log entry of a request. Its line is written when the last reference is dropped, which for a stream is its end.
pub struct Entry {
    format: LogFormat,
    /// The id of the request.
    pub id: String,
    method: String,
    path: String,
    tenant: String,
    since: Instant,
    code: AtomicU16,
    prompt: AtomicUsize,
    generated: AtomicUsize,
    bits: AtomicU8,
    /// Counts for the key that was shown.
    turn: OnceLock<Turn>,
}

impl Entry {
    /// A request that came in.
    pub fn new(format: LogFormat, id: String, method: String, path: String, tenant: String) -> Entry {
        Entry {
            format,
            id,
            method,
            path,
            tenant,
            since: Instant::now(),
            code: AtomicU16::new(0),
            prompt: AtomicUsize::new(0),
            generated: AtomicUsize::new(0),
            bits: AtomicU8::new(0),
            turn: OnceLock::new(),
        }
    }

    /// Texts or vectors of it are counted for its key from now on.
    pub fn begin(&self, turn: Turn) {
        let _ = self.turn.set(turn);
    }

    /// Tokens were read or generated for it.
    pub fn spend(&self, tokens: usize) {
        if let Some(turn) = self.turn.get() {
            turn.spend(tokens);
        }
    }

    /// Notes the status of the answer.
    pub fn answered(&self, code: u16) {
        self.code.store(code, Relaxed);
    }

    /// Notes that a text of the request ended.
    pub fn text(&self, done: &Done) {
        self.prompt.fetch_add(done.prompt_tokens, Relaxed);
        self.generated.fetch_add(done.generated_tokens, Relaxed);
        self.bits.store(done.bits, Relaxed);
    }

    /// One of its vectors was made.
    pub fn vector(&self, vector: &Vector) {
        self.prompt.fetch_add(vector.prompt_tokens, Relaxed);
        self.spend(vector.prompt_tokens);
        self.bits.store(vector.bits, Relaxed);
    }
}

impl Drop for Entry {
    fn drop(&mut self) {
        let ms = self.since.elapsed().as_millis() as u64;
        // Without an answer the client went away before it.
        let code = self.code.load(Relaxed);
        let prompt = self.prompt.load(Relaxed);
        let generated = self.generated.load(Relaxed);
        let bits = self.bits.load(Relaxed);
        match self.format {
            LogFormat::None => {}
            LogFormat::Json => lines::write(
                json!({
                    "id": self.id, "method": self.method, "route": self.path, "code": code, "tenant": self.tenant,
                    "prompt_tokens": prompt, "tokens": generated, "bits": bits, "ms": ms,
                })
                .to_string(),
            ),
            LogFormat::Text => lines::write(format!(
                "{} {} {code} {prompt}+{generated} tokens {ms} ms {}{}{}",
                self.method,
                self.path,
                self.id,
                if self.tenant.is_empty() { "" } else { " " },
                self.tenant
            )),
        }
    }
}
