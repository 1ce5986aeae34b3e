//! `rtokenize`: shows the tokens of a text.

use std::io::{BufWriter, Write};
use std::path::PathBuf;

use anyhow::{Context, Result, anyhow, bail};
use clap::Parser;
use trine::tokenizer::Tokenizer;

use crate::{load, shown, signals, text};

/// Show the tokens of a text, one `id -> 'piece'` a line
///
/// The text is taken from -p, from -f or else from standard input. Escapes such as \n and \x41 in it
/// are replaced unless --no-escape is given.
#[derive(Parser)]
#[command(
    name = "rtokenize",
    version,
    after_help = "\
Examples:
  rtokenize -m model.gguf -p 'Once upon a time'
  rtokenize -m model.gguf -f text.txt --ids --no-escape
  echo 'Who are you?' | rtokenize -m model.gguf --json"
)]
pub struct Args {
    /// GGUF file whose tokenizer is used; only its header is read
    #[arg(short, long, value_name = "FILE")]
    pub model: PathBuf,
    /// Text to encode
    #[arg(short, long, value_name = "TEXT", conflicts_with = "file")]
    pub prompt: Option<String>,
    /// File with the text to encode, byte for byte
    #[arg(short, long, value_name = "FILE")]
    pub file: Option<PathBuf>,
    /// Read the text from standard input, which is also what is done without -p and -f
    #[arg(long, conflicts_with_all = ["prompt", "file"])]
    pub stdin: bool,
    /// Print only the ids, as a list: [1, 2, 3]
    #[arg(long, conflicts_with = "json")]
    pub ids: bool,
    /// Print a JSON array of {"id", "piece"} objects; bytes that are no text are shown as U+FFFD
    #[arg(long)]
    pub json: bool,
    /// Add neither BOS nor EOS, even if the model wants them
    #[arg(long)]
    pub no_bos: bool,
    /// Take the texts of control tokens as plain text
    #[arg(long)]
    pub no_parse_special: bool,
    /// Take backslashes as they are
    #[arg(long)]
    pub no_escape: bool,
    /// Print the number of tokens at the end
    #[arg(long, conflicts_with = "json")]
    pub show_count: bool,
}

/// Runs the tool.
///
/// # Errors
/// Whatever the user or the model did wrong, in one line.
pub fn run(args: &Args) -> Result<()> {
    let model = load::open(&args.model, true)?;
    let tokenizer = Tokenizer::from_metadata(model.meta()).with_context(|| format!("'{}'", args.model.display()))?;
    let text = read_text(args)?;
    let ids = tokenizer.encode(&text, !args.no_bos, !args.no_parse_special)?;
    let mut out = BufWriter::new(signals::stdout());
    print(args, &tokenizer, &ids, &mut out).context("cannot write the tokens")?;
    out.flush().context("cannot write the tokens")
}

fn print(args: &Args, tokenizer: &Tokenizer, ids: &[u32], out: &mut impl Write) -> std::io::Result<()> {
    if args.json {
        let tokens: Vec<_> = ids
            .iter()
            .map(|&id| {
                let piece = tokenizer.piece(id, true);
                serde_json::json!({ "id": id, "piece": String::from_utf8_lossy(&piece) })
            })
            .collect();
        return writeln!(out, "{}", shown::json(&tokens.into(), false));
    }
    if args.ids {
        writeln!(out, "{ids:?}")?;
    } else {
        for &id in ids {
            write!(out, "{id:6} -> '")?;
            out.write_all(&escaped(tokenizer.piece(id, true)))?;
            writeln!(out, "'")?;
        }
    }
    if args.show_count {
        writeln!(out, "Total number of tokens: {}", ids.len())?;
    }
    Ok(())
}

/// A piece without what would do something to the terminal, where it is text; line breaks and tabs are pieces too. The
/// bytes of a piece that is a part of a character stay as they are.
fn escaped(piece: Vec<u8>) -> Vec<u8> {
    match String::from_utf8(piece) {
        Ok(text) => shown::escape_text(&text).into_bytes(),
        Err(e) => e.into_bytes(),
    }
}

fn read_text(args: &Args) -> Result<String> {
    let (bytes, from) = if let Some(prompt) = &args.prompt {
        (prompt.clone().into_bytes(), "the prompt".to_owned())
    } else if let Some(path) = &args.file {
        let from = format!("'{}'", path.display());
        (text::read_file(path)?, from)
    } else {
        (text::read_stdin()?, "standard input".to_owned())
    };
    let bytes = if args.no_escape { bytes } else { text::unescape(&bytes) };
    match String::from_utf8(bytes) {
        Ok(text) if text.is_empty() && args.prompt.is_none() && args.file.is_none() => {
            bail!("no text: give one with -p, -f or on standard input")
        }
        Ok(text) => Ok(text),
        Err(e) => Err(anyhow!("{from} is not UTF-8 at byte {}", e.utf8_error().valid_up_to())),
    }
}
