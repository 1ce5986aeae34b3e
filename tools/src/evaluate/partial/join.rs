//! Partial results put together.

use std::collections::BTreeMap;
use std::io::Write;
use std::path::Path;

use anyhow::{Result, anyhow, bail};
use serde_json::json;
use trine::eval::kld::Divergence;
use trine::eval::partial::ChunkSums;
use trine::eval::perplexity::Estimate;

use super::super::args::Args;
use super::super::estimate::{self, estimate_line, final_estimate, running};
use super::super::statistics;
use super::file::Partial;
use crate::provenance::Provenance;
use crate::{shown, signals};

/// A chunk's words, and the file that they are from.
type Chunks<'a> = BTreeMap<usize, (Vec<u64>, &'a Path)>;

/// Prints what one machine prints that measures all.
///
/// # Errors
/// Files of different work, chunks that are in none of them, or twice with different results.
pub fn run(args: &Args) -> Result<()> {
    let [first, others @ ..] = args.join.as_slice() else { bail!("--join needs the files that --partial wrote") };
    let Partial { head, chunks, .. } = Partial::read(first)?;
    let mut all: Chunks<'_> = chunks.into_iter().map(|(chunk, words)| (chunk, (words, first.as_path()))).collect();
    for path in others {
        let partial = Partial::read(path)?;
        if let Some(name) = partial.difference(&head) {
            bail!("'{}' and '{}' are of different work: {name:?} is not the same", first.display(), path.display());
        }
        add(&mut all, partial, path)?;
    }
    let count = complete(&all)?;
    if let Some(total) = head["chunks"].as_u64().filter(|&total| total != count as u64) {
        note!("the first {count} of {total} chunks");
    }
    let number = |name: &str| head[name].as_u64().unwrap_or(0) as usize;
    let (n_ctx, step) = (number("n_ctx"), number("chunk_step"));
    let mut out = signals::stdout();
    match head["of"].as_str() {
        Some(Estimate::NAME) => {
            let (mut total, mut lines) = (Estimate::default(), Vec::new());
            for (chunk, sums) in sums::<Estimate>(&all)? {
                total.add(&sums);
                if args.json {
                    lines.push(running(chunk + 1, &total, &sums));
                } else {
                    out.write_all(estimate_line(args, chunk + 1, step, &total).as_bytes())?;
                }
            }
            if args.json {
                let first = number("first_scored");
                let mut report = json!({ "n_ctx": n_ctx, "chunks": count, "chunk_step": step, "first_scored": first });
                estimate::add(&mut report, &total, lines);
                let report = Provenance::of("rperplexity.estimate/1").before(report);
                writeln!(out, "{}", shown::json(&report, false))?;
            } else {
                out.write_all(final_estimate(args, &total).as_bytes())?;
            }
        }
        Some(Divergence::NAME) => {
            let mut total = Divergence::default();
            if !args.json {
                writeln!(out, "{}", trine::eval::TABLE_HEAD)?;
            }
            for (chunk, sums) in sums::<Divergence>(&all)? {
                total.add(&sums);
                if !args.json {
                    writeln!(out, "{}", total.table_row(chunk + 1))?;
                }
            }
            if args.json {
                let mut report = json!({ "n_ctx": n_ctx, "chunks": count });
                statistics::add(&mut report, &total);
                let report = Provenance::of("rperplexity.divergence/1").before(report);
                writeln!(out, "{}", shown::json(&report, false))?;
            } else {
                statistics::write(&total, &mut out)?;
            }
        }
        _ => bail!("'{}' is of work that this version does not know", first.display()),
    }
    out.flush()?;
    Ok(())
}

/// Adds the chunks of another file.
fn add<'a>(all: &mut Chunks<'a>, partial: Partial, path: &'a Path) -> Result<()> {
    for (chunk, words) in partial.chunks {
        match all.get(&chunk) {
            Some((known, from)) if *known != words => bail!(
                "'{}' and '{}' have different results of chunk {}: one of them is damaged",
                from.display(),
                path.display(),
                chunk + 1
            ),
            _ => all.insert(chunk, (words, path)),
        };
    }
    Ok(())
}

/// The number of chunks, all of which are there from the first to the last.
fn complete(all: &Chunks<'_>) -> Result<usize> {
    let Some((&last, _)) = all.last_key_value() else { bail!("no chunk is in these files") };
    let Some(from) = (0..last).find(|chunk| !all.contains_key(chunk)) else { return Ok(last + 1) };
    let missing = (from..last).take_while(|chunk| !all.contains_key(chunk)).count();
    bail!(
        "chunks {} to {} are in none of these files: measure them with --from-chunk {from} --chunks {missing} --partial FILE",
        from + 1,
        from + missing
    )
}

/// The sums of all chunks, in order.
fn sums<T: ChunkSums>(all: &Chunks<'_>) -> Result<Vec<(usize, T)>> {
    let sums = all.iter().map(|(&chunk, (words, path))| match T::from_words(words) {
        Some(sums) if sums.count() > 0 => Ok((chunk, sums)),
        _ => Err(anyhow!("'{}': chunk {} is damaged", path.display(), chunk + 1)),
    });
    sums.collect()
}
