//! Sequences that are saved and read again: the bits that follow are those of the sequence itself.

use trine::Isa;
use trine::formats::types::TypeId;
use trine::kv::{CacheTypes, PageLayout, PagePool, Sequence, SequenceRows, TILE, store};
use trine::model::{LoadOptions, Weights};
use trine::pool::Pool;
use trine::step::{Session, SessionOptions};
use trine_kernels::halves::F16Encoding;

fn session(name: &str, cache: CacheTypes) -> Session {
    let options = LoadOptions { isa: Isa::detect(), cache, ..LoadOptions::default() };
    let file = trine_testkit::gguf::model(crate::made(name));
    let model = Weights::load(&file, &options).expect("a model");
    let options = SessionOptions { n_ctx: 256, n_ubatch: 64 };
    Session::new(&model, &Pool::new(2).expect("threads"), options)
}

/// The bits of the logits after each of `tokens`.
fn eval(session: &mut Session, tokens: &[u32]) -> Vec<u32> {
    let mut bits = Vec::new();
    let sink = &mut |_: usize, logits: &[f32]| bits.extend(logits.iter().map(|v| v.to_bits()));
    session.eval(tokens, 0, sink).expect("room");
    bits
}

#[test]
fn sessions_go_on_from_what_was_written() {
    let q8 = CacheTypes { keys: TypeId::Q8_0, values: TypeId::Q8_0 };
    for (name, cache) in [
        ("llama-dense", CacheTypes::HALVES),
        ("llama-dense", q8),
        ("gemma2-dense", CacheTypes::HALVES),
        ("gemma4-moe", CacheTypes::HALVES),
        ("gemma4-moe", q8),
        ("lfm2-dense", CacheTypes::HALVES),
        ("jamba-dense", CacheTypes::HALVES),
        ("mamba2-dense", CacheTypes::HALVES),
        ("kimi-linear-moe", CacheTypes::HALVES),
    ] {
        let stem: Vec<u32> = (0..70).map(|i| (i * 37 + 5) % 100).collect();
        let (mut first, mut second) = (session(name, cache), session(name, cache));
        eval(&mut first, &stem);
        let mut bytes = Vec::new();
        first.part(stem.len(), None).write(&mut bytes).expect("memory");
        assert_eq!(first.form(), second.form());
        let mut from = &bytes[..];
        eval(&mut second, &[1, 2, 3]);
        let sequence = second.pages().read_sequence(stem.len(), &mut from).expect("what was written");
        second.replace(sequence);
        assert!(from.is_empty(), "{name}: {} bytes are left", from.len());
        let expected = eval(&mut first, &[7, 8, 9]);
        assert!(eval(&mut second, &[7, 8, 9]) == expected, "{name}");
        let cut = second.pages().read_sequence(stem.len(), &mut &bytes[..bytes.len() - 1]);
        assert!(cut.is_err(), "{name}");
    }
}

/// Infinities and NaN take functions of their own, by tiles: which these are is found again.
#[test]
fn tiles_with_infinities_are_known_again() {
    let pool = PagePool::new(PageLayout::new(1, 2, [8, 8]), 4);
    let positions = 2 * TILE + 3;
    let rows = |special: usize| -> Vec<f32> {
        let value = |i: usize| match i {
            i if i == special => f32::INFINITY,
            i => i as f32 / 64.0,
        };
        (0..positions * 16).map(value).collect()
    };
    let mut seq = pool.sequence();
    seq.reserve(positions).expect("pages");
    let mut parts = [SequenceRows { seq: &mut seq, rows: 0..positions }];
    // A key of the second tile, of head 1, and a value of the last one, of head 0.
    let (key, value) = (rows((TILE + 4) * 16 + 9), rows((2 * TILE + 1) * 16 + 2));
    store(Isa::detect(), 0, &mut parts, &key, &value);
    seq.advance(positions);
    let mut bytes = Vec::new();
    seq.write(&mut bytes).expect("memory");
    let read = pool.read_sequence(positions, &mut &bytes[..]);
    let read = read.expect("what was written");
    let specials = |seq: &Sequence| -> Vec<bool> {
        let tiles = (0..2).flat_map(|head| (0..3).map(move |tile| (head, tile)));
        let special = |(head, tile)| {
            let (page, tile) = seq.tile(0, head, tile);
            page.form(tile) == F16Encoding::Special
        };
        tiles.map(special).collect()
    };
    assert_eq!(specials(&seq), [false, false, true, false, true, false]);
    assert_eq!(specials(&read), specials(&seq));
}
