//! Files of importance matrices, and their summaries.

use std::io::Write;
use std::path::Path;

use anyhow::{Context, Result, bail};
use serde_json::json;
use trine_formats::imatrix::{Entry, FileFormat, Imatrix};

use super::args::Args;
use crate::load::peak_memory;
use crate::outfile::OutFile;
use crate::provenance::Provenance;
use crate::{shown, signals};

/// Text before the number of chunks in the names of copies.
pub(super) const COPY: &str = ".at_";

/// An importance matrix of either form.
pub(super) fn read(path: &Path) -> Result<Imatrix> {
    let bytes = trine::open::open_bytes(path, false)?;
    Ok(Imatrix::parse((*bytes).as_ref())?)
}

/// Writes the whole file, or nothing.
pub(super) fn save(matrix: &Imatrix, path: &Path, form: FileFormat) -> Result<()> {
    let failed = || format!("cannot write '{}'", path.display());
    if matrix.entries.is_empty() {
        bail!("there is nothing to write: no matrix of the model saw a token");
    }
    let bytes = matrix.to_bytes(form).with_context(failed)?;
    let mut out = OutFile::create(path, "-o")?;
    out.write_all(&bytes).and_then(|()| out.keep()).with_context(failed)
}

/// Says which experts a matrix knows nothing of.
fn warn_of_idle_experts(matrix: &Imatrix) {
    let idle = |e: &Entry| e.counts.iter().filter(|&&c| c == 0).count();
    let partial = matrix.entries.iter().filter(|(_, e)| idle(e) > 0);
    let Some((name, worst)) = partial.clone().max_by_key(|(_, e)| idle(e)) else {
        return;
    };
    note!(
        "warning: {} matrices have experts that saw no token, '{name}' {} of {}; rquantize takes all their columns as equally important, so use a longer text",
        partial.count(),
        idle(worst),
        worst.counts.len()
    );
}

/// The summary of the written file, on standard output. `ppl`: the perplexity and its error.
pub(super) fn summary(
    args: &Args,
    matrix: &Imatrix,
    target: &Path,
    ppl: Option<(f64, f64)>,
    provenance: &Provenance,
) -> Result<()> {
    warn_of_idle_experts(matrix);
    let mut stdout = signals::stdout();
    if args.json {
        let report = json!({
            "output": target.display().to_string(),
            "matrices": matrix.entries.len(),
            "chunks": matrix.chunk_count,
            "chunk_size": matrix.chunk_size,
            "datasets": matrix.datasets,
            "ppl": ppl.map(|p| p.0),
            "ppl_error": ppl.map(|p| p.1),
            "peak_memory_bytes": peak_memory(),
        });
        writeln!(stdout, "{}", shown::json(&provenance.before(report), false))?;
    } else {
        if let Some((ppl, error)) = ppl {
            writeln!(stdout, "Final estimate: PPL = {ppl:.4} +/- {error:.5}")?;
        }
        writeln!(
            stdout,
            "{}: {} matrices, {} chunks of {} tokens",
            target.display(),
            matrix.entries.len(),
            matrix.chunk_count,
            matrix.chunk_size
        )?;
    }
    Ok(stdout.flush()?)
}
