//! Requests and their answers, in JSON.

use std::path::PathBuf;
use std::sync::Arc;

use serde::Deserialize;
use serde_json::{Value, json};
use trine::formats::gguf::Bytes;

use crate::failure::Failure;
use crate::loaded::Loaded;
use crate::memory;
use crate::options::Options;
use crate::prompt::{Prompt, Said};

/// A request; `op` names it.
#[derive(Deserialize)]
#[serde(tag = "op", rename_all = "camelCase", rename_all_fields = "camelCase")]
enum Request {
    /// Load a model whose files are in memory. Answer: what it is.
    Open { files: Vec<InMemory>, threads: Option<usize>, n_ctx: Option<usize> },
    /// Text to tokens, with the texts of control tokens as these tokens.
    Tokenize { text: String },
    /// Tokens to text.
    Detokenize { tokens: Vec<u32> },
    /// Messages to the text of a prompt.
    Render { messages: Vec<Said>, template: Option<String> },
    /// Begin a text. Answer: the tokens of its prompt.
    Generate {
        #[serde(flatten)]
        prompt: Prompt,
        options: Option<Options>,
    },
    /// Read at most so many more tokens of the prompt. Answer: how many are read; the last one is left to `next`.
    Read { tokens: usize },
    /// The next token of the text. Answer: its text, and why the text ends where it does.
    Next {},
    /// End the text where it is.
    Stop {},
    /// The vector of a text.
    Embed { text: String, bits: Option<u8> },
    /// The logits behind every token: a line for each as `rgen --logits-sha256` prints it.
    Logits {
        #[serde(flatten)]
        prompt: Prompt,
        bits: Option<u8>,
    },
}

/// A file in this memory, which belongs to the request.
#[derive(Deserialize)]
struct InMemory {
    name: PathBuf,
    at: usize,
    bytes: usize,
}

/// The answer to `request`; an error is an object with its message alone.
pub fn answer(request: &[u8], loaded: &mut Option<Loaded>) -> Vec<u8> {
    let answer = match serde_json::from_slice(request) {
        Ok(request) => carry_out(request, loaded),
        Err(e) => Err(format!("the request is none: {e}")),
    };
    let answer = answer.unwrap_or_else(|error| json!({ "error": error }));
    answer.to_string().into_bytes()
}

fn carry_out(request: Request, loaded: &mut Option<Loaded>) -> Result<Value, Failure> {
    if let Request::Open { files, threads, n_ctx } = request {
        let files = files.into_iter().map(InMemory::take).collect();
        return Ok(loaded.insert(Loaded::open(files, threads, n_ctx)?).describe());
    }
    let loaded = loaded.as_mut().ok_or("no model is open")?;
    match request {
        Request::Open { .. } => Err("a model is open already".to_owned()),
        Request::Tokenize { text } => loaded.tokenize(&text),
        Request::Detokenize { tokens } => loaded.detokenize(&tokens),
        Request::Render { messages, template } => loaded.render(&messages, template.as_deref()),
        Request::Generate { prompt, options } => loaded.generate(prompt, options.unwrap_or_default()),
        Request::Read { tokens } => loaded.read(tokens),
        Request::Next {} => loaded.next(),
        Request::Stop {} => Ok(loaded.stop()),
        Request::Embed { text, bits } => loaded.embed(&text, bits),
        Request::Logits { prompt, bits } => loaded.logits(prompt, bits),
    }
}

impl InMemory {
    fn take(self) -> (PathBuf, Bytes) {
        let at = std::ptr::with_exposed_provenance_mut(self.at);
        // SAFETY: whoever calls `trine_call` promises that the file is a whole allocation of this length, and gives it
        // away with the request.
        let bytes = unsafe { memory::take(at, self.bytes) };
        (self.name, Arc::new(bytes))
    }
}
