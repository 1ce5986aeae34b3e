//! Questions in JSON lines, in the forms that public sets have, with lm-evaluation-harness's prompts.

use anyhow::{Result, anyhow, bail};
use serde_json::{Map, Value};
use trine::eval::tasks::questions::Question;

type Object = Map<String, Value>;

/// Reads at most `wanted` questions, all of them where that is 0.
///
/// # Errors
/// A line that is not an object of a known form, with its number.
pub fn read(text: &str, wanted: usize) -> Result<Vec<Question>> {
    let lines = text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty());
    let wanted = if wanted == 0 { usize::MAX } else { wanted };
    let questions = lines.take(wanted).map(|(i, line)| {
        let place = format!("line {}", i + 1);
        let object: Object = serde_json::from_str(line).map_err(|e| anyhow!("{place}: it is no JSON object: {e}"))?;
        let (context, choices, right) = parts(&object).map_err(|e| anyhow!("{place}: {e}"))?;
        Ok(Question { place, context, choices, right })
    });
    let questions: Vec<Question> = questions.collect::<Result<_>>()?;
    if questions.is_empty() {
        bail!("there are no questions in the file");
    }
    Ok(questions)
}

/// The text before the choices, the choices, and which of them is right.
fn parts(object: &Object) -> Result<(String, Vec<String>, usize)> {
    if object.contains_key("goal") {
        // PIQA
        let choices = [string(object, "sol1")?, string(object, "sol2")?].map(|s| format!(" {s}")).to_vec();
        let right = index(first(object, &["label", "answer"])?, &[], choices.len())?;
        return Ok((format!("Question: {}\nAnswer:", string(object, "goal")?), choices, right));
    }
    if let Some(passage) = object.get("passage").and_then(Value::as_str) {
        // BoolQ
        let context = format!("{passage}\nQuestion: {}?\nAnswer:", string(object, "question")?);
        let right = match first(object, &["answer", "label"])? {
            Value::Bool(yes) => usize::from(*yes),
            other => index(other, &[], 2)?,
        };
        return Ok((context, vec![" no".to_owned(), " yes".to_owned()], right));
    }
    if !object.contains_key("choices")
        && let Some(text) = object.get("text").and_then(Value::as_str)
    {
        // LAMBADA: the last word
        let text = text.trim_end();
        let Some((context, word)) = text.rsplit_once(' ') else { bail!("\"text\" has one word") };
        return Ok((context.to_owned(), vec![format!(" {word}")], 0));
    }
    let question = first(object, &["question", "query", "context", "ctx"])?;
    let question = question.as_str().ok_or_else(|| anyhow!("the question is no text"))?;
    let (texts, labels) = choices(object)?;
    let right = first(object, &["answer", "answerKey", "gold", "label"])?;
    let right = match texts.iter().position(|text| right.as_str() == Some(text)) {
        Some(right) => right,
        None => index(right, &labels, texts.len())?,
    };
    if let Some(subject) = object.get("subject").and_then(Value::as_str) {
        // MMLU: the choices stand in the prompt, and a letter is the answer
        let letter = |i: usize| char::from(b'A' + i as u8);
        if texts.len() > 26 {
            bail!("{} choices have no letters", texts.len());
        }
        let listed: String = texts.iter().enumerate().map(|(i, text)| format!("{}. {text}\n", letter(i))).collect();
        let subject = subject.replace('_', " ");
        let head = format!("The following are multiple choice questions (with answers) about {subject}.\n\n");
        let letters = (0..texts.len()).map(|i| format!(" {}", letter(i))).collect();
        return Ok((format!("{head}{}\n{listed}Answer:", question.trim()), letters, right));
    }
    let behind = texts.iter().map(|text| format!(" {text}")).collect();
    // ARC's objects carry labels; other questions stand as they are
    let context = if labels.is_empty() { question.to_owned() } else { format!("Question: {question}\nAnswer:") };
    Ok((context, behind, right))
}

/// Texts of the choices, and their labels where the set has them.
fn choices(object: &Object) -> Result<(Vec<String>, Vec<String>)> {
    let texts = |value: Option<&Value>| -> Result<Vec<String>> {
        let list = value.and_then(Value::as_array).ok_or_else(|| anyhow!("\"choices\" is no list of texts"))?;
        let text = |v: &Value| v.as_str().map(str::to_owned).ok_or_else(|| anyhow!("a choice is no text"));
        list.iter().map(text).collect()
    };
    let (texts, labels) = match object.get("choices") {
        Some(Value::Object(both)) => (texts(both.get("text"))?, texts(both.get("label"))?),
        other => (texts(other)?, Vec::new()),
    };
    if texts.len() < 2 {
        bail!("{} choices: two are the least", texts.len());
    }
    if !labels.is_empty() && labels.len() != texts.len() {
        bail!("{} choices have {} labels", texts.len(), labels.len());
    }
    Ok((texts, labels))
}

