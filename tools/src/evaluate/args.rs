//! The options of `rperplexity`: llama-perplexity's names and defaults.

use std::ops::Range;
use std::path::{Path, PathBuf};

use anyhow::{Result, anyhow, bail};
use clap::builder::ArgPredicate;
use clap::{Parser, ValueEnum};
use trine::Tokenizer;
use trine::eval::{Chunks, EvalError};

use super::task_args::TaskArgs;
use crate::args::Short;
use crate::load::{ModelArgs, SHORT_TYPES, count, positive};
use crate::{device, text};

/// Options of several letters behind one dash.
pub const SHORT: Short = &[
    ("-ub", "--ubatch-size"),
    SHORT_TYPES[0],
    SHORT_TYPES[1],
    device::SHORT,
    device::SHORT_LAYERS,
    device::SHORT_SPLIT[0],
    device::SHORT_SPLIT[1],
    device::SHORT_SPLIT[2],
    ("-bf", "--binary-file"),
    ("-np", "--parallel"),
];

/// Measure how well a model predicts a text
///
/// The text is cut into chunks of -c tokens; the second half of each is scored. Perplexity is e to the
/// mean negative log-likelihood: lower is better, and only models with the same tokenizer compare.
/// The digits are those of llama-perplexity, on every machine and with any number of threads.
#[derive(Parser)]
#[command(
    name = "rperplexity",
    version,
    args_override_self = true,
    mut_arg("model", |arg| arg.required(false).required_unless_present("join").default_value_if("join", ArgPredicate::IsPresent, "-")),
    after_help = "See --help for examples.",
    after_long_help = "\
Examples:
  rperplexity -m model.gguf -f wiki.test.raw                 the whole text
  rperplexity -m model.gguf -f wiki.test.raw --chunks 20     its first 20 chunks
  rperplexity -m model.gguf -f wiki.test.raw --json | jq .ppl
  rperplexity -m model-ap.gguf -f wiki.test.raw --bits 3,4,6     several widths of one file
  rperplexity -m model.gguf -f wiki.test.raw -c 2048 --score all     as papers on quantization measure

How much does quantizing cost? Save what the original predicts, then compare:
  rperplexity -m model-F16.gguf -f wiki.test.raw --kl-divergence-base model-F16.kld
  rperplexity -m model-Q4_K_M.gguf --kl-divergence-base model-F16.kld --kl-divergence

Which of these should I use? One table and one picture of quality against size and speed:
  rperplexity --compare -m model-F16.gguf -f wiki.test.raw --chunks 20 \\
      model-Q4_K_M.gguf model-Q8_0.gguf model-ap.gguf --bits 3,4,8 --plot model.svg

Too slow for one machine? Parts of the text on several, of any kind, and the digits of one:
  rperplexity -m model.gguf -f wiki.test.raw --chunks 300 --partial a.part
  rperplexity -m model.gguf -f wiki.test.raw --from-chunk 300 --partial b.part
  rperplexity --join a.part b.part

How well does it choose? HellaSwag, WinoGrande and multiple choice, in llama-perplexity's files, order and digits:
  rperplexity -m model.gguf -f hellaswag_val_full.txt --hellaswag --hellaswag-tasks 400
  rperplexity -m model.gguf -f winogrande-debiased-eval.csv --winogrande
  rperplexity -m model.gguf -bf arc-easy-validation.bin --multiple-choice
  rperplexity -m model.gguf -f arc-easy-test.jsonl --questions       as lm-evaluation-harness scores it

The base file is llama-perplexity's, in both directions; it takes 2 bytes per token of the vocabulary
and scored position (WikiText-2 with 32000 tokens: 11 GB), so limit it with --chunks. It appears under its name
only when it is complete."
)]
pub struct Args {
    #[command(flatten)]
    #[allow(missing_docs)]
    pub model: ModelArgs,

