//! The conversation of `rgen -cnv`.
//!
//! Every turn renders the whole conversation and evaluates what is new of it, so the context always
//! holds what the template makes of the messages, whichever way the user came there.

mod commands;
mod editor;
mod input;
mod message;
mod saved;
mod settings;
mod speed;

use std::io::{self, IsTerminal};
use std::path::Path;
use std::sync::Arc;

use anyhow::{Context as _, Result, bail};
use trine::{Chat, ChatTemplate, Context, End, GenerateError, GenerateOptions, Message, Model, Role};

use super::args::Args;
use super::output::Output;
use super::prompt_cache::PromptCache;
use super::reading;
use super::reverse::ReversePrompts;
use super::summary;
use super::thoughts::Thoughts;
use super::timings::Timings;
use crate::isolate::OtherProcess;
use crate::terminal::{self, Silence};
use crate::{exit, interrupt, templates, text};
use commands::Next;
use input::Input;
use message::Typed;
use speed::Speed;

/// A chat, and what its commands change.
struct Talk<'a> {
    args: &'a Args,
    chat: Chat,
    /// True if a user types.
    terminal: bool,
    /// True if thoughts are dimmed.
    colours: bool,
    /// True if a full context forgets its oldest tokens.
    shift: bool,
    /// True if every answer is followed by its speed.
    timings: bool,
    /// The speed of the last answer.
    last: Option<Speed>,
    /// Texts that end an answer.
    reverse: ReversePrompts,
    cache: Option<PromptCache>,
    /// True if the cache was asked about the first prompt.
    begun: bool,
}

/// Talks until the user has enough.
pub fn run(
    args: &Args,
    context: Context,
    options: GenerateOptions,
    cache: Option<PromptCache>,
    timings: &Timings,
) -> Result<()> {
    let template = template(args, context.model())?;
    let reverse = ReversePrompts::new(&args.reverse_prompts(), context.model().tokenizer())?;
    let seed = options.sampler.seed;
    let variables = args.chat.variables();
    for name in variables.keys().filter(|name| !template.source().contains(*name)) {
        note!("note: the chat template does not know the variable '{name}', which changes nothing");
    }
    let mut chat = Chat::new(context, template, options);
    chat.set_variables(variables);
    if let Some(system) = &args.chat.system_prompt {
        chat.push(Message::system(unescaped(args, system)?));
    }
    if let Some(path) = &args.chat.system_prompt_file {
        chat.push(Message::system(system_file(path)?));
    }
    note!("sampler seed: {seed}");
    let mut next = match (&args.prompt, &args.file) {
        (Some(text), _) => Some(unescaped(args, text)?),
        (None, Some(path)) => Some(unescaped(args, &text::read_prompt(path)?)?),
        (None, None) => None,
    };
    let terminal = io::stdin().is_terminal();
    terminal::remember();
    let mut input = Input::new(&args.chat)?;
    if terminal && !args.chat.single_turn {
        say("Ctrl-C ends an answer, /exit or Ctrl-D the chat; /help lists all commands.");
    }
    let mut talk = Talk {
        args,
        chat,
        terminal,
        colours: args.chat.color.are_shown(&io::stdout()),
        shift: args.context_shift,
        timings: args.chat.show_timings,
        last: None,
        reverse,
        cache,
        begun: false,
    };
    loop {
        let typed = match next.take() {
            Some(text) => Typed::Message(text),
            None => input.read()?,
        };
        let mut said = match typed {
            Typed::Message(said) => said,
            Typed::End => break,
            Typed::Interrupted => talk.interrupted(timings),
        };
        if said.trim().is_empty() {
            continue;
        }
        if let Some(command) = commands::parse(&said) {
            match commands::run(&mut talk, command) {
                Ok(Next::Stay) => continue,
                Ok(Next::End) => break,
                Ok(Next::Say(again)) => said = again,
                Err(e) => {
                    say(&format!("error: {}", exit::told(&e)));
                    continue;
                }
            }
        }
        if talk.answer(said)? == Some(End::Cancelled) && !terminal {
            talk.interrupted(timings);
        }
        interrupt::take();
        if args.chat.single_turn {
            break;
        }
    }
    if let Some(cache) = &mut talk.cache {
        let context = talk.chat.context();
        cache.end(context, context.tokens())?;
    }
    summary(talk.chat.context(), timings);
    Ok(())
}

