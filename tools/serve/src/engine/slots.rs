//! The last text of each place, to be kept in a file and read again.

use std::sync::mpsc::SyncSender;

use trine::step::{Kind, PrefixTree, Sequence, Setting};

/// An evaluated text, as far as its keys and values are still there.
pub struct SlotText {
    /// How the weights were read.
    pub setting: Setting,
    /// Its tokens.
    pub tokens: Vec<u32>,
    /// Their keys and values.
    pub sequence: Sequence,
}

/// Commands about places; the answer goes back by a channel.
pub(super) enum SlotCommand {
    /// The text of a place, if its prompts are shared by this salt.
    Take(usize, String, SyncSender<Option<SlotText>>),
    /// Frees pages, as many as there are to free.
    MakeRoom(usize, SyncSender<()>),
    /// Gives a place a text, whose prompts are shared by this salt.
    Put(usize, String, Box<SlotText>, SyncSender<()>),
    /// Forgets the text of a place, if its prompts are shared by this salt; the tokens that it had.
    Erase(usize, String, SyncSender<usize>),
}

/// The last text of each place.
pub(super) struct SlotTexts(Vec<Option<(Kind, Vec<u32>)>>);

impl SlotTexts {
    pub fn new(places: usize) -> SlotTexts {
        SlotTexts((0..places).map(|_| None).collect())
    }

    /// Notes the evaluated tokens of a text that left its place.
    pub fn note(&mut self, slot: usize, kind: Option<Kind>, tokens: &[u32]) {
        if let Some(place) = self.0.get_mut(slot) {
            *place = kind.map(|kind| (kind, tokens.to_vec()));
        }
    }

    /// See [`SlotCommand::Take`].
    pub fn take(&self, slot: usize, salt: &str, tree: &mut PrefixTree) -> Option<SlotText> {
        let (kind, tokens) = self.0.get(slot)?.as_ref().filter(|(kind, _)| kind.salt == salt)?;
        let sequence = tree.find(kind, tokens);
        let tokens = tokens[..sequence.len()].to_vec();
        (!tokens.is_empty()).then_some(SlotText { setting: kind.setting.clone(), tokens, sequence })
    }

    /// See [`SlotCommand::Put`].
    pub fn put(&mut self, slot: usize, salt: String, text: SlotText, tree: &mut PrefixTree) {
        let SlotText { setting, tokens, sequence } = text;
        let kind = Kind { setting, salt };
        tree.insert(&kind, &tokens, &sequence);
        self.note(slot, Some(kind), &tokens);
    }

    /// See [`SlotCommand::Erase`].
    pub fn erase(&mut self, slot: usize, salt: &str, tree: &mut PrefixTree) -> usize {
        let Some((kind, tokens)) = self.0.get_mut(slot).and_then(|place| place.take_if(|(kind, _)| kind.salt == salt))
        else {
            return 0;
        };
        let here = tree.find(&kind, &tokens).len();
        tree.forget(&kind, &tokens[..here]);
        here
    }
}
