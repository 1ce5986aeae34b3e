//! Evaluated prefixes, for sequences that begin alike.

use std::collections::HashMap;

use crate::kv::{PagePool, PageRef, Sequence};
use crate::program::Setting;

/// Which keys and values may stand for one another: those that were made with the same setting, for callers who may know
/// of each other.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Kind {
    /// How the weights were read.
    pub setting: Setting,
    /// Anything that callers who share have in common.
    pub salt: String,
}

/// Pages by the tokens that they were made of: a radix tree for each [`Kind`].
///
/// An edge is a run of tokens that begins where a page does, with the pages of their keys and values; edges part where
/// pages do, so that two texts that differ within a page each have one of their own. Tokens are compared themselves, so
/// no text can be taken for another one. A page stays as long as the tree or a sequence holds it.
///
/// Sequences with a recurrent state are neither remembered nor found: a state cannot be cut back to where two texts
/// part, so that they are evaluated from the start.
pub struct PrefixTree {
    pages: PagePool,
    roots: HashMap<Kind, Vec<Edge>>,
    /// Counts uses, so that what was used last is known.
    clock: u64,
}

struct Edge {
    /// At least one. The last page is full unless nothing follows.
    tokens: Vec<u32>,
    pages: Vec<PageRef>,
    /// When it was found or stored last.
    used: u64,
    next: Vec<Edge>,
}

impl PrefixTree {
    /// An empty tree of pages of `pages`.
    pub fn new(pages: &PagePool) -> PrefixTree {
        PrefixTree { pages: pages.clone(), roots: HashMap::new(), clock: 0 }
    }

    /// The longest beginning of `tokens` that is known, as a sequence; an empty one if nothing is.
    pub fn find(&mut self, kind: &Kind, tokens: &[u32]) -> Sequence {
        self.clock += 1;
        if self.pages.layout().state > 0 {
            return self.pages.sequence();
        }
        let size = self.pages.layout().positions;
        let (mut pages, mut len) = (Vec::new(), 0);
        let mut level = self.roots.get_mut(kind);
        while let Some(edges) = level.take() {
            let rest = &tokens[len..];
            let best = edges.iter_mut().max_by_key(|e| common(&e.tokens, rest));
            let Some(edge) = best.filter(|e| common(&e.tokens, rest) > 0) else {
                break;
            };
            let same = common(&edge.tokens, rest);
            edge.used = self.clock;
            pages.extend_from_slice(&edge.pages[..same.div_ceil(size)]);
            len += same;
            if same == edge.tokens.len() && same.is_multiple_of(size) {
                level = Some(&mut edge.next);
            }
        }
        self.pages.sequence_of(pages, len)
    }

    /// Remembers `seq`, whose positions were made of `tokens`. Of pages that are known already the tree's are kept.
    ///
    /// # Panics
    /// When the sequence has not as many positions as there are tokens.
    pub fn insert(&mut self, kind: &Kind, tokens: &[u32], seq: &Sequence) {
        if self.pages.layout().state > 0 {
            return;
        }
        assert_eq!(tokens.len(), seq.len(), "a token for every position");
        self.clock += 1;
        let size = self.pages.layout().positions;
        let mut level = self.roots.entry(kind.clone()).or_default();
        let mut known = 0;
        while known < tokens.len() {
            let rest = &tokens[known..];
            let best = (0..level.len()).max_by_key(|&i| common(&level[i].tokens, rest));
            let same = best.map_or(0, |i| common(&level[i].tokens, rest));
            let (Some(i), true) = (best, same == rest.len() || same >= size) else {
                break;
            };
            level[i].used = self.clock;
            if same == rest.len() {
                // All of it is known.
                return;
            }
            let whole = same / size * size;
            if whole < level[i].tokens.len() {
                split(&mut level[i], whole, size);
            }
            known += whole;
            level = &mut level[i].next;
        }
        if known == tokens.len() {
            return;
        }
        // What is a part of the new edge was the not yet full end of an earlier text.
        let rest = &tokens[known..];
        level.retain(|e| !(e.next.is_empty() && rest.starts_with(&e.tokens)));
        level.push(Edge {
            tokens: rest.to_vec(),
            pages: seq.page_refs().split_off(known / size),
            used: self.clock,
            next: Vec::new(),
        });
    }

