//! The conversation of `rgen -cnv`.
//!
//! Every turn renders the whole conversation and evaluates what is new of it, so the context always
//! holds what the template makes of the messages, whichever way the user came there.

use std::io::{self, BufRead, IsTerminal, Write};
use std::path::Path;
use std::sync::Arc;

use anyhow::{Context as _, Result, bail};
use trine::{Chat, ChatTemplate, Context, End, GenerateError, GenerateOptions, Message, Model};

use super::args::Args;
use super::output::Output;
use super::summary;
use super::timings::Timings;
use crate::isolate::OtherProcess;
use crate::{interrupt, shown, text};

const HELP: &str = "\
/bits      at which width an any-precision model runs, and at which it can
/bits N    go on at N bits per weight; what was said stays in the context
/clear     forget what was said
/quit      end, as does Ctrl-D; Ctrl-C ends an answer
A backslash at the end of a line continues the message on the next.";

/// Carries out `/bits` or `/bits N`.
fn change_bits(command: &str, chat: &mut Chat) -> Result<()> {
    let n = command["/bits".len()..].trim();
    if !n.is_empty() {
        let Ok(bits) = n.parse() else {
            bail!("/bits takes one number of bits, not '{n}'");
        };
        chat.set_bits(bits)?;
    }
    let context = chat.context();
    match context.bits() {
        Some(bits) => note!("{}", super::widths(context.model(), bits)),
        None => bail!("the model is no any-precision file, it has one width only"),
    }
    Ok(())
}

/// Talks until the user has enough.
pub fn run(
    args: &Args,
    context: Context,
    options: GenerateOptions,
    timings: &Timings,
) -> Result<()> {
    let template = template(args, context.model())?;
    let unescaped = |text: &String| {
        let bytes = text.clone().into_bytes();
        let bytes = if args.no_escape {
            bytes
        } else {
            text::unescape(&bytes)
        };
        text::utf8(bytes, "the message")
    };
    let seed = options.sampler.seed;
    let mut chat = Chat::new(context, template, options);
    if let Some(system) = &args.system_prompt {
        chat.push(Message::system(unescaped(system)?));
    }
    if let Some(path) = &args.system_prompt_file {
        chat.push(Message::system(system_file(path)?));
    }
    note!("sampler seed: {seed}");
    let mut next = args.prompt.as_ref().map(unescaped).transpose()?;
    let terminal = io::stdin().is_terminal();
    if terminal && !args.single_turn {
        note!("Ctrl-C ends an answer; /clear starts anew, /quit or Ctrl-D ends, /help lists all.");
    }
    loop {
        let said = match next.take() {
            Some(text) => text,
            None => match read_message(terminal)? {
                None => break,
                Some(line) => line,
            },
        };
        match said.trim() {
            "" => continue,
            "/quit" => break,
            "/clear" => {
                chat.clear();
                continue;
            }
            "/help" => {
                HELP.lines().for_each(|line| note!("{line}"));
                continue;
            }
            command if command == "/bits" || command.starts_with("/bits ") => {
                match change_bits(command, &mut chat) {
                    Ok(()) => {}
                    Err(e) => note!("{e:#}"),
                }
                continue;
            }
            command if is_command(command) => {
                note!(
                    "there is no command {}; /help lists all",
                    shown::name(command)
                );
                continue;
            }
            _ => {}
        }
        let answer = match chat.say(said) {
            Ok(answer) => answer,
            Err(e @ GenerateError::PromptTooLong { .. }) if terminal && !args.single_turn => {
                note!("{e}, or /clear");
                continue;
            }
            Err(e) => return Err(e.into()),
        };
        let mut out = Output::new(args);
        let mut end = None;
        for chunk in answer {
            let chunk = chunk?;
            out.chunk(&chunk)?;
            end = chunk.end;
        }
        out.finish()?;
        match end {
            Some(End::Context) => {
                note!("(the context of {} tokens is full)", chat.context().n_ctx());
            }
            Some(End::Cancelled) if !terminal => {
                summary(chat.context(), timings);
                note!("interrupted");
                std::process::exit(interrupt::EXIT_CODE);
            }
            _ => {}
        }
        interrupt::take();
        if args.single_turn {
            break;
        }
    }
    summary(chat.context(), timings);
    Ok(())
}

/// Whether a message would be a command if there were such a one: a slash and letters, on one line. Paths are no commands.
fn is_command(said: &str) -> bool {
    let mut words = said
        .strip_prefix('/')
        .into_iter()
        .flat_map(str::split_whitespace);
    let name = words.next().unwrap_or_default();
    !name.is_empty() && name.bytes().all(|b| b.is_ascii_lowercase())
}

/// What the model is told before the chat; one line break at the end of the file is left out.
fn system_file(path: &Path) -> Result<String> {
    let mut text = text::read_small_text(path)?;
    if text.ends_with('\n') {
        text.pop();
    }
    Ok(text)
}

fn template(args: &Args, model: &Model) -> Result<ChatTemplate> {
    let Some(path) = &args.chat_template_file else {
        let own = model.metadata().get_str("tokenizer.chat_template")?;
        return match own {
            Some(source) => isolated(source, model).context("tokenizer.chat_template"),
            None => bail!(
                "'{}' has no chat template, so it was not made to chat: leave -cnv out, or give one with --chat-template-file",
                args.model.model.display()
            ),
        };
    };
    let source = text::read_small_text(path)?;
    isolated(&source, model).with_context(|| format!("'{}'", path.display()))
}

/// A template that is rendered in another process: it may come from anywhere.
fn isolated(source: &str, model: &Model) -> Result<ChatTemplate> {
    let template = ChatTemplate::isolated(source, model.tokenizer(), Arc::new(OtherProcess));
    Ok(template?)
}

/// A line of standard input without its end, `None` at the end of the input. A backslash at the end of
/// a line continues the message on the next.
fn read_message(terminal: bool) -> Result<Option<String>> {
    let mut message = String::new();
    let mut prompt = "> ";
    loop {
        if terminal {
            // Who cannot read the prompt can answer all the same.
            let _ = write!(io::stderr(), "{prompt}");
        }
        let mut line = Vec::new();
        let read = interrupt::while_waiting(|| io::stdin().lock().read_until(b'\n', &mut line));
        if read.context("cannot read standard input")? == 0 {
            if terminal {
                note!("");
            }
            return Ok(Some(message).filter(|m| !m.is_empty()));
        }
        // A bad byte costs a character of the message and not the conversation.
        let line = String::from_utf8_lossy(&line);
        let line = line.strip_suffix('\n').unwrap_or(&line);
        let line = line.strip_suffix('\r').unwrap_or(line);
        match line.strip_suffix('\\') {
            Some(part) => {
                message += part;
                message.push('\n');
                prompt = ". ";
            }
            None => return Ok(Some(message + line)),
        }
    }
}
