//! Multiple choice: of some answers to a question, is a right one the most likely?
//!
//! The file is binary, little-endian, as llama-perplexity's validation sets are (ARC, MMLU, TruthfulQA):
//!
//! ```text
//! u32              number of tasks
//! u32 per task     where it begins in the file
//! task             question, answers with a single right one, answers with several right ones (not scored)
//!   question       u32 length, bytes
//!   answers        u32 number (at most 100), that many times u32 length and bytes, that many times i32: 1 for a right one
//! ```
//!
//! The most likely answer is the one whose tokens have the highest mean logarithm of probability.

use super::branches::Branches;
use super::run::{Cells, Subject, TaskOptions, run};
use super::{Accuracy, Share, TaskError, TaskObserver, choose, likeliest, malformed};

/// Most answers to a question.
const MOST_ANSWERS: usize = 100;
/// Most texts that stand in a context together.
const MOST_TEXTS: usize = 128;

/// One task.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Task {
    /// Its number in the file, counted from 1.
    pub number: usize,
    /// Text before the answers.
    pub question: String,
    /// The answers.
    pub answers: Vec<String>,
    /// True for each answer that is right.
    pub right: Vec<bool>,
}

/// Reads `wanted` tasks of the file `bytes` in llama-perplexity's order; all of them, as they stand, where that is 0 or
/// there are no more.
///
/// # Errors
/// The file ends too soon, a text is not UTF-8 or empty, numbers that cannot be; with the task and the byte.
pub fn read(bytes: &[u8], wanted: usize) -> Result<Vec<Task>, TaskError> {
    let mut cursor = Cursor { bytes, at: 0, place: "header".to_owned() };
    let count = cursor.number("the number of tasks")? as usize;
    if count == 0 {
        return Err(TaskError::NoTasks);
    }
    let begins = cursor.take(count.saturating_mul(4), "the places of the tasks")?;
    let (begins, _) = begins.as_chunks::<4>();
    if wanted == 0 || wanted >= count {
        return (1..=count).map(|number| cursor.task(number)).collect();
    }
    let places = choose::with_the_last(count, wanted);
    let tasks = places.into_iter().map(|i| {
        cursor.at = u32::from_le_bytes(begins[i]) as usize;
        cursor.task(i + 1)
    });
    tasks.collect()
}

/// Reads the file front to back, no byte beyond its end.
struct Cursor<'a> {
    bytes: &'a [u8],
    at: usize,
    /// The place that is being read.
    place: String,
}

impl<'a> Cursor<'a> {
    fn wrong(&self, what: impl Into<String>) -> TaskError {
        malformed(format!("{} at byte {}", self.place, self.at), what)
    }

    fn take(&mut self, n: usize, name: &str) -> Result<&'a [u8], TaskError> {
        let rest = self.bytes.get(self.at..).unwrap_or_default();
        let Some(taken) = rest.get(..n) else {
            return Err(self.wrong(format!("{name} needs {n} bytes, but the file has {} here", rest.len())));
        };
        self.at += n;
        Ok(taken)
    }

    fn number(&mut self, name: &str) -> Result<u32, TaskError> {
        let (words, _) = self.take(4, name)?.as_chunks::<4>();
        Ok(u32::from_le_bytes(words[0]))
    }

    fn text(&mut self, name: &str) -> Result<String, TaskError> {
        let length = self.number(name)? as usize;
        let begin = self.at;
        let bytes = self.take(length, name)?;
        if length == 0 {
            return Err(self.wrong(format!("{name} is empty")));
        }
        String::from_utf8(bytes.to_vec()).map_err(|e| {
            self.at = begin + e.utf8_error().valid_up_to();
            self.wrong(format!("{name} is not UTF-8"))
        })
    }

    /// Answers and which of them are right.
    fn answers(&mut self) -> Result<(Vec<String>, Vec<bool>), TaskError> {
        let n = self.number("the number of answers")? as usize;
        if n > MOST_ANSWERS {
            self.at -= 4;
            return Err(self.wrong(format!("{n} answers, more than {MOST_ANSWERS}")));
        }
        let texts = (1..=n).map(|i| self.text(&format!("answer {i}")));
        let texts = texts.collect::<Result<_, _>>()?;
        let (labels, _) = self.take(4 * n, "the labels")?.as_chunks::<4>();
        let right = labels.iter().map(|l| i32::from_le_bytes(*l) == 1);
        Ok((texts, right.collect()))
    }

    fn task(&mut self, number: usize) -> Result<Task, TaskError> {
        self.place = format!("task {number}");
        let question = self.text("the question")?;
        let (answers, right) = self.answers()?;
        if answers.is_empty() {
            return Err(self.wrong("there is no answer with a single right one"));
        }
        self.answers()?;
        Ok(Task { number, question, answers, right })
    }
}

/// Result of all tasks so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Answered {
    /// Tasks, and those whose likeliest answer was right.
    pub accuracy: Accuracy,
    /// Answers of all these tasks.
    pub answers: usize,
}

impl Answered {
    /// The share of right answers, in percent.
    pub fn result(&self) -> Share {
        let Accuracy { done, correct } = self.accuracy;
        Share::new(correct, done, done)
    }

    /// The share that guessing would give, in percent.
    pub fn chance(&self) -> Share {
        Share::new(self.accuracy.done, self.answers, self.accuracy.done)
    }
}

/// Scores the tasks in the given order; `observe` hears of each.
///
/// # Errors
/// Texts that leave nothing to compare, a task without room, what the model says.
pub fn score(
    subject: Subject<'_>,
    options: &TaskOptions,
    tasks: &[Task],
    observe: TaskObserver<'_, Answered>,
) -> Result<Answered, TaskError> {
    let branches = tasks.iter().map(|task| {
        let place = format!("task {}", task.number);
        let texts = task.answers.iter();
        let texts: Vec<String> = texts.map(|a| format!("{} {a}", task.question)).collect();
        let mut branches = Branches::new(subject.tokenizer, place, &texts)?;
        branches.want_all();
        Ok(branches)
    });
    let branches: Vec<Branches> = branches.collect::<Result<_, TaskError>>()?;
    let texts = options.parallel.min(MOST_TEXTS);
    let mut answered = Answered::default();
    run(subject, options, texts, Cells::Shared, &branches, &mut |task, logs| {
        let chosen = most_likely(&branches[task], logs);
        answered.accuracy.push(tasks[task].right[chosen]);
        answered.answers += tasks[task].answers.len();
        observe(&answered).map_err(|_| TaskError::Interrupted)
    })?;
    Ok(answered)
}

/// The text of the highest mean, summed in `f32`; the first of equals.
fn most_likely(branches: &Branches, logs: &[f32]) -> usize {
    let mean = |own: &[f32]| own.iter().fold(0f32, |sum, l| sum + l) / own.len() as f32;
    likeliest(branches.by_text(branches.shared, logs).map(|own| f64::from(mean(own))))
}
