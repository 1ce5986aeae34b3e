//! `rimatrix`: which weights of a model matter, by the activations they meet or by the loss's gradients; Hessians.

pub mod args;
mod collect;
mod fisher;
mod hessian;
mod statistics;

use std::io::Write;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, anyhow, bail};
use serde_json::json;
use trine_formats::imatrix::{Entry, Form, Imatrix};
use trine_formats::widely::Header;

use crate::load::peak_memory;
use crate::outfile::OutFile;
use crate::provenance::Provenance;
use crate::{inputs, interrupt, shown, signals};
use args::Args;

/// Runs the tool.
///
/// # Errors
/// Whatever the user, a file or the model did wrong, in one line.
pub fn run(args: &Args) -> Result<()> {
    if args.show_statistics {
        return show_statistics(args);
    }
    let target = target(args)?;
    let files = [&args.model, &args.file].into_iter().flatten();
    files.chain(&args.in_file).for_each(|p| inputs::add(p));
    OutFile::probe(&target, "-o")?;
    if args.save_frequency > 0 {
        spare_copies(&target)?;
    }
    let mut matrix = Imatrix::new(u32::try_from(args.ctx_size).context("-c is too large")?);
    for file in &args.in_file {
        let place = || format!("--in-file '{}'", file.display());
        let other = read(file).with_context(place)?;
        matrix.merge(&other).with_context(place)?;
    }
    let Some(text) = &args.file else {
        save(&matrix, &target, args.output_format.form())?;
        let provenance = Provenance::of("rimatrix.matrix/1");
        return summary(args, &matrix, &target, None, &provenance);
    };
    let model =
        args.model_args().ok_or_else(|| anyhow!("a text needs a model to go through: give one with -m FILE"))?;
    refuse_widely_linear(&model.model)?;
    interrupt::listen();
    let finished = if args.fisher {
        fisher::run(args, &model, text, &target)
    } else if args.hessian.is_some() {
        hessian::run(args, &model, text, &target)
    } else {
        collect::run(args, &model, text, matrix, &target)
    };
    if !finished? {
        note!("interrupted");
        std::process::exit(interrupt::EXIT_CODE);
    }
    Ok(())
}

/// Shows what the activations of one file are like.
fn show_statistics(args: &Args) -> Result<()> {
    let [file] = &args.in_file[..] else {
        bail!("--show-statistics is of one file: name it with --in-file");
    };
    let shown = file.display().to_string();
    let matrix = read(file).with_context(|| format!("--in-file '{shown}'"))?;
    let mut stdout = signals::stdout();
    statistics::write(&shown, &matrix, &mut stdout)?;
    Ok(stdout.flush()?)
}

/// Where the result goes.
fn target(args: &Args) -> Result<PathBuf> {
    let hessian = args.hessian.as_ref();
    let named = hessian.and_then(Option::as_ref);
    if let (Some(one), Some(other)) = (named, &args.output) {
        bail!(
            "--hessian says that the result goes to '{}' and -o to '{}'; give one of the two",
            one.display(),
            other.display()
        );
    }
    let default = match (args.fisher, hessian) {
        (true, _) => "fisher.safetensors",
        (_, Some(_)) => "hessian.gguf",
        (_, None) => "imatrix.gguf",
    };
    let given = named.or(args.output.as_ref()).cloned();
    Ok(given.unwrap_or_else(|| default.into()))
}

/// Text before the number of chunks in the names of copies.
const COPY: &str = ".at_";

/// Refuses names under which a copy may be saved in the middle of the run and which are inputs.
fn spare_copies(target: &Path) -> Result<()> {
    let Some(name) = target.file_name() else {
        return Ok(());
    };
    let mut beginning = name.to_owned();
    beginning.push(COPY);
    let folder = target.parent().filter(|d| !d.as_os_str().is_empty());
    let entries = std::fs::read_dir(folder.unwrap_or(Path::new("."))).into_iter().flatten();
    for entry in entries.flatten() {
        let name = entry.file_name();
        let rest = name.as_encoded_bytes().strip_prefix(beginning.as_encoded_bytes());
        if rest.is_some_and(|r| r.iter().all(u8::is_ascii_digit)) {
            inputs::spare(&entry.path(), "-o, or leave --save-frequency out")?;
        }
    }
    Ok(())
}

/// Refuses a model whose matrices are codes already: an importance matrix weighs what is lost when they become codes.
fn refuse_widely_linear(path: &Path) -> Result<()> {
    // What is wrong with the file is said when it is loaded, after what is wrong with the text.
    let Ok(file) = trine::open_file(path, true) else {
        return Ok(());
    };
    if Header::is_in(file.meta()) {
        bail!(
            "'{}' is of architecture fairy2i, whose matrices are codes already: an importance matrix has no use; take it of the model that it was made from",
            path.display()
        );
    }
    Ok(())
}

/// An importance matrix of either form.
fn read(path: &Path) -> Result<Imatrix> {
    let bytes = trine::open::open_bytes(path, false)?;
    Ok(Imatrix::parse((*bytes).as_ref())?)
}

/// Writes the whole file, or nothing.
fn save(matrix: &Imatrix, path: &Path, form: Form) -> Result<()> {
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
fn summary(
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
