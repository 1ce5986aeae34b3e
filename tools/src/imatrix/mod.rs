//! `rimatrix`: which weights of a model matter, by the activations they meet or by the loss's gradients; Hessians.

pub mod args;
mod collect;
mod fisher;
mod hessian;
mod matrix;
mod statistics;

use std::io::Write;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, anyhow, bail};
use trine_formats::imatrix::Imatrix;
use trine_formats::widely::Header;

use crate::outfile::OutFile;
use crate::provenance::Provenance;
use crate::{inputs, interrupt, signals};
use args::Args;
use matrix::{COPY, read, save, summary};

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

/// Path of the result.
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