    /// The text; one line break at its end is left out. With --kl-divergence it is not needed: the
    /// base file holds the tokens, and a text given all the same must have these
    #[arg(
        short,
        long,
        value_name = "FILE",
        required_unless_present_any = ["kl_divergence", "binary_file", "join"]
    )]
    pub file: Option<PathBuf>,

    /// The same to the last byte, whatever it is; also -bf
    #[arg(long, value_name = "FILE", conflicts_with_all = ["file", "compare"])]
    pub binary_file: Option<PathBuf>,

    /// Widths of an any-precision model in bits, separated by commas; more than one give a table, a line for each.
    /// Without it the widest. With --compare: of the any-precision files among FILES, without it all that they have
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = clap::value_parser!(u8).range(1..=8))]
    pub bits: Vec<u8>,

    /// Tokens per chunk; without it 512, or what the base file says
    #[arg(short, long, value_name = "N", allow_negative_numbers = true, value_parser = positive)]
    pub ctx_size: Option<usize>,

    /// Tokens of all chunks that are evaluated together: as many chunks run side by side as fit, which is faster where
    /// they are short. The result does not depend on it
    #[arg(short, long, value_name = "N", default_value = "2048", allow_negative_numbers = true, value_parser = positive)]
    pub batch_size: usize,

    /// Tokens that go through the model at once, of as many chunks as it takes, also -ub. The result does not depend on
    /// it
    #[arg(long, value_name = "N", default_value = "512", allow_negative_numbers = true, value_parser = positive)]
    pub ubatch_size: usize,

    /// Evaluate only the first N chunks
    #[arg(long, value_name = "N", allow_negative_numbers = true, value_parser = positive)]
    pub chunks: Option<usize>,

    /// Leave out the first N chunks; with --chunks M the M after them are evaluated
    #[arg(long, value_name = "N", visible_alias = "chunks-from", default_value_t = 0, value_parser = count, allow_negative_numbers = true, conflicts_with_all = WHOLE)]
    pub from_chunk: usize,

    /// Write the sums of every chunk to FILE as soon as it is done and print no result, which --join does; chunks that
    /// FILE has from an earlier run are not evaluated again
    #[arg(long, value_name = "FILE", conflicts_with_all = WHOLE, conflicts_with = "json")]
    pub partial: Option<PathBuf>,

    /// Put FILES of --partial together and print what one machine prints that evaluates all their chunks
    #[arg(long, value_name = "FILES", num_args = 1.., conflicts_with_all = WHOLE,
          conflicts_with_all = ["model", "file", "binary_file", "partial", "from_chunk", "chunks", "kl_divergence", "kl_divergence_base"])]
    pub join: Vec<PathBuf>,

    /// Which positions of a chunk are scored: half, the second half, as llama-perplexity; all, every one that has a token
    /// after it, as papers on quantization report it for windows of 2048 tokens (-c 2048). With all, chunks begin with
    /// the text's own tokens, none of which BOS replaces
    #[arg(long, value_name = "half|all", default_value = "half", hide_possible_values = true, conflicts_with_all = UNLIKE_BASES)]
    pub score: Score,

    /// Chunks begin N tokens after one another and their last N positions are scored, llama-perplexity's way: they have
    /// -c tokens and N/2, in whole 256s, and BOS replaces none. 0 for chunks that follow one another
    #[arg(long, value_name = "N", default_value_t = 0, conflicts_with = "score", conflicts_with_all = UNLIKE_BASES)]
    pub ppl_stride: usize,

    /// 0: the running estimate in one line; 1: a line per chunk with its place in the text, perplexity,
    /// mean negative log-likelihood and its error
    #[arg(long, value_name = "0|1", default_value_t = 0, value_parser = clap::value_parser!(u8).range(0..=1), conflicts_with_all = ["kl_divergence", "json"])]
    pub ppl_output_type: u8,

    /// Save the log-probabilities of all scored positions to FILE; with --kl-divergence read them. With --compare: read
    /// those of the reference from FILE where it exists, else save them there
    #[arg(long, value_name = "FILE", visible_alias = "save-all-logits")]
    pub kl_divergence_base: Option<PathBuf>,

    /// Compare with the log-probabilities in the file of --kl-divergence-base
    #[arg(long, requires = "kl_divergence_base")]
    pub kl_divergence: bool,

    /// Measure FILES, and the widths of any-precision ones, against the reference -m: perplexity, KL divergence, size
    /// and speed, a line for each
    #[arg(long, conflicts_with_all = ["kl_divergence", "ppl_output_type"])]
    pub compare: bool,

    /// The models that --compare measures
    #[arg(value_name = "FILES", requires = "compare")]
    pub files: Vec<PathBuf>,

    /// With --compare: draw perplexity and KL divergence against size and speed into this SVG file
    #[arg(long, value_name = "FILE.svg", requires = "compare")]
    pub plot: Option<PathBuf>,

    /// With --compare: do not time the generation of single tokens
    #[arg(long, requires = "compare")]
    pub no_speed: bool,

    /// With --compare: the table as comma-separated values, all columns
    #[arg(long, requires = "compare", conflicts_with = "json")]
    pub csv: bool,

    #[command(flatten)]
    #[allow(missing_docs)]
    pub tasks: TaskArgs,

    /// Print one JSON object at the end
    #[arg(long)]
    pub json: bool,
}

/// Scored positions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Score {
    /// The second half of a chunk.
    Half,
    /// All.
    All,
}

