//! Chat templates: a conversation to the tokens that the model was trained on.
//!
//! Models carry a Jinja template (`tokenizer.chat_template`). It comes with the file, so it is as hostile as the file:
//! it runs without any access to the system, with a budget of instructions, a limit on recursion and on output, and
//! watched for time and memory (see `run`). That leaves what no thread survives, such as a value that holds itself
//! and is printed; [`ChatTemplate::isolated`] renders in another process.
//!
//! The user's text never becomes a control token: `<|im_end|>` in a message is text, not the end of the turn. A message
//! without such a text is encoded with the rest of the conversation, exactly as llama.cpp does it; see `protect` for
//! the others.

mod answer;
mod elsewhere;
mod encode;
mod error;
mod json;
mod message;
mod named;
mod options;
mod protect;
mod run;
mod strftime;
mod template;
mod thoughts;

pub use answer::answer;
pub use encode::is_plain;
pub use error::ChatError;
pub use message::{Message, Role, ToolCall};
pub use options::RenderOptions;
pub use strftime::at as format_time;
pub use template::ChatTemplate;
pub use thoughts::{Parted, Retold, ThoughtMarks, Thoughts};

#[cfg(test)]
mod tests;
