//! `rbench --serve`: how fast a server answers, alone and under load.
//!
//! Two kinds of clients. In a closed loop each of N clients asks again as soon as it has its answer. In an open loop
//! requests come at random times (a Poisson process), whatever the server does: that is what a server on the net sees.

mod client;
mod load;
mod plot;
mod report;

use std::io::Write;

use anyhow::{Context, Result, bail};

use super::args::Args;
use super::output::Table;
use crate::feed::RandomTokens;
use crate::outfile::OutFile;
use client::Address;
use load::{Arrivals, Load};

/// Tokens of a vocabulary that the server says nothing of: the ids below are in all there are.
const VOCABULARY: usize = 1000;

/// Runs everything and writes the table.
///
/// # Errors
/// No server, nothing to do, output that cannot be written.
pub fn run(args: &Args, url: &str, out: &mut dyn Write) -> Result<()> {
    let address = Address::parse(url, args.key.clone())?;
    let n_vocab = address.n_vocab()?.unwrap_or(VOCABULARY);
    let closed = args.clients.iter().map(|&n| Arrivals::Closed(n));
    let open = args.rate.iter().map(|&rate| Arrivals::Poisson(rate));
    let all: Vec<Arrivals> = closed.chain(open).collect();
    if all.is_empty() {
        bail!("nothing to do: give --clients N,... or --rate R,...");
    }
    if args.shared_tokens >= args.prompt_tokens {
        bail!("--shared-tokens must be fewer than the tokens of a prompt (--prompt-tokens)");
    }
    // Before anything is measured: a file that cannot be read or written is known now, and one that is read is not
    // written over.
    let beside = plot::rows(&args.beside)?;
    let drawing = args.plot.as_deref().map(|target| OutFile::create(target, "--plot"));
    let drawing = drawing.transpose()?;
    let mut rows = Vec::new();
    let mut tokens = RandomTokens::new(n_vocab);
    let shared = tokens.take(args.shared_tokens);
    let mut table = Table::new(args.output, "rbench.serve/1", out)?;
    for arrivals in all {
        let own = args.prompt_tokens - shared.len();
        let prompts = (0..args.requests).map(|_| [&shared[..], &tokens.take(own)].concat());
        let load = Load {
            address: &address,
            models: &args.model_name,
            arrivals,
            prompts: prompts.collect(),
            new_tokens: args.new_tokens,
            cache: !shared.is_empty(),
            interruption: args.interrupt.map(|n| tokens.take(n)),
        };
        if args.progress {
            note!("rbench: {url}, {arrivals}");
        }
        let ran = load.run()?;
        let line = report::line(url, arrivals, args, &ran);
        table.row(&line)?;
        rows.push(line.fields);
    }
    table.finish()?;
    match drawing {
        Some(target) => save(target, &plot::draw(&[rows, beside].concat())?),
        None => Ok(()),
    }
}

fn save(mut out: OutFile, svg: &str) -> Result<()> {
    let path = out.path().to_owned();
    let written = out.write_all(svg.as_bytes()).and_then(|()| out.keep());
    written.with_context(|| format!("cannot write '{}'", path.display()))?;
    note!("plot saved to '{}'", path.display());
    Ok(())
}
