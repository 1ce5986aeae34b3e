//! A conversation with a model that was made for one.

use super::{Chunk, Context, ContextOptions, End, GenerateError, GenerateOptions, Generation};
use crate::chat::{ChatTemplate, Message, RenderOptions, Retold, Role, ThoughtMarks, Thoughts, is_plain};
use crate::handle::Model;

/// Tokens at the end of a prompt that may hold the first mark of a thought.
const LAST: usize = 12;

/// A conversation.
///
/// Every turn renders the whole conversation with the model's template and evaluates what is new of it, so the context
/// always holds what the template makes of the messages, whichever way they came about.
///
/// ```
/// use trine::{Chat, ChatTemplate, ContextOptions, GenerateOptions};
///
/// let model = trine::open("testdata/models/trilm-wt-5.8m-F16.gguf")?;
/// // The bundled model was not made to chat; for one that was, model.chat(&options) is all.
/// let template = "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}assistant:";
/// let template = ChatTemplate::new(template, model.tokenizer())?;
/// let context = model.context(&ContextOptions::default());
/// let mut chat = Chat::new(context, template, GenerateOptions::greedy(8));
/// for chunk in chat.say("Who won the game?")? {
///     print!("{}", chunk?.text);
/// }
/// assert_eq!(chat.messages().len(), 2);
/// # Ok::<(), trine::Error>(())
/// ```
pub struct Chat {
    context: Context,
    template: ChatTemplate,
    options: GenerateOptions,
    messages: Vec<Message>,
    /// Options of the template, beside the messages.
    beside: RenderOptions,
}

impl Model {
    /// A conversation by the template that the file carries.
    ///
    /// # Errors
    /// There is none, or it is not valid; options that make no sense for the model.
    pub fn chat(&self, options: &GenerateOptions) -> Result<Chat, GenerateError> {
        let template = self.chat_template()?.ok_or(GenerateError::NoTemplate)?;
        let mut context = self.context(&ContextOptions::default());
        context.prepare(options)?;
        Ok(Chat::new(context, template, options.clone()))
    }
}

impl Chat {
    /// A conversation in `context` by `template`; `options` hold for every answer.
    pub fn new(context: Context, template: ChatTemplate, options: GenerateOptions) -> Chat {
        Chat {
            context,
            template,
            options,
            messages: Vec::new(),
            beside: RenderOptions { answer: true, ..RenderOptions::default() },
        }
    }

    /// Sets variables that the template knows, such as `enable_thinking`, for all answers from now on. None of
    /// [`RenderOptions::OWN`] may be among them.
    pub fn set_variables(&mut self, variables: serde_json::Map<String, serde_json::Value>) {
        self.beside.variables = variables;
    }

    /// Adds a message without asking for an answer: what the model is told before the conversation, or a conversation
    /// that was held before.
    pub fn push(&mut self, message: Message) {
        self.messages.push(message);
    }

