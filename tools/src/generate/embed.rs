//! `rgen --embedding`: the vectors of texts, and how alike they are.

use std::io::Write;

use anyhow::{Context as _, Result, bail};
use serde_json::json;
use trine::{EmbedOptions, Model, Pooling, Scale};

use super::args::Args;
use super::embed_args::Format;
use crate::provenance::Provenance;
use crate::{interrupt, shown, signals, text};

/// Vectors of several texts.
struct Vectors {
    texts: Vec<String>,
    /// One of each text, or where nothing is pooled one of each token.
    vectors: Vec<Vec<f32>>,
    pooled: bool,
    /// Numbers are whole.
    whole: bool,
}

/// Prints the vectors of the parts of `prompt`.
///
/// # Errors
/// A part is empty or too long for the model, or the model computes no numbers.
pub fn run(args: &Args, model: &Model, prompt: &str) -> Result<()> {
    let options = &args.embed;
    let separator = match &options.embd_separator {
        None => "\n".to_owned(),
        Some(given) if args.no_escape => given.clone(),
        Some(given) => text::utf8(text::unescape(given.as_bytes()), "--embd-separator")?,
    };
    if separator.is_empty() {
        bail!("--embd-separator is empty; name the text that stands between two texts");
    }
    let texts: Vec<String> = prompt.split(&separator).map(str::to_owned).collect();
    let scale = options.embd_normalize.unwrap_or_default();
    // The vectors of tokens are scaled each by itself.
    let how = EmbedOptions {
        pooling: options.pooling,
        scale: Scale::None,
        bits: args.bits,
        n_ctx: Some(args.ctx_size).filter(|n| *n > 0),
    };
    let pooled = options.pooling.or(model.pooling()) != Some(Pooling::None);
    let mut vectors = Vec::new();
    for (index, text) in texts.iter().enumerate() {
        if interrupt::asked() {
            note!("interrupted");
            std::process::exit(interrupt::EXIT_CODE);
        }
        let part = || format!("part {} of the prompt", index + 1);
        let tokens = model.tokenizer().encode(text, true, true).with_context(part)?;
        let made = model.embed(&tokens, &how).with_context(part)?;
        let each = if pooled { made.len() } else { made.len() / tokens.len() };
        vectors.extend(made.chunks(each.max(1)).map(|vector| {
            let mut vector = vector.to_vec();
            scale.apply(&mut vector);
            vector
        }));
    }
    let all = Vectors { texts, vectors, pooled, whole: scale == Scale::Largest };
    let mut stdout = signals::stdout();
    if args.json {
        let report = json!({"model": args.model.model.display().to_string(), "embeddings": all.vectors});
        let report = Provenance::of_run("rgen.embeddings/1", model)?.before(report);
        writeln!(stdout, "{}", shown::json(&report, false))?;
    } else {
        match options.embd_output_format {
            None => all.show(&mut stdout)?,
            Some(Format::Raw) => all.vectors.iter().try_for_each(|v| writeln!(stdout, "{}", all.line(v, " ")))?,
            Some(Format::Array) => writeln!(stdout, "{}", all.array())?,
            Some(Format::Json) => writeln!(stdout, "{}", all.list(false))?,
            Some(Format::JsonWithCosines) => writeln!(stdout, "{}", all.list(true))?,
        }
    }
    stdout.flush()?;
    Ok(())
}

impl Vectors {
    /// A vector with seven digits behind the point, or none of whole numbers.
    fn line(&self, vector: &[f32], between: &str) -> String {
        let digits = if self.whole { 0 } else { 7 };
        let numbers: Vec<String> = vector.iter().map(|x| format!("{x:.digits$}")).collect();
        numbers.join(between)
    }

    fn array(&self) -> String {
        let lines: Vec<String> = self.vectors.iter().map(|v| format!("[{}]", self.line(v, ","))).collect();
        format!("[{}]", lines.join(","))
    }

    /// OpenAI's list of vectors, with seven digits.
    fn list(&self, with_cosines: bool) -> String {
        let entry = |(index, vector): (usize, &Vec<f32>)| {
            let vector = self.line(vector, ",");
            format!(
                "    {{\n      \"object\": \"embedding\",\n      \"index\": {index},\n      \"embedding\": [{vector}]\n    }}"
            )
        };
        let entries: Vec<String> = self.vectors.iter().enumerate().map(entry).collect();
        let mut list = format!("{{\n  \"object\": \"list\",\n  \"data\": [\n{}\n  ]", entries.join(",\n"));
        if with_cosines && self.texts.len() > 1 && self.pooled {
            let row = |row: &Vec<f64>| {
                let row: Vec<String> = row.iter().map(|x| format!("{x:.2}")).collect();
                format!("    [{}]", row.join(", "))
            };
            let rows: Vec<String> = self.cosines().iter().map(row).collect();
            list += &format!(",\n  \"cosineSimilarity\": [\n{}\n  ]", rows.join(",\n"));
        }
        list + "\n}"
    }

    /// The beginning of every vector, all of a single one, and the cosines of several.
    fn show(&self, out: &mut impl Write) -> Result<()> {
        let digits = if self.whole { 0 } else { 6 };
        for (index, vector) in self.vectors.iter().enumerate() {
            let shown = if self.vectors.len() > 1 { vector.len().min(16) } else { vector.len() };
            let numbers: Vec<String> = vector[..shown].iter().map(|x| format!("{x:9.digits$}")).collect();
            let more = if shown < vector.len() { " ..." } else { "" };
            writeln!(out, "embedding {index}: {}{more}", numbers.join(" "))?;
        }
        if self.texts.len() > 1 && self.pooled {
            writeln!(out, "\ncosine similarity matrix:\n")?;
            for (row, text) in self.cosines().iter().zip(&self.texts) {
                let row: Vec<String> = row.iter().map(|x| format!("{x:6.2}")).collect();
                let text: String = text.chars().take(30).collect();
                writeln!(out, "{} {}", row.join(" "), shown::escape_text(&text))?;
            }
        }
        Ok(())
    }

    /// The cosines of the angles between all vectors; 1 between two of zeros, and 0 between one of zeros and another.
    fn cosines(&self) -> Vec<Vec<f64>> {
        let dot = |a: &[f32], b: &[f32]| a.iter().zip(b).fold(0.0, |sum, (a, b)| sum + f64::from(*a) * f64::from(*b));
        let cosine = |a: &Vec<f32>, b: &Vec<f32>| match (dot(a, a), dot(b, b)) {
            (x, y) if x == 0.0 || y == 0.0 => f64::from(u8::from(x == y)),
            (x, y) => dot(a, b) / (x.sqrt() * y.sqrt()),
        };
        self.vectors.iter().map(|a| self.vectors.iter().map(|b| cosine(a, b)).collect()).collect()
    }
}
