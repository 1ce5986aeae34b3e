//! `trine pull`, `list`, `show` and `rm`: models by name, in the hub's cache and where else they are found.

use std::io::Write as _;

use anyhow::{Result, bail};
use clap::{Command, CommandFactory, Parser, Subcommand};
use serde_json::{Value, json};
use trine_hub::{Installed, Name, Places, Store, find, installed, remove};
use trine_tools::args::Words;
use trine_tools::memory::file_size;
use trine_tools::models::{Asked, fetch};
use trine_tools::progress::human_bytes;
use trine_tools::table::{self, Cell, Form};
use trine_tools::{note, shown, signals};

/// Models by name
#[derive(Parser)]
#[command(name = "trine")]
struct Args {
    #[command(subcommand)]
    what: What,
}

#[derive(Subcommand)]
enum What {
    /// Fetch a model from a hub, or the rest of it, and print its path
    Pull {
        /// The repository, and the type where not Q4_K_M is meant
        #[arg(value_name = "USER/REPO[:QUANT]")]
        name: String,
        /// The file of the repository
        #[arg(long, value_name = "FILE")]
        hf_file: Option<String>,
        /// Token that says to the hub who asks; without it HF_TOKEN
        #[arg(long, value_name = "TOKEN")]
        hf_token: Option<String>,
        /// Take the largest file of at most SIZE bytes, such as 8G
        #[arg(long, value_name = "SIZE", value_parser = file_size)]
        size: Option<usize>,
        /// Print an object instead of the path
        #[arg(long)]
        json: bool,
    },
    /// List the models that are here, those of llama.cpp and ollama too
    List {
        /// Print an array instead of a table
        #[arg(long)]
        json: bool,
    },
    /// Show where a model is
    Show {
        /// A name of `trine list`, or the part of it that says which
        name: String,
        /// Print an object instead of lines
        #[arg(long)]
        json: bool,
    },
    /// Remove a model from the hub's cache
    Rm {
        /// The model; without QUANT all of the repository
        #[arg(value_name = "USER/REPO[:QUANT]")]
        name: String,
        /// Print an object instead of a line
        #[arg(long)]
        json: bool,
    },
}

/// The commands, for the help of the program.
pub fn commands() -> Vec<Command> {
    Args::command().get_subcommands().cloned().collect()
}

/// True if a word is one of them.
pub fn is_command(word: &str) -> bool {
    commands().iter().any(|command| command.get_name() == word)
}

fn row(model: &Installed) -> Vec<Cell> {
    vec![
        // whole, to be given to other commands
        Cell::left("model", 0, shown::name(&model.name)).key(),
        Cell::right("size", 0, human_bytes(model.size)),
        Cell::left("store", 0, model.store.name()),
    ]
}

fn described(model: &Installed) -> Value {
    let path = model.path.to_string_lossy();
    json!({"name": model.name, "store": model.store.name(), "bytes": model.size, "path": path})
}

/// Does what the words say.
///
/// # Errors
/// There is no such model, or it cannot be had.
pub fn run(words: Words) -> Result<()> {
    let places = Places::from_env();
    let mut out = signals::stdout();
    match Args::parse_from(words).what {
        What::Pull { name, hf_file, hf_token, size, json } => {
            let path = fetch(&Asked::for_one(name.clone(), hf_file, hf_token, size))?.models.pop();
            let path = path.unwrap_or_default();
            match json {
                true => writeln!(out, "{}", shown::json(&json!({"name": name, "path": path.to_string_lossy()}), true))?,
                false => writeln!(out, "{}", path.display())?,
            }
        }
        What::List { json } => {
            let all = installed(&places);
            if json {
                let all: Vec<Value> = all.iter().map(described).collect();
                writeln!(out, "{}", shown::json(&all.into(), true))?;
            } else if all.is_empty() {
                note!("no models are here; trine pull USER/REPO[:QUANT] fetches one");
            } else {
                table::write(Form::Spaces(0), all.iter().map(row).collect(), &mut out)?;
            }
        }
        What::Show { name, json } => {
            let Some(model) = find(&places, &name).into_iter().next() else {
                bail!("no model '{name}' is here; trine list names those that are");
            };
            match json {
                true => writeln!(out, "{}", shown::json(&described(&model), true))?,
                false => {
                    let (size, store) = (human_bytes(model.size), model.store.name());
                    writeln!(out, "{}\n{size} in the store of {store}\n{}", model.name, model.path.display())?;
                }
            }
        }
        What::Rm { name, json } => {
            let other = find(&places, &name).into_iter().find(|model| model.store != Store::Hub);
            let parsed = match (Name::parse(&name), other) {
                (_, Some(model)) => bail!(
                    "'{}' is in the store of {}, which removes it itself: its file is '{}'",
                    model.name,
                    model.store.name(),
                    model.path.display()
                ),
                (parsed, None) => parsed?,
            };
            let freed = remove(&places, &parsed)?;
            match json {
                true => writeln!(out, "{}", shown::json(&json!({"name": name, "freed": freed}), true))?,
                false => writeln!(out, "removed {name}, {} are free again", human_bytes(freed))?,
            }
        }
    }
    Ok(out.flush()?)
}
