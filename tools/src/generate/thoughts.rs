//! Answers of a model in a terminal: thoughts are dimmed, from where they begin to where they end, and Markdown beside them is
//! painted.

use super::markdown::Markdown;

/// The marks of thoughts. A chat writes those of all models so.
const BEGIN: &str = "<think>";
const END: &str = "</think>";

/// Sequences that dim the text of a terminal, and end that.
const DIM: &str = "\x1b[2m";
const PLAIN: &str = "\x1b[0m";

/// Follows a text as it comes.
pub struct Thoughts {
    /// True in a thought.
    inside: bool,
    /// The end of the text, as long as the longest mark.
    tail: String,
    /// Paints the text outside of thoughts.
    markdown: Option<Markdown>,
}

impl Thoughts {
    /// A text that goes on after `before`, in which a thought may have begun.
    pub fn after(before: &str) -> Thoughts {
        Thoughts { inside: before.trim_end().ends_with(BEGIN), tail: String::new(), markdown: None }
    }

    /// The same, with the Markdown of the answer.
    pub fn with_markdown(self) -> Thoughts {
        Thoughts { markdown: Some(Markdown::default()), ..self }
    }

    /// The sequence that sets the terminal for the text that comes.
    pub fn begin(&self) -> &'static str {
        if self.inside { DIM } else { "" }
    }

    /// The next part of the text, as it is to be written.
    pub fn paint(&mut self, text: &str) -> String {
        let mut out = String::with_capacity(text.len());
        for c in text.chars() {
            match &mut self.markdown {
                Some(markdown) if !self.inside => markdown.push(c, &mut out),
                _ => out.push(c),
            }
            self.tail.push(c);
            if self.inside && self.tail.ends_with(END) {
                self.inside = false;
                out += PLAIN;
            } else if !self.inside && self.tail.ends_with(BEGIN) {
                self.inside = true;
                self.markdown.iter_mut().for_each(|markdown| markdown.finish(&mut out));
                out += DIM;
            }
            if self.tail.chars().count() > END.len() {
                self.tail.remove(0);
            }
        }
        out
    }

    /// The sequences that reset the terminal at the end of the text.
    pub fn finish(&mut self) -> String {
        let mut out = if self.inside { PLAIN } else { "" }.to_owned();
        self.markdown.iter_mut().for_each(|markdown| markdown.finish(&mut out));
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn thoughts_are_dimmed_however_the_text_is_cut() {
        let text = "a <think>é b</think> c<think>d";
        let painted = "a <think>\x1b[2mé b</think>\x1b[0m c<think>\x1b[2md";
        let mut whole = Thoughts::after("assistant:");
        assert_eq!(whole.begin(), "");
        assert_eq!(whole.paint(text), painted);
        assert_eq!(whole.finish(), PLAIN);
        let mut cut = Thoughts::after("");
        let parts: String = text.chars().map(|c| cut.paint(&c.to_string())).collect();
        assert_eq!(parts, painted);
    }

    #[test]
    fn markdown_is_painted_outside_of_thoughts() {
        let mut thoughts = Thoughts::after("").with_markdown();
        let painted = thoughts.paint("<think>**a**</think>**b** **c");
        assert_eq!(painted, "<think>\x1b[2m**a**</think>\x1b[0m**\x1b[1mb**\x1b[22m **\x1b[1mc");
        assert_eq!(thoughts.finish(), "\x1b[22m");
    }

    #[test]
    fn a_thought_may_have_begun_in_the_prompt() {
        let mut thoughts = Thoughts::after("assistant\n<think>\n");
        assert_eq!(thoughts.begin(), DIM);
        assert_eq!(thoughts.paint("so</think>it"), "so</think>\x1b[0mit");
        assert_eq!(thoughts.finish(), "");
    }
}
