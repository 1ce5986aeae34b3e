//! Functions in the words of the conversation, for templates that do nothing with them: their descriptions stand before
//! the first message of the user, calls and results are parts of messages. The model is told to call as Hermes does.

use serde_json::{Value, json};
use trine::{Message, Role};

use super::syntax::HERMES;

/// Tells the model of `tools` in `messages`, and puts the calls and results there into words.
pub fn tell(messages: &mut Vec<Message>, tools: &[Value]) {
    let told = std::mem::take(messages).into_iter().map(in_words);
    for message in told {
        match messages.last_mut() {
            // Templates may want the user and the assistant by turns.
            Some(last) if last.role == Role::User && message.role == Role::User && last.answers.is_some() => {
                last.content += &format!("\n{}", message.content);
            }
            _ => messages.push(message),
        }
    }
    messages.iter_mut().for_each(|message| message.answers = None);
    if tools.is_empty() {
        return;
    }
    match messages.iter_mut().find(|message| message.role == Role::User) {
        Some(first) => first.content = format!("{}\n{}", described(tools), first.content),
        None => messages.push(Message::new(Role::User, described(tools))),
    }
}

/// A message without calls, or with them as a part of its text.
fn in_words(mut message: Message) -> Message {
    for call in std::mem::take(&mut message.calls) {
        let between = if message.content.is_empty() { "" } else { "\n" };
        let head = HERMES.head(&call.name);
        message.content += &format!("{between}{head}{}{}", call.arguments, HERMES.close);
    }
    if message.role == Role::Tool {
        let content = format!("<tool_response>\n{}\n</tool_response>", message.content);
        return Message { answers: Some(String::new()), ..Message::new(Role::User, content) };
    }
    message
}

/// The functions that there are, and how they are called.
fn described(tools: &[Value]) -> String {
    let functions: String = tools.iter().map(|tool| format!("{}\n", tool["function"])).collect();
    let call = format!("{}{}{}", HERMES.head("NAME"), json!({"ARGUMENT": "VALUE"}), HERMES.close);
    format!(
        "You may call functions. Whoever calls one gets its result in the next message. A call is written like this:\n\
         {call}\nThe functions, each with the JSON schema of its arguments:\n{functions}"
    )
}

#[cfg(test)]
mod tests {
    use trine::chat::ToolCall;

    use super::*;

    #[test]
    fn a_conversation_without_functions_stays_as_it_is() {
        let messages = vec![Message::new(Role::System, "Be brief."), Message::new(Role::User, "Hi")];
        let mut told = messages.clone();
        tell(&mut told, &[]);
        assert_eq!(told, messages);
    }

    #[test]
    fn calls_and_results_are_words() {
        let call = |name: &str| ToolCall { id: "c".into(), name: name.into(), arguments: json!({"at": 3}) };
        let mut messages = vec![
            Message::new(Role::System, "Be brief."),
            Message::new(Role::User, "Go"),
            Message { calls: vec![call("go"), call("got")], ..Message::new(Role::Assistant, "I go.") },
            Message { answers: Some("c".into()), ..Message::new(Role::Tool, "there") },
            Message { answers: Some("c".into()), ..Message::new(Role::Tool, "here") },
            Message::new(Role::User, "And now?"),
        ];
        tell(&mut messages, &[json!({"type": "function", "function": {"name": "go"}})]);
        let said: Vec<(Role, &str)> = messages.iter().map(|m| (m.role, m.content.as_str())).collect();
        assert_eq!(said[0], (Role::System, "Be brief."));
        assert!(said[1].0 == Role::User && said[1].1.ends_with("{\"name\":\"go\"}\n\nGo"), "{}", said[1].1);
        let calls = "I go.\n<tool_call>\n{\"name\": \"go\", \"arguments\": {\"at\":3}}\n</tool_call>\n\
                     <tool_call>\n{\"name\": \"got\", \"arguments\": {\"at\":3}}\n</tool_call>";
        assert_eq!(said[2], (Role::Assistant, calls));
        let results = "<tool_response>\nthere\n</tool_response>\n<tool_response>\nhere\n</tool_response>\nAnd now?";
        assert_eq!(said[3], (Role::User, results));
        assert_eq!(said.len(), 4);
        assert!(messages.iter().all(|m| m.calls.is_empty() && m.answers.is_none()));
    }
}
