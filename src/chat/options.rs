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
    /// The time that the template tells (`strftime_now`, `date_string`, `datetime`), in seconds since
    /// 1970-01-01T00:00:00Z, at most the year 9999. `None`: the clock's, or that of the variable `TRINE_NOW`.
    pub time: Option<u64>,
}

impl RenderOptions {
    /// The variables that every template gets.
    pub const OWN: [&'static str; 5] = ["messages", "tools", "bos_token", "eos_token", "add_generation_prompt"];

    /// No functions and no variables.
    pub(super) fn plain(answer: bool) -> RenderOptions {
        RenderOptions { answer, ..RenderOptions::default() }
    }
}
