use super::*;
use crate::kv::PageLayout;

const PAGE: usize = 32;

fn pages(budget: usize) -> PagePool {
    PagePool::new(PageLayout::new(1, 1, [4, 4]).with_positions(PAGE), budget)
}

fn kind(bits: u8, salt: &str) -> Kind {
    let salt = salt.to_owned();
    Kind { setting: Setting { bits, adapters: None }, salt }
}

/// Goes on from what the tree has of `tokens` and stores the whole; how much the tree had.
fn evaluate(tree: &mut PrefixTree, kind: &Kind, tokens: &[u32]) -> usize {
    let mut seq = tree.find(kind, tokens);
    let known = seq.len();
    seq.reserve(tokens.len() - known).expect("pages");
    seq.advance(tokens.len() - known);
    tree.insert(kind, tokens, &seq);
    known
}

/// A text that turns off a common one at `turn`.
fn text(turn: usize, len: usize) -> Vec<u32> {
    let token = |i| (i + 1000 * usize::from(i >= turn) * (turn + 1)) as u32;
    (0..len).map(token).collect()
}

#[test]
fn reuse_is_exact_to_the_token() {
    for shared in [0, 1, 31, 32, 33, 64, 127, 128, 129, 150] {
        let mut tree = PrefixTree::new(&pages(100));
        let kind = kind(0, "");
        assert_eq!(evaluate(&mut tree, &kind, &text(200, 150)), 0);
        assert_eq!(evaluate(&mut tree, &kind, &text(shared, 170)), shared);
        assert_eq!(tree.find(&kind, &text(shared, 170)).len(), 170);
        assert_eq!(tree.find(&kind, &text(200, 150)).len(), 150);
    }
}

#[test]
fn a_text_that_grows_is_held_once() {
    let pool = pages(100);
    let mut tree = PrefixTree::new(&pool);
    let kind = kind(0, "");
    for len in [10, 40, 64, 65, 90, 200] {
        evaluate(&mut tree, &kind, &text(500, len));
        assert_eq!(pool.budget() - pool.free(), len.div_ceil(PAGE), "{len} tokens");
    }
    // its beginnings are known, so that storing them again changes nothing
    for len in [3, 64, 100] {
        assert_eq!(evaluate(&mut tree, &kind, &text(500, len)), len);
    }
    assert_eq!(pool.budget() - pool.free(), 7);
}

#[test]
fn other_widths_and_salts_share_nothing() {
    let mut tree = PrefixTree::new(&pages(100));
    evaluate(&mut tree, &kind(4, "a"), &text(500, 70));
    for other in [kind(8, "a"), kind(4, "b"), kind(4, "")] {
        assert_eq!(tree.find(&other, &text(500, 70)).len(), 0);
    }
    assert_eq!(tree.find(&kind(4, "a"), &text(500, 70)).len(), 70);
}

#[test]
fn the_longest_beginning_among_many_texts_is_found() {
    let mut tree = PrefixTree::new(&pages(4000));
    let kind = kind(0, "");
    // texts of two tokens that part anywhere, lengths on both sides of the borders of pages
    let mut state = 1u32;
    let mut random = |below: u32| {
        state = state.wrapping_mul(1664525).wrapping_add(1013904223);
        (state >> 16) % below
    };
    let mut texts: Vec<Vec<u32>> = Vec::new();
    for _ in 0..300 {
        let mut tokens = match texts.len() {
            0 => Vec::new(),
            n => texts[random(n as u32) as usize].clone(),
        };
        tokens.truncate(random(140) as usize);
        let more = 1 + random(70);
        tokens.extend((0..more).map(|_| random(2)));
        let expected = texts.iter().map(|t| common(t, &tokens)).max();
        let found = evaluate(&mut tree, &kind, &tokens);
        assert_eq!(found, expected.unwrap_or(0));
        texts.push(tokens);
    }
}

#[test]
fn what_was_unused_for_longest_goes_first_page_by_page() {
    let pool = pages(20);
    let mut tree = PrefixTree::new(&pool);
    let kind = kind(0, "");
    let (old, new) = (text(0, 96), text(1, 96));
    evaluate(&mut tree, &kind, &old);
    evaluate(&mut tree, &kind, &new);
    assert!(tree.evict());
    assert_eq!(tree.find(&kind, &new).len(), 96);
    assert_eq!(tree.find(&kind, &old).len(), 64);
    // the old one was used last now
    assert!(tree.evict());
    assert_eq!(tree.find(&kind, &new).len(), 64);
    // what a sequence holds does not go
    let held = tree.find(&kind, &old);
    while tree.evict() {}
    assert_eq!(pool.budget() - pool.free(), 2);
    drop(held);
    while tree.evict() {}
    assert_eq!(pool.free(), pool.budget());
}

#[test]
fn nothing_is_lost_or_held_when_all_is_forgotten() {
    let pool = pages(50);
    let mut tree = PrefixTree::new(&pool);
    for turn in [5, 40, 70] {
        evaluate(&mut tree, &kind(3, "x"), &text(turn, 100));
    }
    tree.clear();
    assert_eq!(pool.free(), pool.budget());
}

#[test]
fn a_text_is_forgotten_as_far_as_no_other_has_it() {
    let pool = pages(100);
    let mut tree = PrefixTree::new(&pool);
    let kind = kind(0, "");
    evaluate(&mut tree, &kind, &text(70, 150));
    evaluate(&mut tree, &kind, &text(500, 170));
    // Two pages are of both; the other three and the other four are of one.
    assert_eq!(tree.forget(&kind, &text(70, 150)), 150 - 2 * PAGE);
    assert_eq!(tree.find(&kind, &text(70, 150)).len(), 70);
    assert_eq!(tree.find(&kind, &text(500, 170)).len(), 170);
    assert_eq!(pool.budget() - pool.free(), 6);
    // A beginning of another text is that text's.
    assert_eq!(tree.forget(&kind, &text(500, 100)), 0);
    assert_eq!(tree.forget(&kind, &text(500, 170)), 170);
    assert_eq!((tree.forget(&kind, &text(500, 170)), pool.free()), (0, pool.budget()));
}