    /// Forgets the page that was not used for longest among those that nothing follows and nobody else holds; false
    /// when there is none.
    pub fn evict(&mut self) -> bool {
        let size = self.pages.layout().positions;
        let oldest = |edges: &Vec<Edge>| oldest(edges);
        let candidates = self.roots.iter();
        let candidates = candidates.filter_map(|(kind, edges)| Some((oldest(edges)?, kind)));
        let Some((used, kind)) = candidates.min_by_key(|(used, _)| *used) else {
            return false;
        };
        let kind = kind.clone();
        if let Some(edges) = self.roots.get_mut(&kind) {
            drop_page(edges, used, size);
            if edges.is_empty() {
                self.roots.remove(&kind);
            }
        }
        true
    }

    /// Forgets the pages of a text from its end on, as far as no other text has them; the tokens that it forgot.
    pub fn forget(&mut self, kind: &Kind, tokens: &[u32]) -> usize {
        let Some(edges) = self.roots.get_mut(kind) else {
            return 0;
        };
        let forgotten = forget(edges, tokens);
        if edges.is_empty() {
            self.roots.remove(kind);
        }
        forgotten
    }

    /// Forgets everything.
    pub fn clear(&mut self) {
        self.roots.clear();
    }
}

/// Tokens that two texts begin with.
fn common(a: &[u32], b: &[u32]) -> usize {
    a.iter().zip(b).take_while(|(a, b)| a == b).count()
}

/// Forgets the end of a text that begins with `tokens`, in whole edges and in whole pages; the tokens that it forgot.
fn forget(edges: &mut Vec<Edge>, tokens: &[u32]) -> usize {
    let best = (0..edges.len()).max_by_key(|&i| common(&edges[i].tokens, tokens));
    let Some(i) = best.filter(|&i| common(&edges[i].tokens, tokens) > 0) else {
        return 0;
    };
    let same = common(&edges[i].tokens, tokens);
    let edge = &mut edges[i];
    if same == edge.tokens.len() && same < tokens.len() {
        let forgotten = forget(&mut edge.next, &tokens[same..]);
        if !edge.next.is_empty() {
            return forgotten;
        }
        edges.swap_remove(i);
        return forgotten + same;
    }
    // the text ends here, or the tree has no more of it; another one may go on
    if same < edge.tokens.len() || !edge.next.is_empty() {
        return 0;
    }
    edges.swap_remove(i);
    same
}

/// Parts an edge after its first `tokens` tokens, which are whole pages.
fn split(edge: &mut Edge, tokens: usize, size: usize) {
    let rest = Edge {
        tokens: edge.tokens.split_off(tokens),
        pages: edge.pages.split_off(tokens / size),
        used: edge.used,
        next: std::mem::take(&mut edge.next),
    };
    edge.next.push(rest);
}

/// When the end of a text whose last page only the tree holds was used last, of those that were not used for longest.
fn oldest(edges: &[Edge]) -> Option<u64> {
    let ends = edges.iter().filter_map(|edge| {
        if !edge.next.is_empty() {
            return oldest(&edge.next);
        }
        let free = edge.pages.last().is_some_and(|page| !page.is_shared());
        free.then_some(edge.used)
    });
    ends.min()
}

/// Drops the last page of the end that was used at `used`; false when it is not here.
fn drop_page(edges: &mut Vec<Edge>, used: u64, size: usize) -> bool {
    for i in 0..edges.len() {
        let edge = &mut edges[i];
        if !edge.next.is_empty() {
            if drop_page(&mut edge.next, used, size) {
                return true;
            }
            continue;
        }
        let free = edge.pages.last().is_some_and(|page| !page.is_shared());
        if free && edge.used == used {
            edge.pages.pop();
            edge.tokens.truncate(edge.pages.len() * size);
            if edge.tokens.is_empty() {
                edges.swap_remove(i);
            }
            return true;
        }
    }
    false
}

#[cfg(test)]
mod tests;
