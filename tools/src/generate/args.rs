//! The options of `rgen`: llama.cpp's names and defaults.

use std::io::{self, IsTerminal};
use std::path::PathBuf;

use anyhow::Result;
use clap::Parser;
use trine::{GenerateOptions, Model};

use super::chat_args::ChatArgs;
use super::draft::{self, DraftArgs};
use super::embed_args::EmbedArgs;
use super::grammar::GrammarArgs;
use super::prompt_cache::PromptCacheArgs;
use super::sampling::SamplingArgs;
use crate::args::Short;
use crate::load::{ModelArgs, SHORT_TYPES, count, positive};
use crate::templates::ReasoningArgs;
use crate::{device, interrupt, text};

/// Options of several letters behind one dash.
pub const SHORT: Short = &[
    ("-ub", "--ubatch-size"),
    SHORT_TYPES[0],
    SHORT_TYPES[1],
    device::SHORT,
    draft::SHORT,
    device::SHORT_LAYERS,
    device::SHORT_SPLIT[0],
    device::SHORT_SPLIT[1],
    device::SHORT_SPLIT[2],
    ("-cnv", "--conversation"),
    ("-no-cnv", "--no-conversation"),
    ("-sys", "--system-prompt"),
    ("-st", "--single-turn"),
    ("-sysf", "--system-prompt-file"),
    ("-co", "--color"),
    ReasoningArgs::SHORT,
    ("-jf", "--json-schema-file"),
    ("-if", "--interactive-first"),
    ("-mli", "--multiline-input"),
    // bitnet.cpp's run_inference.py
    ("-temp", "--temp"),
];

/// Continue a text, or chat, with a language model
///
/// The text goes to standard output as it comes, everything else to standard error. The same model,
/// prompt and options give the same text on every machine, with any number of threads and any batch
/// size.
#[derive(Parser)]
#[command(
    name = "rgen",
    version,
    args_override_self = true,
    override_usage = "rgen [OPTIONS] -m FILE\n       rgen [OPTIONS] -hf USER/REPO[:QUANT]\n       rgen [OPTIONS] FILE|NAME [PROMPT]",
    after_help = "See --help for examples.",
    after_long_help = "\
Examples:
  rgen model.gguf                                                      chat, in a terminal
  rgen model.gguf 'Once upon a time'                                   write on
  rgen -hf prism-ml/Ternary-Bonsai-8B-gguf:Q2_0                        fetch a model from a hub, and chat
  rgen -m model.gguf -p 'Once upon a time' -n 100
  rgen -m model.gguf -p 'The capital of France is' -n 20 --temp 0      always the same text
  rgen -m model.gguf -p 'Roses are' --seed 7                           the same text for the same seed
  rgen -m model.gguf -f prompt.txt -n 200 > out.txt
  echo 'Dear diary,' | rgen -m model.gguf -n 50
  rgen -m model.gguf -cnv -sys 'You answer in one sentence.'           chat; /help lists its commands
  echo 'Who are you?' | rgen -m model.gguf -cnv -st                    one answer
  rgen -m model.gguf -p 'Once' -n 0 --logits-sha256 | sha256sum        one hash for all logits
  rgen -m model-ap.gguf --bits 4 -p 'Once upon a time'                 any-precision: 4 bits of the file's
  rgen -m model-ap.gguf --bits 8 --draft-bits 3 -p 'Once'              the text of 8 bits, drafted at 3
  rgen -m model.gguf -md small.gguf -p 'Once'                          the same text, drafted by a smaller model
  rgen -m model.gguf -p 'Is water wet? ' --grammar 'root ::= \"yes\" | \"no\"'  an answer of a given form, also -j SCHEMA
  rgen -m model.gguf -p 'User: hello' -i -r 'User:' --in-prefix ' '     in turns, until the input ends
  rgen -m model.gguf -f long.txt -n 50 --prompt-cache long.cache         evaluated once, used by later runs
  rgen -m reranker.gguf -p 'What is a pawn?' --rerank lines.txt          the lines of a file, the best answer first
  rgen -m model.gguf -p 'a cat\\na dog' --embedding                       vectors of lines, and how alike they are
  rgen -m model.gguf --tokens ids.txt -n 8 --temp 0 --json | jq .tokens

--logits-sha256 prints, instead of the text, one line per evaluated position: POS TOKEN SHA256, the
position in the context from 0, the token that was evaluated there, and the SHA-256 of the logits after
it as little-endian 32-bit floats. The last token of a generation is not evaluated, so it has no line.

Sampling order: logit biases, then the steps of --samplers, adaptive_p only where they name it. A seed gives the tokens that llama.cpp gives for it. Ctrl-C ends the text (exit code 130), or in a chat the answer."
)]
pub struct Args {
    #[command(flatten)]
    #[allow(missing_docs)]
    pub model: ModelArgs,

