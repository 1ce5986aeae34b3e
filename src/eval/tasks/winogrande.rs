//! WinoGrande (Sakaguchi et al. 2020): which of two words belongs into the gap of a sentence?
//!
//! A line is a task: index, sentence with `_` for the gap, two choices and the number of the right one (1 or 2),
//! separated by commas; a sentence that has commas stands in double quotes. Likelihoods are those of what follows the
//! gap, or, where one of the texts has at most three tokens behind the beginning they share, of all behind that.

use super::branches::{Branches, RowOf, Wanted, encode};
use super::log_prob::TokenScore;
use super::run::{Cells, Subject, TaskOptions, run};
use super::{Accuracy, Share, TaskError, TaskObserver, choose, malformed};

/// Texts of a task.
const CHOICES: usize = 2;
/// Most tasks whose texts stand in a context together.
const MOST: usize = 128;
/// Tokens behind the shared beginning that both texts have more of where only what follows the gap counts.
const MIN_TRAILING: usize = 3;
/// Tasks from which on a final score is given.
const ENOUGH: usize = 100;

/// One task.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Task {
    /// Its line in the file, counted from 1.
    pub line: usize,
    /// The sentence before the gap and behind it.
    pub sentence: [String; 2],
    /// Candidates for the gap.
    pub choices: [String; CHOICES],
    /// The right choice, 1 or 2.
    pub answer: u8,
}

/// Tasks of a file, and the lines that are left out.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tasks {
    /// The tasks.
    pub tasks: Vec<Task>,
    /// Lines that are no tasks, counted from 1, and why. llama-perplexity leaves them out as well.
    pub left_out: Vec<(usize, &'static str)>,
}

/// Reads tasks from `text`, whose last line break has been taken off.
///
/// # Errors
/// There is no task.
pub fn read(text: &str) -> Result<Tasks, TaskError> {
    let mut found = Tasks::default();
    let mut lines = text.split('\n').enumerate().peekable();
    while let Some((i, line)) = lines.next() {
        let read = match lines.peek() {
            Some(_) => parse(i + 1, line),
            None if line.is_empty() => break,
            None => Err(
                "llama-perplexity drops the last line, and so the score would be another with it; end the file with an empty line to count it",
            ),
        };
        match read {
            Ok(task) => found.tasks.push(task),
            Err(why) => found.left_out.push((i + 1, why)),
        }
    }
    if found.tasks.is_empty() {
        return Err(match found.left_out.first() {
            Some((line, why)) => malformed(format!("line {line}"), *why),
            None => TaskError::NoTasks,
        });
    }
    Ok(found)
}

/// One line.
fn parse(number: usize, line: &str) -> Result<Task, &'static str> {
    let mut commas = Vec::with_capacity(4);
    let mut quoted = false;
    for (at, byte) in line.bytes().enumerate() {
        match byte {
            b'"' => quoted = !quoted,
            b',' if !quoted && commas.len() < 4 => commas.push(at),
            _ => {}
        }
    }
    let &[first, second, third, fourth] = commas.as_slice() else {
        return Err("it has fewer than five fields: index,sentence,choice 1,choice 2,answer");
    };
    let field = |from: usize, to: usize| line.get(from..to).ok_or("the quotes of its sentence are not closed");
    let sentence = match field(first + 1, second)?.starts_with('"') {
        true => field(first + 2, second - 1)?,
        false => field(first + 1, second)?,
    };
    let (before, after) = sentence.split_once('_').ok_or("its sentence has no gap: no _")?;
    let answer = match leading_number(&line[fourth + 1..]) {
        Some(answer @ 1..=2) => answer as u8,
        _ => return Err("its answer is neither 1 nor 2"),
    };
    Ok(Task {
        line: number,
        sentence: [before.to_owned(), after.to_owned()],
        choices: [field(second + 1, third)?.to_owned(), field(third + 1, fourth)?.to_owned()],
        answer,
    })
}

/// The whole number that a text begins with, as C++ streams read one.
fn leading_number(text: &str) -> Option<i32> {
    let text = text.trim_start();
    let text = text.strip_prefix('+').unwrap_or(text);
    let end = text.find(|c: char| !c.is_ascii_digit());
    text[..end.unwrap_or(text.len())].parse().ok()
}

