//! The table, in the forms of llama-bench.

use std::io::Write;

use anyhow::Result;
use serde_json::{Map, Value, json};
use trine::Isa;
use trine::kv::CacheTypes;
use trine_formats::gguf::ModelFile;
use trine_formats::types::TypeId;

use super::Subject;
use super::args::{Args, Format, Loading};
use super::describe::Description;
use super::grid::Test;
use super::numbers;
use crate::device::Device;
use crate::provenance::{self, processor};
use crate::stats::Summary;
use crate::table::{self, Cell};
use crate::version;

/// One measured test.
pub struct Record<'a> {
    /// The model's file or synthetic name.
    pub file: &'a str,
    /// Its description.
    pub model: &'a Description,
    /// Instruction set of the kernels.
    pub isa: Isa,
    /// True if the weights were copied into faster layouts.
    pub repack: bool,
    /// The device and the way of loading.
    pub place: ModelSetup,
    /// Threads.
    pub threads: usize,
    /// The test.
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

    /// The row of the table; `shown` adds the columns of lists that are not at their defaults.
    pub fn line(&self, shown: Shown) -> Line {
        let rate = Summary::of(&self.rates());
        let mut cells: Vec<Cell> = vec![
            Cell::left("model", 28, self.model.kind.clone()).above(),
            Cell::right("size", 10, size(self.model.bytes)).above(),
            Cell::right("params", 10, params(self.model.params)).above(),
            Cell::left("backend", 10, self.place.backend(self.isa, self.repack)).above(),
            Cell::right("threads", 7, self.threads.to_string()).above(),
        ];
        cells.extend(self.place.cells(shown));
        if shown.batch {
            cells.push(Cell::right("n_batch", 7, self.test.batch.to_string()).key());
        }
        if shown.ubatch {
            cells.push(Cell::right("n_ubatch", 8, self.test.ubatch.to_string()).key());
        }
        cells.push(Cell::right("test", 14, self.test.name()).key());
        let speed = format!("{:.2} ± {:.2}", rate.mean, rate.stddev);
        cells.push(Cell::right("t/s", 16, speed));
        Line { cells, fields: self.fields() }
    }

    /// Every field, named as in llama-bench where it has the field.
    fn fields(&self) -> Map<String, Value> {
        let ns: Vec<f64> = self.samples.iter().map(|s| s * 1e9).collect();
        let rates = self.rates();
        let (time, rate) = (Summary::of(&ns), Summary::of(&rates));
        let whole = |x: f64| json!(x.round() as u64);
        let fields = [
            ("version", json!(version::VERSION)),
            ("build_commit", json!(version::COMMIT)),
            ("cpu_info", json!(processor())),
            ("model_filename", json!(self.file)),
            ("model_type", json!(self.model.kind)),
            ("model_size", json!(self.model.bytes)),
            ("model_n_params", json!(self.model.params)),
            ("isa", json!(self.isa.name())),
            ("repack", json!(self.repack)),
            ("device", json!(self.place.device.to_string())),
            ("n_gpu_layers", self.place.layers_field()),
            ("type_k", json!(self.place.loading.cache.keys.to_string())),
            ("type_v", json!(self.place.loading.cache.values.to_string())),
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
        object(fields)
    }
}

/// Columns that are shown when they say something.
#[derive(Clone, Copy)]
pub struct Shown {
    /// `n_batch`.
    pub batch: bool,
    /// `n_ubatch`.
    pub ubatch: bool,
    /// `ngl`.
    pub layers: bool,
    /// `type_k` and `type_v`.
    pub cache: bool,
}

impl Shown {
    /// Every column.
    pub const ALL: Shown = Shown { batch: true, ubatch: true, layers: true, cache: true };

    /// The columns whose lists were given.
    pub fn of(args: &Args) -> Shown {
        Shown {
            batch: numbers::all(&args.batch_size) != [2048],
            ubatch: numbers::all(&args.ubatch_size) != [512],
            layers: args.device.device != Device::Cpu && !args.n_gpu_layers.is_empty(),
            cache: [&args.cache_type_k, &args.cache_type_v].iter().any(|types| ***types != [TypeId::F16]),
        }
    }
}

