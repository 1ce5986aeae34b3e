//! `rbench`: how fast models and kernels are.

pub mod args;
mod batched;
mod compare;
pub mod describe;
mod grid;
mod kernel_type;
mod kernels;
mod machine;
pub mod method;
mod models;
mod numbers;
mod output;
mod papers;
mod profile;
mod reproduce;
mod roofline;
pub mod serve;
mod subject;
pub mod synth;

use std::io::Write;

use anyhow::Result;

use crate::{signals, threads};
use args::Args;
use compare::Rival;
use subject::Subject;

/// Runs what `args` ask for.
///
/// # Errors
/// A device that cannot be used; a model that cannot be loaded or made; a test that does not fit it; output that cannot
/// be written.
pub fn run(args: &Args) -> Result<()> {
    if args.kernels || args.serve.is_some() {
        args.device.refuse("models that rbench runs itself")?;
    }
    let mut out = signals::stdout();
    if args.kernels {
        kernels::run(args, &mut out)?;
        return Ok(out.flush()?);
    }
    if let Some(url) = &args.serve {
        serve::run(args, url, &mut out)?;
        return Ok(out.flush()?);
    }
    // Synthetic weights are made and packed by as many threads as the most that are measured.
    threads::start(numbers::all(&args.threads).into_iter().max())?;
    if let Some(wanted) = &args.reproduce {
        reproduce::run(args, wanted, &mut out)?;
        return Ok(out.flush()?);
    }
    let subjects = Subject::all(args)?;
    if let Some(dir) = &args.compare_llama {
        compare::run(args, Rival::Llama, dir, &subjects, &mut out)?;
    } else if let Some(dir) = &args.compare_ik {
        compare::run(args, Rival::Ik, dir, &subjects, &mut out)?;
    } else if args.batched {
        batched::run(args, &subjects, &mut out)?;
    } else if args.profile {
        profile::run(args, &subjects, &mut out)?;
    } else if args.roofline {
        roofline::run(args, &subjects, &mut out)?;
    } else {
        models::run(args, &subjects, &mut out)?;
    }
    Ok(out.flush()?)
}
