//! Reused evaluations give the bits of new ones.

use std::sync::{Arc, Mutex};

use trine::{Context, ContextOptions, GenerateOptions};

use super::{bits, model};

/// Position, token and the bits of the logits after it.
type Seen = (usize, u32, Vec<u32>);

fn watched(context: &mut Context) -> Arc<Mutex<Vec<Seen>>> {
    let seen = Arc::new(Mutex::new(Vec::new()));
    let into = seen.clone();
    context.observe(Some(Box::new(move |e| {
        let all = &mut *into.lock().expect("no panic");
        all.push((e.position, e.token, bits(e.logits)));
    })));
    seen
}

#[test]
fn a_reused_beginning_gives_the_bits_of_a_fresh_context() {
    let prompts = [
        "The game was played in the summer of that year .",
        "The game was played in the winter",
        "The game was played in the winter and again in the summer of the year after it",
        "Another text",
        "Another text",
        "The game was played in the winter",
    ];
    let options = GenerateOptions::greedy(6);
    let mut kept = model().context(&ContextOptions::default());
    let seen = watched(&mut kept);
    let mut reused = 0;
    for prompt in prompts {
        seen.lock().expect("no panic").clear();
        let generation = kept.generate(prompt, &options).expect("room");
        let completion = generation.complete().expect("finite logits");
        let mut fresh = model().context(&ContextOptions::default());
        let all = watched(&mut fresh);
        let expected = fresh.generate(prompt, &options).expect("room");
        assert_eq!(completion, expected.complete().expect("finite logits"));
        let (seen, all) = (seen.lock().expect("no panic"), all.lock().expect("no panic"));
        // the last positions of the fresh context are all that was evaluated again
        assert!(seen[..] == all[all.len() - seen.len()..], "{prompt}");
        assert_eq!(kept.tokens(), fresh.tokens());
        assert!(bits(kept.logits()) == bits(fresh.logits()));
        assert_eq!(kept.stats().reused - reused, all.len() - seen.len());
        reused = kept.stats().reused;
    }
    assert!(reused > 15, "{reused}");
}

#[test]
fn a_text_that_was_left_half_way_leaves_a_usable_context() {
    let options = GenerateOptions::greedy(20);
    let mut context = model().context(&ContextOptions::default());
    for n in [0, 1, 5] {
        let mut generation = context.generate("The game", &options).expect("room");
        assert_eq!(generation.by_ref().take(n).filter(Result::is_ok).count(), n);
    }
    let whole = context.generate("The game", &options).expect("room");
    let whole = whole.complete().expect("finite logits");
    context.clear();
    assert!(context.tokens().is_empty());
    let again = context.generate("The game", &options).expect("room");
    assert_eq!(again.complete().expect("finite logits"), whole);
}

#[test]
fn batch_sizes_change_no_bit() {
    let prompt = "In the summer of that year the team played its first game at home .";
    let mut all = Vec::new();
    for (n_batch, n_ubatch) in [(2048, 512), (1, 1), (5, 3), (7, 512)] {
        let mut context = model().context(&ContextOptions { n_ctx: None, n_batch, n_ubatch });
        let seen = watched(&mut context);
        let generation = context.generate(prompt, &GenerateOptions::greedy(4));
        generation.expect("room").complete().expect("finite logits");
        all.push(std::mem::take(&mut *seen.lock().expect("no panic")));
    }
    assert!(all.windows(2).all(|pair| pair[0] == pair[1]));
}
