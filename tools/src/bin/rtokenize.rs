//! `rtokenize`: shows the tokens of a text.

use std::io::{BufWriter, Read, Write};
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, Result, anyhow, bail};
use clap::Parser;
use trine::tokenizer::Tokenizer;
use trine_tools::exit;

/// Show the tokens of a text, one `id -> 'piece'` a line
///
/// The text is taken from -p, from -f or else from standard input. Escapes such as \n and \x41 in it
/// are replaced unless --no-escape is given.
#[derive(Parser)]
#[command(version)]
struct Args {
    /// GGUF file whose tokenizer is used; only its header is read
    #[arg(short, long, value_name = "FILE")]
    model: PathBuf,
    /// Text to encode
    #[arg(short, long, value_name = "TEXT", conflicts_with = "file")]
    prompt: Option<String>,
    /// File with the text to encode, byte for byte
    #[arg(short, long, value_name = "FILE")]
    file: Option<PathBuf>,
    /// Read the text from standard input, which is also what is done without -p and -f
    #[arg(long, conflicts_with_all = ["prompt", "file"])]
    stdin: bool,
    /// Print only the ids, as a list: [1, 2, 3]
    #[arg(long, conflicts_with = "json")]
    ids: bool,
    /// Print a JSON array of {"id", "piece"} objects; bytes that are no text are shown as U+FFFD
    #[arg(long)]
    json: bool,
    /// Add neither BOS nor EOS, even if the model wants them
    #[arg(long)]
    no_bos: bool,
    /// Take the texts of control tokens as plain text
    #[arg(long)]
    no_parse_special: bool,
    /// Take backslashes as they are
    #[arg(long)]
    no_escape: bool,
    /// Print the number of tokens at the end
    #[arg(long, conflicts_with = "json")]
    show_count: bool,
}

fn main() -> ExitCode {
    exit::run("rtokenize", || tokenize(&Args::parse()))
}

fn tokenize(args: &Args) -> Result<()> {
    let model = trine::open_file(&args.model, true)?;
    let tokenizer = Tokenizer::from_metadata(model.meta())
        .with_context(|| format!("'{}'", args.model.display()))?;
    let text = read_text(args)?;
    let ids = tokenizer.encode(&text, !args.no_bos, !args.no_parse_special)?;
    let mut out = BufWriter::new(std::io::stdout().lock());
    print(args, &tokenizer, &ids, &mut out).context("cannot write the tokens")?;
    out.flush().context("cannot write the tokens")
}

fn print(
    args: &Args,
    tokenizer: &Tokenizer,
    ids: &[u32],
    out: &mut impl Write,
) -> std::io::Result<()> {
    if args.json {
        let tokens: Vec<_> = ids
            .iter()
            .map(|&id| {
                let piece = tokenizer.piece(id, true);
                serde_json::json!({ "id": id, "piece": String::from_utf8_lossy(&piece) })
            })
            .collect();
        return writeln!(out, "{}", serde_json::Value::from(tokens));
    }
    if args.ids {
        writeln!(out, "{ids:?}")?;
    } else {
        for &id in ids {
            write!(out, "{id:6} -> '")?;
            out.write_all(&tokenizer.piece(id, true))?;
            writeln!(out, "'")?;
        }
    }
    if args.show_count {
        writeln!(out, "Total number of tokens: {}", ids.len())?;
    }
    Ok(())
}

fn read_text(args: &Args) -> Result<String> {
    let (bytes, from) = if let Some(prompt) = &args.prompt {
        (prompt.clone().into_bytes(), "the prompt".to_owned())
    } else if let Some(path) = &args.file {
        let from = format!("'{}'", path.display());
        let bytes = std::fs::read(path).with_context(|| format!("cannot read {from}"))?;
        (bytes, from)
    } else {
        let mut bytes = Vec::new();
        std::io::stdin()
            .read_to_end(&mut bytes)
            .context("cannot read standard input")?;
        (bytes, "standard input".to_owned())
    };
    let bytes = if args.no_escape {
        bytes
    } else {
        unescape(&bytes)
    };
    match String::from_utf8(bytes) {
        Ok(text) if text.is_empty() && args.prompt.is_none() && args.file.is_none() => {
            bail!("no text: give one with -p, -f or on standard input")
        }
        Ok(text) => Ok(text),
        Err(e) => Err(anyhow!(
            "{from} is not UTF-8 at byte {}",
            e.utf8_error().valid_up_to()
        )),
    }
}

/// Replaces the escapes that llama.cpp's tools know: `\n \r \t \' \" \\` and `\xHH`; others stay.
fn unescape(text: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some((&byte, after)) = rest.split_first() {
        rest = after;
        let Some(&escaped) = after.first().filter(|_| byte == b'\\') else {
            out.push(byte);
            continue;
        };
        rest = &after[1..];
        match escaped {
            b'n' => out.push(b'\n'),
            b'r' => out.push(b'\r'),
            b't' => out.push(b'\t'),
            b'\'' | b'"' | b'\\' => out.push(escaped),
            _ => {
                let hex = rest.get(..2).and_then(|h| std::str::from_utf8(h).ok());
                let value = hex
                    .filter(|h| escaped == b'x' && h.bytes().all(|b| b.is_ascii_hexdigit()))
                    .and_then(|h| u8::from_str_radix(h, 16).ok());
                if let Some(value) = value {
                    out.push(value);
                    rest = &rest[2..];
                } else {
                    out.extend([b'\\', escaped]);
                }
            }
        }
    }
    out
}
