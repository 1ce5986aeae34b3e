//! Options of a rendering.

/// Inputs of a template beside the messages.
#[derive(Clone, Debug, Default)]
pub struct RenderOptions {
    /// Functions that the model may call, each described as OpenAI does it.
    pub tools: Vec<serde_json::Value>,
    /// Variables that this template knows, such as `enable_thinking`. None of [`RenderOptions::OWN`] may be among them.
    pub variables: serde_json::Map<String, serde_json::Value>,
    /// True if the text ends where the assistant's next message begins.
    pub answer: bool,
}

impl RenderOptions {
    /// The variables that every template gets.
    pub const OWN: [&'static str; 5] = ["messages", "tools", "bos_token", "eos_token", "add_generation_prompt"];

    /// No functions and no variables.
    pub(super) fn plain(answer: bool) -> RenderOptions {
        RenderOptions { answer, ..RenderOptions::default() }
    }
}
