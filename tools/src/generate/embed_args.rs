//! Options of `rgen --embedding`.

use clap::ValueEnum;
use trine::{Pooling, Scale};

/// Options of vectors.
#[derive(clap::Args, Clone, Debug)]
pub struct EmbedArgs {
    /// Print the vectors of the prompt's lines instead of a text, and of several how alike they are: the cosines of their
    /// angles; also --embeddings
    #[arg(
        long,
        alias = "embeddings",
        conflicts_with_all = ["conversation", "interactive", "interactive_first", "tokens", "logits_sha256", "prompt_cache", "rerank"]
    )]
    pub embedding: bool,

    /// How the vectors of a text's tokens become one: mean, cls, last or none; without it as the file says, and where it does not, their mean
    #[arg(long, value_name = "KIND", requires = "embedding", value_parser = pooling)]
    pub pooling: Option<Pooling>,

    /// The scale of a vector: 2 makes its length 1 (the default), 0 its largest number 32760, -1 leaves it
    #[arg(long, value_name = "N", requires = "embedding", allow_negative_numbers = true, value_parser = scale)]
    pub embd_normalize: Option<Scale>,

    /// json as OpenAI's API has it, json+ with the cosines, array, or raw: a vector a line
    #[arg(long, value_name = "FORMAT", requires = "embedding", conflicts_with = "json")]
    pub embd_output_format: Option<Format>,

    /// The text that parts the prompt, instead of the end of a line
    #[arg(long, value_name = "TEXT", requires = "embedding", allow_hyphen_values = true)]
    pub embd_separator: Option<String>,
}

/// Forms of the output, as llama-embedding names them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Format {
    #[allow(missing_docs)]
    Json,
    #[value(name = "json+")]
    #[allow(missing_docs)]
    JsonWithCosines,
    #[allow(missing_docs)]
    Array,
    #[allow(missing_docs)]
    Raw,
}

fn pooling(name: &str) -> Result<Pooling, String> {
    match Pooling::by_name(name) {
        Some(Pooling::Rank) => Err("rgen --rerank FILE ranks texts".to_owned()),
        Some(pooling) => Ok(pooling),
        None => Err(format!("it is one of {}", Pooling::names().collect::<Vec<_>>().join(", "))),
    }
}

fn scale(number: &str) -> Result<Scale, &'static str> {
    let as_written = |n: &i64| n.to_string() == number;
    number.parse().ok().filter(as_written).and_then(Scale::by_number).ok_or("it is 2, 0 or -1")
}