/// Options that stand for scores of second halves, which base files hold, and for scores of no text.
const UNLIKE_BASES: [&str; 7] =
    ["kl_divergence", "kl_divergence_base", "compare", "hellaswag", "winogrande", "multiple_choice", "questions"];

/// Options of what is not measured chunk by chunk.
const WHOLE: [&str; 5] = ["compare", "hellaswag", "winogrande", "multiple_choice", "questions"];

/// A path as errors name it.
fn shown_path(path: &Path) -> String {
    format!("'{}'", path.display())
}

impl Args {
    /// The model as it is loaded: on a GPU at the widths that are asked for.
    pub(super) fn loading(&self) -> ModelArgs {
        ModelArgs { widths: self.bits.clone(), ..self.model.clone() }
    }

    /// The widths asked for, each once; what a table of them cannot be together with is refused.
    pub(super) fn widths(&self) -> Result<Vec<u8>> {
        let mut widths: Vec<u8> = Vec::new();
        for &bits in &self.bits {
            if !widths.contains(&bits) {
                widths.push(bits);
            }
        }
        if widths.len() > 1 && !self.compare {
            for (name, given) in [
                ("--kl-divergence-base", self.kl_divergence_base.is_some()),
                ("--ppl-output-type", self.ppl_output_type != 0),
                ("--partial", self.partial.is_some()),
                ("--from-chunk", self.from_chunk > 0),
                ("--hellaswag", self.tasks.hellaswag),
                ("--winogrande", self.tasks.winogrande),
                ("--multiple-choice", self.tasks.multiple_choice),
                ("--questions", self.tasks.questions),
            ] {
                if given {
                    bail!("{name} is for one width: give --bits one number");
                }
            }
        }
        Ok(widths)
    }

    /// Most chunks that the text is cut into: those before the first that is wanted count, and partial results say how
    /// many there are.
    pub(super) fn limit(&self) -> Option<usize> {
        if self.partial.is_some() { None } else { self.chunks.map(|n| n.saturating_add(self.from_chunk)) }
    }

    /// The chunks wanted of `count`.
    ///
    /// # Errors
    /// There are too few.
    pub(super) fn wanted(&self, count: usize) -> Result<Range<usize>> {
        let from = self.from_chunk;
        if from >= count {
            bail!("there are {count} chunks, of which --from-chunk {from} leaves none");
        }
        Ok(from..self.chunks.map_or(count, |n| from.saturating_add(n).min(count)))
    }

    /// Refuses parts of a base file that would be written.
    ///
    /// # Errors
    /// They are wanted.
    pub(super) fn whole_base(&self) -> Result<()> {
        if self.kl_divergence_base.is_some() && !self.kl_divergence {
            for (name, given) in [("--partial", self.partial.is_some()), ("--from-chunk", self.from_chunk > 0)] {
                if given {
                    bail!(
                        "{name} is not for writing a base file, which has the chunks from the first on: leave it out"
                    );
                }
            }
        }
        Ok(())
    }

    /// The chunks of a text.
    ///
    /// # Errors
    /// Too few tokens for them; tokens that the text does not give.
    pub(super) fn chunks_of(&self, tokenizer: &Tokenizer, text: &str) -> Result<Chunks, EvalError> {
        let tokens = tokenizer.encode(text, true, false)?;
        let n_ctx = self.ctx_size.unwrap_or(512);
        match (self.ppl_stride, self.score) {
            (0, Score::Half) => Chunks::new(tokens, n_ctx, tokenizer.text_bos(), self.limit()),
            (0, Score::All) => Chunks::all(tokens, n_ctx, self.limit()),
            (stride, _) => Chunks::strided(tokens, n_ctx, stride, self.limit()),
        }
    }

    /// The bytes of the text as llama.cpp takes them, and the name of their file for errors: one line break at the end
    /// of --file is left out.
    pub(super) fn bytes(&self) -> Result<(Vec<u8>, String)> {
        match (&self.file, &self.binary_file) {
            (Some(path), _) => Ok((text::read_prompt_bytes(path)?, shown_path(path))),
            (None, Some(path)) => Ok((text::read_file(path)?, shown_path(path))),
            (None, None) => Err(anyhow!("there is no text: give one with -f FILE")),
        }
    }

    /// The text, where there is one.
    pub(super) fn text(&self) -> Result<Option<String>> {
        if self.file.is_none() && self.binary_file.is_none() {
            return Ok(None);
        }
        let (bytes, from) = self.bytes()?;
        text::utf8(bytes, &from).map(Some)
    }

    /// The base file, where there must be one.
    pub(super) fn base(&self) -> Result<&Path> {
        self.kl_divergence_base.as_deref().ok_or_else(|| anyhow!("--kl-divergence needs --kl-divergence-base FILE"))
    }
}
