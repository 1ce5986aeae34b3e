//! The conversation of `rgen -cnv`.
//!
//! Every turn renders the whole conversation and evaluates what is new of it, so the context always
//! holds what the template makes of the messages, whichever way the user came there.

mod commands;
mod editor;
mod folds;
mod input;
mod message;
mod saved;
mod say;
mod settings;
mod speed;
mod talk;

use std::io::{self, IsTerminal};
use std::path::Path;
use std::sync::Arc;

use anyhow::{Context as _, Result, bail};
use trine::{Chat, ChatTemplate, Context, End, GenerateOptions, Message, Model};

use super::args::Args;
use super::prompt_cache::PromptCache;
use super::reverse::ReversePrompts;
use super::timings::Timings;
use crate::isolate::OtherProcess;
use crate::terminal;
use crate::{exit, interrupt, templates, text};
use commands::Next;
use input::Input;
use message::Typed;
use say::{say, say_below};
use talk::Talk;

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
        colours: args.chat.colours(),
        screen: io::stdout().is_terminal(),
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
    talk.show_timings(timings);
    Ok(())
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