impl Talk<'_> {
    /// Says something and shows the answer; why it ended, if there was one.
    fn answer(&mut self, said: String) -> Result<Option<End>> {
        let _silence = self.terminal.then(Silence::begin);
        if self.shift {
            self.make_room(&said)?;
            let keep = self.args.shift(usize::MAX, self.chat.context().model());
            self.chat.options_mut().shift = keep;
        } else {
            self.chat.options_mut().shift = None;
        }
        let before = *self.chat.context().stats();
        let model = self.chat.context().model().clone();
        let mut answer = match self.chat.say(said) {
            Ok(answer) => answer,
            Err(e @ GenerateError::PromptTooLong { .. }) if self.terminal && !self.args.chat.single_turn => {
                say(&format!("error: {e}, or /clear, or /set context-shift on"));
                return Ok(None);
            }
            Err(e) => return Err(e.into()),
        };
        let mut out = Output::new(self.args);
        if self.colours {
            let mut pieces = model.tokenizer().detokenizer(true);
            let prompt = answer.prompt();
            let last = &prompt[prompt.len().saturating_sub(16)..];
            let mut text: String = last.iter().map(|&id| pieces.push(id)).collect();
            text += &pieces.finish();
            out.paint(Thoughts::after(&text))?;
        }
        if let Some(cache) = self.cache.as_mut().filter(|_| !self.begun) {
            cache.begin(answer.generation())?;
        }
        self.begun = true;
        reading::with_bar(answer.generation())?;
        let mut end = None;
        self.reverse.forget();
        for chunk in answer {
            let chunk = chunk?;
            out.chunk(&chunk)?;
            end = chunk.end;
            chunk.token.iter().for_each(|&id| self.reverse.read(id));
            if self.reverse.reached(model.tokenizer()) {
                break;
            }
        }
        out.finish()?;
        let after = self.chat.context().stats();
        if after.shifts > before.shifts {
            say("(context full: what came first was forgotten, the rest was read again)");
        }
        if end == Some(End::Context) {
            note!("(the context of {} tokens is full)", self.chat.context().n_ctx());
        }
        let speed = Speed::between(&before, after);
        self.last = Some(speed);
        if self.timings {
            note!("{speed}");
        }
        Ok(end)
    }

    /// Forgets the older half of the tokens until there is room for a message.
    fn make_room(&mut self, said: &str) -> Result<()> {
        let had = self.chat.messages().len();
        while !self.chat.has_room_for(said)? {
            let messages = self.chat.messages_mut();
            let is_user = |m: &Message| m.role == Role::User;
            let turns = messages.iter().filter(|m| is_user(m)).count();
            if turns == 0 {
                break;
            }
            let mut seen = 0;
            messages.retain(|m| {
                seen += usize::from(is_user(m));
                m.role == Role::System || seen > turns.div_ceil(2)
            });
        }
        let forgotten = had - self.chat.messages().len();
        if forgotten > 0 {
            say(&format!("(context full: the first {forgotten} messages are forgotten)"));
        }
        Ok(())
    }

    /// Ends the program.
    fn interrupted(&self, timings: &Timings) -> ! {
        summary(self.chat.context(), timings);
        note!("interrupted");
        std::process::exit(interrupt::EXIT_CODE)
    }
}

/// Says a line, which a narrow terminal has on several.
fn say(line: &str) {
    say_below(line, 0);
}

/// The same, where all lines but the first begin with `indent` spaces.
fn say_below(line: &str, indent: usize) {
    for line in terminal::lines(line, terminal::columns(&io::stderr()), indent) {
        note!("{line}");
    }
}

/// A text of the command line, with its escapes replaced.
fn unescaped(args: &Args, text: &str) -> Result<String> {
    let bytes = text.as_bytes().to_vec();
    let bytes = match args.no_escape {
        true => bytes,
        false => text::unescape(&bytes),
    };
    text::utf8(bytes, "the message")
}

/// The system prompt of a file; one line break at its end is left out.
fn system_file(path: &Path) -> Result<String> {
    let mut text = text::read_small_text(path)?;
    if text.ends_with('\n') {
        text.pop();
    }
    Ok(text)
}

fn template(args: &Args, model: &Model) -> Result<ChatTemplate> {
    let chat = &args.chat;
    let file = chat.chat_template_file.as_deref();
    if let Some((from, source)) = templates::given(chat.chat_template.as_deref(), file)? {
        return isolated(&source, model).context(from);
    }
    match model.metadata().get_str("tokenizer.chat_template")? {
        Some(source) => isolated(source, model).context("tokenizer.chat_template"),
        None => bail!(
            "'{}' has no chat template, so it was not made to chat: give a prompt to continue with -p TEXT, or a template with --chat-template or --chat-template-file",
            args.model.model.display()
        ),
    }
}

/// A template that is rendered in another process: it may come from anywhere.
fn isolated(source: &str, model: &Model) -> Result<ChatTemplate> {
    let template = ChatTemplate::isolated(source, model.tokenizer(), Arc::new(OtherProcess));
    Ok(template?)
}
