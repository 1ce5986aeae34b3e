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

    let mut tokens = Vec::new();
    if tokenizer.add_bos() {
        tokens.extend(tokenizer.bos());
    }
    tokens.append(&mut tokenizer.encode_apart(&parts)?);
    Ok(tokens)
}

/// Splits at the marks: parts and whether each is the template's. `None` unless every mark comes out in
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
        parts.push((before, true));
        parts.push((inside, false));
        rest = after;
    }
    parts.push((rest, true));
    (!rest.contains([open, close])).then_some(parts)
}
