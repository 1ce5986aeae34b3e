//! Measures the table of a paper again, as far as this machine can: its models made up, its types, its tests.
//!
//! Speeds of different machines say little beside each other, so each type is also set beside the first one of its row, here and
//! in the paper. A model for which there is no memory is measured with few of its layers, whose time is the same in each.

use std::io::Write;

use anyhow::{Context, Result, bail};
use serde_json::json;
use trine::Isa;
use trine::model::Weights;

use super::args::{Args, Loading};
use super::grid::Test;
use super::models::{measure, start_pool, thread_counts};
use super::output::{Line, Table, object};
use super::papers::{Experiment, Row, Wanted};
use super::synth::Spec;
use crate::args::threads;
use crate::memory;
use crate::provenance::processor;
use crate::stats::Summary;
use crate::table::Cell;
use crate::version;

/// Layers of the two models from which one without memory is computed.
const FEW: [usize; 2] = [2, 4];

/// A speed in tokens per second.
struct Speed {
    rate: f64,
    /// Measured with few layers.
    scaled: bool,
}

/// The measurements of one table.
struct Bench<'a> {
    args: &'a Args,
    isa: Isa,
    loading: Loading,
    threads: usize,
}

impl Bench<'_> {
    /// Speeds of a row's model in a type, for each test; `None` where not even few layers have memory.
    fn speeds(&self, experiment: &Experiment, row: &Row, ty: &str) -> Result<Option<Vec<Speed>>> {
        let whole = experiment.spec(row, ty, None)?;
        if fits(&whole)? {
            let seconds = self.seconds(experiment, &whole)?;
            return Ok(Some(rates(experiment, &seconds, false)));
        }
        let [few, more] = FEW;
        let parts = [experiment.spec(row, ty, Some(few))?, experiment.spec(row, ty, Some(more))?];
        if !fits(&parts[1])? {
            return Ok(None);
        }
        let [short, long] = [self.seconds(experiment, &parts[0])?, self.seconds(experiment, &parts[1])?];
        let layers = whole.layers() as f64;
        let grown = short.iter().zip(&long).map(|(a, b)| a + (b - a) / (more - few) as f64 * (layers - few as f64));
        Ok(Some(rates(experiment, &grown.collect::<Vec<_>>(), true)))
    }

    /// Median seconds of each test.
    fn seconds(&self, experiment: &Experiment, spec: &Spec) -> Result<Vec<f64>> {
        let file = spec.build()?;
        let options = self.args.load_options(self.isa, self.loading)?;
        let model = Weights::load(&file, &options).with_context(|| spec.to_string())?;
        // The file's bytes are in memory beside the layouts made of them.
        drop(file);
        let pool = start_pool(self.threads)?;
        let tests = experiment.tests.iter().map(|&(prompt, generated)| {
            let seconds =
                measure(&model, &pool, &test_of(prompt, generated), self.args.repetitions, self.args, &|_| {})?;
            Ok(Summary::of(&seconds).median)
        });
        tests.collect()
    }
}

/// A test of a table, in the batches that are usual.
fn test_of(prompt: usize, generated: usize) -> Test {
    Test { prompt, generated, depth: 0, batch: 2048, ubatch: 512 }
}

fn rates(experiment: &Experiment, seconds: &[f64], scaled: bool) -> Vec<Speed> {
    let tests = experiment.tests.iter().zip(seconds);
    tests.map(|(&(prompt, text), seconds)| Speed { rate: (prompt + text) as f64 / seconds, scaled }).collect()
}

/// True if there is memory for a model and for the layouts made of it.
fn fits(spec: &Spec) -> Result<bool> {
    let needed = 2 * spec.bytes()?;
    Ok(memory::available().is_none_or(|available| needed < available / 10 * 9))
}

