//! Embeddings of n-grams, which go by the tokens and by those before them.

use trine::ops::ngrams::Ngrams;
use trine_compat_tests::inputs::Rng;
use trine_compat_tests::ptx::{Emulated, Schedule};
use trine_cuda::program::{self as gpu, Limits, Matrix, Recorder};
use trine_cuda::ptx::RECURRENT;
use trine_cuda::run::{Host, Input, Part, Shared, Slot};
use trine_formats::types::TypeId;

use super::bytes;
use super::recurrent::{ROWS, Recurrence, at, expected, leaked, new, script};
use crate::mistakes::with_mistake;
use crate::product::assert_same;

/// Embeddings of n-grams of two and three tokens, with two heads each; the input is the token, and token 3 ends a text.
fn ngrams() -> Recurrence {
    const SIZE: usize = 5;
    static MULTIPLIERS: [u64; 3] = [0x9e37_79b9_7f4a_7c15, 0xbf58_476d_1ce4_e5b9, 0x94d0_49bb_1331_11eb];
    static OF_HEADS: [[u64; 2]; 4] = [[0, 7], [7, 11], [18, 5], [23, 17]];
    let table = leaked(&mut Rng::new(67), 40 * SIZE, |x| x);
    let rule = Ngrams { multipliers: MULTIPLIERS.to_vec(), heads: OF_HEADS.to_vec(), end: 3 };
    Recurrence {
        name: "n-grams",
        kernels: &["ngram_rows", "keep_tokens"],
        widths: vec![1],
        results: 4 * SIZE,
        record: Box::new(move |r, _| {
            let rule = gpu::Ngrams { multipliers: &MULTIPLIERS, heads: &OF_HEADS, end: 3 };
            let (ty, rows, data) = (TypeId::F32, 40, bytes(table).leak());
            r.embed_ngrams(Matrix { name: "n-grams", ty, rows, columns: SIZE, data, scale: 1.0 }, &rule)
        }),
        run: Box::new(move |x| {
            let tokens: Vec<u32> = x[0].iter().map(|&x| x as u32).collect();
            let rows = rule.rows(&tokens, &mut vec![0.0; rule.state()]).into_iter();
            rows.flat_map(|row| &table[row * SIZE..][..SIZE]).copied().collect()
        }),
    }
}

#[test]
fn n_grams_are_found_as_on_the_processor_and_mistakes_are_found() {
    let rule = ngrams();
    let x: Vec<f32> = (0..ROWS).map(|row| row as f32).collect();
    let expected = expected(&rule, &x).concat();
    let of = |kernel: &str, change: &dyn Fn(&str) -> String, last: Slot, schedule: Schedule| {
        let mut device = Emulated::new().expect("PTX");
        device.schedule = schedule;
        device.replace(RECURRENT.name, with_mistake(RECURRENT, kernel, change));
        let found = script(&mut *rule.started(device, &x, [5, 3]), last);
        found.map_or(true, |found| found.concat().iter().zip(&expected).any(|(a, b)| a.to_bits() != b.to_bits()))
    };
    let same: &dyn Fn(&str) -> String = &|t| format!("{t} ");
    for kernel in rule.kernels {
        assert!(!of(kernel, same, new(1), Schedule::Random(5)), "{kernel}: no mistake");
        assert!(
            of(kernel, &|t| t.replace("st.global", "// "), new(1), Schedule::InTurn),
            "{kernel}: nothing is written"
        );
    }
    assert!(of("ngram_rows", &|t| t.replace("xor.b64", "or.b64"), new(1), Schedule::InTurn), "another hash");
    assert!(of("ngram_rows", same, at(1), Schedule::InTurn), "a state that belongs to nobody was not seen");
    // Tokens are given beside rows too, and refused where they are not.
    let limits = Limits { tokens: 4, wanted: 4, context: 8, page: 1, pages: 8, slots: 2 };
    let mut recorder = Recorder::new(limits, rule.results).expect("limits");
    let given = recorder.given(rule.results).expect("rows");
    let y = (rule.record)(&mut recorder, &[]).expect("n-grams");
    recorder.add(given, y);
    let wanted = recorder.take_wanted(given).expect("rows");
    let (program, weights) = recorder.finish(wanted).expect("a program");
    let mut passes = Shared::new(Emulated::new().expect("PTX")).start(program, &weights).expect("a device");
    let rows: &[f32] = &vec![0.0; 4 * rule.results];
    let part = [Part { pages: &[0, 1, 2, 3], first: 0, tokens: 4, slot: new(0) }];
    let mut run = |tokens: &[u32]| {
        passes.pass(Input { tokens, rows: &[rows] }, &part, 0, &|_, _| Vec::new())?;
        passes.logits(&[0, 1, 2, 3])
    };
    assert_same(&run(&[0, 1, 2, 3]).expect("rows"), &expected[..4 * rule.results], "rows and tokens");
    assert!(run(&[]).is_err() && run(&[0, 1, 2, 20]).is_err());
}
