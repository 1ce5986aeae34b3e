//! Pages: budgets, sharing, copies of what is not full.

use trine_formats::types::TypeId;

use super::*;
use crate::kernels::Isa;
use crate::kernels::halves::F16Encoding;

/// Heads of a layer.
const HEADS: usize = 3;
const WIDTH: usize = 24;

/// Two layers, pages of one tile.
fn layout() -> PageLayout {
    PageLayout::new(2, HEADS, [8, 8]).with_positions(32)
}

/// The key of a position in layer 1, and its value.
fn row(position: usize, salt: usize) -> Vec<f32> {
    let value = |i: usize| ((position * 31 + i * 7 + salt) % 2039) as f32;
    (0..WIDTH).map(value).collect()
}

fn append(seq: &mut Sequence, salts: &[usize]) {
    seq.reserve(salts.len()).expect("pages");
    let first = seq.len();
    let rows = |extra: usize| -> Vec<f32> {
        let rows = salts.iter().enumerate();
        rows.flat_map(|(i, salt)| row(first + i, salt + extra)).collect()
    };
    let mut parts = [SequenceRows { seq, rows: 0..salts.len() }];
    store(Isa::detect(), 1, &mut parts, &rows(0), &rows(5));
    seq.advance(salts.len());
}

/// The words of all keys and values of a sequence's full tiles in layer 1.
fn words(seq: &Sequence) -> Vec<[u64; 8]> {
    let mut out = Vec::new();
    for tile in 0..seq.len() / TILE {
        for head in 0..HEADS {
            let (page, tile) = seq.tile(1, head, tile);
            out.extend(page.keys(tile).iter().map(|line| line.0));
            let values = page.values(tile, 0..1, 1);
            out.extend(values.words[..values.lines * values.quads].iter().map(|l| l.0));
        }
    }
    out
}

#[test]
fn pages_are_bounded_in_bytes() {
    assert_eq!(PageLayout::new(30, 3, [64, 64]).positions, 128);
    let large = PageLayout::new(30, 24, [128, 128]);
    assert_eq!(large.positions, 32);
    assert_eq!(large.bytes(), 30 * 24 * 128 * 32 * 2 * 2);
}

#[test]
fn a_sequence_grown_one_by_one_holds_what_one_grown_at_once_does() {
    let pool = PagePool::new(layout(), 8);
    let (mut whole, mut grown) = (pool.sequence(), pool.sequence());
    append(&mut whole, &[1; 96]);
    (0..96).for_each(|_| append(&mut grown, &[1]));
    assert!(words(&whole) == words(&grown));
    assert_eq!((grown.pages(), pool.free()), (3, 2));
}

#[test]
fn forks_share_pages_and_copy_the_one_that_is_not_full() {
    let pool = PagePool::new(layout(), 6);
    let mut first = pool.sequence();
    append(&mut first, &[1; 80]);
    let mut second = first.fork(80);
    let mut third = first.fork(40);
    assert_eq!(pool.free(), 3, "forks take no page");
    assert_eq!((second.pages_for(1), third.pages_for(1)), (1, 1));
    append(&mut second, &[2; 16]);
    append(&mut third, &[3; 56]);
    append(&mut first, &[1; 16]);
    let alone = |salts: &[usize]| {
        let mut seq = PagePool::new(layout(), 4).sequence();
        append(&mut seq, salts);
        words(&seq)
    };
    assert!(words(&first) == alone(&[1; 96]));
    assert!(words(&second) == alone(&[[1; 80].as_slice(), &[2; 16]].concat()));
    assert!(words(&third) == alone(&[[1; 40].as_slice(), &[3; 56]].concat()));
    drop((first, second, third));
    assert_eq!(pool.free(), 6);
}

/// All encoded keys and values of a sequence in layer 1.
fn encoded(seq: &Sequence) -> Vec<u8> {
    let layout = seq.layout().layer(1);
    let mut out = Vec::new();
    for page in 0..seq.pages() {
        let filled = (seq.len() - page * layout.positions).min(layout.positions);
        for head in 0..layout.n_head {
            let EncodedHead { keys, values } = seq.encoded(1, page, head);
            out.extend(&keys[..filled * layout.key_bytes()]);
            out.extend(&values[..filled * layout.value_bytes()]);
        }
    }
    out
}

#[test]
fn encoded_pages_are_shared_and_copied_like_others() {
    let types = CacheTypes { keys: TypeId::F32, values: TypeId::BF16 };
    let layout = layout().with_types(types, [false; 2]).with_positions(32);
    assert_eq!(layout.bytes(), 2 * 3 * 32 * (8 * 4 + 8 * 2));
    let pool = PagePool::new(layout.clone(), 7);
    let mut first = pool.sequence();
    append(&mut first, &[1; 40]);
    let mut second = first.fork(35);
    append(&mut second, &[2; 30]);
    append(&mut first, &[1; 3]);
    let alone = |salts: &[usize]| {
        let mut seq = PagePool::new(layout.clone(), 3).sequence();
        salts.iter().for_each(|&salt| append(&mut seq, &[salt]));
        encoded(&seq)
    };
    assert!(encoded(&first) == alone(&[1; 43]));
    assert!(encoded(&second) == alone(&[[1; 35].as_slice(), &[2; 30]].concat()));
    // the key of a position is there as it was given
    let head = first.encoded(1, 1, 2);
    let key: Vec<f32> = head.keys[8 * layout.layer(1).key_bytes()..][..32]
        .chunks_exact(4)
        .map(|b| f32::from_le_bytes([b[0], b[1], b[2], b[3]]))
        .collect();
    assert_eq!(key, row(40, 1)[16..]);
}

