//! Steps of models that are small enough for Miri.

use super::{Engine, PagePool, Segment, StepOptions};
use crate::kernels::testing::isas;
use crate::model::toy::{Extras, VOCAB, toy};
use crate::model::{LoadOptions, Weights};
use crate::pool::Pool;

const TOKENS: [u32; 5] = [3, 7, 0, 22, 15];

/// The bits of the logits behind every token of some texts, which go through the model in steps of these sizes.
fn logits(model: &Weights, threads: usize, texts: &[&[u32]], steps: &[usize]) -> Vec<Vec<Vec<u32>>> {
    let pool = Pool::new(threads).expect("threads");
    let layout = model.page_layout().with_positions(32);
    let engine = Engine::with_pages(model, &pool, PagePool::new(layout, 4));
    let mut sequences: Vec<_> = texts.iter().map(|_| engine.sequence()).collect();
    let mut out = vec![Vec::new(); texts.len()];
    let mut done = 0;
    for step in steps {
        let segments = sequences.iter_mut().zip(texts);
        let segments = segments.map(|(seq, text)| Segment { seq, tokens: &text[done..done + step], logits_from: 0 });
        let mut segments: Vec<_> = segments.collect();
        let sink: &mut (dyn FnMut(usize, usize, &[f32]) + Send) =
            &mut |i, _, row| out[i].push(row.iter().map(|v| v.to_bits()).collect());
        engine.step(&mut segments, &StepOptions::default(), sink).expect("room");
        done += step;
    }
    out
}

#[test]
fn a_toy_has_the_same_logits_in_every_company() {
    let window = Extras { window: true, softcap: true, ..Extras::default() };
    let llama = Extras { biases: true, output: true, ..Extras::default() };
    for (arch, extras) in [("gemma3", window), ("llama", llama)].into_iter().take(if cfg!(miri) { 1 } else { 2 }) {
        let file = toy(arch, extras);
        let mut expected = None;
        // Miri takes minutes for the definitions alone, whose code is the same for both models.
        for isa in isas().take(if cfg!(miri) { 1 } else { usize::MAX }) {
            let options = LoadOptions { isa, ..LoadOptions::default() };
            let model = Weights::load(&file, &options).expect("a model");
            let alone = logits(&model, 1, &[&TOKENS], &[5]).remove(0);
            assert!(alone.len() == TOKENS.len() && alone.iter().all(|row| row.len() == VOCAB));
            assert_eq!(*expected.get_or_insert_with(|| alone.clone()), alone, "{arch} with {isa:?}");
            let mate = [1, 1, 2, 3, 5];
            let together = logits(&model, 2, &[&mate, &TOKENS], &[1, 3, 1]).remove(1);
            assert_eq!(together, alone, "{arch} in company");
        }
    }
}