    /// The text to continue; in a chat the first message
    #[arg(short, long, value_name = "TEXT", allow_hyphen_values = true, conflicts_with_all = ["file", "tokens"])]
    pub prompt: Option<String>,

    /// A file with the text to continue, in a chat with the first message; one line break at its end is left out
    #[arg(short, long, value_name = "FILE", conflicts_with = "tokens")]
    pub file: Option<PathBuf>,

    /// A file with token ids instead of a text, separated by white space or commas or as a JSON array
    #[arg(long, value_name = "FILE", conflicts_with = "conversation")]
    pub tokens: Option<PathBuf>,

    /// How many tokens to generate, in a chat per answer, also --n-predict; -1: until the model ends the text or the
    /// context is full; -2: until the context is full, even past the end of the text
    #[arg(short = 'n', long, alias = "n-predict", value_name = "N", default_value_t = -1, allow_negative_numbers = true, value_parser = clap::value_parser!(i64).range(-2..))]
    pub predict: i64,

    /// Bits per weight of an any-precision model, one of the widths in its file; without it the widest
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u8).range(1..=8))]
    pub bits: Option<u8>,

    #[command(flatten)]
    #[allow(missing_docs)]
    pub drafts: DraftArgs,

    /// Size of the context in tokens; 0: as the model was trained
    #[arg(
        short,
        long,
        value_name = "N",
        default_value = "0",
        allow_negative_numbers = true,
        value_parser = count
    )]
    pub ctx_size: usize,

    /// Tokens of the prompt that are evaluated before Ctrl-C is looked at
    #[arg(short, long, value_name = "N", default_value = "2048", allow_negative_numbers = true, value_parser = positive)]
    pub batch_size: usize,

    /// Tokens that go through the model together, also -ub. More are faster and take more memory
    #[arg(long, value_name = "N", default_value = "512", allow_negative_numbers = true, value_parser = positive)]
    pub ubatch_size: usize,

    /// Take backslashes in the prompt as they are; otherwise \n \r \t \' \" \\ \xHH are replaced
    #[arg(long, overrides_with = "escape")]
    pub no_escape: bool,

    /// Replace escapes in the prompt (this is the default)
    #[arg(short, long, overrides_with = "no_escape")]
    pub escape: bool,

    /// Go on when the context is full: the tokens of --keep stay, half of the others are forgotten, and the rest is
    /// evaluated again, with a note; a chat forgets its first messages. (llama.cpp turns the keys of the rest instead,
    /// so that texts part after a shift)
    #[arg(
        long,
        overrides_with = "no_context_shift",
        conflicts_with_all = ["interactive", "interactive_first"]
    )]
    pub context_shift: bool,

    /// End the text when the context is full (this is the default)
    #[arg(long, overrides_with = "context_shift")]
    pub no_context_shift: bool,

    /// Tokens of the prompt that --context-shift keeps, besides BOS; -1: all
    #[arg(long, value_name = "N", default_value_t = 0, allow_negative_numbers = true)]
    pub keep: i32,

    #[command(flatten)]
    #[allow(missing_docs)]
    pub cache: PromptCacheArgs,

    /// End the text, in a chat the answer, where it ends with TEXT, which stays in it; may be repeated
    #[arg(short, long, value_name = "TEXT", allow_hyphen_values = true)]
    pub reverse_prompt: Vec<String>,

    /// Write in turns: when the text ends with a reverse prompt, when the model ends it or has written -n tokens, and
    /// after Ctrl-C, standard input goes on, a line for each turn
    #[arg(short, long, conflicts_with_all = ["conversation", "json", "logits_sha256"])]
    pub interactive: bool,

    /// The same, and standard input goes on before the model does, also -if
    #[arg(long, conflicts_with_all = ["conversation", "json", "logits_sha256"])]
    pub interactive_first: bool,

    /// Text before each turn of standard input
    #[arg(long, value_name = "TEXT", allow_hyphen_values = true, conflicts_with = "conversation")]
    pub in_prefix: Option<String>,

    /// Text behind it
    #[arg(long, value_name = "TEXT", allow_hyphen_values = true, conflicts_with = "conversation")]
    pub in_suffix: Option<String>,

    /// BOS comes before each turn, and before --in-prefix
    #[arg(long, conflicts_with = "conversation")]
    pub in_prefix_bos: bool,

    /// Turns of standard input have several lines, the last of which ends with a backslash or a slash, also -mli
    #[arg(long, conflicts_with = "conversation")]
    pub multiline_input: bool,

    /// Do not print the prompt before its continuation
    #[arg(long)]
    pub no_display_prompt: bool,

    #[command(flatten)]
    #[allow(missing_docs)]
    pub sampling: SamplingArgs,

    #[command(flatten)]
    #[allow(missing_docs)]
    pub grammar: GrammarArgs,

    /// Show control characters in the text as escapes such as \u{1b}, except line breaks and tabs; without it the text
    /// is what the model says, whatever that does to a terminal
    #[arg(long)]
    pub escape_control: bool,

    #[command(flatten)]
    #[allow(missing_docs)]
    pub chat: ChatArgs,

    /// Print the lines of FILE ranked by the question that the prompt is instead of a text: the best first, each behind
    /// its score and a tab. The model is a reranker, or a Qwen 3 that answers yes or no
    #[arg(long, value_name = "FILE", conflicts_with_all = ["conversation", "interactive", "interactive_first", "tokens", "logits_sha256", "prompt_cache"])]
    pub rerank: Option<PathBuf>,

    #[command(flatten)]
    #[allow(missing_docs)]
    pub embed: EmbedArgs,

    /// Print the hash of the logits of every evaluated position instead of the text, see below
    #[arg(long, conflicts_with = "conversation")]
    pub logits_sha256: bool,

    /// Print one JSON object at the end instead of the text
    #[arg(long, conflicts_with = "conversation")]
    pub json: bool,
}

