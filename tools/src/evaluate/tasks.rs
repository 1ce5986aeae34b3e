//! Tasks with choices: HellaSwag, WinoGrande and multiple choice, in llama-perplexity's lines and digits, and questions
//! in JSON lines.

use std::io::Write;

use anyhow::{Context, Result};
use serde_json::{Value, json};
use trine::Model;
use trine::eval::tasks::multiple_choice::Answered;
use trine::eval::tasks::questions::{self, Question};
use trine::eval::tasks::winogrande::Verdict;
use trine::eval::tasks::{Accuracy, Subject, TaskError, TaskOptions, hellaswag, multiple_choice, winogrande};

use super::args::Args;
use super::go_on;
use super::task_args::TaskArgs;
use crate::load::{load_for_texts, peak_memory};
use crate::progress::Steps;
use crate::provenance::Provenance;
use crate::{inputs, interrupt, shown, signals, text};

/// Tasks that have been read and chosen.
pub enum Tasks {
    /// HellaSwag.
    Hellaswag(Vec<hellaswag::Task>),
    /// WinoGrande.
    Winogrande(Vec<winogrande::Task>),
    /// Multiple choice.
    MultipleChoice(Vec<multiple_choice::Task>),
    /// Questions in JSON lines.
    Questions(Vec<Question>),
}

/// The chosen tasks of a file.
///
/// # Errors
/// With the line or the byte.
fn read(args: &TaskArgs, bytes: Vec<u8>, from: &str) -> Result<Tasks> {
    let in_file = || from.to_owned();
    if args.multiple_choice {
        let tasks = multiple_choice::read(&bytes, args.multiple_choice_tasks);
        return Ok(Tasks::MultipleChoice(tasks.with_context(in_file)?));
    }
    let text = text::utf8(bytes, from)?;
    if args.questions {
        let questions = super::questions::read(&text, args.questions_tasks).with_context(in_file)?;
        return Ok(Tasks::Questions(questions));
    }
    if args.hellaswag {
        let tasks = hellaswag::read(&text).with_context(in_file)?;
        let tasks = hellaswag::select(&tasks, args.hellaswag_tasks);
        return Ok(Tasks::Hellaswag(tasks));
    }
    let found = winogrande::read(&text).with_context(in_file)?;
    for (line, why) in &found.left_out {
        note!("note: {from}: line {line} is left out: {why}");
    }
    let tasks = winogrande::select(found.tasks, args.winogrande_tasks);
    Ok(Tasks::Winogrande(tasks))
}

impl Tasks {
    fn count(&self) -> usize {
        match self {
            Tasks::Hellaswag(tasks) => tasks.len(),
            Tasks::Winogrande(tasks) => tasks.len(),
            Tasks::MultipleChoice(tasks) => tasks.len(),
            Tasks::Questions(tasks) => tasks.len(),
        }
    }

    fn name(&self) -> &'static str {
        match self {
            Tasks::Hellaswag(_) => "hellaswag",
            Tasks::Winogrande(_) => "winogrande",
            Tasks::MultipleChoice(_) => "multiple-choice",
            Tasks::Questions(_) => "questions",
        }
    }
}

/// Reads the tasks, then the model, and scores it.
///
/// # Errors
/// Whatever the user or the model did wrong, in one line.
pub fn run(args: &Args) -> Result<()> {
    let (bytes, from) = args.bytes()?;
    let tasks = read(&args.tasks, bytes, &from)?;
    inputs::add(&args.model.model);
    interrupt::listen();
    let loaded = load_for_texts(&args.loading())?;
    let parallel = args.tasks.parallel.max(4);
    let options = TaskOptions {
        n_ctx: args.ctx_size.unwrap_or(512).saturating_mul(parallel),
        parallel,
        n_ubatch: args.ubatch_size.min(args.batch_size),
        bits: args.widths()?.first().copied(),
        cancel: Some(interrupt::token()),
    };
    note!("weights: {}", loaded.weights().layouts());
    note!(
        "scoring {} {} tasks, n_ctx={}, parallel={parallel}, threads={}",
        tasks.count(),
        tasks.name(),
        options.n_ctx,
        loaded.threads()
    );
    let mut report = Report::new(args.json, &tasks);
    let scored = score(&loaded, &options, &tasks, &mut report);
    report.progress.iter().for_each(Steps::finish);
    match scored {
        Err(e @ (TaskError::Interrupted | TaskError::Step(_) | TaskError::Width(_))) => {
            report.wrote?;
            return Err(e.into());
        }
        scored => scored.with_context(|| from)?,
    }
    let mut stdout = signals::stdout();
    match &report.lines {
        Some(running) => {
            let whole = json!({
                "model": args.model.model.display().to_string(),
                "tasks": tasks.name(),
                "n_ctx": options.n_ctx,
                "parallel": parallel,
                "count": report.accuracy.done,
                "correct": report.accuracy.correct,
                "accuracy": report.accuracy.ratio(),
                "interval": report.accuracy.interval(),
                "chance": report.chance,
                "measures": report.measures,
                "running": running,
                "peak_memory_bytes": peak_memory(),
            });
            let whole = Provenance::of_run("rperplexity.tasks/1", &loaded)?.before(whole);
            writeln!(stdout, "{}", shown::json(&whole, false))?;
        }
        None => {
            for line in &report.last {
                writeln!(stdout, "{line}")?;
            }
        }
    }
    stdout.flush()?;
    Ok(())
}

