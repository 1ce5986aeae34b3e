//! `rgen -i`: a text that the user and the model write in turns, as llama-completion has it.
//!
//! The user has the turn when the text ends with a reverse prompt, when the model ends it, when it has written `-n`
//! tokens, and after Ctrl-C; with `-if` before the model, too. After a turn of the user the sampler begins anew: it
//! knows nothing of what stands before.

use std::io::{self, BufRead, IsTerminal};

use anyhow::{Context as _, Result};
use trine::{Context, End, GenerateError, GenerateOptions, Tokenizer};

use super::args::Args;
use super::output::Output;
use super::prompt_cache::PromptCache;
use super::reading;
use super::reverse::ReversePrompts;
use super::summary;
use super::timings::Timings;
use crate::interrupt;

/// Lines of a user until the turn is over, without the last line break; `None` at the end of the input.
///
/// A `/` at the end of a line ends the turn and a backslash changes whether another line follows; neither is part of
/// the text.
fn read_turn(input: &mut dyn BufRead, several: bool) -> io::Result<Option<String>> {
    let mut turn = String::new();
    loop {
        let mut line = Vec::new();
        if input.read_until(b'\n', &mut line)? == 0 {
            break;
        }
        let line = String::from_utf8_lossy(&line);
        let line = line.strip_suffix('\n').unwrap_or(&line);
        if let Some(line) = line.strip_suffix('/') {
            turn += line;
            turn.push('\n');
            break;
        }
        let continued = line.strip_suffix('\\');
        turn += continued.unwrap_or(line);
        turn.push('\n');
        if several == continued.is_some() {
            break;
        }
    }
    let ended = turn.is_empty();
    if turn.ends_with('\n') {
        turn.pop();
    }
    Ok((!ended).then_some(turn))
}

/// The state of the text.
struct Turns<'a> {
    args: &'a Args,
    context: Context,
    options: GenerateOptions,
    out: Output,
    reverse: ReversePrompts,
    /// All tokens so far.
    tokens: Vec<u32>,
    /// Tokens that the model may still write before the user has the turn; none of its concern with a negative `-n`.
    left: i64,
}

/// How a turn of the model ended.
enum Turn {
    /// At a reverse prompt, after `-n` tokens, or at Ctrl-C.
    Over,
    /// The model ended its text.
    Ended,
    /// There is no room for more tokens.
    Full,
}

impl Turns<'_> {
    /// The model writes.
    fn model(&mut self) -> Result<Turn> {
        let tokenizer = self.context.model().tokenizer().clone();
        self.options.max_tokens = usize::try_from(self.left).ok();
        let generation = self.context.generate(self.tokens.as_slice(), &self.options);
        let mut generation = match generation {
            Err(e @ GenerateError::PromptTooLong { .. }) => {
                note!("{e}");
                return Ok(Turn::Full);
            }
            generation => generation?,
        };
        let mut turn = Turn::Over;
        reading::with_bar(&mut generation)?;
        for chunk in generation {
            let chunk = chunk?;
            self.out.chunk(&chunk)?;
            self.tokens.extend(chunk.token);
            self.left -= chunk.token.iter().len() as i64;
            chunk.token.iter().for_each(|&id| self.reverse.read(id));
            match chunk.end {
                Some(End::Eos) => turn = Turn::Ended,
                Some(End::Context) => turn = Turn::Full,
                _ => {}
            }
            if self.reverse.reached(&tokenizer) {
                break;
            }
        }
        interrupt::take();
        Ok(turn)
    }

    /// The user writes; `before` are tokens that come before that. `false`: there is no more input.
    fn user(&mut self, before: Vec<u32>) -> Result<bool> {
        let model = self.context.model().clone();
        let tokenizer: &Tokenizer = model.tokenizer();
        let [prefix, suffix] = [&self.args.in_prefix, &self.args.in_suffix].map(|text| {
            let text = text.as_deref().unwrap_or_default();
            self.args.unescaped(text)
        });
        self.out.beside(&prefix)?;
        let read = || read_turn(&mut io::stdin().lock(), self.args.multiline_input);
        let turn = interrupt::while_waiting(read).context("cannot read standard input")?;
        let Some(turn) = turn else {
            return Ok(false);
        };
        let mut new = before;
        if self.args.in_prefix_bos {
            new.extend(tokenizer.bos());
        }
        if !turn.is_empty() {
            self.out.beside(&suffix)?;
            let turn = self.args.unescaped(&turn);
            new.extend(tokenizer.encode(&prefix, false, true)?);
            let own = tokenizer.encode(&turn, false, false)?;
            self.left -= own.len() as i64;
            new.extend(own);
            new.extend(tokenizer.encode(&suffix, false, true)?);
        }
        self.options.unheard = self.tokens.len();
        self.reverse.forget();
        new.iter().for_each(|&id| self.reverse.read(id));
        self.tokens.extend(new);
        Ok(true)
    }

    /// Allows the model `-n` tokens once more when it has written them all; says whether that was so, and then the user
    /// has the turn.
    fn refill(&mut self) -> bool {
        let spent = self.args.predict >= 0 && self.left <= 0;
        if spent {
            self.left = self.args.predict;
        }
        spent
    }
}

