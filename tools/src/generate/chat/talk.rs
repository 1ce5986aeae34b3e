//! A chat that goes on.

use anyhow::Result;
use trine::{Chat, End, GenerateError, Message, Role};

use super::super::args::Args;
use super::super::output::Output;
use super::super::prompt_cache::PromptCache;
use super::super::reading;
use super::super::reverse::ReversePrompts;
use super::super::summary::summary;
use super::super::thoughts::Thoughts;
use super::super::timings::Timings;
use super::say::say;
use super::speed::Speed;
use crate::interrupt;
use crate::terminal::Silence;

/// A chat, and what its commands change.
pub(super) struct Talk<'a> {
    pub(super) args: &'a Args,
    pub(super) chat: Chat,
    /// True if a user types.
    pub(super) terminal: bool,
    /// True if thoughts are dimmed.
    pub(super) colours: bool,
    /// True if answers go to a terminal.
    pub(super) screen: bool,
    /// True if a full context forgets its oldest tokens.
    pub(super) shift: bool,
    /// True if every answer is followed by its speed.
    pub(super) timings: bool,
    /// The speed of the last answer.
    pub(super) last: Option<Speed>,
    /// Texts that end an answer.
    pub(super) reverse: ReversePrompts,
    pub(super) cache: Option<PromptCache>,
    /// True if the cache was asked about the first prompt.
    pub(super) begun: bool,
}

impl Talk<'_> {
    /// Says something and shows the answer; why it ended, if there was one.
    pub(super) fn answer(&mut self, said: String) -> Result<Option<End>> {
        let _silence = self.terminal.then(Silence::begin);
        if self.shift {
            self.make_room(&said)?;
            let keep = self.args.shift(usize::MAX, self.chat.context().model());
            self.chat.options_mut().shift = keep;
        } else {
            self.chat.options_mut().shift = None;
        }
        let before = *self.chat.context().stats();
        let model = self.chat.context().model().clone();
        let mut answer = match self.chat.say(said) {
            Ok(answer) => answer,
            Err(e @ GenerateError::PromptTooLong { .. }) if self.terminal && !self.args.chat.single_turn => {
                say(&format!("error: {e}, or /clear, or /set context-shift on"));
                return Ok(None);
            }
            Err(e) => return Err(e.into()),
        };
        let mut out = Output::new(self.args);
        if self.colours {
            let mut pieces = model.tokenizer().detokenizer(true);
            let prompt = answer.prompt();
            let last = &prompt[prompt.len().saturating_sub(16)..];
            let mut text: String = last.iter().map(|&id| pieces.push(id)).collect();
            text += &pieces.finish();
            let thoughts = Thoughts::after(&text);
            // A pipe that asked for colours gets those of thoughts alone.
            out.paint(if self.screen { thoughts.with_markdown() } else { thoughts })?;
        }
        if let Some(cache) = self.cache.as_mut().filter(|_| !self.begun) {
            cache.begin(answer.generation())?;
        }
        self.begun = true;
        reading::with_bar(answer.generation())?;
        let mut end = None;
        self.reverse.forget();
        for chunk in answer {
            let chunk = chunk?;
            out.chunk(&chunk)?;
            end = chunk.end;
            chunk.token.iter().for_each(|&id| self.reverse.read(id));
            if self.reverse.reached(model.tokenizer()) {
                break;
            }
        }
        out.finish()?;
        let after = self.chat.context().stats();
        if after.shifts > before.shifts {
            say("(context full: what came first was forgotten, the rest was read again)");
        }
        if end == Some(End::Cancelled) && self.terminal {
            say("(interrupted)");
        }
        if end == Some(End::Context) {
            note!("(the context of {} tokens is full)", self.chat.context().n_ctx());
        }
        let speed = Speed::between(&before, after);
        self.last = Some(speed);
        if self.timings {
            note!("{speed}");
        }
        Ok(end)
    }

    /// Forgets the older half of the tokens until there is room for a message.
    fn make_room(&mut self, said: &str) -> Result<()> {
        let had = self.chat.messages().len();
        while !self.chat.has_room_for(said)? {
            let messages = self.chat.messages_mut();
            let is_user = |m: &Message| m.role == Role::User;
            let turns = messages.iter().filter(|m| is_user(m)).count();
            if turns == 0 {
                break;
            }
            let mut seen = 0;
            messages.retain(|m| {
                seen += usize::from(is_user(m));
                m.role == Role::System || seen > turns.div_ceil(2)
            });
        }
        let forgotten = had - self.chat.messages().len();
        if forgotten > 0 {
            say(&format!("(context full: the first {forgotten} messages are forgotten)"));
        }
        Ok(())
    }

    /// Shows the times of the whole chat, where they are asked for.
    pub(super) fn show_timings(&self, timings: &Timings) {
        if self.timings {
            summary(self.chat.context(), timings);
        }
    }

    /// Ends the program.
    pub(super) fn interrupted(&self, timings: &Timings) -> ! {
        self.show_timings(timings);
        note!("interrupted");
        std::process::exit(interrupt::EXIT_CODE)
    }
}
