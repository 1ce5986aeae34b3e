//! The conversation of `rgen -cnv`.
//!
//! Every turn renders the whole conversation and evaluates what is new of it, so the context always
//! holds what the template makes of the messages, whichever way the user came there.

use std::io::{self, BufRead, IsTerminal, Write};

use anyhow::{Context, Result, bail};
use trine::chat::{ChatTemplate, Message};

use super::args::Args;
use super::engine::{Engine, Stop};
use super::output::Output;
use crate::load::Loaded;
use crate::{interrupt, text};

const HELP: &str = "\
/bits      at which width an any-precision model runs, and at which it can
/bits N    go on at N bits per weight; what was said stays in the context
/clear     forget what was said
/quit      end, as does Ctrl-D; Ctrl-C ends an answer
A backslash at the end of a line continues the message on the next.";

/// Carries out `/bits` or `/bits N`.
fn change_bits(command: &str, loaded: &Loaded, engine: &mut Engine) -> Result<()> {
    let n = command["/bits".len()..].trim();
    if !n.is_empty() {
        let Ok(bits) = n.parse() else {
            bail!("/bits takes one number of bits, not '{n}'");
        };
        engine.set_bits(bits)?;
    }
    match engine.bits() {
        Some(bits) => note!("{}", super::widths(loaded, bits)),
        None => bail!("the model is no any-precision file, it has one width only"),
    }
    Ok(())
}

/// Talks until the user has enough.
pub fn run(args: &Args, loaded: &Loaded, engine: &mut Engine) -> Result<()> {
    let template = template(args, loaded)?;
    let unescaped = |text: &String| {
        let bytes = text.clone().into_bytes();
        let bytes = if args.no_escape {
            bytes
        } else {
            text::unescape(&bytes)
        };
        text::utf8(bytes, "the message")
    };
    let system = args.system_prompt.as_ref().map(unescaped).transpose()?;
    let beginning: Vec<Message> = system
        .into_iter()
        .map(|content| Message {
            role: "system",
            content,
        })
        .collect();
    note!("sampler seed: {}", engine.seed());
    let mut talk = beginning.clone();
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
                talk.clone_from(&beginning);
                continue;
            }
            "/help" => {
                note!("{HELP}");
                continue;
            }
            command if command == "/bits" || command.starts_with("/bits ") => {
                match change_bits(command, loaded, engine) {
                    Ok(()) => {}
                    Err(e) if terminal => note!("{e:#}"),
                    Err(e) => return Err(e),
                }
                continue;
            }
            _ => {}
        }
        talk.push(Message {
            role: "user",
            content: said,
        });
        let tokens = template.encode(&loaded.tokenizer, &talk, true)?;
        if let Err(e) = engine.check_room(tokens.len(), true) {
            if !terminal || args.single_turn {
                return Err(e);
            }
            note!("{e:#}, or /clear");
            talk.pop();
            continue;
        }
        let mut out = Output::new(args, &loaded.tokenizer);
        let stop = match engine.prompt(&tokens, &mut out)? {
            Some(stop) => stop,
            None => engine.generate(args.predict, &mut out)?,
        };
        talk.push(Message {
            role: "assistant",
            content: out.finish()?.text,
        });
        match stop {
            Stop::Context => note!("(the context of {} tokens is full)", engine.n_ctx()),
            Stop::Interrupted if !terminal => {
                summary(engine);
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
    summary(engine);
    Ok(())
}

fn summary(engine: &Engine) {
    engine.timings.print();
    if let Some(speculator) = engine.speculator() {
        super::draft::print(speculator);
    }
}

fn template(args: &Args, loaded: &Loaded) -> Result<ChatTemplate> {
    let Some(path) = &args.chat_template_file else {
        let own = ChatTemplate::from_metadata(loaded.file.meta(), &loaded.tokenizer)
            .context("tokenizer.chat_template")?;
        return match own {
            Some(template) => Ok(template),
            None => bail!(
                "'{}' has no chat template, so it was not made to chat: leave -cnv out, or give one with --chat-template-file",
                args.model.model.display()
            ),
        };
    };
    let from = format!("'{}'", path.display());
    let source = text::utf8(text::read_file(path)?, &from)?;
    ChatTemplate::new(&source, &loaded.tokenizer).context(from)
}

/// A line of standard input without its end, `None` at the end of the input. A backslash at the end of
/// a line continues the message on the next.
fn read_message(terminal: bool) -> Result<Option<String>> {
    let mut message = String::new();
    let mut prompt = "> ";
    loop {
        if terminal {
            write!(io::stderr(), "{prompt}")?;
        }
        let mut line = Vec::new();
        let read = interrupt::while_waiting(|| io::stdin().lock().read_until(b'\n', &mut line));
        if read.context("cannot read standard input")? == 0 {
            if terminal {
                note!("");
            }
            return Ok(Some(message).filter(|m| !m.is_empty()));
        }
        let line = text::utf8(line, "standard input")?;
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
