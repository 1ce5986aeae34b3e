//! Products with matrices at all their widths, packed and not, against the canonical ones.

use trine_formats::anyprec::{ApView, FixedLut, SparseView, add_sparse, dot_f32, dot_i16, quantize_activations, words};
use trine_formats::gguf::Blob;
use trine_formats::types::num::f32_to_f16;

use super::super::probe::Probed;
use super::*;
use crate::kernels::AlignedBytes;
use crate::kernels::testing::{Random, isas, same};
use crate::pool::Pool;

const PATHS: [NumberPath; 2] = [NumberPath::F32, NumberPath::I16];

fn normal(random: &mut Random) -> u16 {
    f32_to_f16(random.float())
}

/// A matrix at one width: bits of the planes and centroids at random.
fn random_view(random: &mut Random, (rows, columns, groups): (usize, usize, usize), width: u8) -> ApView {
    let bytes = 8 * words(columns) * rows;
    let lut = (0..(rows * groups) << width).flat_map(|_| normal(random).to_le_bytes());
    let lut = Blob::from_vec(lut.collect());
    ApView {
        width,
        columns,
        rows,
        groups,
        planes: (0..width).map(|_| Blob::from_vec(random.bytes(bytes))).collect(),
        lut,
        sparse: None,
    }
}

/// Another width of the same matrix: the leading planes, and centroids at random.
fn narrower(random: &mut Random, widest: &ApView, width: u8) -> ApView {
    let shape = (widest.rows, widest.columns, widest.groups);
    ApView { planes: widest.planes[..usize::from(width)].to_vec(), ..random_view(random, shape, width) }
}

/// The products without sparse weights, `[row][token]`.
fn expected(view: &ApView, path: NumberPath, x: &[f32]) -> Vec<f32> {
    let mut out = Vec::new();
    for row in 0..view.rows {
        let entries = view.entries(row);
        for x in x.chunks_exact(view.columns) {
            out.push(match path {
                NumberPath::F32 => dot_f32(view.dense_row(row), x),
                NumberPath::I16 => {
                    let lut = FixedLut::new(view.row_lut(row));
                    let centroids = entries.iter().map(|&e| lut.centroids[e]);
                    dot_i16(centroids, lut.scale, &quantize_activations(x))
                }
            });
        }
    }
    out
}

/// All rows of `x` in a form.
fn arranged(form: Arrangement, isa: Isa, x: &[f32], columns: usize) -> AlignedBytes {
    let bytes = form.act_bytes(columns);
    let mut out = AlignedBytes::new(x.len() / columns * bytes);
    for (x, out) in x.chunks_exact(columns).zip(out.chunks_exact_mut(bytes)) {
        form.arrange(isa, x, out);
    }
    out
}

/// Some weights of each row, and none of some rows.
fn sparse(random: &mut Random, rows: usize, columns: usize) -> SparseView {
    let (mut ptr, mut col, mut val) = (vec![0i32], Vec::new(), Vec::new());
    for row in 0..rows {
        for column in 0..columns {
            if row % 5 != 3 && random.below(29) == 0 {
                col.push(column as i32);
                val.push(normal(random));
            }
        }
        ptr.push(col.len() as i32);
    }
    let ints = |v: Vec<i32>| Blob::from_vec(v.into_iter().flat_map(i32::to_le_bytes).collect());
    SparseView {
        ptr: ints(ptr),
        col: ints(col),
        val: Blob::from_vec(val.into_iter().flat_map(u16::to_le_bytes).collect()),
    }
}

#[test]
fn matrices_give_the_canonical_products_on_any_number_of_threads() {
    let mut random = Random(5);
    // enough that threads share rows and tokens
    let (rows, columns, groups) = (400, 1152, 3);
    let wide = random_view(&mut random, (rows, columns, groups), 6);
    let narrow = narrower(&mut random, &wide, 4);
    let sparse = sparse(&mut random, rows, columns);
    let [narrow, wide] = [narrow, wide].map(|view| ApView { sparse: Some(sparse.clone()), ..view });
    for path in PATHS {
        let whole = BitplaneMatrix::new(path, [narrow.clone(), wide.clone()]);
        let part = whole.rows(100..301).expect("they are there");
        assert!(whole.rows(100..401).is_none());
        for view in [&narrow, &wide] {
            for tokens in [1, 3, 130] {
                let x: Vec<f32> = (0..columns * tokens).map(|_| random.float()).collect();
                let mut expected = expected(view, path, &x);
                for (i, y) in expected.iter_mut().enumerate() {
                    let (row, token) = (i / tokens, i % tokens);
                    let dense = view.dense_row(row);
                    let entries = sparse.row(row).map(|(c, w)| (c, w, dense[c]));
                    *y = add_sparse(*y, entries, &x[token * columns..][..columns]);
                }
                for isa in isas().filter(|isa| *isa != Isa::scalar() || tokens < 5) {
                    for threads in [1, 3] {
                        let form = whole.form(isa, tokens);
                        let acts = arranged(form, isa, &x, columns);
                        let (mut all, mut some) = (vec![0.0; tokens * rows], vec![0.0; tokens * 201]);
                        let width = view.width;
                        let job = |w, out| BitplaneProduct { w, width, form, acts: &acts, x: &x, out };
                        let pool = Pool::new(threads).expect("threads");
                        pool.install(|| {
                            let mut jobs = [job(&whole, &mut all[..]), job(&part, &mut some[..])];
                            multiply_all(isa, &mut jobs, tokens);
                        });
                        for (i, want) in expected.iter().enumerate() {
                            let (row, token) = (i / tokens, i % tokens);
                            let what = format!("{isa} {path:?} {threads} {width} {row} {token}");
                            let got = all[token * rows + row];
                            assert_eq!(got.to_bits(), want.to_bits(), "{what}");
                            if (100..301).contains(&row) {
                                let got = some[token * 201 + row - 100];
                                assert_eq!(got.to_bits(), want.to_bits(), "part, {what}");
                            }
                        }
                    }
                }
            }
        }
    }
}

