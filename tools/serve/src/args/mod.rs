//! The options of `rserve`: llama-server's names where it has the option.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Result, bail};
use clap::builder::{ArgPredicate, PossibleValuesParser, TypedValueParser as _};
use clap::{Arg, Parser};
use serde_json::{Map, Value};
use trine::{DraftSource, Pooling};
use trine_tools::args::Short;
use trine_tools::device;
use trine_tools::generate::draft::{self, Spec};
use trine_tools::load::{ModelArgs, SHORT_TYPES, positive};
use trine_tools::memory::size;
use trine_tools::sampling::SamplerArgs;
use trine_tools::templates::{self, ReasoningArgs};

use crate::engine::Options;

mod values;

pub use values::{KeepAlive, LogFormat, ReasoningFormat};
use values::{budget, minutes, seconds};

/// Options of several letters behind one dash.
pub const SHORT: Short = &[
    ("-np", "--parallel"),
    ("-ub", "--ubatch-size"),
    ("-s", "--seed"),
    draft::SHORT,
    ReasoningArgs::SHORT,
    ("-to", "--stall-timeout"),
    ("--n-predict", "--predict"),
    ("--webui", "--ui"),
    ("--no-webui", "--no-ui"),
    SHORT_TYPES[0],
    SHORT_TYPES[1],
    device::SHORT,
    device::SHORT_LAYERS,
    device::SHORT_SPLIT[0],
    device::SHORT_SPLIT[1],
    device::SHORT_SPLIT[2],
];

/// Serve a language model over HTTP, with the APIs of OpenAI, llama-server, Anthropic and Ollama
///
/// The text of a request depends on the model, the bits, the prompt, the options and the seed, and on nothing else:
/// not on other requests, the load, the order, or what is in the cache.
#[derive(Parser, Clone)]
#[command(
    name = "rserve",
    version,
    args_override_self = true,
    mut_args(from_environment),
    mut_args(unless_a_folder),
    after_help = "See --help for examples.",
    after_long_help = "\
Examples:
  rserve -m model.gguf
  rserve -hf prism-ml/Ternary-Bonsai-8B-gguf:Q2_0                  fetched from a hub
  curl http://127.0.0.1:8080/v1/completions -d '{\"prompt\": \"Once upon a time\", \"max_tokens\": 64, \"seed\": 7}'
  curl http://127.0.0.1:8080/v1/chat/completions -d '{\"messages\": [{\"role\": \"user\", \"content\": \"Hello\"}]}'
  rserve -m model-ap.gguf --alias model        any-precision: 'model:4bit' is the model at 4 bits, as is \"bits\": 4
  rserve -m model.gguf --host 0.0.0.0 --api-key-file keys.txt      other machines may ask, with a key
  rserve -m model.gguf -np 4 -c 2048 --kv-memory 2G                four texts at once, 2048 tokens each
  rserve --models FOLDER --models-memory 24G                       all models of a folder, loaded when they are asked for

Every option may also stand in the environment: --max-queue 8 as RSERVE_MAX_QUEUE=8, --metrics as RSERVE_METRICS=true.
The command line goes before it. Give keys in a file or as RSERVE_API_KEY: other users of the machine can read a command
line.
SIGTERM lets running texts end (--drain-timeout) and takes new ones for a moment more (--drain-delay); Ctrl-C leaves
out that moment; a second one ends at once."
)]
pub struct Args {
    #[command(flatten)]
    #[allow(missing_docs)]
    pub model: ModelArgs,

    /// Serve the GGUF files of a folder instead of one: requests name the model, by the name of its file without
    /// .gguf, and it is loaded when it is asked for
    #[arg(long, value_name = "FOLDER", visible_alias = "models-dir")]
    pub models: Option<PathBuf>,

    /// Memory for the models of --models that are loaded at the same time, such as 24G: their files and their keys and
    /// values. Those not asked for for the longest time are unloaded where it is needed. Without it three quarters of
    /// what is free at the start
    #[arg(long, value_name = "SIZE", value_parser = size)]
    pub models_memory: Option<usize>,

    /// Minutes without a request after which a model of --models is unloaded, where requests do not say (keep_alive);
    /// -1: never
    #[arg(long, value_name = "MINUTES", default_value = "5", allow_negative_numbers = true, value_parser = minutes)]
    pub model_idle: KeepAlive,