    /// Says something and asks for the answer, an iterator of [`Chunk`]s. When the answer ends, or is dropped before,
    /// what there is of it becomes a message.
    ///
    /// Thoughts that the model writes between other marks than `<think>` and `</think>` come between these, and are kept
    /// apart from the text of the message.
    ///
    /// # Errors
    /// The template refuses the conversation, or it does not fit into the context. The conversation is then as it was
    /// before.
    pub fn say(&mut self, text: impl Into<String>) -> Result<Answer<'_>, GenerateError> {
        self.messages.push(Message::user(text));
        match self.prompt() {
            Ok(tokens) => self.answer_to(tokens),
            Err(e) => {
                self.messages.pop();
                Err(e)
            }
        }
    }

    /// True if there is room for a message and an answer to it.
    ///
    /// # Errors
    /// The template refuses the conversation.
    pub fn has_room_for(&mut self, text: &str) -> Result<bool, GenerateError> {
        self.messages.push(Message::user(text));
        let prompt = self.prompt();
        self.messages.pop();
        match prompt {
            Ok(_) => Ok(true),
            Err(GenerateError::PromptTooLong { .. }) => Ok(false),
            Err(e) => Err(e),
        }
    }

    /// The tokens of the conversation up to where the next answer begins, if there is room for them.
    fn prompt(&mut self) -> Result<Vec<u32>, GenerateError> {
        let model = self.context.model();
        let tokens = self.template.encode_with(model.tokenizer(), &self.messages, &self.beside)?;
        let answer = self.options.max_tokens != Some(0);
        self.context.check_room(tokens.len(), answer)?;
        Ok(tokens)
    }

    fn answer_to(&mut self, tokens: Vec<u32>) -> Result<Answer<'_>, GenerateError> {
        let tokenizer = self.context.model().tokenizer();
        let marks = ThoughtMarks::of(self.template.source()).filter(|marks| !marks.are_usual());
        let (mut retold, mut shown) = (None, Vec::new());
        if let Some(marks) = marks {
            let mut before = tokenizer.detokenizer(true);
            let before: String =
                tokens[tokens.len().saturating_sub(LAST)..].iter().map(|&id| before.push(id)).collect();
            retold = Some(Retold::new(Thoughts::after(marks, &before)));
            shown = marks.tokens(tokenizer);
        }
        let mut options = self.options.clone();
        options.shown.extend(shown);
        match self.context.generate(tokens, &options) {
            Ok(generation) => {
                let messages = &mut self.messages;
                Ok(Answer { generation, messages, text: String::new(), retold, failed: false })
            }
            Err(e) => {
                self.messages.pop();
                Err(e)
            }
        }
    }

    /// The conversation.
    pub fn messages(&self) -> &[Message] {
        &self.messages
    }

    /// The conversation, to take back what was said or to hold another one. The next answer is to what it is then; what
    /// the context has in common with it is not evaluated again.
    pub fn messages_mut(&mut self) -> &mut Vec<Message> {
        &mut self.messages
    }

    /// Forgets what was said; what the model was told before it stays.
    pub fn clear(&mut self) {
        self.messages.retain(|m| m.role == Role::System);
    }

    /// Runs an any-precision model at `bits` from now on; what was said stays in the context.
    ///
    /// # Errors
    /// The model does not have the width, or the drafts would not be narrower; nothing has changed then.
    pub fn set_bits(&mut self, bits: u8) -> Result<(), GenerateError> {
        let options = GenerateOptions { bits: Some(bits), ..self.options.clone() };
        self.context.prepare(&options)?;
        self.options = options;
        Ok(())
    }

    /// How the next answers are generated.
    pub fn options_mut(&mut self) -> &mut GenerateOptions {
        &mut self.options
    }

    /// The context: its size, what it took.
    pub fn context(&self) -> &Context {
        &self.context
    }
}

/// An answer that is being generated: an iterator of [`Chunk`]s.
pub struct Answer<'a> {
    generation: Generation<&'a mut Context>,
    messages: &'a mut Vec<Message>,
    text: String,
    /// Writes thoughts anew, where the model has marks of its own for them.
    retold: Option<Retold>,
    failed: bool,
}

impl<'a> Answer<'a> {
    /// The tokens of the conversation up to where the answer begins.
    pub fn prompt(&self) -> &[u32] {
        self.generation.prompt()
    }

    /// The generation of the answer.
    pub fn generation(&mut self) -> &mut Generation<&'a mut Context> {
        &mut self.generation
    }

    /// The whole answer at once, and why it ended.
    ///
    /// # Errors
    /// The first one of the iterator.
    pub fn complete(mut self) -> Result<(String, End), GenerateError> {
        let mut end = End::Length;
        for chunk in &mut self {
            end = chunk?.end.unwrap_or(end);
        }
        Ok((self.text.clone(), end))
    }
}

impl Iterator for Answer<'_> {
    type Item = Result<Chunk, GenerateError>;

    fn next(&mut self) -> Option<Self::Item> {
        let mut chunk = self.generation.next();
        match &mut chunk {
            Some(Ok(chunk)) => {
                if let Some(retold) = &mut self.retold {
                    chunk.text = retold.read(&chunk.text, chunk.end.is_some());
                }
                self.text += &chunk.text;
            }
            Some(Err(_)) => self.failed = true,
            None => {}
        }
        chunk
    }
}

impl Drop for Answer<'_> {
    fn drop(&mut self) {
        if self.failed {
            // the question that could not be answered
            self.messages.pop();
        } else {
            let (thoughts, text) = match &mut self.retold {
                Some(retold) => {
                    retold.read("", true);
                    std::mem::take(&mut retold.so_far)
                }
                None => (String::new(), std::mem::take(&mut self.text)),
            };
            // Thoughts that name control tokens cannot be given to the template, and are not worth the conversation.
            let tokenizer = self.generation.context().model().tokenizer();
            let thoughts = Some(thoughts)
                .filter(|thoughts| !thoughts.is_empty() && matches!(is_plain(tokenizer, thoughts), Ok(true)));
            self.messages.push(Message { thoughts, ..Message::assistant(text) });
        }
    }
}
