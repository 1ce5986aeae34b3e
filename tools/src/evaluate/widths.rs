//! One file at several widths: a table of the bits per weight, the perplexity and the speed of each.

use std::io::{self, Write};
use std::time::Instant;

use anyhow::{Context, Result};
use serde_json::json;
use trine::Model;
use trine::eval::base_file::BaseWriter;
use trine::eval::perplexity::perplexity;

use super::args::Args;
use super::{go_on, model};
use crate::inspect::AnyPrecReport;
use crate::load::peak_memory;
use crate::progress::Steps;
use crate::provenance::Provenance;
use crate::table::{Cell, Form, Table};
use crate::{shown, signals};

/// Evaluates the same chunks at every width; a line appears when its width is done.
pub fn table(args: &Args, loaded: &Model, widths: &[u8], text: &str) -> Result<()> {
    let name = || format!("'{}'", args.model.model.display());
    // before hours of work
    for &bits in widths {
        loaded.weights().check_width(bits).with_context(name)?;
    }
    let ap = loaded.weights().any_precision();
    let sizes = ap.map_or(Vec::new(), |ap| AnyPrecReport::of(ap, loaded.file()).widths);
    note!("tokenizing the input ..");
    let chunks = args.chunks_of(loaded.tokenizer(), text)?;
    let n_ctx = chunks.n_ctx();
    let mut model = model(args, loaded, n_ctx)?;
    note!("weights: {}", loaded.weights().layouts());
    note!(
        "calculating perplexity at {} widths over {} chunks, n_ctx={n_ctx}, batch_size={}, threads={}",
        widths.len(),
        chunks.count(),
        args.batch_size,
        loaded.threads()
    );
    let mut stdout = signals::stdout();
    let mut table = Table::new(Form::Spaces(0));
    let mut rows = Vec::new();
    for &bits in widths {
        model.set_bits(bits)?;
        note!("{bits} bits");
        let mut progress = Steps::new("chunk", chunks.count());
        let start = Instant::now();
        let total = perplexity(&mut model, &chunks, None::<&mut BaseWriter<io::Sink>>, &mut |done, _| {
            progress.tick(done);
            go_on()
        });
        progress.finish();
        let total = total?;
        let rate = (chunks.count() * n_ctx) as f64 / start.elapsed().as_secs_f64();
        let size = sizes.iter().find(|s| s.bits == bits);
        let per_weight = size.map_or(f64::NAN, |s| s.run_bits);
        if !args.json {
            let cells = [
                Cell::right("bits", 4, bits.to_string()).key(),
                Cell::right("bits/weight", 11, format!("{per_weight:.4}")),
                Cell::right("PPL", 14, format!("{:.4}", total.ppl())),
                Cell::right("+/-", 12, format!("{:.5}", total.ppl_error())),
                Cell::right("tokens/s", 10, format!("{rate:.1}")),
            ];
            table.row(&cells, &mut stdout)?;
        }
        rows.push(json!({
            "bits": bits,
            "bits_per_weight": per_weight,
            "matrix_bytes": size.map(|s| s.run_bytes),
            "ppl": total.ppl(),
            "ppl_error": total.ppl_error(),
            "mean_nll": total.mean(),
            "mean_nll_error": total.mean_error(),
            "tokens_scored": total.count,
            "tokens_per_second": rate,
        }));
    }
    table.finish(&mut stdout)?;
    if args.json {
        let report = json!({
            "model": args.model.model.display().to_string(),
            "n_ctx": n_ctx,
            "chunks": chunks.count(),
            "widths": rows,
            "peak_memory_bytes": peak_memory(),
        });
        let report = Provenance::of_run("rperplexity.widths/1", loaded)?.before(report);
        writeln!(stdout, "{}", shown::json(&report, false))?;
        stdout.flush()?;
    }
    Ok(())
}
