//! Commands of a chat, which the user gives to the program instead of the model.

use std::io;

use anyhow::{Result, bail};
use trine::{Message, Role};

use super::{Talk, saved, say, say_below, settings};
use crate::{shown, terminal};

/// The next step after a command.
#[derive(Debug, PartialEq)]
pub enum Next {
    /// The user goes on.
    Stay,
    /// This is said to the model.
    Say(String),
    /// The chat ends.
    End,
}

/// A command.
struct Command {
    name: &'static str,
    /// Its argument; empty where there is none.
    takes: &'static str,
    help: &'static str,
    run: fn(&mut Talk<'_>, &str) -> Result<Next>,
}

/// All of them, in the order of the help.
#[rustfmt::skip]
const COMMANDS: &[Command] = &[
    Command { name: "help", takes: "", help: "this list, as does /?", run: help },
    Command { name: "?", takes: "", help: "", run: help },
    Command { name: "regen", takes: "", help: "another answer to what was said last, with the next seed", run: regenerate },
    Command { name: "undo", takes: "", help: "take back what was said last, and the answer", run: undo },
    Command { name: "clear", takes: "", help: "forget what was said; the system prompt stays", run: clear },
    Command { name: "system", takes: "[TEXT]", help: "tell the model TEXT before the chat ('off': nothing), or show what it is told", run: system },
    Command { name: "save", takes: "NAME", help: "keep the chat under a name, or in a file: /save ./trip.json", run: save },
    Command { name: "load", takes: "NAME", help: "go on with a chat that was saved", run: load },
    Command { name: "sessions", takes: "", help: "the chats that were saved by name", run: sessions },
    Command { name: "set", takes: "[NAME VALUE]", help: "how tokens are chosen, or what is set", run: set },
    Command { name: "bits", takes: "[N]", help: "go on at N bits per weight, or show at which widths an any-precision model can run", run: bits },
    Command { name: "models", takes: "", help: "the models that are on this machine", run: models },
    Command { name: "speed", takes: "", help: "tokens per second of the last answer ('/set timings on': of every one)", run: speed },
    Command { name: "exit", takes: "", help: "end, as do /bye, /quit and Ctrl-D; Ctrl-C ends an answer", run: |_, _| Ok(Next::End) },
    Command { name: "bye", takes: "", help: "", run: |_, _| Ok(Next::End) },
    Command { name: "quit", takes: "", help: "", run: |_, _| Ok(Next::End) },
];

/// Words that may stand at the end of what is typed, and the byte at which they begin: commands, names behind `/set`, chats
/// and files behind `/save` and `/load`.
pub fn completions(typed: &str) -> (usize, Vec<String>) {
    if typed.is_empty() {
        return (0, Vec::new());
    }
    let Some((command, word)) = typed.split_once(' ') else {
        let names = COMMANDS.iter().map(|command| format!("/{}", command.name));
        return (0, names.filter(|name| name.starts_with(typed)).collect());
    };
    let at = typed.len() - word.len();
    let words = match command {
        "/set" => settings::names().filter(|name| name.starts_with(word)).map(|name| format!("{name} ")).collect(),
        "/save" | "/load" => {
            let names = saved::names().into_iter().filter(|name| name.starts_with(word));
            names.chain(files(word)).collect()
        }
        _ => Vec::new(),
    };
    (at, words)
}

/// The most files that are offered.
const MOST_FILES: usize = 100;

/// The files and folders whose paths begin with `typed`, in order; a folder ends with a slash.
fn files(typed: &str) -> Vec<String> {
    let (folder, start) = typed.rsplit_once('/').map_or(("", typed), |(folder, start)| (folder, start));
    let before = &typed[..typed.len() - start.len()];
    let place = if before.is_empty() { ".".into() } else { saved::path(&format!("{folder}/")) };
    let entries = std::fs::read_dir(place).into_iter().flatten().flatten();
    let found = entries.filter_map(|entry| {
        let name = entry.file_name().into_string().ok()?;
        // Hidden ones are for those who ask for them, and no name moves the cursor.
        let is_meant = name.starts_with(start) && (!name.starts_with('.') || start.starts_with('.'));
        let slash = if entry.path().is_dir() { "/" } else { "" };
        (is_meant && !name.contains(char::is_control)).then(|| format!("{before}{name}{slash}"))
    });
    let mut found: Vec<String> = found.collect();
    found.sort();
    found.truncate(MOST_FILES);
    found
}

/// The command that a message is, and what follows its name. A slash and letters on one line would be a command if
/// there were such a one; paths are none.
pub fn parse(said: &str) -> Option<(&str, &str)> {
    let line = said.trim().strip_prefix('/')?;
    let (name, rest) = line.split_once(char::is_whitespace).unwrap_or((line, ""));
    let is_word = name == "?" || !name.is_empty() && name.bytes().all(|b| b.is_ascii_lowercase());
    (is_word && !line.contains('\n')).then_some((name, rest.trim()))
}

/// Carries out a command.
///
/// # Errors
/// There is no such command, or it cannot be carried out; nothing has changed then.
pub fn run(talk: &mut Talk<'_>, (name, rest): (&str, &str)) -> Result<Next> {
    let Some(command) = COMMANDS.iter().find(|command| command.name == name) else {
        bail!("there is no command /{}; /help lists all", shown::name(name));
    };
    if command.takes.is_empty() && !rest.is_empty() {
        bail!("nothing follows /{name}");
    }
    if command.takes == "NAME" && rest.is_empty() {
        bail!("a name, or the path of a file, follows /{name}");
    }
    (command.run)(talk, rest)
}

/// In a terminal of fewer columns commands and what they do have no columns of their own.
const NARROW: usize = 60;

fn help(_: &mut Talk<'_>, _: &str) -> Result<Next> {
    for command in COMMANDS.iter().filter(|c| !c.help.is_empty()) {
        let name = format!("/{} {}", command.name, command.takes);
        let narrow = terminal::columns(&io::stderr()).is_some_and(|columns| columns < NARROW);
        match narrow {
            true => say_below(&format!("{}: {}", name.trim_end(), command.help), 4),
            false => say_below(&format!("{name:<20} {}", command.help), 21),
        }
    }
    say("A backslash at the end of a line continues the message on the next.");
    say("In a terminal \"\"\" begins and ends a message of several lines.");
    Ok(Next::Stay)
}

/// Takes the last message of the user and all behind it out of the chat.
fn take_back(talk: &mut Talk<'_>) -> Result<String> {
    let messages = talk.chat.messages_mut();
    let Some(last) = messages.iter().rposition(|m| m.role == Role::User) else {
        bail!("nothing was said yet");
    };
    let said = std::mem::take(&mut messages[last].content);
    messages.truncate(last);
    Ok(said)
}

fn regenerate(talk: &mut Talk<'_>, _: &str) -> Result<Next> {
    let said = take_back(talk)?;
    let sampler = &mut talk.chat.options_mut().sampler;
    sampler.seed = sampler.seed.wrapping_add(1);
    match sampler.temp <= 0.0 {
        true => say("(at temperature 0 the answer is the same; /set temp 0.8)"),
        false => say(&format!("sampler seed: {}", sampler.seed)),
    }
    Ok(Next::Say(said))
}

fn undo(talk: &mut Talk<'_>, _: &str) -> Result<Next> {
    let said = take_back(talk)?;
    say(&format!("taken back: {}", shown::name(&said)));
    Ok(Next::Stay)
}

fn clear(talk: &mut Talk<'_>, _: &str) -> Result<Next> {
    let before = talk.chat.messages().len();
    talk.chat.clear();
    let after = talk.chat.messages().len();
    let stays = if after > 0 { "; the system prompt stays" } else { "" };
    say(&format!("({} messages are forgotten{stays})", before - after));
    Ok(Next::Stay)
}

fn system(talk: &mut Talk<'_>, text: &str) -> Result<Next> {
    let messages = talk.chat.messages_mut();
    if !text.is_empty() {
        messages.retain(|m| m.role != Role::System);
        if text != "off" {
            messages.insert(0, Message::system(text));
        }
    }
    let told: Vec<&str> = messages.iter().filter(|m| m.role == Role::System).map(|m| m.content.as_str()).collect();
    match told.is_empty() {
        true => say("the model is told nothing before the chat"),
        false => say(&format!("the model is told: {}", told.join(" "))),
    }
    Ok(Next::Stay)
}

fn save(talk: &mut Talk<'_>, file: &str) -> Result<Next> {
    let (path, messages) = (saved::place(file), talk.chat.messages());
    saved::save(&path, messages)?;
    say(&format!("{} messages are in '{}'", messages.len(), path.display()));
    Ok(Next::Stay)
}

fn load(talk: &mut Talk<'_>, file: &str) -> Result<Next> {
    let path = saved::place(file);
    let messages = saved::load(&path)?;
    say(&format!("the chat goes on after {} messages", messages.len()));
    *talk.chat.messages_mut() = messages;
    Ok(Next::Stay)
}

/// Lists the chats that have names, each with what was said first.
fn sessions(_: &mut Talk<'_>, _: &str) -> Result<Next> {
    let names = saved::names();
    if names.is_empty() {
        say("no chat was saved by name; /save NAME keeps this one");
    }
    for name in names {
        let line = match saved::load(&saved::place(&name)) {
            Ok(messages) => {
                let first = messages.iter().find(|m| m.role == Role::User).map_or("", |m| m.content.as_str());
                let first: String = first.split_whitespace().collect::<Vec<_>>().join(" ").chars().take(50).collect();
                format!("{name:<20} {:>4} messages  {}", messages.len(), shown::escape(&first))
            }
            Err(_) => format!("{name:<20} cannot be read"),
        };
        say_below(&line, 21);
    }
    Ok(Next::Stay)
}

fn set(talk: &mut Talk<'_>, rest: &str) -> Result<Next> {
    match rest.split_once(char::is_whitespace) {
        Some((name, value)) => settings::set(talk, name, value.trim())?,
        None if rest.is_empty() => {}
        None => bail!("a value follows /set {}", shown::name(rest)),
    }
    say(&settings::list(talk));
    Ok(Next::Stay)
}

fn bits(talk: &mut Talk<'_>, n: &str) -> Result<Next> {
    if !n.is_empty() {
        let Ok(bits) = n.parse() else {
            bail!("/bits takes one number of bits, not '{}'", shown::name(n));
        };
        talk.chat.set_bits(bits)?;
    }
    let context = talk.chat.context();
    match context.bits() {
        Some(bits) => say(&super::super::widths(context.model(), bits)),
        None => bail!("the model is no any-precision file, it has one width only"),
    }
    Ok(Next::Stay)
}

fn models(_: &mut Talk<'_>, _: &str) -> Result<Next> {
    crate::models::here("rgen").iter().for_each(|line| say(line));
    Ok(Next::Stay)
}

fn speed(talk: &mut Talk<'_>, _: &str) -> Result<Next> {
    match talk.last {
        Some(speed) => say(&speed.to_string()),
        None => bail!("there was no answer yet"),
    }
    Ok(Next::Stay)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::{completions, parse};

    #[test]
    fn what_is_typed_is_completed() {
        assert_eq!(completions("/sp"), (0, vec!["/speed".to_owned()]));
        assert_eq!(completions("/se"), (0, ["/sessions", "/set"].map(str::to_owned).to_vec()));
        assert_eq!(completions("/set top"), (5, ["top-k ", "top-p ", "top-n-sigma "].map(str::to_owned).to_vec()));
        assert_eq!(completions("/undo x"), (6, Vec::new()));
        assert_eq!(completions(""), (0, Vec::new()));
        assert_eq!(completions("hello").1, Vec::<String>::new());
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().to_str().unwrap();
        fs::create_dir(folder.path().join("chats")).unwrap();
        for name in ["chat one.json", "other", ".hidden", "chat\u{1b}[2J"] {
            fs::write(folder.path().join(name), "").unwrap();
        }
        let found = completions(&format!("/load {path}/ch"));
        assert_eq!(found, (6, vec![format!("{path}/chat one.json"), format!("{path}/chats/")]));
        assert_eq!(completions(&format!("/save {path}/")).1.len(), 3);
        assert_eq!(completions("/load /no/such/folder/x").1, Vec::<String>::new());
    }

    #[test]
    fn a_command_is_a_slash_and_a_word_on_one_line() {
        assert_eq!(parse("/help"), Some(("help", "")));
        assert_eq!(parse("  /set  temp   0.5 "), Some(("set", "temp   0.5")));
        assert_eq!(parse("/nothing"), Some(("nothing", "")));
        assert_eq!(parse("/?"), Some(("?", "")));
        for message in ["/tmp/file", "/", "/ help", "/Help", "help", "/load a\nb", "//help", "/2", "/??"] {
            assert_eq!(parse(message), None, "{message:?}");
        }
    }
}
