//! HellaSwag (Zellers et al. 2019): which of four endings goes with a context?
//!
//! Six lines are a task: the context, the number of the right ending (0 to 3), the four endings. The most likely ending
//! is the one whose tokens have the highest mean logarithm of probability ("acc_norm").

use super::branches::Branches;
use super::run::{Cells, Subject, TaskOptions, run};
use super::{Accuracy, TaskError, TaskObserver, choose, likeliest, malformed};

/// Endings of a task.
const ENDINGS: usize = 4;
/// Lines of a task.
const LINES: usize = 2 + ENDINGS;
/// Most tasks whose texts stand in a context together.
const MOST: usize = 32;

/// One task.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Task {
    /// Its first line in the file, counted from 1.
    pub line: usize,
    /// Text before the endings.
    pub context: String,
    /// The endings.
    pub endings: [String; ENDINGS],
    /// The right one.
    pub right: usize,
}

/// Reads tasks from `text`, whose last line break has been taken off.
///
/// # Errors
/// Lines that are no whole tasks, something that is not the number of an ending.
pub fn read(text: &str) -> Result<Vec<Task>, TaskError> {
    let text = text.strip_suffix('\n').unwrap_or(text);
    let lines: Vec<&str> = text.split('\n').collect();
    if text.is_empty() {
        return Err(TaskError::NoTasks);
    }
    if !lines.len().is_multiple_of(LINES) {
        return Err(malformed(
            format!("line {}", lines.len()),
            format!(
                "the file ends within a task: {} lines are no multiple of {LINES} (context, number of the right ending, four endings)",
                lines.len()
            ),
        ));
    }
    let tasks = lines.chunks_exact(LINES).enumerate();
    tasks
        .map(|(i, lines)| {
            let line = i * LINES + 1;
            let right = lines[1].trim().parse().ok().filter(|&r| r < ENDINGS);
            let Some(right) = right else {
                let shown: String = lines[1].chars().take(20).collect();
                return Err(malformed(
                    format!("line {}", line + 1),
                    format!("the number of the right ending, 0 to 3, stands here, not \"{}\"", shown.escape_debug()),
                ));
            };
            Ok(Task {
                line,
                context: lines[0].to_owned(),
                endings: std::array::from_fn(|ending| lines[2 + ending].to_owned()),
                right,
            })
        })
        .collect()
}

/// `wanted` of the tasks, or all of them, in llama-perplexity's order.
pub fn select(tasks: &[Task], wanted: usize) -> Vec<Task> {
    let places = choose::in_order(tasks.len(), wanted);
    places.into_iter().map(|i| tasks[i].clone()).collect()
}

/// Scores the tasks in the given order; `observe` hears the accuracy so far after each.
///
/// # Errors
/// Texts that leave nothing to compare, a task without room, what the model says.
pub fn score(
    subject: Subject<'_>,
    options: &TaskOptions,
    tasks: &[Task],
    observe: TaskObserver<'_, Accuracy>,
) -> Result<Accuracy, TaskError> {
    let branches = tasks.iter().map(|task| {
        let place = format!("task of line {}", task.line);
        let text = |ending: &String| format!("{} {ending}", task.context);
        let texts = task.endings.each_ref().map(text);
        let mut branches = Branches::new(subject.tokenizer, place, &texts)?;
        branches.want_all();
        Ok(branches)
    });
    let branches: Vec<Branches> = branches.collect::<Result<_, TaskError>>()?;
    let texts = options.parallel.min(MOST * ENDINGS);
    let mut accuracy = Accuracy::default();
    run(subject, options, texts, Cells::Shared, &branches, &mut |task, logs| {
        let chosen = most_likely(&branches[task], logs);
        accuracy.push(chosen == tasks[task].right);
        observe(&accuracy).map_err(|_| TaskError::Interrupted)
    })?;
    Ok(accuracy)
}

/// The text of the highest mean, summed in `f64`; the first of equals.
fn most_likely(branches: &Branches, logs: &[f32]) -> usize {
    let mean = |own: &[f32]| own.iter().map(|&l| f64::from(l)).sum::<f64>() / own.len() as f64;
    likeliest(branches.by_text(branches.shared, logs).map(mean))
}
