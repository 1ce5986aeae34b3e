//! Measurements for the minutes when a GPU is at hand: correctness first, then speed, and a JSON file that is whole
//! after every section.
//!
//! Nothing here knows whether the driver is NVIDIA's or the emulated one of `trine-fake-cuda`, on which the tests run
//! all of it with small shapes.

mod checks;
mod models;
mod options;
mod planes;
mod product;
mod report;
mod sanitizer;
mod speed;

use anyhow::{Context as _, Result};
use serde_json::json;
use trine_cuda::driver::Context;
use trine_cuda::{device::Device as _, ptx};

pub use options::Options;
pub use report::Report;

/// Runs all sections. Whether every check has passed is in the report.
///
/// # Errors
/// A device that cannot be used, files that cannot be read or written.
pub fn run(options: &Options) -> Result<Report> {
    let mut report = Report::new(&options.out);
    let mut context = Context::open(options.device)?;
    identify(&mut context, &mut report)?;
    checks::run(&mut context, options, &mut report)?;
    planes::run(&mut context, options, &mut report)?;
    if options.only_checks {
        return Ok(report);
    }
    for path in &options.models {
        let done = models::run(path, options, &mut report);
        done.with_context(|| path.display().to_string())?;
    }
    sanitizer::run(options, &mut report)?;
    speed::run(&mut context, options, &mut report)?;
    Ok(report)
}

/// The device, and how long the driver compiles each text of PTX.
fn identify(context: &mut Context, report: &mut Report) -> Result<()> {
    let gpu = context.gpu().clone();
    let (major, minor) = gpu.capability;
    report.set(
        "device",
        json!({
            "name": gpu.name,
            "capability": format!("{major}.{minor}"),
            "memory": gpu.memory,
            "free": context.free_memory()?,
        }),
    )?;
    for text in ptx::ALL {
        let start = std::time::Instant::now();
        context.compile(text)?;
        let ms = start.elapsed().as_secs_f64() * 1e3;
        report.push("modules", json!({"name": text.name, "compiled_ms": ms}))?;
    }
    Ok(())
}