    /// Names of the model, separated by commas; the first is its id. Without it the file's name
    #[arg(short, long, value_name = "NAMES", value_delimiter = ',')]
    pub alias: Vec<String>,

    /// Words for /v1/models that say what the model is for, separated by commas
    #[arg(long, value_name = "TAGS", value_delimiter = ',')]
    pub tags: Vec<String>,

    #[allow(missing_docs)]
    #[arg(long, help = templates::HELP, long_help = templates::long_help(), value_name = "JINJA|NAME", allow_hyphen_values = true, overrides_with = "chat_template_file")]
    pub chat_template: Option<String>,

    /// A file with a Jinja chat template to use instead of the model's own
    #[arg(long, value_name = "FILE", overrides_with = "chat_template")]
    pub chat_template_file: Option<PathBuf>,

    /// Variables of the chat template where a request does not say them, as a JSON object, such as
    /// {"enable_thinking": false}
    #[arg(long, value_name = "JSON", value_parser = templates::variables)]
    pub chat_template_kwargs: Option<Map<String, Value>>,

    /// Thoughts where a request does not say: 0: the template is asked for none (enable_thinking); -1: it decides
    #[arg(long, value_name = "N", default_value = "-1", allow_negative_numbers = true, value_parser = budget)]
    pub reasoning_budget: i64,

    #[command(flatten)]
    #[allow(missing_docs)]
    pub reasoning: ReasoningArgs,

