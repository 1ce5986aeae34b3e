//! Messages of a conversation.

/// Author of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Role {
    /// Instructions to the model, before the conversation.
    System,
    /// The user.
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
    /// Author of the message.
    pub role: Role,
    /// Text of the message.
    pub content: String,
    /// The functions that the model called with it.
    pub calls: Vec<ToolCall>,
    /// In a function's result: the id of the call that it answers.
    pub answers: Option<String>,
    /// The model's thoughts before the text, where they are kept apart from it.
    pub thoughts: Option<String>,
}

/// A call of a function by the model.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ToolCall {
    /// Id, by which the function's result refers to the call.
    pub id: String,
    /// The function.
    pub name: String,
    /// Arguments, an object as a rule.
    pub arguments: serde_json::Value,
}

impl Message {
    /// A message of `role`.
    pub fn new(role: Role, content: impl Into<String>) -> Message {
        Message { role, content: content.into(), calls: Vec::new(), answers: None, thoughts: None }
    }

    /// Instructions to the model, before the conversation.
    pub fn system(content: impl Into<String>) -> Message {
        Message::new(Role::System, content)
    }

    /// A message of the user.
    pub fn user(content: impl Into<String>) -> Message {
        Message::new(Role::User, content)
    }

    /// An answer of the model.
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
