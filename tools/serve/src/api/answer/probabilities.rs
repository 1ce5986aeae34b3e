//! Log-probabilities in JSON.

use serde_json::{Map, Value, json};
use trine::Tokenizer;

use crate::engine::{TokenLogprobs, Told};

/// The number in JSON that reads back to the same f32: the shortest there is. JSON has no infinity, so the lowest
/// number stands for it, as llama-server has it.
pub fn number(x: f32) -> Value {
    let shortest = x.max(f32::MIN).to_string();
    Value::from(shortest.parse::<f64>().unwrap_or_default())
}

/// The text of a token; bytes that are no text are shown as U+FFFD.
fn text(piece: &[u8]) -> String {
    String::from_utf8_lossy(piece).into_owned()
}

/// A token in the shape of chats and of the native route.
pub fn entry(tokenizer: &Tokenizer, told: &Told) -> Value {
    let (id, own, top) = match told {
        Told::Logprobs(t) => (t.id, t.logprob, &t.top),
        Told::Odds(t) => (t.id, t.odds, &t.top),
    };
    let [name, names] = match told {
        Told::Logprobs(_) => ["logprob", "top_logprobs"],
        Told::Odds(_) => ["prob", "top_probs"],
    };
    let one = |id: u32, value: f32| {
        let piece = tokenizer.piece(id, true);
        json!({"id": id, "token": text(&piece), "bytes": piece, name: number(value)})
    };
    let mut out = one(id, own);
    let top: Vec<Value> = top.iter().map(|(id, p)| one(*id, *p)).collect();
    out[names] = top.into();
    out
}

/// Tokens in the shape of OpenAI's completions.
pub struct Columns<'a> {
    tokenizer: &'a Tokenizer,
    tokens: Vec<String>,
    token_logprobs: Vec<Value>,
    top_logprobs: Vec<Value>,
    text_offset: Vec<usize>,
    /// Characters so far, and how many of them are no part of the text that the client knows.
    chars: usize,
    hidden: usize,
}

impl<'a> Columns<'a> {
    /// No tokens yet; the next one is at the character `chars` of the text.
    pub fn new(tokenizer: &'a Tokenizer, chars: usize) -> Columns<'a> {
        Columns {
            tokenizer,
            tokens: Vec::new(),
            token_logprobs: Vec::new(),
            top_logprobs: Vec::new(),
            text_offset: Vec::new(),
            chars,
            hidden: 0,
        }
    }

    /// The tokens of a prompt, whose first has no probability, and of whose text the client knows `chars` characters.
    pub fn prompt(&mut self, tokens: &[u32], logprobs: &[TokenLogprobs], chars: usize) {
        let all: usize = tokens.iter().map(|id| characters(&self.tokenizer.piece(*id, false))).sum();
        // A tokenizer may put a space in front.
        self.hidden = all.saturating_sub(chars);
        if let Some(first) = tokens.first() {
            self.push(*first, Value::Null, Value::Null);
        }
        for t in logprobs {
            self.token(t);
        }
    }

    /// A generated token. This shape has no place for the settings with which it was sampled, and the route does not
    /// ask for them.
    pub fn generated(&mut self, told: &Told) {
        if let Told::Logprobs(t) = told {
            self.token(t);
        }
    }

    /// A token.
    fn token(&mut self, t: &TokenLogprobs) {
        let mut top = Map::new();
        for (id, logprob) in &t.top {
            // Tokens with equal texts: the likelier one stands for both.
            let key = text(&self.tokenizer.piece(*id, true));
            top.entry(key).or_insert_with(|| number(*logprob));
        }
        self.push(t.id, number(t.logprob), top.into());
    }

    fn push(&mut self, id: u32, logprob: Value, top: Value) {
        self.tokens.push(text(&self.tokenizer.piece(id, true)));
        self.token_logprobs.push(logprob);
        self.top_logprobs.push(top);
        self.text_offset.push(self.chars.saturating_sub(self.hidden));
        self.chars += characters(&self.tokenizer.piece(id, false));
    }

    /// Where the next token is.
    pub fn chars(&self) -> usize {
        self.chars - self.hidden.min(self.chars)
    }

    /// The object.
    pub fn finish(self) -> Value {
        json!({
            "tokens": self.tokens,
            "token_logprobs": self.token_logprobs,
            "top_logprobs": self.top_logprobs,
            "text_offset": self.text_offset,
        })
    }
}

/// Characters that begin in a piece of a text.
fn characters(piece: &[u8]) -> usize {
    piece.iter().filter(|b| **b & 0xc0 != 0x80).count()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_read_back() {
        for x in [-0.1f32, -3.4e-7, -12.345_678, 0.0, f32::MIN, -1e-45] {
            let text = number(x).to_string();
            assert_eq!(text.parse::<f32>().unwrap().to_bits(), x.to_bits(), "{text}");
        }
        assert_eq!(number(-0.1).to_string(), "-0.1");
        assert_eq!(number(f32::NEG_INFINITY).to_string(), "-3.4028235e+38");
    }

    #[test]
    fn characters_of_pieces() {
        assert_eq!(characters("aß€".as_bytes()), 3);
        assert_eq!(characters(b"\x82\xac"), 0);
    }
}