    /// Bits per weight of an any-precision model where a request names none; without it the widest
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u8).range(1..=8))]
    pub bits: Option<u8>,

    /// Bits per weight that requests may ask for, separated by commas; without it all of the file
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = clap::value_parser!(u8).range(1..=8))]
    pub widths: Vec<u8>,

    /// Draft tokens at this many bits of an any-precision model, where a request does not say, and verify them
    /// together. The text is the same; drafting stops where it does not make it faster
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u8).range(1..=8))]
    pub draft_bits: Option<u8>,

    /// Draft tokens with a second, smaller model, a GGUF file, also -md, and verify them together. The text is the same.
    /// Where the models have other vocabularies, tokens that stand for the same bytes are the same. Every text that runs
    /// has keys and values of its own in the second model, beside those of --kv-memory
    #[arg(long, alias = "spec-draft-model", value_name = "FILE")]
    pub model_draft: Option<PathBuf>,

    /// ngram-simple: draft what followed the last tokens of a text where it had them before. The text is the same; it
    /// helps where texts repeat themselves, as code does. draft-mtp: draft with the model's own heads for multi-token
    /// prediction, which some models have, or with the Gemma 4 assistant of -md. draft-eagle3, draft-dflash: draft with the EAGLE-3 or DFlash drafter of -md,
    /// which was made for the model. draft-simple: draft with the model of -md, as without this option
    #[arg(long, value_name = "TYPE", hide_possible_values = true)]
    pub spec_type: Option<Spec>,

    /// How many tokens to draft at most before they are verified; how many within that depends on how many were right
    #[arg(
        long,
        visible_alias = "draft-max",
        aliases = ["draft-n", "spec-draft-n-max"],
        value_name = "N",
        default_value = "16",
        value_parser = positive
    )]
    pub draft: usize,

    /// Draft even where it was measured not to make texts faster
    #[arg(long)]
    pub draft_always: bool,

    /// How the states of a text's tokens become its vector where a request does not say, none: each stays a vector of
    /// its own; without it as the model's file says, or their mean
    #[arg(long, value_name = "KIND", value_parser = PossibleValuesParser::new(Pooling::names()).try_map(|name| Pooling::by_name(&name).ok_or("no pooling")))]
    pub pooling: Option<Pooling>,

    /// Answer requests for another model with 404 instead of with this model
    #[arg(long)]
    pub strict_model: bool,

    /// The addresses to listen on, separated by commas; a path that ends in .sock is a Unix socket
    #[arg(long, value_name = "ADDRESSES", value_delimiter = ',', default_value = "127.0.0.1")]
    pub host: Vec<String>,

    /// The port of all addresses; 0: any free one, which is printed
    #[arg(long, value_name = "PORT", default_value_t = 8080)]
    pub port: u16,

    /// Keys of which a request must give one, separated by commas
    #[arg(long, value_name = "KEYS", value_delimiter = ',')]
    pub api_key: Vec<String>,

    /// A file with such keys, one a line, that nobody else may read: KEY, or NAME: KEY, or NAME: sha256:HASH, and behind
    /// it concurrent=N, tokens-per-minute=N, priority=N and models=A,B. SIGHUP has it read again
    #[arg(long, value_name = "FILE")]
    pub api_key_file: Option<PathBuf>,

    /// A certificate in PEM, followed by those of authorities between it and one that clients know: connections are
    /// encrypted with TLS. SIGHUP has it and its key read again
    #[arg(long, value_name = "FILE")]
    pub ssl_cert_file: Option<PathBuf>,

    /// The private key of --ssl-cert-file in PEM, which nobody else may read
    #[arg(long, value_name = "FILE")]
    pub ssl_key_file: Option<PathBuf>,

    /// Let other machines in without a key
    #[arg(long)]
    pub insecure_no_auth: bool,

    /// Further values of the Host header that are answered, separated by commas. A server on a loopback address answers
    /// only local names and addresses, so that web pages cannot reach it under a name of theirs
    #[arg(long, value_name = "HOSTS", value_delimiter = ',')]
    pub allowed_hosts: Vec<String>,

    /// Web pages of other origins that may use the server, separated by commas; localhost: those that this machine
    /// serves, on any port; *: all
    #[arg(long, value_name = "ORIGINS", value_delimiter = ',')]
    pub cors_origins: Vec<String>,

    /// Texts that are generated at the same time, also -np; others wait
    #[arg(long, value_name = "N", visible_alias = "max-seqs", default_value = "16", value_parser = positive)]
    pub parallel: usize,

    /// Tokens of the context of each request; 0: as the model was trained
    #[arg(short, long, value_name = "N", default_value_t = 0)]
    pub ctx_size: usize,

    /// Memory for keys and values, such as 2G or 512M; without it what all requests may need, at most half of what is
    /// free
    #[arg(long, value_name = "SIZE", value_parser = size)]
    pub kv_memory: Option<usize>,

    /// Let requests with different keys share the cache of prompts; how fast an answer comes then tells what others
    /// asked
    #[arg(long)]
    pub shared_prefix_cache: bool,

    /// Tokens that go through the model together, also -ub
    #[arg(long, value_name = "N", default_value = "512", value_parser = positive)]
    pub ubatch_size: usize,

    /// How long others wait for their next token at most while a long prompt is read, in milliseconds
    #[arg(long, value_name = "MS", default_value = "100", value_parser = positive)]
    pub target_step_ms: usize,

    /// Tokens of prompts that are read between two tokens of the others; without it what --target-step-ms allows
    #[arg(long, value_name = "N", value_parser = positive)]
    pub prefill_chunk: Option<usize>,

    /// Requests that may wait; more are refused with 429. Without it four for each that runs
    #[arg(long, value_name = "N", value_parser = positive)]
    pub max_queue: Option<usize>,

    /// Tokens in the prompts of requests that wait
    #[arg(long, value_name = "N", default_value = "1048576", value_parser = positive)]
    pub max_queue_tokens: usize,

    /// Seconds that a request may wait
    #[arg(long, value_name = "S", default_value = "120", value_parser = seconds)]
    pub queue_timeout: Duration,

    /// Seconds after which a text ends where it is; 0: never
    #[arg(long, value_name = "S", default_value = "0", value_parser = seconds)]
    pub request_timeout: Duration,

    /// Seconds that a client may leave its answer unread, also -to
    #[arg(long, value_name = "S", default_value = "30", visible_alias = "timeout", value_parser = seconds)]
    pub stall_timeout: Duration,

    /// The largest body of a request
    #[arg(long, value_name = "SIZE", default_value = "4M", value_parser = size)]
    pub max_body: usize,

    /// Thoughts in answers of chats where a request does not say: they stay in the text, or are told apart from it
    #[arg(long, value_name = "FORMAT", value_enum, default_value_t = ReasoningFormat::Auto)]
    pub reasoning_format: ReasoningFormat,

    /// Memory that the texts of a request may take, by what it asks for
    #[arg(long, value_name = "SIZE", default_value = "1G", value_parser = size)]
    pub max_request_memory: usize,

    /// Memory of requests that are being read, in pieces, all of them together; large ones wait for one another
    #[arg(long, value_name = "SIZE", default_value = "1G", value_parser = size)]
    pub max_bodies: usize,

    /// Memory of answers that wait to be read, all of them together; beyond it requests are answered with 503
    #[arg(long, value_name = "SIZE", default_value = "512M", value_parser = size)]
    pub max_unread: usize,

    /// Most choices (n) of a request
    #[arg(long, value_name = "N", default_value = "8", value_parser = positive)]
    pub max_choices: usize,

    /// Most open connections
    #[arg(long, value_name = "N", default_value = "1024", value_parser = positive)]
    pub max_connections: usize,

    /// Tokens to generate where a request does not say; -1: until the text ends or the context is full
    #[arg(short = 'n', long, value_name = "N", default_value_t = -1, allow_negative_numbers = true, value_parser = clap::value_parser!(i64).range(-1..))]
    pub predict: i64,

    /// Go on when the context of a text is full, where its request says how many tokens it wants: the tokens of --keep
    /// stay, half of the others are forgotten, and the rest is evaluated again. Without it a full context ends a text
    #[arg(long)]
    pub context_shift: bool,

    /// Tokens of a prompt that --context-shift keeps, besides BOS, where a request does not say (n_keep); -1: all
    #[arg(long, value_name = "N", default_value_t = 0, allow_negative_numbers = true, value_parser = clap::value_parser!(i64).range(-1..))]
    pub keep: i64,

    /// The seed where a request does not say; -1: a random one for each
    #[arg(long, value_name = "N", default_value_t = -1, allow_negative_numbers = true, value_parser = clap::value_parser!(i64).range(-1..=4_294_967_295))]
    pub seed: i64,

    /// How tokens are chosen where a request does not say.
    #[command(flatten)]
    pub sampler: SamplerArgs,

    /// Seconds of silence in a stream after which a comment is sent, so that proxies keep it open; -1: never
    #[arg(long, value_name = "S", default_value_t = 15, allow_negative_numbers = true, value_parser = clap::value_parser!(i64).range(-1..=86400))]
    pub sse_ping_interval: i64,

    /// Seconds that requests are still taken after SIGTERM, while /readyz says no: balancers need time to notice
    #[arg(long, value_name = "S", default_value = "5", value_parser = seconds)]
    pub drain_delay: Duration,

    /// Seconds that running texts get after that
    #[arg(long, value_name = "S", default_value = "60", value_parser = seconds)]
    pub drain_timeout: Duration,

    /// Serve /metrics, for those with a key where there are keys
    #[arg(long)]
    pub metrics: bool,

    /// Serve /metrics to all
    #[arg(long)]
    pub metrics_public: bool,

    /// Do not serve /slots
    #[arg(long, overrides_with = "slots")]
    pub no_slots: bool,

    /// Serve /slots (this is the default)
    #[arg(long, overrides_with = "no_slots")]
    pub slots: bool,

    /// Folder in which POST /slots/N?action=save and restore keep what was evaluated for a text
    #[arg(long, value_name = "FOLDER")]
    pub slot_save_path: Option<PathBuf>,

    /// Do not serve the page
    #[arg(long, overrides_with = "ui")]
    pub no_ui: bool,

    /// Serve the page (this is the default)
    #[arg(long, overrides_with = "no_ui")]
    pub ui: bool,

    /// Add to the answers of chats and completions how they came about, where a request does not say (verbose): the
    /// prompt as the template wrote it, and llama-server's own form of the answer
    #[arg(short, long)]
    pub verbose: bool,

    /// Written to standard error for each request: a line to read, a JSON object, nothing. Neither prompts nor
    /// keys are
    #[arg(long, value_name = "FORMAT", value_enum, default_value_t = LogFormat::Text)]
    pub log_format: LogFormat,

    /// A file that these lines are added to instead. SIGHUP has it opened again
    #[arg(long, value_name = "FILE")]
    pub log_file: Option<PathBuf>,
}