/// The output while tasks are scored, or its parts for one JSON object.
struct Report {
    /// With `--json` the entry of every task.
    lines: Option<Vec<Value>>,
    /// Beside it, a bar; lines are progress enough.
    progress: Option<Steps>,
    accuracy: Accuracy,
    chance: Option<f64>,
    /// Measures of questions beside their accuracy.
    measures: Value,
    /// Lines at the end.
    last: Vec<String>,
    wrote: std::io::Result<()>,
}

type Heard = Result<(), Box<dyn std::error::Error + Send + Sync>>;

impl Report {
    fn new(json: bool, tasks: &Tasks) -> Report {
        Report {
            lines: json.then(Vec::new),
            progress: json.then(|| Steps::new("task", tasks.count())),
            accuracy: Accuracy::default(),
            chance: None,
            measures: Value::Null,
            last: Vec::new(),
            wrote: Ok(()),
        }
    }

    fn line(&mut self, line: &str) -> Heard {
        if self.lines.is_none() {
            let mut stdout = signals::stdout();
            let write = writeln!(stdout, "{line}").and_then(|()| stdout.flush());
            if let Err(e) = write {
                self.wrote = Err(e);
                return Err("the output was closed".into());
            }
        }
        Ok(())
    }

    /// One more task is done.
    fn task(&mut self, accuracy: Accuracy, line: &str, entry: Value) -> Heard {
        self.accuracy = accuracy;
        if let Some(lines) = &mut self.lines {
            lines.push(entry);
        }
        if let Some(progress) = &mut self.progress {
            progress.tick(accuracy.done);
        }
        self.line(line)?;
        go_on()
    }
}

/// A number with `digits` decimals; infinities and NaN in small letters, as C prints them.
fn decimals(value: f64, digits: usize) -> String {
    if value.is_nan() { "nan".to_owned() } else { format!("{value:.digits$}") }
}

fn score(loaded: &Model, options: &TaskOptions, tasks: &Tasks, report: &mut Report) -> Result<(), TaskError> {
    let subject = Subject { weights: loaded.weights(), tokenizer: loaded.tokenizer(), pool: loaded.pool() };
    match tasks {
        Tasks::Hellaswag(tasks) => {
            let head = "task\tacc_norm\t95% confidence interval";
            report.line(head).map_err(|_| TaskError::Interrupted)?;
            hellaswag::score(subject, options, tasks, &mut |accuracy: &Accuracy| {
                let percent = 100.0 * accuracy.ratio();
                let [low, high] = accuracy.interval().map(|end| end * 100.0);
                let done = accuracy.done;
                let line = format!("{done}\t{percent:.8}%\t[{low:.4}%, {high:.4}%]");
                let entry = json!({ "correct": accuracy.correct });
                report.task(*accuracy, &line, entry)
            })?;
        }
        Tasks::Winogrande(tasks) => {
            let total = winogrande::score(subject, options, tasks, &mut |verdict: &Verdict| {
                let Verdict { accuracy, scores: [first, second], chosen, answer } = *verdict;
                let percent = 100.0 * accuracy.correct as f64 / accuracy.done as f64;
                let line = format!("{}\t{percent:.4}\t{first:10.6}  {second:10.6}  {chosen}  {answer}", accuracy.done);
                let entry = json!({ "scores": [first, second], "chosen": chosen, "answer": answer });
                report.task(accuracy, &line, entry)
            })?;
            if let Some(share) = winogrande::final_score(&total) {
                report.last.push(format!(
                    "Final Winogrande score({} tasks): {} +/- {}",
                    total.done,
                    decimals(share.value, 4),
                    decimals(share.error, 4)
                ));
            }
        }
        Tasks::MultipleChoice(tasks) => {
            let head = "task\tacc_norm";
            report.line(head).map_err(|_| TaskError::Interrupted)?;
            let total = multiple_choice::score(subject, options, tasks, &mut |answered: &Answered| {
                let accuracy = answered.accuracy;
                let percent = 100.0 * accuracy.correct as f64 / accuracy.done as f64;
                let line = format!("{}\t{percent:.8}", accuracy.done);
                report.task(accuracy, &line, json!({ "correct": accuracy.correct }))
            })?;
            report.chance = Some(total.chance().value / 100.0);
            for (name, share) in [("Final result", total.result()), ("Random chance", total.chance())] {
                let [value, error] = [share.value, share.error].map(|v| decimals(v, 4));
                report.last.push(format!("{name}: {value} +/- {error}"));
            }
        }
        Tasks::Questions(tasks) => {
            let head = "task\tacc\tacc_norm";
            report.line(head).map_err(|_| TaskError::Interrupted)?;
            let total = questions::score(subject, options, tasks, &mut |(scored, answer)| {
                let [all, normalised] = [scored.accuracy, scored.normalised].map(|a| 100.0 * a.ratio());
                let line = format!("{}\t{all:.4}\t{normalised:.4}", scored.accuracy.done);
                report.task(scored.accuracy, &line, json!({ "sums": answer.sums, "correct": scored.accuracy.correct }))
            })?;
            let choices: f64 = tasks.iter().map(|task| 1.0 / task.choices.len() as f64).sum();
            let single = tasks.iter().all(|task| task.choices.len() == 1);
            report.chance = (!single).then(|| choices / tasks.len() as f64);
            for (name, accuracy) in [("acc", total.accuracy), ("acc_norm", total.normalised)] {
                let [value, error] = [accuracy.ratio(), accuracy.error()].map(|v| decimals(v, 4));
                report.last.push(format!("{name}: {value} +/- {error}"));
                report.measures[name] = json!({ "value": accuracy.ratio(), "error": accuracy.error() });
            }
            if single {
                report.last.push(format!("perplexity: {}", decimals(total.perplexity(), 4)));
                report.measures["perplexity"] = total.perplexity().into();
            }
        }
    }
    Ok(())
}
