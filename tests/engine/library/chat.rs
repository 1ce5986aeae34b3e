//! Conversations.

use trine::{Chat, ChatTemplate, ContextOptions, End, GenerateError, GenerateOptions, Message, Role};

use super::model;

const TEMPLATE: &str = "{% for m in messages %}{{ m.role }} : {{ m.content }} \n {% endfor %}{% if add_generation_prompt %}assistant :{% endif %}";

fn chat(n_ctx: usize, max_tokens: usize) -> Chat {
    let template = ChatTemplate::new(TEMPLATE, model().tokenizer()).expect("valid");
    let context = model().context(&ContextOptions { n_ctx: Some(n_ctx), ..ContextOptions::default() });
    Chat::new(context, template, GenerateOptions::greedy(max_tokens))
}

#[test]
fn turns_reuse_what_was_said_and_answer_as_if_they_had_not() {
    let mut talk = chat(512, 12);
    talk.push(Message::system("Be brief ."));
    for (turn, question) in ["Who won the game ?", "And the next one ?"].into_iter().enumerate() {
        let (text, end) = talk.say(question).expect("room").complete().expect("finite");
        assert!(end == End::Length || end == End::Eos);
        let last = talk.messages().last().expect("the answer");
        assert_eq!((last.role, &last.content), (Role::Assistant, &text));
        assert_eq!(talk.messages().len(), 3 + 2 * turn);
        // the same conversation in a fresh context
        let mut fresh = chat(512, 12);
        let before = &talk.messages()[..talk.messages().len() - 2];
        before.iter().for_each(|m| fresh.push(m.clone()));
        let (again, _) = fresh.say(question).expect("room").complete().expect("finite");
        assert_eq!(again, text);
        assert_eq!(fresh.context().stats().reused, 0);
    }
    assert!(talk.context().stats().reused > 10);
    talk.clear();
    assert_eq!(talk.messages(), [Message::system("Be brief .")]);
}

#[test]
fn a_dropped_answer_is_what_was_said_so_far() {
    let mut talk = chat(512, 50);
    let mut answer = talk.say("Who won ?").expect("room");
    let mut text = String::new();
    for chunk in answer.by_ref().take(4) {
        text += &chunk.expect("finite").text;
    }
    drop(answer);
    assert_eq!(talk.messages().last(), Some(&Message::assistant(text)));
}

#[test]
fn a_question_that_does_not_fit_leaves_the_conversation_as_it_was() {
    let mut talk = chat(48, 5);
    talk.say("Who won ?").expect("room").complete().expect("finite");
    let before = talk.messages().to_vec();
    let long = "and again ".repeat(60);
    let refused = talk.say(long).err().expect("too long");
    assert!(matches!(refused, GenerateError::PromptTooLong { .. }));
    assert_eq!(talk.messages(), before);
    assert!(matches!(model().chat(&GenerateOptions::default()).err(), Some(GenerateError::NoTemplate)));
}
