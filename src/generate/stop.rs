//! Stop strings: texts that end a generation and are no part of it.

use crate::tokenizer::pending;

/// Watches a text that grows for stop strings.
///
/// Text whose end may be the beginning of a stop string is held back until it is clear whether it is one, so that
/// nothing of a stop string ever gets out, wherever the borders of tokens are.
#[derive(Clone, Debug, Default)]
pub struct StopStrings {
    stops: Vec<String>,
    held: String,
}

impl StopStrings {
    /// Watches for `stops`, none of which is empty.
    pub fn new(stops: Vec<String>) -> StopStrings {
        StopStrings { stops, held: String::new() }
    }

    /// Takes the next part of the text. Returns what is certain to come before any stop string and, once there is one,
    /// its index: of several the one that begins first, and of these the first in the list.
    pub fn push(&mut self, text: &str) -> (String, Option<usize>) {
        self.held.push_str(text);
        let found = self.stops.iter().enumerate();
        let found = found.filter_map(|(i, stop)| Some((self.held.find(stop.as_str())?, i)));
        if let Some((at, index)) = found.min() {
            // what follows the stop string is as little a part of the text as it is
            let mut text = std::mem::take(&mut self.held);
            text.truncate(at);
            return (text, Some(index));
        }
        let rest = self.held.split_off(pending(&self.held, &self.stops));
        (std::mem::replace(&mut self.held, rest), None)
    }

    /// Returns the pending text, at the end of the text.
    pub fn finish(&mut self) -> String {
        std::mem::take(&mut self.held)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stops(list: &[&str]) -> StopStrings {
        StopStrings::new(list.iter().map(|s| (*s).to_owned()).collect())
    }

    /// Returns the output for every part of a text, and the stop string that ended it.
    fn run(list: &[&str], parts: &[&str]) -> (Vec<String>, Option<usize>) {
        let mut watcher = stops(list);
        let mut out = Vec::new();
        for part in parts {
            let (text, stop) = watcher.push(part);
            out.push(text);
            if stop.is_some() {
                return (out, stop);
            }
        }
        out.push(watcher.finish());
        (out, None)
    }

    #[test]
    fn nothing_is_held_back_without_stop_strings() {
        let (out, stop) = run(&[], &["one", " two", ""]);
        assert_eq!((out.join("|"), stop), ("one| two||".to_owned(), None));
    }

    #[test]
    fn a_stop_string_across_parts_never_gets_out() {
        let (out, stop) = run(&["\n\nUser:"], &["Hi.", "\n", "\nUs", "er", ": more"]);
        assert_eq!(out, ["Hi.", "", "", "", ""]);
        assert_eq!(stop, Some(0));
    }

    #[test]
    fn what_turns_out_to_be_none_comes_later() {
        let (out, stop) = run(&["\n\nUser:"], &["Hi.\n\nUs", "ually", " not"]);
        assert_eq!(out, ["Hi.", "\n\nUsually", " not", ""]);
        assert_eq!(stop, None);
        // an unfinished one at the end of the text is text
        assert_eq!(run(&["END"], &["the EN"]).0, ["the ", "EN"]);
        // a beginning inside of a beginning
        assert_eq!(run(&["aab"], &["a", "a", "a", "c"]).0, ["", "", "a", "aac", ""]);
    }

    #[test]
    fn of_several_the_earliest_wins() {
        let (out, stop) = run(&["c", "bc", "b"], &["abcd"]);
        assert_eq!((&out[..], stop), (&["a".to_owned()][..], Some(1)));
        // a longer one that began earlier is not waited for once a shorter one is complete
        let (out, stop) = run(&["abcd", "bc"], &["xab", "c", "d"]);
        assert_eq!(out, ["x", "a"]);
        assert_eq!(stop, Some(1));
    }

    #[test]
    fn every_way_of_cutting_gives_the_same_text() {
        let text = "größer als ß — und …, ENDE: nichts";
        let chars: Vec<String> = text.chars().map(String::from).collect();
        for stop in ["ß —", "ENDE", "…", "absent", "ichts", "g"] {
            let expected = text.find(stop).map_or(text, |at| &text[..at]);
            for n in 1..=chars.len() {
                let parts: Vec<String> = chars.chunks(n).map(|c| c.concat()).collect();
                let parts: Vec<&str> = parts.iter().map(String::as_str).collect();
                let (out, stopped) = run(&[stop], &parts);
                assert_eq!(out.concat(), expected, "{stop}, {n}");
                assert_eq!(stopped.is_some(), text.contains(stop));
            }
        }
    }
}