/// Measures all rows and writes the table.
///
/// # Errors
/// A model that cannot be made; output that cannot be written.
pub fn run(args: &Args, wanted: &Wanted, out: &mut dyn Write) -> Result<()> {
    let Wanted { experiment, rows } = wanted;
    let counts = thread_counts(args, &[threads(None)]);
    let [threads] = counts[..] else {
        bail!("--reproduce measures one number of threads; give -t one number");
    };
    let bench = Bench { args, isa: Isa::from_env()?, loading: args.only_loading("--reproduce")?, threads };
    note!("rbench: {}; {}", experiment.source, experiment.missing);
    let mut table = Table::new(args.output, "rbench.reproduce/1", out)?;
    for row in rows {
        let mut first: Vec<Option<f64>> = Vec::new();
        for (column, ty) in experiment.types.iter().enumerate() {
            if args.progress {
                note!("rbench: {} {} {ty}", experiment.name, row.0);
            }
            let speeds = bench.speeds(experiment, row, ty)?;
            if column == 0 {
                first = match &speeds {
                    Some(speeds) => speeds.iter().map(|speed| Some(speed.rate)).collect(),
                    None => vec![None; experiment.tests.len()],
                };
            }
            for (i, test) in experiment.tests.iter().enumerate() {
                let point = Point {
                    bench: &bench,
                    experiment,
                    row,
                    ty,
                    test: *test,
                    speed: speeds.as_ref().map(|speeds| &speeds[i]),
                    first: first[i],
                    paper: row.2[i][column],
                    paper_first: row.2[i][0],
                };
                table.row(&point.line())?;
            }
        }
    }
    table.finish()?;
    Ok(())
}

/// A speed beside the paper's.
struct Point<'a> {
    bench: &'a Bench<'a>,
    experiment: &'a Experiment,
    row: &'a Row,
    ty: &'a str,
    test: (usize, usize),
    speed: Option<&'a Speed>,
    /// Speed of the first type of the row.
    first: Option<f64>,
    paper: f64,
    paper_first: f64,
}

impl Point<'_> {
    fn line(&self) -> Line {
        let (prompt, generated) = self.test;
        let test = test_of(prompt, generated).name();
        let ratio = self.speed.zip(self.first).map(|(speed, first)| speed.rate / first);
        let some = |x: f64| (x > 0.0).then_some(x);
        let paper = some(self.paper);
        let paper_ratio = paper.zip(some(self.paper_first)).map(|(one, first)| one / first);
        let shown = |x: Option<f64>| x.map_or("-".to_owned(), |x| format!("{x:.2}"));
        let how = match self.speed {
            Some(speed) if speed.scaled => "of few layers",
            Some(_) => "",
            None => "no memory",
        };
        let threads = self.bench.threads;
        let cells = vec![
            Cell::left("table", 14, self.experiment.name).above(),
            Cell::left("backend", 10, format!("CPU {}", self.bench.isa)).above(),
            Cell::right("threads", 7, threads.to_string()).above(),
            Cell::left("model", 5, self.row.0).key(),
            Cell::left("type", 15, self.ty).key(),
            Cell::right("test", 11, test.clone()).key(),
            Cell::right("t/s", 8, shown(self.speed.map(|speed| speed.rate))),
            Cell::right("x first", 7, shown(ratio)),
            Cell::right("paper", 7, shown(paper)),
            Cell::right("x first there", 13, shown(paper_ratio)),
            Cell::left("how", 13, how),
        ];
        let fields = object([
            ("version", json!(version::VERSION)),
            ("build_commit", json!(version::COMMIT)),
            ("cpu_info", json!(processor())),
            ("table", json!(self.experiment.name)),
            ("source", json!(self.experiment.source)),
            ("isa", json!(self.bench.isa.name())),
            ("n_threads", json!(threads)),
            ("model", json!(self.row.0)),
            ("type", json!(self.ty)),
            ("test", json!(test)),
            ("median_ts", json!(self.speed.map(|speed| speed.rate))),
            ("scaled_from_few_layers", json!(self.speed.is_some_and(|speed| speed.scaled))),
            ("ratio_to_first", json!(ratio)),
            ("paper_ts", json!(paper)),
            ("paper_ratio_to_first", json!(paper_ratio)),
        ]);
        Line { cells, fields }
    }
}