/// The same option, which may also stand in the environment. Its value there is not shown: it may be a key.
fn from_environment(arg: Arg) -> Arg {
    match arg.get_long() {
        Some("help" | "version") | None => arg,
        Some(long) => {
            let name = format!("RSERVE_{}", long.to_ascii_uppercase().replace('-', "_"));
            arg.env(name).hide_env(true)
        }
    }
}

/// The model is not required beside a folder of models.
fn unless_a_folder(arg: Arg) -> Arg {
    match arg.get_long() {
        Some("model") => arg
            .required(false)
            .required_unless_present("models")
            .conflicts_with("models")
            // The folder stands in its place, and each model as it is loaded.
            .default_value_if("models", ArgPredicate::IsPresent, "."),
        _ => arg,
    }
}

impl Args {
    /// Finds what clap cannot.
    ///
    /// # Errors
    /// Names and hosts that cannot be meant.
    pub fn check(&self) -> Result<()> {
        if let Some(name) = self.alias.iter().find(|n| n.is_empty() || n.contains(':')) {
            bail!("--alias: '{name}' is no name: it must have letters and no colon, which stands before the bits");
        }
        if self.host.iter().any(String::is_empty) {
            bail!("--host: give addresses or paths of Unix sockets, none of them empty");
        }
        let of_one = [
            ("--alias", !self.alias.is_empty()),
            ("--lora", !self.model.adapters.adapters.is_empty()),
            ("--model-draft", self.model_draft.is_some()),
            ("--control-vector", !self.model.adapters.control_vectors.is_empty()),
        ];
        if let Some((name, _)) = of_one.iter().find(|(_, given)| *given && self.models.is_some()) {
            bail!("{name} is for one model, and --models serves several: leave it out, or give the model with -m");
        }
        if self.models_memory.is_some() && self.models.is_none() {
            bail!("--models-memory is for several models: give their folder with --models");
        }
        if self.metrics_public && !self.metrics {
            bail!("--metrics-public says who may read /metrics: give --metrics too");
        }
        Ok(())
    }