/// The device that runs a model, and how the model is loaded.
#[derive(Clone, Copy)]
pub struct ModelSetup {
    /// The processor or a GPU.
    pub device: Device,
    /// The number of offloaded layers, and the types of keys and values.
    pub loading: Loading,
}

impl ModelSetup {
    /// The place that `args` name, with this one of the ways to load a model.
    pub fn of(args: &Args, loading: Loading) -> ModelSetup {
        ModelSetup { device: args.device.device, loading }
    }

    /// The layers that the GPU runs, where they are a number and not all.
    fn layers(&self) -> Option<usize> {
        self.loading.layers.filter(|&layers| layers < usize::MAX)
    }

    /// Its columns.
    pub fn cells(&self, shown: Shown) -> Vec<Cell> {
        let mut cells: Vec<Cell> = Vec::new();
        if shown.layers {
            let layers = self.layers().map_or("all".to_owned(), |n| n.to_string());
            cells.push(Cell::right("ngl", 4, layers).key());
        }
        if shown.cache {
            let CacheTypes { keys, values } = self.loading.cache;
            cells.push(Cell::right("type_k", 6, keys.to_string()).key());
            cells.push(Cell::right("type_v", 6, values.to_string()).key());
        }
        cells
    }

    /// The device, and the processor as [`backend`] names it where it runs all.
    pub fn backend(&self, isa: Isa, repack: bool) -> String {
        match self.device {
            Device::Cpu => backend(isa, repack),
            Device::Cuda(_) => self.device.to_string(),
        }
    }

    /// llama-bench's field: a number, -1 for all layers.
    pub fn layers_field(&self) -> Value {
        match (self.device, self.layers()) {
            (Device::Cpu, _) => json!(0),
            (Device::Cuda(_), None) => json!(-1),
            (Device::Cuda(_), Some(n)) => json!(n),
        }
    }
}

/// Name of the backend: `CPU avx512`, with ` rows` when the weights are used where the file's bytes are.
fn backend(isa: Isa, repack: bool) -> String {
    match repack {
        true => format!("CPU {isa}"),
        false => format!("CPU {isa} rows"),
    }
}

/// Fields in this order.
pub fn object<const N: usize>(fields: [(&str, Value); N]) -> Map<String, Value> {
    let fields = fields.into_iter();
    fields.map(|(name, v)| (name.to_owned(), v)).collect()
}

/// A row of any table.
pub struct Line {
    /// The cells of a Markdown table's row.
    pub cells: Vec<Cell>,
    /// Every field, for the other forms.
    pub fields: Map<String, Value>,
}

/// Writes rows as they come.
pub struct Table<'a> {
    out: &'a mut dyn Write,
    format: Format,
    schema: &'static str,
    /// The files of the model that rows are about, with their hashes, where these are shown.
    models: Vec<Value>,
    rows: usize,
    people: table::Table,
}