/// The place of an answer that is a number from 0, a label, or a letter from A.
fn index(answer: &Value, labels: &[String], choices: usize) -> Result<usize> {
    let named = |text: &str| labels.iter().position(|label| label == text);
    let place = match answer {
        Value::Number(n) => n.as_u64().and_then(|n| usize::try_from(n).ok()),
        Value::String(text) => named(text).or_else(|| text.parse().ok()).or_else(|| match text.as_bytes() {
            [letter @ b'A'..=b'Z'] => Some(usize::from(letter - b'A')),
            _ => None,
        }),
        _ => None,
    };
    place
        .filter(|&place| place < choices)
        .ok_or_else(|| anyhow!("the answer {answer} is none of the {choices} choices"))
}

/// The value of the first of these keys that the object has.
fn first<'a>(object: &'a Object, keys: &[&str]) -> Result<&'a Value> {
    let found = keys.iter().find_map(|key| object.get(*key));
    found.ok_or_else(|| match keys {
        [key] => anyhow!("\"{key}\" is missing"),
        _ => anyhow!("one of {} is missing", keys.iter().map(|k| format!("\"{k}\"")).collect::<Vec<_>>().join(", ")),
    })
}

fn string<'a>(object: &'a Object, key: &str) -> Result<&'a str> {
    first(object, &[key])?.as_str().ok_or_else(|| anyhow!("\"{key}\" is no text"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn one(line: &str) -> (String, Vec<String>, usize) {
        let question = read(line, 0).unwrap().remove(0);
        (question.context, question.choices, question.right)
    }

    #[test]
    fn forms_of_public_sets() {
        let own = |list: &[&str]| list.iter().map(|&s| s.to_owned()).collect::<Vec<_>>();
        let plain = one(r#"{"question": "2 + 2 =", "choices": ["3", "4"], "answer": 1}"#);
        assert_eq!(plain, ("2 + 2 =".to_owned(), own(&[" 3", " 4"]), 1));
        assert_eq!(one(r#"{"query": "q", "choices": ["a", "b"], "gold": "b"}"#).2, 1);
        assert_eq!(one(r#"{"ctx": "q", "choices": ["a", "b"], "label": "0"}"#).2, 0);
        let arc = one(r#"{"question": "Q?", "choices": {"text": ["x", "y"], "label": ["1", "2"]}, "answerKey": "2"}"#);
        assert_eq!(arc, ("Question: Q?\nAnswer:".to_owned(), own(&[" x", " y"]), 1));
        let piqa = one(r#"{"goal": "Cut.", "sol1": "a", "sol2": "b", "label": 0}"#);
        assert_eq!(piqa, ("Question: Cut.\nAnswer:".to_owned(), own(&[" a", " b"]), 0));
        let boolq = one(r#"{"passage": "P.", "question": "is it", "answer": true}"#);
        assert_eq!(boolq, ("P.\nQuestion: is it?\nAnswer:".to_owned(), own(&[" no", " yes"]), 1));
        let lambada = one(r#"{"text": "I went to the river"}"#);
        assert_eq!(lambada, ("I went to the".to_owned(), own(&[" river"]), 0));
        let mmlu = one(r#"{"question": " Q ", "subject": "high_school", "choices": ["a", "b"], "answer": "B"}"#);
        let head = "The following are multiple choice questions (with answers) about high school.\n\n";
        assert_eq!(mmlu, (format!("{head}Q\nA. a\nB. b\nAnswer:"), own(&[" A", " B"]), 1));
        let two = "{\"text\": \"a b\"}\n\n{\"text\": \"c d\"}\n";
        assert_eq!(read(two, 0).unwrap()[1].place, "line 3");
        assert_eq!(read(two, 1).unwrap().len(), 1);
    }

    #[test]
    fn what_is_wrong_is_told_with_its_line() {
        for (text, told) in [
            ("", "there are no questions"),
            ("{", "line 1: it is no JSON object"),
            ("[1]", "line 1: it is no JSON object"),
            ("\n{}", "line 2: one of \"question\", \"query\", \"context\", \"ctx\" is missing"),
            (r#"{"question": 1}"#, "the question is no text"),
            (r#"{"question": "q"}"#, "\"choices\" is no list of texts"),
            (r#"{"question": "q", "choices": ["a"], "answer": 0}"#, "1 choices: two are the least"),
            (r#"{"question": "q", "choices": ["a", 2], "answer": 0}"#, "a choice is no text"),
            (r#"{"question": "q", "choices": ["a", "b"]}"#, "one of \"answer\""),
            (r#"{"question": "q", "choices": ["a", "b"], "answer": 2}"#, "the answer 2 is none of the 2 choices"),
            (r#"{"question": "q", "choices": ["a", "b"], "answer": "C"}"#, "the answer \"C\" is none"),
            (
                r#"{"question": "q", "choices": {"text": ["a", "b"], "label": ["A"]}, "answer": "A"}"#,
                "2 choices have 1",
            ),
            (r#"{"goal": "g", "sol1": "a"}"#, "\"sol2\" is missing"),
            (r#"{"text": "word"}"#, "one word"),
        ] {
            let e = read(text, 0).unwrap_err().to_string();
            assert!(e.contains(told), "{text}: {e}");
        }
    }
}
