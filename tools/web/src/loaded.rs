//! The model of an instance, and the text that it is writing.

use std::fmt::Write as _;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};

use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use trine::formats::gguf::Bytes;
use trine::open::{file_in_memory, load};
use trine::{
    ChatTemplate, Chunk, Context, ContextOptions, EmbedOptions, End, GenerateOptions, Generation, Isa, Message, Model,
    OpenOptions, Role,
};

use crate::failure::{Failure, told};
use crate::options::Options;
use crate::prompt::{Prompt, Said};

/// A model, and its context: in a text while one is written, and between texts what that has evaluated, so that the
/// next prompt of a conversation is not read from its beginning.
pub struct Loaded {
    model: Model,
    isa: Isa,
    n_ctx: usize,
    context: Option<Context>,
    text: Option<Generation>,
}

impl Loaded {
    /// Opens the model whose files these are.
    ///
    /// # Errors
    /// One line: what is wrong with which file.
    pub fn open(files: Vec<(PathBuf, Bytes)>, threads: Option<usize>, n_ctx: Option<usize>) -> Result<Loaded, Failure> {
        let isa = Isa::from_env().map_err(told)?;
        let threads = threads.unwrap_or(1);
        // The pool that packs weights: this thread is one of it, so that the system is asked for as many others as there are
        // helpers. Where there are no threads the pool finds that out by itself.
        #[cfg(threads)]
        rayon::ThreadPoolBuilder::new().num_threads(threads).use_current_thread().build_global().map_err(told)?;
        let options = OpenOptions { threads: Some(threads), isa: Some(isa), ..OpenOptions::default() };
        let model = load(file_in_memory(files).map_err(told)?, &options).map_err(told)?;
        let n_ctx = n_ctx.unwrap_or(model.n_ctx_train()).clamp(1, model.n_ctx_train());
        Ok(Loaded { model, isa, n_ctx, context: None, text: None })
    }

    /// Facts of the model, for whoever shows it.
    pub fn describe(&self) -> Value {
        let text = |key: &str| self.model.metadata().get_str(key).ok().flatten();
        let template = self.model.chat_template().is_ok_and(|template| template.is_some());
        json!({
            "name": text("general.name"),
            "architecture": text("general.architecture"),
            "nCtx": self.n_ctx,
            "nVocab": self.model.tokenizer().n_vocab(),
            "threads": self.model.threads(),
            "isa": self.isa.name(),
            "chatTemplate": template,
            "version": env!("CARGO_PKG_VERSION"),
        })
    }

    /// Text to tokens.
    pub fn tokenize(&self, text: &str) -> Result<Value, Failure> {
        let tokens = self.model.tokenizer().encode(text, true, true).map_err(told)?;
        Ok(json!({ "tokens": tokens }))
    }

    /// Tokens to text.
    pub fn detokenize(&self, tokens: &[u32]) -> Result<Value, Failure> {
        let tokenizer = self.model.tokenizer();
        if let Some(id) = tokens.iter().find(|&&id| id as usize >= tokenizer.n_vocab()) {
            return Err(format!("the model has no token {id}"));
        }
        let bytes: Vec<u8> = tokens.iter().flat_map(|&id| tokenizer.piece(id, true)).collect();
        Ok(json!({ "text": String::from_utf8_lossy(&bytes) }))
    }

    /// Messages to the text of a prompt.
    pub fn render(&self, messages: &[Said], template: Option<&str>) -> Result<Value, Failure> {
        let text = self.template(template)?.render(&conversation(messages)?, true).map_err(told)?;
        Ok(json!({ "text": text }))
    }

    /// Begins a text.
    pub fn generate(&mut self, prompt: Prompt, options: Options) -> Result<Value, Failure> {
        self.stop();
        let options = options.read(self.n_ctx, self.model.suppressed_tokens())?;
        let prompt = self.prompt(prompt)?;
        let text = self.context().into_generation(prompt, &options).map_err(told)?;
        let tokens = text.prompt().len();
        self.text = Some(text);
        Ok(json!({ "promptTokens": tokens }))
    }

    /// Reads more of the prompt, and not its last token.
    pub fn read(&mut self, tokens: usize) -> Result<Value, Failure> {
        let text = self.text.as_mut().ok_or("no text was begun")?;
        text.read_part(tokens.max(1)).map_err(told)?;
        Ok(json!({ "read": text.context().tokens().len() }))
    }

