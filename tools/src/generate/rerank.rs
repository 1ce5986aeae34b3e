//! `rgen --rerank`: the lines of a file ranked by a question.

use std::io::Write;
use std::path::Path;

use anyhow::{Context as _, Result};
use serde_json::{Value, json};
use trine::{Model, RankOptions};

use super::args::Args;
use crate::provenance::Provenance;
use crate::{interrupt, shown, signals, text};

/// Ranks the lines of the file at `path` by `query`: the best first, and of equal ones that which stands first.
///
/// # Errors
/// The file cannot be read; the model does not rank texts, or a line is too long for it.
pub fn run(args: &Args, model: &Model, query: &str, path: &Path) -> Result<()> {
    let from = format!("'{}'", path.display());
    let documents = text::utf8(text::read_file(path)?, &from)?;
    let documents: Vec<&str> = documents.lines().collect();
    let options = RankOptions { bits: args.bits, n_ctx: Some(args.ctx_size).filter(|n| *n > 0) };
    let mut ranks = Vec::new();
    for (index, document) in documents.iter().enumerate() {
        if interrupt::asked() {
            note!("interrupted");
            std::process::exit(interrupt::EXIT_CODE);
        }
        let rank = model.rank(query, &[document], &options);
        let rank = rank.with_context(|| format!("{from}, line {}", index + 1))?;
        ranks.extend(rank.into_iter().map(|rank| (index, rank)));
    }
    ranks.sort_by(|a, b| b.1.total_cmp(&a.1));
    let mut stdout = signals::stdout();
    if args.json {
        let result = |&(index, rank): &(usize, f32)| -> Value {
            json!({"index": index, "relevance_score": rank, "document": documents[index]})
        };
        let results: Vec<Value> = ranks.iter().map(result).collect();
        let report = json!({"model": args.model.model.display().to_string(), "query": query, "results": results});
        let report = Provenance::of_run("rgen.ranks/1", model)?.before(report);
        writeln!(stdout, "{}", shown::json(&report, false))?;
    } else {
        for (index, rank) in ranks {
            match args.escape_control {
                true => writeln!(stdout, "{rank}\t{}", shown::escape_text(documents[index]))?,
                false => writeln!(stdout, "{rank}\t{}", documents[index])?,
            }
        }
    }
    stdout.flush()?;
    Ok(())
}