impl<'a> Table<'a> {
    /// An empty one, whose rows have this form as JSON.
    ///
    /// # Errors
    /// Write errors.
    pub fn new(format: Format, schema: &'static str, out: &'a mut dyn Write) -> Result<Table<'a>> {
        if format == Format::Json {
            writeln!(out, "[")?;
        }
        let people = table::Table::new(table::Form::Markdown);
        Ok(Table { out, format, schema, models: Vec::new(), rows: 0, people })
    }

    /// The rows that follow are about this model; a synthetic one may have no file.
    pub fn about(&mut self, subject: &Subject, model: &ModelFile) {
        self.models = match (subject, self.format) {
            (Subject::File(_), Format::Json | Format::Jsonl) => {
                let files = provenance::files(model);
                files.iter().map(|path| provenance::describe(path)).collect()
            }
            _ => Vec::new(),
        };
    }

    /// The fields of a row as JSON, behind what all reports begin with.
    fn report(&self, fields: &Map<String, Value>) -> Map<String, Value> {
        let isa = fields.get("isa").and_then(Value::as_str);
        let threads = fields.get("n_threads").and_then(Value::as_u64);
        let threads = threads.map(|n| n as usize);
        let mut report = provenance::head(self.schema, isa, threads, self.models.clone());
        report.extend(fields.clone());
        report
    }

    /// Writes a row, and the heading before the first.
    ///
    /// # Errors
    /// Write errors.
    pub fn row(&mut self, line: &Line) -> Result<()> {
        let first = self.rows == 0;
        self.rows += 1;
        match self.format {
            Format::Md => self.people.row(&line.cells, self.out)?,
            Format::Csv => csv(self.out, &line.fields, first)?,
            Format::Sql => sql(self.out, self.schema, &line.fields, first)?,
            Format::Jsonl => {
                writeln!(self.out, "{}", Value::Object(self.report(&line.fields)))?;
            }
            Format::Json => {
                let comma = if first { "" } else { ",\n" };
                let fields = serde_json::to_string_pretty(&self.report(&line.fields))?;
                write!(self.out, "{comma}{fields}")?;
            }
        }
        Ok(self.out.flush()?)
    }

    /// Ends the table; gives back what it was written to.
    ///
    /// # Errors
    /// Write errors.
    pub fn finish(self) -> Result<&'a mut dyn Write> {
        if self.format == Format::Json {
            writeln!(self.out, "\n]")?;
        }
        self.people.finish(self.out)?;
        Ok(self.out)
    }
}

fn csv(out: &mut dyn Write, fields: &Map<String, Value>, first: bool) -> Result<()> {
    let scalars = || fields.iter().filter(|(_, v)| !v.is_array());
    if first {
        let names: Vec<&str> = scalars().map(|(k, _)| k.as_str()).collect();
        writeln!(out, "{}", names.join(","))?;
    }
    let values: Vec<String> = scalars()
        .map(|(_, v)| match v {
            Value::String(s) => format!("\"{}\"", s.replace('"', "\"\"")),
            other => format!("\"{other}\""),
        })
        .collect();
    Ok(writeln!(out, "{}", values.join(","))?)
}

/// Rows for SQLite: the table is called by the form of the rows, `rbench_models`.
fn sql(out: &mut dyn Write, schema: &str, fields: &Map<String, Value>, first: bool) -> Result<()> {
    let table = schema.split('/').next().unwrap_or_default();
    let table = table.replace('.', "_");
    let scalars: Vec<_> = fields.iter().filter(|(_, v)| !v.is_array()).collect();
    let column = |(name, value): &(&String, &Value)| {
        let kind = match value {
            Value::Number(n) if n.is_f64() => "REAL",
            Value::Number(_) | Value::Bool(_) => "INTEGER",
            _ => "TEXT",
        };
        format!("  {name} {kind}")
    };
    if first {
        let columns: Vec<String> = scalars.iter().map(column).collect();
        writeln!(out, "CREATE TABLE IF NOT EXISTS {table} (\n{}\n);\n", columns.join(",\n"))?;
    }
    let names: Vec<&str> = scalars.iter().map(|(name, _)| name.as_str()).collect();
    let values = scalars.iter().map(|(_, value)| match value {
        Value::Null => "NULL".to_owned(),
        Value::Bool(b) => u8::from(*b).to_string(),
        Value::String(s) => format!("'{}'", s.replace('\'', "''")),
        other => other.to_string(),
    });
    let values: Vec<String> = values.collect();
    Ok(writeln!(out, "INSERT INTO {table} ({}) VALUES ({});", names.join(", "), values.join(", "))?)
}

fn size(bytes: u64) -> String {
    let mib = bytes as f64 / 1_048_576.0;
    if mib >= 1024.0 { format!("{:.2} GiB", mib / 1024.0) } else { format!("{mib:.2} MiB") }
}

fn params(n: u64) -> String {
    let n = n as f64;
    if n >= 1e9 { format!("{:.2} B", n / 1e9) } else { format!("{:.2} M", n / 1e6) }
}
