//! Files, draws and rounding of tasks; what models say of them is compared with the reference in `tests/` of the tools.

use super::branches::Branches;
use super::log_prob::{Row, TokenScore};
use super::run::batches;
use super::{Accuracy, TaskError, TaskOptions, choose, hellaswag, multiple_choice, winogrande};

/// Sampled by the C++ lines of llama-perplexity, built with libstdc++ 12.
#[test]
fn tasks_are_drawn_like_the_reference_draws_them() {
    assert_eq!(choose::in_order(10, 10), [4, 9, 6, 8, 0, 1, 3, 7, 2, 5]);
    assert_eq!(choose::with_the_last(10, 10), [4, 8, 5, 6, 0, 7, 1, 2, 9, 3]);
    let many = choose::in_order(10042, 400);
    assert_eq!(many[..4], [4187, 10013, 7233, 9363]);
    assert_eq!(many[397..], [7603, 9534, 4001]);
}

#[test]
fn hellaswag_tasks_are_six_lines() {
    let tasks = hellaswag::read("a: b\n2\nw\nx\ny\nz\nc\n 0\r\n1\n2\n3\n4").unwrap();
    assert_eq!((tasks.len(), tasks[0].right, tasks[1].right), (2, 2, 0));
    assert_eq!((tasks[1].line, tasks[1].endings[3].as_str()), (7, "4"));
    for (text, told) in [
        ("", "there are no tasks"),
        ("a\n1\nb\nc\nd", "line 5: the file ends within a task"),
        ("a\n4\nb\nc\nd\ne", "line 2: the number of the right ending"),
        ("a\nx\u{7}\nb\nc\nd\ne", "not \"x\\u{7}\""),
    ] {
        let e = hellaswag::read(text).unwrap_err().to_string();
        assert!(e.contains(told), "{e}");
    }
}

#[test]
fn winogrande_lines_are_read_like_the_reference_reads_them() {
    let text = "0,Ann saw Bo so _ ran.,Ann,Bo,2\nno line\n7,\"One, _, two\",x,y,1 \n8,no gap,x,y,1\n9,_,x,y,3\n1,last _ line,x,y,1";
    let found = winogrande::read(text).unwrap();
    assert_eq!(found.tasks.len(), 2);
    let quoted = &found.tasks[1];
    assert_eq!((quoted.line, quoted.answer), (3, 1));
    assert_eq!(quoted.sentence, ["One, ", ", two"]);
    let lines: Vec<usize> = found.left_out.iter().map(|l| l.0).collect();
    assert_eq!(lines, [2, 4, 5, 6]);
    let e = winogrande::read("0,a _ b,c,d,2").unwrap_err().to_string();
    assert!(e.contains("line 1: llama-perplexity drops the last line"), "{e}");
    assert_eq!(winogrande::read("0,a _ b,c,d,2\n").unwrap().tasks.len(), 1);
    assert!(matches!(winogrande::read(""), Err(TaskError::NoTasks)));
    // A quote that is closed in another place does not cut a character in two.
    assert!(winogrande::read("0,\"a _ b\"é,c,d,2\n").is_err());
}

fn string(out: &mut Vec<u8>, text: &str) {
    out.extend((text.len() as u32).to_le_bytes());
    out.extend(text.as_bytes());
}

/// A file of tasks `(question, answers, right one)`.
fn file(tasks: &[(&str, &[&str], usize)]) -> Vec<u8> {
    let mut bodies = Vec::new();
    let mut begins = Vec::new();
    for (question, answers, right) in tasks {
        begins.push((4 + 4 * tasks.len() + bodies.len()) as u32);
        string(&mut bodies, question);
        for n in [answers.len(), 0] {
            bodies.extend((n as u32).to_le_bytes());
            answers[..n].iter().for_each(|a| string(&mut bodies, a));
            (0..n).for_each(|i| bodies.extend(i32::from(i == *right).to_le_bytes()));
        }
    }
    let mut out = (tasks.len() as u32).to_le_bytes().to_vec();
    begins.iter().for_each(|b| out.extend(b.to_le_bytes()));
    out.extend(bodies);
    out
}

