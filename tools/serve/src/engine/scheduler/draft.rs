//! Drafts: tokens that are chosen cheaply, and then evaluated together at the width of their text. At fewer bits they are
//! drafted in steps of all texts; a second model, the model's own heads, or the text itself draft for one text after the
//! other.
//!
//! Every token of a text is chosen from the logits of its own width, which have the same bits in any step, so drafts
//! change no text: those that agree with the choices were evaluated already, and the others are forgotten within the
//! step. What drafting leaves among keys and values is overwritten when the draft is verified. A recurrent state, of
//! which no part can be forgotten, goes back to where it was before the draft, and the next step reads the accepted
//! tokens again.

use trine::generate::Chooser;
use trine::generate::speculate::Pace;
use trine::kv::Mark;
use trine::pool;
use trine::step::{Segment, Setting, Sink};

use super::super::backend::Backend;
use super::super::running::Drafts;
use super::plan::Plan;
use super::{Active, Scheduler};

/// The draft of an active request.
pub(super) struct Draft {
    /// The index of the request.
    pub index: usize,
    /// The tokens of its text that are not evaluated, and behind them what was drafted.
    pub tokens: Vec<u32>,
    /// How many of them are the text's: the last one, and after a draft that took a recurrent state back those before.
    pub of_text: usize,
    /// Its sequence before.
    pub before: Mark,
    /// Most tokens that may be drafted.
    most: usize,
    /// The setting with which it is drafted; `None` where a second model or the text drafts.
    setting: Option<Setting>,
    /// Chooses as the text's own chooser will, with the same random numbers.
    chooser: Chooser,
}

/// The drafts of a step.
pub(super) enum Drafted {
    /// Nobody may draft.
    NotAsked,
    /// It is not worth it.
    Nothing,
    /// These, ascending by their requests; none where nothing was worth a guess.
    Tried(Vec<Draft>),
}

impl Drafted {
    /// The drafts.
    pub fn list(&self) -> &[Draft] {
        match self {
            Drafted::NotAsked | Drafted::Nothing => &[],
            Drafted::Tried(drafts) => drafts,
        }
    }
}

impl Draft {
    /// The tokens that were drafted.
    pub fn drafted(&self) -> &[u32] {
        &self.tokens[self.of_text..]
    }
}

/// The logits of a step that drafts, by its segments.
struct Rows(Vec<Vec<f32>>);

impl Sink for Rows {
    fn wants_hidden(&self, _: usize) -> bool {
        false
    }

    fn logits(&mut self, _: usize, _: usize, logits: &[f32]) {
        self.0.push(logits.to_vec());
    }

    fn hidden(&mut self, _: usize, _: usize, _: &[f32]) {}
}

impl<B: Backend> Scheduler<B> {
    /// The requests of a plan that draft, with nothing drafted yet; second models and heads have read their texts.
    pub(super) fn may_draft(&mut self, plan: &Plan) -> Drafted {
        let drafts = self.drafts(plan);
        if drafts.is_empty() {
            return Drafted::NotAsked;
        }
        if !self.pace(plan.len()).wants_draft() {
            return Drafted::Nothing;
        }
        for draft in drafts.iter().filter(|d| d.setting.is_none()) {
            let Active { run, aside, .. } = &mut self.active[draft.index];
            let aside = match (aside, &self.aside) {
                (Some(aside), _) => aside,
                (none, Some(source)) => none.insert(source.for_text(self.options.n_ctx())),
                (None, None) => continue,
            };
            let text = run.tokens().split_last().map_or(&[][..], |(_, text)| text);
            if aside.read(text).is_err() {
                run.drafts = Drafts::None;
            }
        }
        Drafted::Tried(drafts)
    }

    /// Drafts. The sequences are as they were.
    pub(super) fn draft(&mut self, drafted: &mut Drafted) {
        let Drafted::Tried(drafts) = drafted else {
            return;
        };
        let mut settings: Vec<Setting> = drafts.iter().filter_map(|d| d.setting.clone()).collect();
        settings.sort_unstable();
        settings.dedup();
        settings.iter().for_each(|setting| self.draft_with(setting, drafts));
        for draft in drafts.iter_mut() {
            match draft.setting {
                Some(_) => self.active[draft.index].seq.restore(draft.before.clone()),
                None => self.draft_aside(draft),
            }
        }
        drafts.retain(|d| !d.drafted().is_empty());
    }

