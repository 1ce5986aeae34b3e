//! The options that ask for models, and what they say.

use std::ffi::{OsStr, OsString};
use std::path::PathBuf;

use clap::Command;
#[cfg(feature = "hub")]
use clap::{Arg, ArgAction};

use crate::memory::file_size;

/// Options of several letters behind one dash.
pub const SHORT: [(&str, &str); 8] = [
    ("-hf", "--hf-repo"),
    ("-hfr", "--hf-repo"),
    ("-hff", "--hf-file"),
    ("-hft", "--hf-token"),
    ("-mu", "--model-url"),
    ("-hfd", DRAFT),
    ("-hfrd", DRAFT),
    ("--spec-draft-hf", DRAFT),
];

/// The option that asks for a second model, which drafts, and the tools that have one.
const DRAFT: &str = "--hf-repo-draft";
const DRAFTING: [&str; 2] = ["rgen", "rserve"];

/// Long names of the options that a value follows, and of the one that stands alone.
const VALUED: [&str; 6] = ["--hf-repo", "--hf-file", "--hf-token", "--model-url", "--size", DRAFT];
const OFFLINE: &str = "--offline";

/// Tools that take a model, and whether they do so as their first word rather than with `--model`.
const TOOLS: [(&str, bool); 8] = [
    ("rbench", false),
    ("rgen", false),
    ("rimatrix", false),
    ("rinspect", true),
    ("rperplexity", false),
    ("rquantize", true),
    ("rserve", false),
    ("rtokenize", false),
];

/// The name of a model in the first look at a command line, before it is fetched.
const STAND_IN: &str = "model.gguf";

/// The files of the models that a command line asks for.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Fetched {
    /// The models of the tool.
    pub models: Vec<PathBuf>,
    /// The model that drafts.
    pub draft: Option<PathBuf>,
}

/// The models that a command line asks for.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Asked {
    pub(super) repos: Vec<String>,
    pub(super) urls: Vec<String>,
    pub(super) draft: Option<String>,
    pub(super) file: Option<String>,
    pub(super) token: Option<String>,
    pub(super) size: Option<usize>,
    pub(super) offline: bool,
}

/// True if the tool can be asked for models by name.
pub fn knows(tool: &str) -> bool {
    cfg!(feature = "hub") && TOOLS.iter().any(|(name, _)| *name == tool)
}

/// True if the first word of the tool that is no option is its model.
pub fn is_first_word(tool: &str) -> bool {
    TOOLS.contains(&(tool, true))
}

/// True if a value follows the option; `None` for what is no option of this kind that the tool has.
pub fn takes_value(tool: &str, name: &str) -> Option<bool> {
    if name == DRAFT && !DRAFTING.contains(&tool) {
        return None;
    }
    if VALUED.contains(&name) { Some(true) } else { (name == OFFLINE).then_some(false) }
}

/// The command line of a tool that takes a model, with the options that ask for one.
#[cfg(feature = "hub")]
pub fn with_options(command: Command) -> Command {
    if !knows(command.get_name()) {
        return command;
    }
    let valued = |long: &'static str, value: &'static str, help: &'static str| {
        Arg::new(long).long(long).value_name(value).help(help).action(ArgAction::Set)
    };
    let command = match DRAFTING.contains(&command.get_name()) {
        true => {
            command.arg(valued("hf-repo-draft", "USER/REPO[:QUANT]", "Fetch the model of --model-draft, also -hfd"))
        }
        false => command,
    };
    command
        .arg(valued("hf-repo", "USER/REPO[:QUANT]", "Fetch the model from a hub, or find it in the hub's cache, also -hf. Without QUANT Q4_K_M is taken, or what fits into the memory, and a line says which"))
        .arg(valued("hf-file", "FILE", "The file of the repository, where QUANT does not name it, also -hff"))
        .arg(valued("hf-token", "TOKEN", "What says to the hub who asks, also -hft; without it HF_TOKEN, or what hf auth login has kept. Other users of the machine can read a command line"))
        .arg(valued("model-url", "URL", "Fetch the model from this address, also -mu"))
        .arg(valued("size", "SIZE", "Take the largest file of the repository that has at most so many bytes, such as 8G"))
        .arg(Arg::new("offline").long("offline").action(ArgAction::SetTrue).help("Open no connection: take what was fetched before"))
}

