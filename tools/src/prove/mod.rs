//! `trine prove`: the logits of small synthetic models have the bits of llama.cpp's portable build on this machine.
//!
//! The models are made up on the spot, with the same weights everywhere. What their logits are was computed by llama.cpp,
//! built for plain x86-64, and is in the program as a list of hashes: `compat-tests/python/prove_reference.py` writes it.

use std::io::Write as _;
use std::time::Instant;

use anyhow::{Context, Result, bail};
use clap::Parser;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use trine::Isa;
use trine::model::{LoadOptions, Weights};
use trine::pool::Pool;
use trine::step::{Session, SessionOptions};

use crate::bench::synth::Spec;
use crate::load::thread_count;
use crate::progress::Steps;
use crate::text::hex;
use crate::{provenance, threads, version};

/// Models and the SHA-256 of all their logits, one after the other, as little-endian numbers in single precision.
const PUBLISHED: &str = include_str!("published.txt");
/// Tokens of each model, and their vocabulary.
const TOKENS: u32 = 48;
const VOCABULARY: u32 = 512;

/// Prove that this machine computes the bits that all others do
#[derive(Parser)]
#[command(
    name = "prove",
    after_help = "\
Each model is a small one that the program makes up: an architecture, a size and a type, as rbench --synthetic takes
them. The program knows the SHA-256 of the logits that llama.cpp computes for it when it is built for plain x86-64, and
compares what it computes here. It ends with 1 where one differs.

Examples:
  trine prove                      all models, with the best instruction set of this processor
  trine prove --every-isa          and with every other one that it has
  trine prove --json > proof.json  for a report or a paper: hashes, version, processor
  TRINE_ISA=avx2 trine prove       with one instruction set"
)]
pub struct Args {
    /// Threads; without it one per physical core
    #[arg(short, long, value_name = "N", value_parser = thread_count, allow_negative_numbers = true)]
    threads: Option<usize>,

    /// Compute everything once with each instruction set of this processor
    #[arg(long)]
    every_isa: bool,

    /// Print an object instead of the table
    #[arg(long)]
    json: bool,
}

/// A model whose logits are known.
struct Published {
    spec: Spec,
    sha256: &'static str,
}

fn published() -> Result<Vec<Published>> {
    let lines = PUBLISHED.lines().filter_map(|line| line.split_once(' '));
    let read = |(spec, sha256): (&str, &'static str)| {
        let spec = spec.parse().map_err(|e: String| anyhow::anyhow!(e)).with_context(|| format!("'{spec}'"))?;
        Ok(Published { spec, sha256 })
    };
    lines.map(read).collect()
}

/// The hash of a model's logits as this machine computes them.
struct Proof {
    model: String,
    isa: Isa,
    sha256: String,
    equal: bool,
}

impl Proof {
    fn line(&self) -> String {
        let found = if self.equal { "equal" } else { "DIFFERS" };
        format!("{:32} {:10} {}  {found}", self.model, self.isa.name(), &self.sha256[..16])
    }

    fn to_json(&self) -> Value {
        json!({"model": self.model, "isa": self.isa.name(), "sha256": self.sha256, "equal": self.equal})
    }
}

/// Runs the tool.
///
/// # Errors
/// The logits of a model are not those that are published.
pub fn run(args: &Args) -> Result<()> {
    threads::start(args.threads)?;
    let best = Isa::from_env()?;
    let sets: Vec<Isa> = if args.every_isa { Isa::available().collect() } else { vec![best] };
    let pool = Pool::new(threads::count(args.threads))?;
    let (begun, all) = (Instant::now(), published()?);
    let mut bar = Steps::new("model", all.len());
    let mut stdout = std::io::stdout().lock();
    let mut proofs = Vec::new();
    for (i, Published { spec, sha256 }) in all.iter().enumerate() {
        bar.tick(i);
        let file = spec.build()?;
        for &isa in &sets {
            let model = Weights::load(&file, &LoadOptions { isa, ..LoadOptions::default() })?;
            let found = logits(&model, &pool)?;
            let proof = Proof { model: spec.to_string(), isa, equal: found == *sha256, sha256: found };
            if !args.json {
                writeln!(stdout, "{}", proof.line())?;
            }
            proofs.push(proof);
        }
    }
    bar.finish();
    let equal = proofs.iter().filter(|proof| proof.equal).count();
    let seconds = begun.elapsed().as_secs_f64();
    let summary = format!(
        "{equal} of {} equal to llama.cpp's portable build: trine {}, {}, {} threads, {seconds:.1} s",
        proofs.len(),
        version::VERSION,
        provenance::processor(),
        pool.threads(),
    );
    if args.json {
        let mut report = provenance::head("trine.prove/1", Some(best.name()), Some(pool.threads()), Vec::new());
        let list: Vec<Value> = proofs.iter().map(Proof::to_json).collect();
        report.insert("system".to_owned(), json!([std::env::consts::OS, std::env::consts::ARCH]));
        report.insert("equal".to_owned(), equal.into());
        report.insert("seconds".to_owned(), seconds.into());
        report.insert("models".to_owned(), list.into());
        writeln!(stdout, "{:#}", Value::Object(report))?;
    } else {
        writeln!(stdout, "{summary}")?;
    }
    if equal < proofs.len() {
        let first = proofs.iter().find(|proof| !proof.equal).map_or("", |proof| &proof.model);
        bail!(
            "{} of {} differ, first {first}: please report it with the output of trine prove --every-isa --json",
            proofs.len() - equal,
            proofs.len()
        );
    }
    Ok(())
}

/// The hash of the logits of every position.
fn logits(model: &Weights, pool: &Pool) -> Result<String> {
    let tokens: Vec<u32> = (0..TOKENS).map(|i| (i * 37 + 5) % VOCABULARY).collect();
    let options = SessionOptions { n_ctx: 256, n_ubatch: tokens.len() };
    let mut session = Session::new(model, pool, options);
    let mut hash = Sha256::new();
    session.eval(&tokens, 0, &mut |_, row| row.iter().for_each(|x| hash.update(x.to_le_bytes())))?;
    Ok(hex(&hash.finalize()))
}