/// Writes in turns until the input ends or the context is full.
pub fn run(
    args: &Args,
    context: Context,
    options: GenerateOptions,
    tokens: Vec<u32>,
    cache: Option<PromptCache>,
    timings: &Timings,
) -> Result<()> {
    let model = context.model().clone();
    let tokenizer = model.tokenizer();
    note!("sampler seed: {}", options.sampler.seed);
    if io::stdin().is_terminal() {
        note!(
            "The model writes until it ends or Ctrl-C; then you: Return gives the turn back, \\ at the end of a line lets another one follow, Ctrl-D ends."
        );
    }
    let mut turns = Turns {
        args,
        context,
        out: Output::new(args),
        reverse: ReversePrompts::new(&args.reverse_prompts(), tokenizer)?,
        left: args.predict,
        options,
        tokens,
    };
    if let Some(mut cache) = cache {
        let generation = turns.context.generate(turns.tokens.as_slice(), &turns.options);
        cache.begin(&mut generation?)?;
    }
    turns.out.prompt(tokenizer, &turns.tokens)?;
    turns.tokens.iter().for_each(|&id| turns.reverse.read(id));
    let first = args.reverse_prompts().into_iter().next();
    let mut waiting = args.interactive_first;
    let mut before = Vec::new();
    loop {
        waiting |= turns.reverse.reached(tokenizer);
        if waiting {
            let had = turns.tokens.len();
            if !turns.user(std::mem::take(&mut before))? {
                break;
            }
            waiting = turns.refill();
            if waiting || turns.tokens.len() > had {
                continue;
            }
        }
        match turns.model()? {
            Turn::Over => {}
            Turn::Ended => {
                turns.out.beside("\n")?;
                if let Some(text) = &first {
                    before = tokenizer.encode(text, false, true)?;
                }
            }
            Turn::Full => {
                note!("the context of {} tokens is full", turns.context.n_ctx());
                break;
            }
        }
        turns.refill();
        waiting = true;
    }
    turns.out.finish()?;
    summary(&turns.context, timings);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::read_turn;

    #[test]
    fn turns_end_at_lines_unless_they_are_continued() {
        for (input, several, turn) in [
            ("one\ntwo\n", false, Some("one")),
            ("one\\\ntwo\nthree\n", false, Some("one\ntwo")),
            ("one\ntwo\\\nthree\n", true, Some("one\ntwo")),
            ("one/\ntwo\n", true, Some("one")),
            ("\nmore\n", false, Some("")),
            ("one\\\n", false, Some("one")),
            ("last", false, Some("last")),
            ("", false, None),
        ] {
            let read = read_turn(&mut input.as_bytes(), several).unwrap();
            assert_eq!(read.as_deref(), turn, "{input:?} {several}");
        }
    }
}