/// The same command line: this build opens no connection.
#[cfg(not(feature = "hub"))]
pub fn with_options(command: Command) -> Command {
    command
}

impl Asked {
    /// One repository, without a command line.
    pub fn for_one(repo: String, file: Option<String>, token: Option<String>, size: Option<usize>) -> Asked {
        Asked { repos: vec![repo], file, token, size, ..Asked::default() }
    }

    /// Notes an option and its value.
    ///
    /// # Errors
    /// The value cannot be meant.
    pub fn note(&mut self, name: &str, value: Option<&OsStr>) -> Result<(), String> {
        if name == OFFLINE {
            self.offline = true;
            return Ok(());
        }
        let text = value.and_then(OsStr::to_str).filter(|text| !text.is_empty());
        let text = text.ok_or_else(|| format!("{name} wants a value"))?.to_owned();
        match name {
            "--hf-repo" => self.repos.extend(text.split(',').map(str::to_owned)),
            "--model-url" => self.urls.push(text),
            "--hf-file" => self.file = Some(text),
            DRAFT => self.draft = Some(text),
            "--hf-token" => self.token = Some(text),
            _ => self.size = Some(file_size(&text).map_err(|why| format!("{name}: {why}"))?),
        }
        Ok(())
    }

    /// Takes what the command line did not say from the environment, where every option of the server may stand.
    ///
    /// # Errors
    /// A value cannot be meant.
    pub fn from_environment(&mut self) -> Result<(), String> {
        let given = |name: &str| {
            let name = format!("RSERVE_{}", name.trim_start_matches('-').to_ascii_uppercase().replace('-', "_"));
            std::env::var_os(name).filter(|value| !value.is_empty())
        };
        let mut said = Asked::default();
        for name in VALUED {
            if let Some(value) = given(name) {
                said.note(name, Some(&value))?;
            }
        }
        self.offline |= given(OFFLINE).is_some_and(|value| value == "true");
        if !self.is_for_a_model() {
            (self.repos, self.urls) = (said.repos, said.urls);
        }
        self.file = self.file.take().or(said.file);
        self.draft = self.draft.take().or(said.draft);
        self.token = self.token.take().or(said.token);
        self.size = self.size.or(said.size);
        Ok(())
    }

    /// True if a model is asked for.
    pub fn is_for_a_model(&self) -> bool {
        !self.repos.is_empty() || !self.urls.is_empty()
    }

    /// Finds what cannot be meant together. `has_model` says that a file is given too.
    ///
    /// # Errors
    /// Options that need others, or exclude them.
    pub fn check(&self, has_model: bool) -> Result<(), String> {
        let alone = self.repos.is_empty();
        match () {
            () if has_model && self.is_for_a_model() => Err("give one model: a file, -hf or -mu".to_owned()),
            () if alone && self.file.is_some() => Err("--hf-file needs the repository: -hf USER/REPO".to_owned()),
            () if alone && self.size.is_some() => {
                Err("--size chooses a file of a repository: -hf USER/REPO".to_owned())
            }
            () if self.repos.len() > 1 && self.file.is_some() => Err("--hf-file is for one repository".to_owned()),
            () => Ok(()),
        }
    }

    /// The stand-in for as many models as are asked for.
    pub fn stand_ins(&self) -> Fetched {
        let models = vec![PathBuf::from(STAND_IN); self.repos.len() + self.urls.len()];
        Fetched { models, draft: self.draft.as_ref().map(|_| PathBuf::from(STAND_IN)) }
    }
}

/// Words that give a tool its models.
pub fn words(tool: &str, fetched: &Fetched) -> Vec<OsString> {
    let option = |name: &str, path: &PathBuf| {
        let mut both = OsString::from(name);
        both.push(path);
        both
    };
    let one = |path: &PathBuf| match is_first_word(tool) {
        true => path.clone().into_os_string(),
        false => option("--model=", path),
    };
    let draft = fetched.draft.iter().map(|path| option("--model-draft=", path));
    fetched.models.iter().map(one).chain(draft).collect()
}
