//! Standard output of `rgen`.

use std::borrow::Cow;
use std::io::{self, Write};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use trine::generate::{Evaluated, LogitsObserver};
use trine::{CancelToken, Chunk, Tokenizer};

use super::args::Args;
use super::thoughts::Thoughts;
use crate::shown;
use crate::signals::{self, Out};
use crate::text::hex;

/// The text that was written, or would have been.
#[derive(Default)]
pub struct Done {
    /// The prompt as its tokens read.
    pub prompt: String,
    /// The generated text.
    pub text: String,
    /// The generated tokens; the one that ended the text is among them.
    pub tokens: Vec<u32>,
    /// `{pos, token, sha256}` of every evaluated position, when they were asked for.
    pub proofs: Vec<Value>,
}

/// Writes the text as it comes.
pub struct Output {
    stdout: Out,
    show_prompt: bool,
    show_text: bool,
    show_proofs: bool,
    escape: bool,
    /// Dims thoughts, in a terminal.
    thoughts: Option<Thoughts>,
    done: Done,
    proofs: Arc<Mutex<Proofs>>,
}

/// The hashes of logits, which are made while the model computes.
#[derive(Default)]
struct Proofs {
    list: Vec<Value>,
    /// Why they could not be written.
    error: Option<io::Error>,
}

impl Output {
    /// An output to which nothing is written yet.
    pub fn new(args: &Args) -> Output {
        Output {
            stdout: signals::stdout(),
            show_prompt: !args.no_display_prompt && !args.chat.conversation,
            show_text: !args.json && !args.logits_sha256,
            show_proofs: !args.json,
            escape: args.escape_control,
            thoughts: None,
            done: Done::default(),
            proofs: Arc::default(),
        }
    }

    /// Writes, or keeps, the hash of the logits after every token that is evaluated; cancels the rest of the work when
    /// nobody reads them.
    pub fn observer(&self, cancel: CancelToken) -> LogitsObserver {
        let (show, proofs) = (self.show_proofs, self.proofs.clone());
        Box::new(move |e: Evaluated<'_>| {
            let mut proofs = lock(&proofs);
            if proofs.error.is_some() {
                return;
            }
            let (position, token, sha256) = (e.position, e.token, hash(e.logits));
            if !show {
                let proof = json!({ "pos": position, "token": token, "sha256": sha256 });
                return proofs.list.push(proof);
            }
            let mut stdout = signals::stdout();
            let line = writeln!(stdout, "{position} {token} {sha256}");
            if let Err(e) = line.and_then(|()| stdout.flush()) {
                proofs.error = Some(e);
                cancel.cancel();
            }
        })
    }

    /// The prompt has been evaluated.
    pub fn prompt(&mut self, tokenizer: &Tokenizer, tokens: &[u32]) -> io::Result<()> {
        self.check()?;
        let mut detokenizer = tokenizer.detokenizer(false);
        let mut text: String = tokens.iter().map(|&id| detokenizer.push(id)).collect();
        text += &detokenizer.finish();
        self.done.prompt = text;
        if self.show_prompt && self.show_text {
            let text = self.done.prompt.clone();
            self.write(&text)?;
        }
        Ok(())
    }

    /// The next token and what it makes certain of the text.
    pub fn chunk(&mut self, chunk: &Chunk) -> io::Result<()> {
        self.check()?;
        self.done.tokens.extend(chunk.token);
        self.done.text += &chunk.text;
        if self.show_text && !chunk.text.is_empty() {
            self.write(&chunk.text)?;
        }
        Ok(())
    }

    /// Writes what is neither prompt nor generated text.
    pub fn beside(&mut self, text: &str) -> io::Result<()> {
        if text.is_empty() {
            return Ok(());
        }
        self.write(text)
    }

    /// Dims thoughts from now on.
    pub fn paint(&mut self, thoughts: Thoughts) -> io::Result<()> {
        self.stdout.write_all(thoughts.begin().as_bytes())?;
        self.thoughts = Some(thoughts);
        Ok(())
    }

    fn write(&mut self, text: &str) -> io::Result<()> {
        let mut text = Cow::Borrowed(text);
        if self.escape {
            text = Cow::Owned(shown::escape_text(&text));
        }
        if let Some(thoughts) = &mut self.thoughts {
            text = Cow::Owned(thoughts.paint(&text));
        }
        self.stdout.write_all(text.as_bytes())?;
        self.stdout.flush()
    }

    /// Ends the text with a line break.
    pub fn finish(mut self) -> io::Result<Done> {
        self.check()?;
        if let Some(thoughts) = &mut self.thoughts {
            self.stdout.write_all(thoughts.finish().as_bytes())?;
        }
        if self.show_text {
            self.stdout.write_all(b"\n")?;
            self.stdout.flush()?;
        }
        self.done.proofs = std::mem::take(&mut lock(&self.proofs).list);
        Ok(self.done)
    }

    /// Tells of hashes that could not be written.
    fn check(&self) -> io::Result<()> {
        lock(&self.proofs).error.take().map_or(Ok(()), Err)
    }
}

/// No panic leaves the list half changed.
fn lock(proofs: &Mutex<Proofs>) -> MutexGuard<'_, Proofs> {
    proofs.lock().unwrap_or_else(PoisonError::into_inner)
}

/// SHA-256 of the little-endian bytes, in hexadecimal.
fn hash(logits: &[f32]) -> String {
    let mut sha = Sha256::new();
    let mut bytes = Vec::with_capacity(4096);
    for part in logits.chunks(1024) {
        bytes.clear();
        part.iter().for_each(|l| bytes.extend_from_slice(&l.to_le_bytes()));
        sha.update(&bytes);
    }
    hex(&sha.finalize())
}