    /// Drafts by the second model, or from the text. A source that fails drafts nothing any more.
    fn draft_aside(&mut self, draft: &mut Draft) {
        let Active { run, aside, seq, .. } = &mut self.active[draft.index];
        let (Some(aside), Some((&last, text))) = (aside, run.tokens().split_last()) else {
            return;
        };
        if run.drafts != Drafts::Aside {
            return;
        }
        aside.lend(|| seq.fork(seq.len()));
        let chooser = &mut draft.chooser;
        match aside.draft((text, last), draft.most, &mut |logits| chooser.guess(logits)) {
            Ok(drafted) => draft.tokens.extend(drafted.into_iter().flatten()),
            Err(_) => run.drafts = Drafts::None,
        }
    }

    /// Measures whether drafts pay in steps of so many texts at the present width.
    pub(super) fn pace(&mut self, texts: usize) -> &mut Pace {
        let pace = self.paces.entry((self.setting.bits, texts)).or_default();
        if self.options.draft_always {
            pace.always();
        }
        pace
    }

    /// True if all that a plan does is to give each of its requests a token. While prompts are read or wait, drafts
    /// would keep them waiting.
    fn only_generates(&self, plan: &Plan) -> bool {
        let few = 1 + self.options.draft;
        let generates = |&(i, n): &(usize, usize)| n <= few && self.active[i].continues(n);
        self.waiting.is_empty() && plan.iter().all(generates)
    }

    /// The requests of a plan that may draft, with nothing drafted yet.
    fn drafts(&self, plan: &Plan) -> Vec<Draft> {
        if !self.only_generates(plan) {
            return Vec::new();
        }
        let pages = |i: usize, n: usize| self.active[i].seq.pages_for(n);
        // Nobody gives pages back for a draft.
        let needed: usize = plan.iter().map(|&(i, n)| pages(i, n)).sum();
        let mut free = self.backend.pages().free().saturating_sub(needed);
        let mut drafts = Vec::new();
        for &(index, n) in plan {
            let run = &self.active[index].run;
            let setting = match run.drafts {
                Drafts::None => continue,
                Drafts::Narrow(bits) => Some(Setting { bits, ..run.setting.clone() }),
                Drafts::Aside => None,
            };
            let most = run.most_drafted();
            let more = pages(index, n + most) - pages(index, n);
            if most == 0 || more > free {
                continue;
            }
            free -= more;
            let seq = &self.active[index].seq;
            drafts.push(Draft {
                index,
                tokens: run.tokens()[seq.len()..].to_vec(),
                of_text: n,
                before: seq.mark(),
                most,
                setting,
                chooser: run.chooser().clone(),
            });
        }
        drafts
    }

    /// Drafts with `setting` for those whose drafts are of that one, all of them in the same steps.
    fn draft_with(&mut self, setting: &Setting, drafts: &mut [Draft]) {
        let mut going: Vec<&mut Draft> = drafts.iter_mut().filter(|d| d.setting.as_ref() == Some(setting)).collect();
        while !going.is_empty() {
            let mut rows = Rows(Vec::new());
            let mut wanted = going.iter().peekable();
            let mut segments = Vec::new();
            for (i, Active { seq, .. }) in self.active.iter_mut().enumerate() {
                if let Some(draft) = wanted.next_if(|d| d.index == i) {
                    let tokens = &draft.tokens[seq.len() - draft.before.len()..];
                    segments.push(Segment { seq, tokens, logits_from: tokens.len() - 1 });
                }
            }
            if self.backend.step(setting, &mut segments, &mut rows).is_err() {
                // The step that verifies says what is wrong, if it is wrong there too.
                return;
            }
            let mut guesses: Vec<_> = going.into_iter().zip(rows.0).collect();
            self.model.pool().install(|| {
                pool::chunks_mut(&mut guesses, 1, |_, guess| {
                    for (draft, logits) in guess {
                        match draft.chooser.guess(logits) {
                            Some(id) => draft.tokens.push(id),
                            None => draft.most = 0,
                        }
                    }
                });
            });
            let going_on = guesses.into_iter().map(|(draft, _)| draft);
            going = going_on.filter(|d| d.drafted().len() < d.most).collect();
        }
    }
}
