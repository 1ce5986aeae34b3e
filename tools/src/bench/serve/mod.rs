//! `rbench --serve`: how fast a server answers, alone and under load.
//!
//! Two kinds of clients. In a closed loop each of N clients asks again as soon as it has its answer. In an open loop
//! requests come at random times (a Poisson process), whatever the server does: that is what a server on the net sees.

mod client;
mod load;
mod report;

use std::io::Write;

use anyhow::{Result, bail};

use super::args::Args;
use super::output::Table;
use crate::feed::RandomTokens;
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
    let mut tokens = RandomTokens::new(n_vocab);
    let mut table = Table::new(args.output, out)?;
    for arrivals in all {
        let prompts = (0..args.requests).map(|_| tokens.take(args.prompt_tokens));
        let load = Load {
            address: &address,
            model: args.model_name.as_deref(),
            arrivals,
            prompts: prompts.collect(),
            new_tokens: args.new_tokens,
        };
        if args.progress {
            note!("rbench: {url}, {arrivals}");
        }
        let ran = load.run()?;
        table.row(&report::line(url, arrivals, args, &ran))?;
    }
    table.finish()?;
    Ok(())
}
