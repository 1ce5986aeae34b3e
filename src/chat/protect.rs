//! Keeps the texts of control tokens in messages apart from those of the template.
//!
//! A message with such a text is put between two marks, private-use characters that occur nowhere else,
//! and the conversation is rendered with them. What lies between the marks of a message is then text
//! for sure; control tokens are looked for only outside. The parts between them are encoded as
//! llama.cpp encodes the text between two control tokens.
//!
//! White space at the ends of a message stays outside of the marks, so that a template that trims
//! messages still can. A template that cuts the marks off is refused.

use super::error::ChatError;
use super::message::Message;
use super::options::RenderOptions;
use super::template::ChatTemplate;
use crate::tokenizer::Tokenizer;

/// The marks: one of these pairs, the first that occurs neither in the template nor in a message.
const MARKS: std::ops::Range<u32> = 0x10_F000..0x10_F800;

/// Encodes a conversation whose messages `suspect` contain texts of control tokens.
pub fn encode(
    template: &ChatTemplate,
    tokenizer: &Tokenizer,
    messages: &[Message],
    options: &RenderOptions,
    suspect: &[usize],
) -> Result<Vec<u32>, ChatError> {
    let known = |c: char| template.source.contains(c) || messages.iter().any(|m| m.content.contains(c));
    let mut free = MARKS.filter_map(char::from_u32).filter(|&c| !known(c));
    let (Some(open), Some(close)) = (free.next(), free.next()) else {
        return Err(ChatError::Unprotected);
    };
    let mut marked = messages.to_vec();
    for &i in suspect {
        let content = &messages[i].content;
        let inner = content.trim();
        let start = content.len() - content.trim_start().len();
        let (before, after) = (&content[..start], &content[start + inner.len()..]);
        marked[i].content = format!("{before}{open}{inner}{close}{after}");
    }
    let rendered = template.render_with(&marked, options)?;
    let rendered = template.without_bos(tokenizer, &rendered);
    let parts = unmark(rendered, open, close, suspect.len()).ok_or(ChatError::Unprotected)?;

    let control = control_tokens(tokenizer);
    let mut tokens = Vec::new();
    if tokenizer.add_bos() {
        tokens.extend(tokenizer.bos());
    }
    let mut text = String::new();
    for (part, is_message) in parts {
        let mut rest = part;
        while let Some((at, id, length)) = first_control(&control, rest).filter(|_| !is_message) {
            text.push_str(&rest[..at]);
            tokens.append(&mut tokenizer.encode(&text, false, false)?);
            text.clear();
            tokens.push(id);
            rest = &rest[at + length..];
        }
        text.push_str(rest);
    }
    tokens.append(&mut tokenizer.encode(&text, false, false)?);
    Ok(tokens)
}

/// Splits at the marks: parts and whether each is a message. `None` unless every mark comes out in
/// order, `messages` times.
fn unmark(text: &str, open: char, close: char, messages: usize) -> Option<Vec<(&str, bool)>> {
    let mut parts = Vec::new();
    let mut rest = text;
    for _ in 0..messages {
        let (before, after) = rest.split_once(open)?;
        let (inside, after) = after.split_once(close)?;
        if before.contains(close) || inside.contains(open) {
            return None;
        }
        parts.push((before, false));
        parts.push((inside, true));
        rest = after;
    }
    parts.push((rest, false));
    (!rest.contains([open, close])).then_some(parts)
}

/// Texts of the tokens that a text becomes only when they are asked for, longest first.
fn control_tokens(tokenizer: &Tokenizer) -> Vec<(&str, u32)> {
    let ids = 0..tokenizer.n_vocab() as u32;
    let control = ids.filter(|&id| tokenizer.piece(id, false).is_empty() && !tokenizer.piece(id, true).is_empty());
    let mut texts: Vec<(&str, u32)> = control
        .filter_map(|id| Some((std::str::from_utf8(tokenizer.token_text(id)).ok()?, id)))
        .filter(|(text, _)| !text.is_empty())
        .collect();
    texts.sort_by_key(|(text, id)| (std::cmp::Reverse(text.len()), *id));
    texts
}

/// The first control token in `text`, the longest there: where, which, how long.
fn first_control(control: &[(&str, u32)], text: &str) -> Option<(usize, u32, usize)> {
    let found = control.iter().filter_map(|(t, id)| Some((text.find(t)?, *id, t.len())));
    found.min_by_key(|&(at, _, length)| (at, std::cmp::Reverse(length)))
}