#[test]
fn multiple_choice_files_are_read_in_place_and_in_order() {
    let bytes = file(&[("one", &["a", "b"], 1), ("two", &["c", "d", "e"], 0), ("three", &["f"], 0)]);
    let all = multiple_choice::read(&bytes, 0).unwrap();
    assert_eq!(all.len(), 3);
    assert_eq!(all[1].answers, ["c", "d", "e"]);
    assert_eq!(all[0].right, [false, true]);
    let order: Vec<usize> = choose::with_the_last(3, 2);
    let two = multiple_choice::read(&bytes, 2).unwrap();
    let numbers: Vec<usize> = two.iter().map(|t| t.number - 1).collect();
    assert_eq!(numbers, order);
    for cut in 0..bytes.len() {
        let e = multiple_choice::read(&bytes[..cut], 0).unwrap_err();
        assert!(e.to_string().contains(" at byte "), "{cut}: {e}");
    }
    let with = |at: usize, value: u32| {
        let mut bytes = bytes.clone();
        bytes[at..at + 4].copy_from_slice(&value.to_le_bytes());
        bytes
    };
    for (bytes, told) in [
        (with(0, 0), "there are no tasks"),
        (with(0, u32::MAX), "header at byte 4: the places of the tasks"),
        (with(16, u32::MAX), "task 1 at byte 20: the question needs 4294967295 bytes"),
        (with(16, 0), "task 1 at byte 20: the question is empty"),
        (with(19 + 4, 101), "task 1 at byte 23: 101 answers"),
    ] {
        let e = multiple_choice::read(&bytes, 0).unwrap_err().to_string();
        assert!(e.contains(told), "{e}");
    }
}

#[test]
fn the_two_forms_of_a_logarithm_agree_but_for_rounding() {
    let logits: Vec<f32> = (0..500).map(|i| ((i * i) % 97) as f32 / 11.0).collect();
    let row = Row::new(&logits);
    for token in [0, 1, 250, 499] {
        let [a, b] = [TokenScore::OfProbability, TokenScore::OfLogit].map(|score| row.log_prob(token, score));
        assert!((a - b).abs() < 1e-5, "{token}: {a} {b}");
    }
}

#[test]
fn intervals_hold_the_ratio() {
    let accuracy = Accuracy { done: 40, correct: 30 };
    let [low, high] = accuracy.interval();
    assert!((low - 0.5981).abs() < 5e-5 && (high - 0.8581).abs() < 5e-5, "{low} {high}");
}

#[test]
fn a_context_takes_tasks_as_long_as_there_is_room() {
    let task = |own: &[usize]| Branches {
        place: "line 1".to_owned(),
        texts: own.iter().map(|n| vec![0; 3 + n]).collect(),
        shared: 3,
        wanted: Vec::new(),
    };
    let options = |n_ctx| TaskOptions { n_ctx, parallel: 4, n_ubatch: 512, bits: None, cancel: None };
    let tasks = [task(&[2, 2]), task(&[1, 4]), task(&[9, 1]), task(&[1, 1])];
    assert_eq!(batches(&tasks, &options(20), 8).unwrap(), [0..2, 2..4]);
    assert_eq!(batches(&tasks, &options(100), 6).unwrap(), [0..3, 3..4]);
    assert_eq!(batches(&tasks, &options(13), 2).unwrap().len(), 4);
    let e = batches(&tasks, &options(12), 8).unwrap_err().to_string();
    assert!(e.contains("needs 13 cells of a context of 12; give -c 4"), "{e}");
    let e = batches(&tasks, &options(99), 1).unwrap_err().to_string();
    assert!(e.contains("2 choices; give -np 2"), "{e}");
}