    /// The next token of the text.
    pub fn next(&mut self) -> Result<Value, Failure> {
        let text = self.text.as_mut().ok_or("no text was begun")?;
        match text.next() {
            Some(Ok(Chunk { text, token, end, .. })) => {
                let reason = end.map(|end| match end {
                    End::Eos => "eos",
                    End::Stop(_) => "stop",
                    End::Length => "length",
                    End::Context => "context",
                    _ => "cancelled",
                });
                if end.is_some() {
                    self.stop();
                }
                Ok(json!({ "text": text, "token": token, "end": reason }))
            }
            Some(Err(e)) => {
                self.text = None;
                Err(told(e))
            }
            None => Err("the text has ended".to_owned()),
        }
    }

    /// Ends the text where it is; what was evaluated stays.
    pub fn stop(&mut self) -> Value {
        if let Some(text) = self.text.take() {
            self.context = Some(text.into_context());
        }
        json!({})
    }

    /// The vector of a text.
    pub fn embed(&self, text: &str, bits: Option<u8>) -> Result<Value, Failure> {
        let tokens = self.model.tokenizer().encode(text, true, true).map_err(told)?;
        let options = EmbedOptions { bits, n_ctx: Some(self.n_ctx), ..EmbedOptions::default() };
        let vector = self.model.embed(&tokens, &options).map_err(told)?;
        Ok(json!({ "vector": vector }))
    }

    /// The logits behind every token of a prompt, as lines with their hashes and the hash of these lines.
    pub fn logits(&mut self, prompt: Prompt, bits: Option<u8>) -> Result<Value, Failure> {
        let prompt = self.prompt(prompt)?;
        let mut context = self.model.context(&ContextOptions { n_ctx: Some(self.n_ctx), ..ContextOptions::default() });
        let lines = Arc::new(Mutex::new(String::new()));
        let seen = lines.clone();
        context.observe(Some(Box::new(move |e| {
            let mut hash = Sha256::new();
            e.logits.iter().for_each(|x| hash.update(x.to_le_bytes()));
            if let Ok(mut lines) = seen.lock() {
                let _ = writeln!(lines, "{} {} {}", e.position, e.token, hex(&hash.finalize()));
            }
        })));
        let options = GenerateOptions { bits, ..GenerateOptions::greedy(0) };
        context.generate(prompt, &options).map_err(told)?.read_prompt().map_err(told)?;
        let lines = lines.lock().map_err(told)?;
        Ok(json!({ "lines": *lines, "sha256": hex(&Sha256::digest(lines.as_bytes())) }))
    }

    /// The context for the next text.
    fn context(&mut self) -> Context {
        let options = ContextOptions { n_ctx: Some(self.n_ctx), ..ContextOptions::default() };
        self.context.take().unwrap_or_else(|| self.model.context(&options))
    }

    fn template(&self, template: Option<&str>) -> Result<ChatTemplate, Failure> {
        let template = match template {
            Some(text) => {
                let named = ChatTemplate::named(text);
                Some(ChatTemplate::new(named.as_deref().unwrap_or(text), self.model.tokenizer()).map_err(told)?)
            }
            None => self.model.chat_template().map_err(told)?,
        };
        template.ok_or_else(|| "the model has no chat template; name one as 'template'".to_owned())
    }

    fn prompt(&self, prompt: Prompt) -> Result<trine::Prompt, Failure> {
        match prompt {
            Prompt { text: Some(text), tokens: None, messages: None, .. } => Ok(text.into()),
            Prompt { text: None, tokens: Some(tokens), messages: None, .. } => Ok(tokens.into()),
            Prompt { text: None, tokens: None, messages: Some(messages), template } => {
                let template = self.template(template.as_deref())?;
                let messages = conversation(&messages)?;
                Ok(template.encode(self.model.tokenizer(), &messages, true).map_err(told)?.into())
            }
            _ => Err("a text begins with one of text, tokens and messages".to_owned()),
        }
    }
}

fn conversation(messages: &[Said]) -> Result<Vec<Message>, Failure> {
    let message = |(i, said): (usize, &Said)| {
        let role = match said.role.as_str() {
            "system" | "developer" => Role::System,
            "user" => Role::User,
            "assistant" => Role::Assistant,
            "tool" => Role::Tool,
            other => return Err(format!("messages[{i}]: role '{other}' is none of system, user, assistant and tool")),
        };
        Ok(Message::new(role, said.content.as_str()))
    };
    messages.iter().enumerate().map(message).collect()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}