    /// Variables of the chat template where a request does not say them.
    pub fn variables(&self) -> Map<String, Value> {
        let mut variables = self.chat_template_kwargs.clone().unwrap_or_default();
        self.reasoning.add_to(&mut variables);
        if self.reasoning_budget == 0 {
            variables.insert("enable_thinking".to_owned(), false.into());
        }
        variables
    }

    /// Where drafts come from where a request does not say; loads the second model, where there is one.
    ///
    /// # Errors
    /// It cannot be loaded; two sources, or none where one is named.
    pub fn drafts(&self) -> Result<Option<DraftSource>> {
        draft::source(self.draft_bits, self.model_draft.as_deref(), self.spec_type, &self.model)
    }

    /// The model as it is loaded: with its heads where these draft.
    pub fn loading(&self) -> ModelArgs {
        let mtp = draft::by_heads(self.draft_bits, self.model_draft.as_deref(), self.spec_type);
        let drafter = draft::drafter(self.draft_bits, self.model_draft.as_deref(), self.spec_type);
        ModelArgs { mtp, drafter, ..self.model.clone() }
    }

    /// The part of it that the engine follows, but for drafts.
    pub fn engine(&self) -> Options {
        Options {
            parallel: self.parallel,
            n_ctx: Some(self.ctx_size).filter(|n| *n > 0),
            kv_memory: self.kv_memory,
            kv_default: None,
            ubatch: self.ubatch_size,
            target_step: Duration::from_millis(self.target_step_ms as u64),
            prefill_chunk: self.prefill_chunk,
            max_queue: self.max_queue.unwrap_or(4 * self.parallel),
            max_queue_tokens: self.max_queue_tokens,
            queue_timeout: self.queue_timeout,
            max_request_memory: self.max_request_memory,
            stall_timeout: self.stall_timeout,
            bits: self.bits,
            widths: self.widths.clone(),
            drafts: None,
            draft: self.draft,
            draft_always: self.draft_always,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_option_has_a_name_in_the_environment() {
        use clap::CommandFactory;
        let command = Args::command();
        let named = command.get_arguments().filter_map(|a| {
            let name = a.get_env()?.to_str()?.to_owned();
            Some((a.get_long()?.to_owned(), name))
        });
        let named: Vec<(String, String)> = named.collect();
        assert!(named.len() > 40, "{named:?}");
        for pair in
            [("model", "RSERVE_MODEL"), ("max-queue-tokens", "RSERVE_MAX_QUEUE_TOKENS"), ("api-key", "RSERVE_API_KEY")]
        {
            assert!(named.iter().any(|(l, n)| (l.as_str(), n.as_str()) == pair));
        }
    }

    #[test]
    fn names_have_no_colon() {
        let parse = |name| Args::parse_from(["rserve", "-m", "m", "--alias", name]).check();
        assert!(parse("a,b").is_ok());
        assert!(parse("a,b:4bit").is_err());
        assert!(parse("a,").is_err());
    }
}
