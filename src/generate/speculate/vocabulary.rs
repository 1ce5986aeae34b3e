//! Tokens of one model as tokens of another.

use std::collections::HashMap;

use crate::handle::Model;
use crate::tokenizer::Tokenizer;

/// The tokens of two models that stand for the same bytes. BOS and EOS correspond whatever their texts are.
pub(super) struct Vocabulary {
    /// The text's token for every token of the draft's model, where it has one.
    to_text: Vec<Option<u32>>,
    /// The draft's token for every token of the text's model, likewise.
    to_draft: Vec<Option<u32>>,
    /// True if each token is the same number in both.
    same: bool,
}

/// Bytes of a token, and whether it is one of those that steer a model.
type Meaning = (Vec<u8>, bool);

/// Ordinary tokens before those that steer, and of equal ones the first.
fn meanings(tokenizer: &Tokenizer, n: usize) -> Vec<Meaning> {
    let meaning = |id: u32| {
        let plain = tokenizer.piece(id, false);
        match plain.is_empty() {
            true => (tokenizer.piece(id, true), true),
            false => (plain, false),
        }
    };
    (0..n as u32).map(meaning).collect()
}

impl Vocabulary {
    /// Compares the tokens of the model of a text with those of the model of its drafts.
    pub fn new(text: &Model, draft: &Model) -> Vocabulary {
        let count = |model: &Model| model.tokenizer().n_vocab().min(model.weights().n_vocab());
        let (of_text, of_draft) = (meanings(text.tokenizer(), count(text)), meanings(draft.tokenizer(), count(draft)));
        let mut ids: HashMap<&Meaning, u32> = HashMap::new();
        for (id, meaning) in (0u32..).zip(&of_text).filter(|(_, (bytes, _))| !bytes.is_empty()) {
            ids.entry(meaning).or_insert(id);
        }
        let id = |(at, meaning): (u32, &Meaning)| match of_text.get(at as usize) {
            Some(same) if same == meaning => Some(at),
            _ => ids.get(meaning).copied(),
        };
        let mut to_text: Vec<Option<u32>> = (0u32..).zip(&of_draft).map(id).collect();
        let ends =
            [(draft.tokenizer().bos(), text.tokenizer().bos()), (draft.tokenizer().eos(), text.tokenizer().eos())];
        for (from, to) in ends {
            if let (Some(from), Some(to)) = (from, to)
                && let Some(entry) = to_text.get_mut(from as usize)
            {
                *entry = Some(to);
            }
        }
        let mut to_draft = vec![None; of_text.len()];
        for (at, to) in (0u32..).zip(&to_text) {
            if let Some(to) = to {
                to_draft[*to as usize].get_or_insert(at);
            }
        }
        let mut pairs = (0u32..).zip(&to_text);
        let same = of_text.len() == of_draft.len() && pairs.all(|(at, to)| *to == Some(at));
        Vocabulary { to_text, to_draft, same }
    }

    /// Tokens of the draft's model that the text's has too.
    pub fn common(&self) -> usize {
        self.to_text.iter().flatten().count()
    }

    /// The draft's token for a token of the text.
    pub fn of_text(&self, id: u32) -> Option<u32> {
        self.to_draft.get(id as usize).copied().flatten()
    }

    /// Logits of the draft's model in the order of the text's vocabulary of `n` tokens: those of tokens that the draft's
    /// model does not have are -inf. `buffer` holds them where the two differ.
    pub fn logits<'a>(&self, row: &'a [f32], n: usize, buffer: &'a mut Vec<f32>) -> &'a [f32] {
        if self.same && row.len() == n {
            return row;
        }
        buffer.clear();
        buffer.resize(n, f32::NEG_INFINITY);
        for (&logit, to) in row.iter().zip(&self.to_text) {
            if let Some(entry) = to.and_then(|to| buffer.get_mut(to as usize)) {
                // Where several tokens are one in the other vocabulary, the likeliest speaks for it.
                *entry = entry.max(logit);
            }
        }
        buffer
    }
}
