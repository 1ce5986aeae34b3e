//! What `rgen` writes to standard output.

use std::io::{self, Stdout, Write};

use serde_json::{Value, json};
use trine::tokenizer::{Detokenizer, Tokenizer};

use super::args::Args;

/// What was written, or would have been.
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

/// Writes the text as it comes, only whole characters.
pub struct Output<'a> {
    stdout: Stdout,
    tokenizer: &'a Tokenizer,
    detokenizer: Detokenizer<'a>,
    show_prompt: bool,
    show_text: bool,
    show_proofs: bool,
    done: Done,
}

impl<'a> Output<'a> {
    /// Nothing written yet.
    pub fn new(args: &Args, tokenizer: &'a Tokenizer) -> Output<'a> {
        Output {
            stdout: io::stdout(),
            tokenizer,
            detokenizer: tokenizer.detokenizer(false),
            show_prompt: !args.no_display_prompt && !args.conversation,
            show_text: !args.json && !args.logits_sha256,
            show_proofs: !args.json,
            done: Done::default(),
        }
    }

    /// The prompt has been evaluated.
    pub fn prompt(&mut self, tokens: &[u32]) -> io::Result<()> {
        let mut detokenizer = self.tokenizer.detokenizer(false);
        let mut text: String = tokens.iter().map(|&id| detokenizer.push(id)).collect();
        text += &detokenizer.finish();
        self.done.prompt = text;
        if self.show_prompt && self.show_text {
            self.stdout.write_all(self.done.prompt.as_bytes())?;
            self.stdout.flush()?;
        }
        Ok(())
    }

    /// A token was chosen. One that ends the text has no text.
    pub fn token(&mut self, id: u32, ends: bool) -> io::Result<()> {
        self.done.tokens.push(id);
        if ends {
            return Ok(());
        }
        let text = self.detokenizer.push(id);
        self.text(&text)
    }

    fn text(&mut self, text: &str) -> io::Result<()> {
        self.done.text += text;
        if self.show_text && !text.is_empty() {
            self.stdout.write_all(text.as_bytes())?;
            self.stdout.flush()?;
        }
        Ok(())
    }

    /// The hash of the logits after a token.
    pub fn proof(&mut self, position: usize, token: u32, sha256: String) -> io::Result<()> {
        if self.show_proofs {
            writeln!(self.stdout, "{position} {token} {sha256}")?;
            return self.stdout.flush();
        }
        self.done
            .proofs
            .push(json!({ "pos": position, "token": token, "sha256": sha256 }));
        Ok(())
    }

    /// Ends the text with a line break.
    pub fn finish(mut self) -> io::Result<Done> {
        let rest = self.detokenizer.finish();
        self.text(&rest)?;
        if self.show_text {
            self.stdout.write_all(b"\n")?;
            self.stdout.flush()?;
        }
        Ok(self.done)
    }
}
