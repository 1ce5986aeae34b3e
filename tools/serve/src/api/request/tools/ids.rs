//! Ids of calls in a conversation, for models that count their calls.

use trine::Message;

use super::syntax::Syntax;

/// Gives calls, and the results that answer them, the ids by which the model of this template knows them.
pub fn rename(messages: &mut [Message], template: &str) {
    if !Syntax::of(template).counts {
        return;
    }
    let (mut count, mut pending) = (0, Vec::new());
    for message in messages {
        for call in &mut message.calls {
            let id = format!("functions.{}:{count}", call.name);
            pending.push((std::mem::replace(&mut call.id, id.clone()), id));
            count += 1;
        }
        if let Some(answers) = &mut message.answers {
            // Ids of clients may come again in a later turn.
            if let Some(at) = pending.iter().position(|(old, _)| old == answers) {
                *answers = pending.remove(at).1;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use trine::Role;
    use trine::chat::ToolCall;

    use super::*;

    #[test]
    fn calls_are_counted_over_the_whole_conversation() {
        let call = |id: &str, name: &str| ToolCall { id: id.into(), name: name.into(), arguments: json!({}) };
        let calls = |calls| Message { calls, ..Message::new(Role::Assistant, "") };
        let result = |id: &str| Message { answers: Some(id.into()), ..Message::new(Role::Tool, "there") };
        let first = calls(vec![call("a", "go"), call("b", "got")]);
        let mut messages = [first, result("b"), result("a"), calls(vec![call("a", "go")]), result("a"), result("x")];
        let before = messages.clone();
        rename(&mut messages, "{{ tools }}<tool_call>");
        assert_eq!(messages, before);
        rename(&mut messages, "{{ tools }}<|tool_calls_section_begin|>");
        let ids = messages.iter().flat_map(|m| m.calls.iter().map(|c| c.id.as_str()).chain(m.answers.as_deref()));
        let ids: Vec<&str> = ids.collect();
        assert_eq!(
            ids,
            [
                "functions.go:0",
                "functions.got:1",
                "functions.got:1",
                "functions.go:0",
                "functions.go:2",
                "functions.go:2",
                "x"
            ]
        );
    }
}
