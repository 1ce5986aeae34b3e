//! The options of a chat.

use std::path::PathBuf;

use clap::Args;

use crate::terminal::Colours;

/// How a chat goes.
#[derive(Args)]
#[command(next_help_heading = "Chats")]
pub struct ChatArgs {
    /// Chat with the model's own template, also -cnv; the messages are read from standard input, one
    /// a line (a backslash at the end continues the line)
    #[arg(long, overrides_with = "no_conversation")]
    pub conversation: bool,

    /// Do not chat, also -no-cnv (this is the default, whether or not the model has a template)
    #[arg(long, overrides_with = "conversation")]
    pub no_conversation: bool,

    /// What the model is told before the chat, also -sys
    #[arg(
        long,
        value_name = "TEXT",
        allow_hyphen_values = true,
        requires = "conversation"
    )]
    pub system_prompt: Option<String>,

    /// A file with what the model is told before the chat, also -sysf
    #[arg(
        long,
        value_name = "FILE",
        requires = "conversation",
        conflicts_with = "system_prompt"
    )]
    pub system_prompt_file: Option<PathBuf>,

    /// End the chat after one answer, also -st
    #[arg(long, requires = "conversation")]
    pub single_turn: bool,

    /// A file with a Jinja chat template to use instead of the model's own
    #[arg(long, value_name = "FILE", requires = "conversation")]
    pub chat_template_file: Option<PathBuf>,

    /// Colours in a chat, also -co: the prompt, and thoughts dimmed
    #[arg(long, value_name = "WHEN", value_enum, num_args = 0..=1, default_value = "auto", default_missing_value = "on")]
    pub color: Colours,

    /// Tokens per second after every answer of a chat; without it /speed tells them
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