/// `wanted` of the tasks in llama-perplexity's order; all of them, as they stand, where it is 0 or there are no more.
pub fn select(tasks: Vec<Task>, wanted: usize) -> Vec<Task> {
    if wanted == 0 || wanted >= tasks.len() {
        return tasks;
    }
    let places = choose::with_the_last(tasks.len(), wanted);
    places.into_iter().map(|i| tasks[i].clone()).collect()
}

/// Result of one task, and of all up to it.
#[derive(Clone, Copy, Debug)]
pub struct Verdict {
    /// All tasks so far.
    pub accuracy: Accuracy,
    /// Mean logarithms of probability of the two texts.
    pub scores: [f32; CHOICES],
    /// The likelier choice, 1 or 2.
    pub chosen: u8,
    /// The right one.
    pub answer: u8,
}

/// The share of right answers, in percent; only of 100 tasks and more.
pub fn final_score(accuracy: &Accuracy) -> Option<Share> {
    let Accuracy { done, correct } = *accuracy;
    (done >= ENOUGH).then(|| Share::new(correct, done, done))
}

/// Scores the tasks in the given order; `observe` hears of each.
///
/// # Errors
/// Texts that leave nothing to compare, a task without room, what the model says.
pub fn score(
    subject: Subject<'_>,
    options: &TaskOptions,
    tasks: &[Task],
    observe: TaskObserver<'_, Verdict>,
) -> Result<Accuracy, TaskError> {
    let prepared = tasks.iter().map(|task| prepare(subject, task));
    let prepared: Vec<(Branches, usize)> = prepared.collect::<Result<_, TaskError>>()?;
    let (branches, of_first): (Vec<Branches>, Vec<usize>) = prepared.into_iter().unzip();
    let texts = options.parallel.min(MOST * CHOICES);
    let mut accuracy = Accuracy::default();
    run(subject, options, texts, Cells::Shared, &branches, &mut |task, logs| {
        let (first, second) = logs.split_at(of_first[task]);
        let scores = [first, second].map(|logs| {
            let sum = logs.iter().fold(0f32, |sum, l| sum + l);
            sum / logs.len() as f32
        });
        let answer = tasks[task].answer;
        let chosen = if scores[0] > scores[1] { 1 } else { 2 };
        accuracy.push(chosen == answer);
        let verdict = Verdict { accuracy, scores, chosen, answer };
        observe(&verdict).map_err(|_| TaskError::Interrupted)
    })?;
    Ok(accuracy)
}

/// The texts of a task with what is wanted of them, and how much of that belongs to the first.
fn prepare(subject: Subject<'_>, task: &Task) -> Result<(Branches, usize), TaskError> {
    let place = format!("line {}", task.line);
    let [before, after] = &task.sentence;
    let filled = |choice: &String| format!("{before}{choice}{after}");
    let texts = task.choices.each_ref().map(filled);
    let mut branches = Branches::new(subject.tokenizer, place, &texts)?;
    let shared = branches.shared;
    let far = branches.own_lengths().all(|own| own > MIN_TRAILING);
    let mut lengths = [0; CHOICES];
    for (text, choice) in task.choices.iter().enumerate() {
        let tokens = branches.texts[text].clone();
        let begin = if far { encode(subject.tokenizer, &format!("{before}{choice}"))?.len() } else { shared };
        // The last token is left out unless it is the only one.
        let last = usize::from(tokens.len() > begin + 1);
        if begin < shared || tokens.len() <= begin {
            return Err(malformed(
                branches.place,
                format!("nothing that is left to predict follows choice {}", text + 1),
            ));
        }
        let scored = begin..tokens.len() - last;
        lengths[text] = scored.len();
        for at in scored {
            let row = match (at == shared, text) {
                (true, 0) => RowOf::Shared,
                // The reference program looks one row too far up here: at the end of the first text.
                (true, _) => RowOf::Text { text: 0, position: branches.texts[0].len() - 1 },
                (false, _) => RowOf::Text { text, position: at - 1 },
            };
            branches.wanted.push(Wanted { row, token: tokens[at], score: TokenScore::OfLogit });
        }
    }
    Ok((branches, lengths[0]))
}