impl Args {
    /// True if this is a chat: by an option, or because a user in a terminal gave neither prompt nor file.
    pub(super) fn chats(&self) -> bool {
        let given = self.prompt.is_some() || self.file.is_some() || self.tokens.is_some();
        let instead = self.json || self.rerank.is_some() || self.embed.embedding || self.logits_sha256;
        let other = instead || self.in_turns() || self.cache.is_asked_for();
        let silent = !given && !other && !self.chat.no_conversation;
        self.chat.conversation || (silent && io::stdin().is_terminal())
    }

    /// The model as it is loaded: with its heads where these draft, and on a GPU at the widths of the text and its
    /// drafts. In a chat these may change.
    pub(super) fn loading(&self) -> ModelArgs {
        let source = &self.drafts.source;
        let widths = match self.bits {
            Some(bits) if !self.chats() => [bits].into_iter().chain(source.draft_bits).collect(),
            _ => Vec::new(),
        };
        ModelArgs { mtp: source.by_heads(), drafter: source.drafter(), widths, ..self.model.clone() }
    }

    /// The reverse prompts, with their escapes replaced as those of the prompt are.
    pub(super) fn reverse_prompts(&self) -> Vec<String> {
        let texts = self.reverse_prompt.iter();
        texts.map(|text| self.unescaped(text)).collect()
    }

    /// A text with its escapes replaced, unless they are to be left alone.
    pub(super) fn unescaped(&self, text: &str) -> String {
        match self.no_escape {
            true => text.to_owned(),
            false => String::from_utf8_lossy(&text::unescape(text.as_bytes())).into_owned(),
        }
    }

    /// True if the user writes too.
    pub(super) fn in_turns(&self) -> bool {
        self.interactive || self.interactive_first
    }

    /// The option that asks for more than one text behind one prompt, if there is one.
    pub(super) fn beyond_one_prompt(&self) -> Option<&'static str> {
        match self {
            _ if self.in_turns() => Some("--interactive"),
            _ if self.chats() => Some("--conversation"),
            _ if self.cache.is_asked_for() => Some("--prompt-cache"),
            _ => None,
        }
    }

    /// How many tokens of a prompt a shift of the context keeps, where it may be shifted; `None` where it may not.
    pub(super) fn shift(&self, prompt: usize, model: &Model) -> Option<usize> {
        let bos = usize::from(model.tokenizer().add_bos());
        let keep = match usize::try_from(self.keep) {
            Ok(n) if n <= prompt => n + bos,
            _ => prompt,
        };
        // -2 asks for one context and no more
        (self.predict != -2).then_some(keep.min(prompt))
    }

    /// How the text is generated; the seed may be a new one every time.
    ///
    /// # Errors
    /// A grammar that cannot be followed.
    pub(super) fn options(&self, model: &Model, n_ctx: usize) -> Result<GenerateOptions> {
        Ok(GenerateOptions {
            grammar: self.grammar.build(model)?,
            max_tokens: usize::try_from(self.predict).ok(),
            sampler: self.sampling.options(model, n_ctx, !self.no_escape)?,
            ignore_eos: self.sampling.ignore_eos,
            past_eos: self.predict == -2,
            bits: self.bits,
            draft: self.drafts.options(&self.model)?,
            cancel: interrupt::token(),
            ..GenerateOptions::default()
        })
    }
}