/// The bytes of 20 positions of layers with these heads; number `first + i` is that of the i-th.
fn written(heads: &[KvHeads], first: usize, types: CacheTypes) -> Vec<u8> {
    let layout = PageLayout::of_layers(heads.iter().copied()).with_types(types, [false; 2]).with_positions(32);
    let pool = PagePool::new(layout, 2);
    let mut seq = pool.sequence();
    seq.reserve(20).expect("pages");
    for (layer, heads) in heads.iter().enumerate() {
        let row = |n: usize| (0..20 * n).map(|i| ((i * 31 + first + layer) % 97) as f32).collect::<Vec<f32>>();
        let (k, v) = (row(heads.count * heads.key), row(heads.count * heads.value));
        store(Isa::detect(), layer, &mut [SequenceRows { seq: &mut seq, rows: 0..20 }], &k, &v);
    }
    seq.advance(20);
    // a copy of the page has all of it, too
    let mut fork = seq.fork(20);
    fork.reserve(1).expect("a page");
    let mut bytes = [Vec::new(), Vec::new()];
    seq.write(&mut bytes[0]).expect("memory");
    fork.release_reserved();
    fork.write(&mut bytes[1]).expect("memory");
    let [bytes, copied] = bytes;
    assert!(bytes == copied);
    bytes
}

#[test]
fn layers_of_other_heads_keep_apart() {
    let heads = [(3, 8, 8), (1, 40, 40), (2, 4, 12)].map(|(count, key, value)| KvHeads { count, key, value });
    let encoded = CacheTypes { keys: TypeId::F32, values: TypeId::BF16 };
    for types in [CacheTypes::HALVES, encoded] {
        let alone = (0..3).flat_map(|layer| written(&heads[layer..=layer], layer, types));
        assert!(written(&heads, 0, types) == alone.collect::<Vec<u8>>());
        let layout = PageLayout::of_layers(heads.into_iter()).with_types(types, [false; 2]).with_positions(32);
        let of_layer = |layer: usize| {
            let own = PageLayout::of_layers(heads[layer..=layer].iter().copied());
            own.with_types(types, [false; 2]).with_positions(32).bytes()
        };
        assert_eq!(layout.bytes(), (0..3).map(of_layer).sum::<usize>());
        // a device has no room for what heads lack, and counts keys and values by their types
        let [of_keys, of_values] = if types == encoded { [4, 2] } else { [2, 2] };
        let elsewhere = 32 * (of_keys * (40 + 2 * 4) + of_values * (40 + 2 * 12));
        assert_eq!(layout.with_elsewhere(2).bytes(), of_layer(0) + elsewhere);
    }
}

#[test]
fn a_spent_budget_takes_nothing() {
    let pool = PagePool::new(layout(), 3);
    let (mut a, mut b) = (pool.sequence(), pool.sequence());
    append(&mut a, &[1; 64]);
    let error = OutOfPages { wanted: 2, free: 1, budget: 3, positions: 32 };
    assert_eq!(b.reserve(33), Err(error));
    assert_eq!((b.pages(), pool.free()), (0, 1));
    // A page that two hold is copied, and the copy needs room too.
    let mut fork = a.fork(50);
    append(&mut b, &[1; 32]);
    assert!(fork.reserve(1).is_err());
    assert_eq!(fork.len(), 50);
    drop(a);
    fork.reserve(1).expect("its pages are its own now");
    fork.release_reserved();
    b.truncate(0);
    assert_eq!(pool.free(), 1);
}

#[test]
fn an_infinity_marks_its_tile_until_the_tile_begins_anew() {
    let pool = PagePool::new(layout(), 4);
    let mut seq = pool.sequence();
    append(&mut seq, &[1; 40]);
    let mut bad = row(40, 1);
    bad[2 * 8] = f32::NAN;
    seq.reserve(1).expect("pages");
    let mut parts = [SequenceRows { seq: &mut seq, rows: 0..1 }];
    store(Isa::detect(), 1, &mut parts, &bad, &row(40, 6));
    seq.advance(1);
    let marked = |seq: &Sequence, head, tile| {
        let (page, tile) = seq.tile(1, head, tile);
        page.form(tile) == F16Encoding::Special
    };
    assert!(marked(&seq, 2, 1) && !marked(&seq, 1, 1) && !marked(&seq, 2, 0));
    let fork = seq.fork(41);
    append(&mut seq, &[1; 1]);
    assert!(marked(&seq, 2, 1) && marked(&fork, 2, 1));
    seq.truncate(32);
    append(&mut seq, &[1; 1]);
    assert!(!marked(&seq, 2, 1));
}
