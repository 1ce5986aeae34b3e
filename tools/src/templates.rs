//! Chat templates that a command line gives.

use std::path::Path;

use anyhow::{Result, bail};
use clap::{Args, ValueEnum};
use serde_json::{Map, Value};
use trine::ChatTemplate;
use trine::chat::RenderOptions;

use crate::text;

/// A model's thinking before it answers: on, off or as the template says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
#[allow(missing_docs, reason = "the names say it")]
pub enum Thinking {
    #[value(aliases = ["1", "true", "enabled"])]
    On,
    #[value(aliases = ["0", "false", "disabled"])]
    Off,
    #[value(alias = "-1")]
    Auto,
}

/// How much a model thinks that chats, where nobody says it for one answer.
#[derive(Args, Clone)]
pub struct ReasoningArgs {
    /// Thinking before the answer, also -rea; for templates that know the variable `enable_thinking`
    #[arg(
        long,
        value_name = "on|off|auto",
        value_enum,
        hide_possible_values = true,
        allow_negative_numbers = true,
        default_value = "auto"
    )]
    pub reasoning: Thinking,

    /// How much the model thinks, such as low or high; for templates that know the variable `reasoning_effort`
    #[arg(long, value_name = "LEVEL", default_value = "default")]
    pub reasoning_effort: String,
}

impl ReasoningArgs {
    /// Another name of the option, for [`crate::args::parse`].
    pub const SHORT: (&str, &str) = ("-rea", "--reasoning");

    /// Adds what the options say to the variables of a template.
    pub fn add_to(&self, variables: &mut Map<String, Value>) {
        if self.reasoning != Thinking::Auto {
            let on = self.reasoning == Thinking::On;
            variables.insert("enable_thinking".to_owned(), on.into());
        }
        if self.reasoning_effort != "default" {
            let level = Value::from(self.reasoning_effort.as_str());
            variables.insert("reasoning_effort".to_owned(), level);
        }
    }
}

/// The help of `--chat-template` in one line.
pub const HELP: &str =
    "A chat template to use instead of the model's own: its text in Jinja, or the name of one that llama.cpp knows";

/// The same with all names, a few to a line.
pub fn long_help() -> String {
    let mut lines = vec![String::new()];
    for name in ChatTemplate::names() {
        let last = lines.last_mut().expect("a line");
        if last.is_empty() {
            last.push_str(name);
        } else if last.len() + ", ".len() + name.len() < NAMES_WIDTH {
            last.extend([", ", name]);
        } else {
            last.push(',');
            lines.push(name.to_owned());
        }
    }
    format!("{HELP}:\n{}", lines.join("\n"))
}

/// Columns of the names, which stand behind ten others.
const NAMES_WIDTH: usize = 70;

/// The template of `--chat-template` or `--chat-template-file`, and what gave it.
///
/// # Errors
/// The text is neither Jinja nor a name; the file cannot be read.
pub fn given(text: Option<&str>, file: Option<&Path>) -> Result<Option<(String, String)>> {
    if let Some(text) = text {
        let source = match ChatTemplate::named(text) {
            Some(known) => known,
            None if text.contains("{%") || text.contains("{{") => text.to_owned(),
            None => bail!(
                "--chat-template '{}' is neither Jinja nor a name that llama.cpp knows: --help lists the names, and --chat-template-file takes a file",
                crate::shown::name(text)
            ),
        };
        return Ok(Some(("--chat-template".to_owned(), source)));
    }
    let Some(path) = file else { return Ok(None) };
    let source = text::read_small_text(path)?;
    Ok(Some((format!("'{}'", path.display()), source)))
}

/// Parses the variables of `--chat-template-kwargs`.
///
/// # Errors
/// The text is no JSON object; a variable is one that every template gets.
pub fn variables(text: &str) -> Result<Map<String, Value>, String> {
    let Ok(Value::Object(map)) = serde_json::from_str(text) else {
        return Err(r#"give a JSON object, such as {"enable_thinking": false}"#.to_owned());
    };
    match RenderOptions::OWN.iter().find(|n| map.contains_key(**n)) {
        Some(own) => Err(format!("'{own}' is what every template gets from the chat itself")),
        None => Ok(map),
    }
}
