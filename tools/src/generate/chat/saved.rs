//! Chats in files: what was said, as JSON. A chat that has a name and no path is a file in a folder of the user's.

use std::io::Write;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use serde_json::{Value, json};
use trine::{Message, Role};
use trine_formats::limited::read_regular;

use crate::outfile::OutFile;
use crate::text::MAX_SMALL;

/// The form of the file.
const SCHEMA: &str = "rgen.chat/1";

/// Authors of the messages of a chat.
const ROLES: [Role; 3] = [Role::System, Role::User, Role::Assistant];

/// The folder for what programs remember of themselves; `None` where the environment names none.
pub fn state() -> Option<PathBuf> {
    let folder = |name: &str| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let state = folder("XDG_STATE_HOME").or_else(|| Some(folder("HOME")?.join(".local/state")))?;
    Some(state.join("trine"))
}

/// The folder of chats that have names.
fn folder() -> Option<PathBuf> {
    Some(state()?.join("chats"))
}

/// True for letters, digits, `-` and `_`: everything else is the path of a file.
fn is_name(typed: &str) -> bool {
    !typed.is_empty() && typed.len() <= 100 && typed.chars().all(|c| c.is_alphanumeric() || matches!(c, '-' | '_'))
}

/// The file of the chat that is called `typed`, or the file with this path.
pub fn place(typed: &str) -> PathBuf {
    match folder().filter(|_| is_name(typed)) {
        Some(folder) => folder.join(typed).with_extension("json"),
        None => path(typed),
    }
}

/// The names of saved chats, in order.
pub fn names() -> Vec<String> {
    let entries = folder().and_then(|folder| std::fs::read_dir(folder).ok());
    let names = entries.into_iter().flatten().flatten().filter_map(|entry| {
        let name = entry.file_name().into_string().ok()?;
        name.strip_suffix(".json").filter(|name| is_name(name)).map(str::to_owned)
    });
    let mut names: Vec<String> = names.collect();
    names.sort();
    names
}

/// Makes the folder of chats that have names, for its user alone.
fn make_folder(folder: &Path) -> Result<()> {
    let mut builder = std::fs::DirBuilder::new();
    builder.recursive(true);
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder.create(folder).with_context(|| format!("cannot make '{}'", folder.display()))
}

/// A path as it is typed: no shell has replaced `~`.
pub fn path(typed: &str) -> PathBuf {
    let home = std::env::var_os("HOME").filter(|home| !home.is_empty());
    match (typed.strip_prefix("~/"), home) {
        (Some(rest), Some(home)) => Path::new(&home).join(rest),
        _ => PathBuf::from(typed),
    }
}

/// Writes a chat. A file that is no chat is not replaced.
///
/// # Errors
/// The file is there and holds something else, or it cannot be written.
pub fn save(path: &Path, messages: &[Message]) -> Result<()> {
    if path.exists() && load(path).is_err() {
        bail!("'{}' is there already and is no saved chat: give another name", path.display());
    }
    if path.parent() == folder().as_deref()
        && let Some(folder) = path.parent()
    {
        make_folder(folder)?;
    }
    let messages = messages.iter();
    let messages: Vec<Value> = messages.map(|m| json!({ "role": m.role.name(), "content": m.content })).collect();
    let chat = json!({ "schema": SCHEMA, "messages": messages });
    let mut file = OutFile::create(path, "/save")?;
    serde_json::to_writer_pretty(&mut file, &chat)?;
    file.write_all(b"\n")?;
    let kept = file.keep();
    kept.with_context(|| format!("cannot write '{}'", path.display()))
}

/// Reads a chat.
///
/// # Errors
/// The file cannot be read, or is no saved chat.
pub fn load(path: &Path) -> Result<Vec<Message>> {
    // Not an input that nothing may be written to: a chat goes on and is saved again.
    let bytes = read_regular(path, MAX_SMALL);
    let bytes = bytes.with_context(|| format!("cannot read '{}'", path.display()))?;
    let wrong = || format!("'{}' is no chat that /save has written", path.display());
    let chat: Value = serde_json::from_slice(&bytes).with_context(wrong)?;
    let list = chat["messages"].as_array();
    let (Some(list), true) = (list, chat["schema"] == SCHEMA) else {
        bail!(wrong());
    };
    let messages = list.iter().map(|message| {
        let role = ROLES.into_iter().find(|role| message["role"] == role.name());
        Some(Message::new(role?, message["content"].as_str()?))
    });
    let messages: Option<Vec<Message>> = messages.collect();
    messages.with_context(wrong)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn a_saved_chat_is_the_same_when_it_is_loaded() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("chat.json");
        let messages =
            [Message::system("Be \"brief\"."), Message::user("a\nb"), Message::assistant("<think>é</think>\u{1b}")];
        // The second time the first file is replaced.
        for _ in 0..2 {
            save(&path, &messages).unwrap();
            assert_eq!(load(&path).unwrap(), messages);
        }
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    }

    #[test]
    fn other_files_are_neither_replaced_nor_loaded() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("notes.json");
        for other in [
            "my notes",
            "{}",
            r#"{"schema": "rgen.chat/2", "messages": []}"#,
            r#"{"schema": "rgen.chat/1", "messages": [{"role": "nobody", "content": ""}]}"#,
            r#"{"schema": "rgen.chat/1", "messages": [{"role": "user"}]}"#,
        ] {
            fs::write(&path, other).unwrap();
            assert!(load(&path).is_err(), "{other}");
            let told = save(&path, &[]).unwrap_err().to_string();
            assert!(told.contains("give another name"), "{told}");
            assert_eq!(fs::read_to_string(&path).unwrap(), other);
        }
    }
}