#[test]
fn packed_matrices_take_any_width_at_any_time() {
    let mut random = Random(6);
    // a row of odd number at the end, groups of an odd number of blocks, more rows than a task packs
    let (rows, columns, groups) = (131, 1152, 2);
    let widest = random_view(&mut random, (rows, columns, groups), 8);
    let sparse = sparse(&mut random, rows, columns);
    let views: Vec<ApView> =
        (1..=8).map(|width| ApView { sparse: Some(sparse.clone()), ..narrower(&mut random, &widest, width) }).collect();
    let x: Vec<f32> = (0..3 * columns).map(|_| random.float()).collect();
    for path in PATHS {
        let plain = BitplaneMatrix::new(path, views.clone());
        let (first, second) = (plain.rows(0..51), plain.rows(51..rows));
        let pool = Pool::new(2).expect("threads");
        for widths in [[3, 8, 3, 4], [5, 4, 6, 7], [8, 1, 7, 2], [7, 5, 3, 6]] {
            let arena = SharedArena::default();
            let [whole, first, second] = [Some(&plain), first.as_ref(), second.as_ref()]
                .map(|m| m.expect("they are there").clone().packed(&arena, Isa::detect()));
            assert_eq!(whole.is_packed(), reads_packed(Isa::detect()));
            assert_eq!(first.is_packed(), reads_packed(Isa::detect()));
            for width in widths {
                for tokens in [1, 3] {
                    let x = &x[..tokens * columns];
                    let products = |m: &BitplaneMatrix, isa| {
                        let form = m.form(isa, tokens);
                        let acts = arranged(form, isa, x, columns);
                        let count = m.widest().map_or(0, |v| v.rows);
                        let mut out = vec![f32::NAN; tokens * count];
                        let mut jobs = [BitplaneProduct { w: m, width, form, acts: &acts, x, out: &mut out }];
                        pool.install(|| multiply_all(isa, &mut jobs, tokens));
                        out
                    };
                    let expected = products(&plain, Isa::scalar());
                    // the packed one also where its codes cannot be read
                    for isa in isas() {
                        let got = products(&whole, isa);
                        let same = expected.iter().zip(&got).all(|(a, b)| same(*a, *b));
                        assert!(same, "{path:?} {widths:?} {width} {tokens} {isa}");
                    }
                    for (m, at) in [(&first, 0), (&second, 51)] {
                        let got = products(m, Isa::detect());
                        for (token, got) in got.chunks_exact(got.len() / tokens).enumerate() {
                            let expected = &expected[token * rows + at..][..got.len()];
                            let same = expected.iter().zip(got).all(|(a, b)| same(*a, *b));
                            assert!(same, "{path:?} {widths:?} {width} {tokens} from {at}");
                        }
                    }
                }
            }
        }
    }
}

#[test]
fn pieces_of_packed_matrices_are_products_of_the_narrowest_width() {
    let mut random = Random(7);
    let widest = random_view(&mut random, (131, 1152, 2), 6);
    let narrow = narrower(&mut random, &widest, 3);
    let isa = Isa::detect();
    for path in PATHS {
        let plain = BitplaneMatrix::new(path, [widest.clone(), narrow.clone()]);
        assert_eq!(plain.clone().probed(isa).name(), None, "{path:?}");
        let packed = plain.packed(&SharedArena::default(), isa);
        if !packed.is_packed() {
            continue;
        }
        let lines = packed.lines.clone().expect("just packed");
        let probed = packed.probed(isa);
        assert_eq!(probed.name(), Some(NAME), "{path:?}");
        // A row is 10 lines of nibbles, each group an odd one of blocks, and two tables.
        let row = 10 * 64 + 2 * 32;
        let pieces: Vec<_> = probed.pieces(40 * row).collect();
        assert_eq!(pieces.len(), 3, "{path:?}");
        for piece in pieces {
            assert_eq!(piece.bytes, 40 * row, "{path:?}");
            (piece.multiply)(4096);
        }
        assert!(!lines.has(packed::Kind::Planes45), "only nibbles were packed");
    }
}
