//! Messages of a conversation.

/// Who says a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Role {
    /// What the model is told before the conversation.
    System,
    /// The one who asks.
    User,
    /// The model.
    Assistant,
    /// A function that the model called, with what it returned.
    Tool,
}

impl Role {
    /// The name that templates know: "system", "user", "assistant" or "tool".
    pub fn name(self) -> &'static str {
        match self {
            Role::System => "system",
            Role::User => "user",
            Role::Assistant => "assistant",
            Role::Tool => "tool",
        }
    }

    pub(super) fn from_name(name: &str) -> Option<Role> {
        let all = [Role::System, Role::User, Role::Assistant, Role::Tool];
        all.into_iter().find(|role| role.name() == name)
    }
}

/// One message of a conversation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Message {
    /// Who said it.
    pub role: Role,
    /// What was said.
    pub content: String,
    /// The functions that the model called with it.
    pub calls: Vec<ToolCall>,
    /// Of a function's answer: the call that it answers.
    pub answers: Option<String>,
}

/// A call of a function by the model.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ToolCall {
    /// What the answer names it by.
    pub id: String,
    /// The function.
    pub name: String,
    /// What it is called with, an object as a rule.
    pub arguments: serde_json::Value,
}

impl Message {
    /// What `role` says.
    pub fn new(role: Role, content: impl Into<String>) -> Message {
        Message { role, content: content.into(), calls: Vec::new(), answers: None }
    }

    /// What the model is told before the conversation.
    pub fn system(content: impl Into<String>) -> Message {
        Message::new(Role::System, content)
    }

    /// What the user says.
    pub fn user(content: impl Into<String>) -> Message {
        Message::new(Role::User, content)
    }

    /// What the model answers.
    pub fn assistant(content: impl Into<String>) -> Message {
        Message::new(Role::Assistant, content)
    }
}

impl ToolCall {
    /// The call as OpenAI writes it, but for the arguments, which are no text here.
    pub(super) fn to_json(&self) -> serde_json::Value {
        serde_json::json!({
            "id": self.id,
            "type": "function",
            "function": {"name": self.name, "arguments": self.arguments},
        })
    }

    pub(super) fn from_json(value: &serde_json::Value) -> Option<ToolCall> {
        let text = |v: &serde_json::Value| v.as_str().map(str::to_owned);
        Some(ToolCall {
            id: text(&value["id"])?,
            name: text(&value["function"]["name"])?,
            arguments: value["function"]["arguments"].clone(),
        })
    }
}
