//! The tokens of the text that a step remembers.

use std::collections::{HashMap, VecDeque};

/// A window over the last tokens.
#[derive(Clone)]
pub struct Recent {
    tokens: VecDeque<u32>,
    most: usize,
}

impl Recent {
    /// An empty window that will hold the last `most` tokens.
    pub fn new(most: usize) -> Recent {
        Recent { tokens: VecDeque::new(), most }
    }

    /// Takes a token in, and says which one left the window for it.
    pub fn push(&mut self, id: u32) -> Option<u32> {
        if self.most == 0 {
            return Some(id);
        }
        let full = self.tokens.len() == self.most;
        let old = full.then(|| self.tokens.pop_front()).flatten();
        self.tokens.push_back(id);
        old
    }

    /// Tokens in the window.
    pub fn len(&self) -> usize {
        self.tokens.len()
    }

    /// The token `i` places before the last one.
    pub fn back(&self, i: usize) -> u32 {
        self.tokens[self.tokens.len() - 1 - i]
    }
}

/// How often each token stands in a window.
#[derive(Clone)]
pub struct Counted {
    recent: Recent,
    counts: HashMap<u32, u32>,
}

impl Counted {
    /// An empty window that will hold the last `most` tokens.
    pub fn new(most: usize) -> Counted {
        Counted { recent: Recent::new(most), counts: HashMap::new() }
    }

    /// Takes a token in.
    pub fn push(&mut self, id: u32) {
        *self.counts.entry(id).or_default() += 1;
        if let Some(old) = self.recent.push(id)
            && let Some(count) = self.counts.get_mut(&old)
        {
            *count -= 1;
            if *count == 0 {
                self.counts.remove(&old);
            }
        }
    }

    /// Tokens and how often they occur, in no order.
    pub fn counts(&self) -> &HashMap<u32, u32> {
        &self.counts
    }
}
