//! The table, in the forms of llama-bench.

use std::io::Write;

use anyhow::Result;
use serde_json::{Map, Value, json};
use trine::kernels::Isa;

use super::args::{Args, Format};
use super::describe::{Description, processor};
use super::models::Test;
use super::stats::Summary;

/// One measured test.
pub struct Record<'a> {
    /// The model's file or made-up name.
    pub file: &'a str,
    /// What it is.
    pub model: &'a Description,
    /// Instruction set of the kernels.
    pub isa: Isa,
    /// Threads.
    pub threads: usize,
    /// What was run.
    pub test: &'a Test,
    /// Seconds of every repetition.
    pub samples: &'a [f64],
}

impl Record<'_> {
    /// Seconds, and tokens per second, of the repetitions.
    fn rates(&self) -> Vec<f64> {
        let tokens = self.test.tokens() as f64;
        self.samples.iter().map(|s| tokens / s).collect()
    }

    /// Every field, named as in llama-bench where it has the field.
    fn fields(&self) -> Map<String, Value> {
        let ns: Vec<f64> = self.samples.iter().map(|s| s * 1e9).collect();
        let rates = self.rates();
        let (time, rate) = (Summary::of(&ns), Summary::of(&rates));
        let whole = |x: f64| json!(x.round() as u64);
        let fields = [
            ("version", json!(env!("CARGO_PKG_VERSION"))),
            ("cpu_info", json!(processor())),
            ("model_filename", json!(self.file)),
            ("model_type", json!(self.model.kind)),
            ("model_size", json!(self.model.bytes)),
            ("model_n_params", json!(self.model.params)),
            ("isa", json!(self.isa.name())),
            ("n_threads", json!(self.threads)),
            ("n_batch", json!(self.test.batch)),
            ("n_ubatch", json!(self.test.ubatch)),
            ("n_prompt", json!(self.test.prompt)),
            ("n_gen", json!(self.test.generated)),
            ("n_depth", json!(self.test.depth)),
            ("test", json!(self.test.name())),
            ("avg_ns", whole(time.mean)),
            ("stddev_ns", whole(time.stddev)),
            ("median_ns", whole(time.median)),
            ("avg_ts", json!(rate.mean)),
            ("stddev_ts", json!(rate.stddev)),
            ("median_ts", json!(rate.median)),
            ("samples_ns", ns.iter().map(|&x| whole(x)).collect()),
            ("samples_ts", json!(rates)),
        ];
        let mut map = Map::new();
        for (name, value) in fields {
            map.insert(name.to_owned(), value);
        }
        map
    }
}

/// Writes rows as they come.
pub struct Table<'a> {
    out: &'a mut dyn Write,
    format: Format,
    rows: usize,
    /// Columns that are shown because their list has several entries or an unusual one.
    batch: bool,
    ubatch: bool,
}

impl<'a> Table<'a> {
    /// An empty one.
    ///
    /// # Errors
    /// What cannot be written.
    pub fn new(args: &Args, out: &'a mut dyn Write) -> Result<Table<'a>> {
        let table = Table {
            out,
            format: args.output,
            rows: 0,
            batch: args.batch_size != [2048],
            ubatch: args.ubatch_size != [512],
        };
        if table.format == Format::Json {
            writeln!(table.out, "[")?;
        }
        Ok(table)
    }

    /// Writes a row, and the heading before the first.
    ///
    /// # Errors
    /// What cannot be written.
    pub fn row(&mut self, record: &Record<'_>) -> Result<()> {
        let first = self.rows == 0;
        self.rows += 1;
        match self.format {
            Format::Md => self.markdown(record, first)?,
            Format::Csv => self.csv(record, first)?,
            Format::Jsonl => writeln!(self.out, "{}", Value::Object(record.fields()))?,
            Format::Json => {
                let comma = if first { "" } else { ",\n" };
                let fields = serde_json::to_string_pretty(&record.fields())?;
                write!(self.out, "{comma}{fields}")?;
            }
        }
        Ok(self.out.flush()?)
    }

    /// Ends the table.
    ///
    /// # Errors
    /// What cannot be written.
    pub fn finish(self) -> Result<()> {
        if self.format == Format::Json {
            writeln!(self.out, "\n]")?;
        }
        Ok(())
    }

    fn markdown(&mut self, r: &Record<'_>, first: bool) -> Result<()> {
        let rate = Summary::of(&r.rates());
        // heading, least width, whether numbers stand to the right, value
        let mut cells = vec![
            ("model", 28, false, r.model.kind.clone()),
            ("size", 10, true, size(r.model.bytes)),
            ("params", 10, true, params(r.model.params)),
            ("backend", 10, false, format!("CPU {}", r.isa)),
            ("threads", 7, true, r.threads.to_string()),
        ];
        if self.batch {
            cells.push(("n_batch", 7, true, r.test.batch.to_string()));
        }
        if self.ubatch {
            cells.push(("n_ubatch", 8, true, r.test.ubatch.to_string()));
        }
        cells.push(("test", 14, true, r.test.name()));
        let speed = format!("{:.2} ± {:.2}", rate.mean, rate.stddev);
        cells.push(("t/s", 16, true, speed));
        markdown_row(self.out, &cells, first)
    }

    fn csv(&mut self, r: &Record<'_>, first: bool) -> Result<()> {
        let fields = r.fields();
        let scalars = || fields.iter().filter(|(_, v)| !v.is_array());
        if first {
            let names: Vec<&str> = scalars().map(|(k, _)| k.as_str()).collect();
            writeln!(self.out, "{}", names.join(","))?;
        }
        let values: Vec<String> = scalars()
            .map(|(_, v)| match v {
                Value::String(s) => format!("\"{}\"", s.replace('"', "\"\"")),
                other => format!("\"{other}\""),
            })
            .collect();
        Ok(writeln!(self.out, "{}", values.join(","))?)
    }
}

/// A row of a Markdown table, after the heading where asked for: heading, least width, whether the
/// column is set to the right, value.
pub fn markdown_row(
    out: &mut dyn Write,
    cells: &[(&str, usize, bool, String)],
    heading: bool,
) -> Result<()> {
    let line = |texts: Vec<String>| format!("| {} |", texts.join(" | "));
    let pad = |text: &str, width: usize, right: bool| match right {
        true => format!("{text:>width$}"),
        false => format!("{text:<width$}"),
    };
    if heading {
        let names = cells.iter().map(|(n, w, right, _)| pad(n, *w, *right));
        writeln!(out, "{}", line(names.collect()))?;
        let rules = cells.iter().map(|(_, w, right, _)| match right {
            true => format!("{}:", "-".repeat(w - 1)),
            false => "-".repeat(*w),
        });
        writeln!(out, "{}", line(rules.collect()))?;
    }
    let values = cells.iter().map(|(_, w, right, v)| pad(v, *w, *right));
    Ok(writeln!(out, "{}", line(values.collect()))?)
}

fn size(bytes: u64) -> String {
    let mib = bytes as f64 / 1_048_576.0;
    if mib >= 1024.0 {
        format!("{:.2} GiB", mib / 1024.0)
    } else {
        format!("{mib:.2} MiB")
    }
}

fn params(n: u64) -> String {
    let n = n as f64;
    if n >= 1e9 {
        format!("{:.2} B", n / 1e9)
    } else {
        format!("{:.2} M", n / 1e6)
    }
}
