//! The options of a chat.

use std::io;
use std::path::PathBuf;

use clap::Args;
use clap::builder::ArgPredicate;
use serde_json::{Map, Value};

use crate::templates::{self, ReasoningArgs};
use crate::terminal::Colours;

/// A chat is meant by those who say how it goes, unless they say that it is none.
fn implied() -> [(&'static str, ArgPredicate, Option<&'static str>); 6] {
    let (given, on) = (ArgPredicate::IsPresent, ArgPredicate::from("true"));
    [
        ("no_conversation", on.clone(), Some("false")),
        ("system_prompt", given.clone(), Some("true")),
        ("system_prompt_file", given.clone(), Some("true")),
        ("single_turn", on, Some("true")),
        ("chat_template", given.clone(), Some("true")),
        ("chat_template_file", given, Some("true")),
    ]
}

/// Options that no chat has.
const NO_CHAT: [&str; 5] = ["tokens", "json", "logits_sha256", "interactive", "interactive_first"];

/// Options of a chat.
#[derive(Args)]
pub struct ChatArgs {
    /// Chat with the model's own template, also -cnv; the messages are read from standard input, one a line (a
    /// backslash at the end continues the line). The other options of chats mean it too, and so does a terminal where
    /// no prompt is given
    #[arg(long, overrides_with = "no_conversation", default_value_ifs = implied())]
    pub conversation: bool,

    /// Do not chat, also -no-cnv (this is the default where there is a prompt, whether or not the model has a template)
    #[arg(long, overrides_with = "conversation")]
    pub no_conversation: bool,

    /// Text that the model is told before the chat, also -sys
    #[arg(long, value_name = "TEXT", allow_hyphen_values = true, conflicts_with_all = NO_CHAT)]
    pub system_prompt: Option<String>,

    /// A file with what the model is told before the chat, also -sysf
    #[arg(long, value_name = "FILE", conflicts_with = "system_prompt", conflicts_with_all = NO_CHAT)]
    pub system_prompt_file: Option<PathBuf>,

    /// End the chat after one answer, also -st
    #[arg(long, conflicts_with_all = NO_CHAT)]
    pub single_turn: bool,

    #[allow(missing_docs)]
    #[arg(long, help = templates::HELP, long_help = templates::long_help(), value_name = "JINJA|NAME", allow_hyphen_values = true, overrides_with = "chat_template_file", conflicts_with_all = NO_CHAT)]
    pub chat_template: Option<String>,

    /// A file with a Jinja chat template to use instead of the model's own
    #[arg(long, value_name = "FILE", overrides_with = "chat_template", conflicts_with_all = NO_CHAT)]
    pub chat_template_file: Option<PathBuf>,

    /// Variables of the template, as a JSON object, such as {"enable_thinking": false}
    #[arg(long, value_name = "JSON", value_parser = templates::variables, conflicts_with_all = NO_CHAT)]
    pub chat_template_kwargs: Option<Map<String, Value>>,

    #[command(flatten)]
    #[allow(missing_docs)]
    pub reasoning: ReasoningArgs,

    /// Colours in a chat, also -co: the prompt, thoughts dimmed, and in a terminal headings, strong text and code
    #[arg(long, value_name = "WHEN", value_enum, num_args = 0..=1, default_value = "auto", default_missing_value = "on")]
    pub color: Colours,

    /// No colours, as --color off does
    #[arg(long)]
    pub no_color: bool,

    /// Tokens per second after every answer of a chat, and the times of its phases at the end; without it /speed tells
    /// those of the last answer
    #[arg(long)]
    pub show_timings: bool,

    /// Read the lines of a chat as the terminal gives them, without an editor and a history
    #[arg(long)]
    pub simple_io: bool,

    /// Keep no history of what was typed in chats; without this it is in $XDG_STATE_HOME/trine/rgen_history, or below
    /// ~/.local/state
    #[arg(long)]
    pub no_history: bool,
}

impl ChatArgs {
    /// True if standard output has colours.
    pub fn colours(&self) -> bool {
        !self.no_color && self.color.are_shown(&io::stdout())
    }

    /// The variables that the template is given.
    pub fn variables(&self) -> Map<String, Value> {
        let mut variables = self.chat_template_kwargs.clone().unwrap_or_default();
        self.reasoning.add_to(&mut variables);
        variables
    }
}
