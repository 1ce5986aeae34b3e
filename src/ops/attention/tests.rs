//! Attention against the formula of the module, one number at a time.

use trine_formats::types::num::{f16_to_f32, f32_to_f16};

use super::*;
use crate::kernels::Isa;
use crate::kernels::testing::{Random, isas, same};
use crate::kv::{PageLayout, PagePool, Sequence};
use crate::math::pexp;

fn moving(size: usize) -> Window {
    Window { size, chunked: false }
}

fn half(x: f32) -> f64 {
    f64::from(f16_to_f32(f32_to_f16(x)))
}

/// A call: `k` and `v` are all rows of the cache.
struct Case {
    kv_heads: usize,
    shared: usize,
    hd: usize,
    window: Option<usize>,
    reach: Reach,
    first: usize,
    tokens: usize,
    q: Vec<f32>,
    k: Vec<f32>,
    v: Vec<f32>,
}

impl Case {
    fn new(
        random: &mut Random,
        (kv_heads, shared, hd): (usize, usize, usize),
        (first, tokens): (usize, usize),
        window: Option<usize>,
    ) -> Case {
        let mut values = |n: usize, factor: f32| -> Vec<f32> { (0..n).map(|_| random.float() * factor).collect() };
        let row = kv_heads * hd;
        Case {
            kv_heads,
            shared,
            hd,
            window,
            reach: Reach::Own,
            first,
            tokens,
            q: values(tokens * row * shared, 2.0),
            k: values((first + tokens) * row, 3.0),
            v: values((first + tokens) * row, 1.0),
        }
    }

    fn expected(&self) -> Vec<f32> {
        let (hd, row) = (self.hd, self.kv_heads * self.hd);
        let mut out = Vec::new();
        for (i, q) in self.q.chunks_exact(hd).enumerate() {
            let (t, head) = (i / (self.kv_heads * self.shared), i % (self.kv_heads * self.shared));
            let position = self.first + t;
            let begin = self.window.map_or(0, |w| (position + 1).saturating_sub(w));
            let end = match self.reach {
                Reach::Own => position + 1,
                Reach::Pass => self.first + self.tokens,
                Reach::Before => self.first,
            };
            let at = |j: usize| j * row + head / self.shared * hd;
            let mut w = vec![f32::NEG_INFINITY; end.next_multiple_of(4)];
            for (j, w) in w.iter_mut().enumerate().take(end).skip(begin) {
                let k = &self.k[at(j)..][..hd];
                let score = q.iter().zip(k).fold(0.0, |s, (&q, &k)| s + half(q) * half(k));
                *w = score as f32 * 0.125 + 0.0;
            }
            let max = w.iter().fold(f32::NEG_INFINITY, |m, &v| if v > m { v } else { m });
            let e: Vec<f32> = w.iter().map(|&w| pexp(w - max)).collect();
            let total = e.chunks(4).fold(0f64, |t, e| t + f64::from((e[0] + e[1]) + (e[2] + e[3])));
            let inverse = (1.0 / total) as f32;
            out.extend((0..hd).map(|d| {
                let cells = begin..end;
                cells.fold(0.0, |s, j| s + half(self.v[at(j) + d]) * half(e[j] * inverse)) as f32
            }));
        }
        out
    }

    /// All rows in layer 1 of a sequence whose pages have `positions` positions, in memory that held something else.
    fn sequence(&self, isa: Isa, positions: usize) -> Sequence {
        let layout = PageLayout::new(2, self.kv_heads, [self.hd; 2]).with_positions(positions);
        let pages = PagePool::new(layout, 100);
        let mut seq = pages.sequence();
        let row = self.kv_heads * self.hd;
        let old = vec![f32::INFINITY; (self.first + self.tokens + 5) * row];
        append(isa, &mut seq, row, &old, &old);
        seq.truncate(0);
        let (past, _) = self.k.split_at(self.first * row);
        let (past_v, _) = self.v.split_at(self.first * row);
        append(isa, &mut seq, row, past, past_v);
        seq.reserve(self.tokens).expect("pages");
        seq
    }

    fn check(&self, what: &str) {
        let expected = self.expected();
        let row = self.kv_heads * self.hd;
        for isa in isas() {
            for (threads, positions) in [(1, 128), (3, 32), (2, 64)] {
                let mut seq = self.sequence(isa, positions);
                let rows = 0..self.tokens;
                let mut parts = [kv::SequenceRows { seq: &mut seq, rows }];
                let now = self.first * row;
                if self.reach != Reach::Before {
                    kv::store(isa, 1, &mut parts, &self.k[now..], &self.v[now..]);
                }
                let attention = Attention {
                    parts: &parts,
                    layer: 1,
                    n_head: self.kv_heads * self.shared,
                    scale: 0.125,
                    window: self.window.map(moving),
                    reach: self.reach,
                    rules: None,
                    isa,
                };
                let pool = pool::Pool::new(threads).expect("threads");
                let got = pool.install(|| attention.run(&self.q));
                for (i, (a, b)) in got.iter().zip(&expected).enumerate() {
                    assert!(
                        same(*a, *b),
                        "{what} {isa}, {threads} threads, pages of {positions}, {} x {} heads of {}, {} + {} cells, window {:?}, {:?}: output {i} is {a:e}, not {b:e}",
                        self.kv_heads,
                        self.shared,
                        self.hd,
                        self.first,
                        self.tokens,
                        self.window,
                        self.reach
                    );
                }
            }
        }
    }
}

/// Appends rows of keys and values in layer 1.
fn append(isa: Isa, seq: &mut Sequence, row: usize, k: &[f32], v: &[f32]) {
    let n = k.len() / row;
    seq.reserve(n).expect("pages");
    let mut parts = [kv::SequenceRows { seq, rows: 0..n }];
    kv::store(isa, 1, &mut parts, k, v);
    seq.advance(n);
}

#[test]
fn sequences_of_one_pass_do_not_see_each_other() {
    let mut random = Random(0x5E95);
    let heads = (2, 2, 48);
    let lengths = [(70, 3), (0, 40), (127, 1), (200, 2)];
    let cases = lengths.map(|at| Case::new(&mut random, heads, at, Some(90)));
    for isa in isas() {
        let mut seqs: Vec<Sequence> = cases.iter().map(|c| c.sequence(isa, 64)).collect();
        let mut end = 0;
        let mut parts: Vec<kv::SequenceRows<'_>> = seqs
            .iter_mut()
            .zip(&cases)
            .map(|(seq, case)| {
                let rows = end..end + case.tokens;
                end = rows.end;
                kv::SequenceRows { seq, rows }
            })
            .collect();
        let now = |x: fn(&Case) -> &Vec<f32>| -> Vec<f32> {
            let new = cases.iter().map(|c| &x(c)[c.first * 2 * 48..]);
            new.flatten().copied().collect()
        };
        kv::store(isa, 1, &mut parts, &now(|c| &c.k), &now(|c| &c.v));
        let attention = Attention {
            parts: &parts,
            layer: 1,
            n_head: 4,
            scale: 0.125,
            window: Some(moving(90)),
            reach: Reach::Own,
            rules: None,
            isa,
        };
        let q: Vec<f32> = cases.iter().flat_map(|c| c.q.clone()).collect();
        let pool = pool::Pool::new(2).expect("threads");
        let got = pool.install(|| attention.run(&q));
        let expected: Vec<f32> = cases.iter().flat_map(Case::expected).collect();
        assert!(got.iter().zip(&expected).all(|(a, b)| same(*a, *b)));
    }
}

#[test]
fn all_head_sizes_groups_windows_and_batches_give_the_bits_of_the_formula() {
    let mut random = Random(0xA77E);
    for hd in [4, 6, 20, 32, 40, 48, 64, 80, 96, 128, 256] {
        for (first, tokens, window) in [
            (0, 1, None),
            (70, 1, None),
            (70, 1, Some(9)),
            (0, 70, None),
            (33, 40, Some(32)),
            (190, 3, Some(150)),
            (127, 5, None),
        ] {
            let heads = [(1, 1), (2, 3), (1, 4), (1, 7)][random.below(4)];
            Case::new(&mut random, (heads.0, heads.1, hd), (first, tokens), window).check("random");
        }
    }
}

#[test]
fn one_token_over_a_long_cache_is_split_without_changing_a_bit() {
    let mut random = Random(0x5511);
    for (hd, first, window) in [(64, 1200, None), (80, 1100, Some(1000))] {
        let case = Case::new(&mut random, (2, 8, hd), (first, 1), window);
        let cells = window.unwrap_or(first);
        assert!(cells * 16 * hd >= SPLIT, "long enough to be split");
        case.check("long");
    }
}

/// Tiles with large f16 numbers have another arrangement, and a tile changes its own when the first one arrives.
#[test]
fn large_and_tiny_keys_and_values_come_out_as_the_formula_has_them() {
    let mut random = Random(0x1A26E);
    for case in 0..60 {
        let window = [None, Some(50)][case % 2];
        let mut case = Case::new(&mut random, (2, 2, [16, 20][case % 2]), (130, 7), window);
        for x in [&mut case.k, &mut case.v] {
            for _ in 0..random.below(40) {
                let at = random.below(x.len());
                x[at] *= 1e-5;
            }
            for _ in 0..random.below(4) {
                let at = random.below(x.len());
                x[at] = [63.4, -63.6, 64.0, 127.9, 300.0, -65504.0][random.below(6)];
            }
        }
        case.check("large");
    }
}

#[test]
fn infinities_and_nan_come_out_as_the_formula_has_them() {
    let mut random = Random(0x1AF);
    let special = [f32::INFINITY, f32::NEG_INFINITY, f32::NAN, 65520.0, -1e30];
    for case in 0..60 {
        let window = [None, Some(20)][case % 2];
        let mut case = Case::new(&mut random, (2, 2, 16), (90, 3), window);
        let mut put = |x: &mut [f32]| x[random.below(x.len())] = special[random.below(5)];
        match random_case(&case) {
            0 => put(&mut case.k),
            1 => put(&mut case.v),
            _ => {
                put(&mut case.q);
                put(&mut case.v);
            }
        }
        case.check("special");
    }
}

/// Any number from the case's data.
fn random_case(case: &Case) -> u32 {
    case.q[0].to_bits() % 3
}

#[test]
fn tiny_and_huge_values_keep_their_bits() {
    let mut random = Random(0x7147);
    for factor in [1e-7, 1e-5, 3e-3, 3e3] {
        let mut case = Case::new(&mut random, (1, 3, 48), (40, 20), None);
        case.k.iter_mut().for_each(|k| *k *= factor);
        case.v.iter_mut().for_each(|v| *v *= factor);
        case.check("scaled");
    }
}

#[test]
fn queries_of_drafters_see_all_of_the_pass_or_nothing_of_it() {
    let mut random = Random(0xD4AF7);
    for reach in [Reach::Pass, Reach::Before] {
        for at in [(1, 1), (62, 7), (128, 16), (200, 40), (300, 1)] {
            for window in [None, Some(5), Some(90)] {
                for heads in [(2, 2, 48), (1, 4, 64)] {
                    let mut case = Case::new(&mut random, heads, at, window);
                    // a window that ends before the first cell is as good as none
                    case.window = window.filter(|&w| reach == Reach::Pass || w > at.1);
                    case.reach = reach;
                    case.check("drafters");
                }
            }
        }
    }
}

/// Enough rows for instruction sets with tiles to use them, and some that are left to the sums in order.
#[test]
fn many_rows_over_numbers_of_all_sizes_give_the_bits_of_the_formula() {
    let mut random = Random(0x711E5);
    let numbers = [63.4, 64.0, -300.0, -65504.0, 1e-7, -0.0];
    let special = [f32::INFINITY, f32::NEG_INFINITY, f32::NAN, -1e30];
    for case in 0..36 {
        let heads = (2, [1, 3][case % 2], [32, 48, 96][case / 2 % 3]);
        let window = [None, Some(45)][case / 6 % 2];
        let mut case_of = Case::new(&mut random, heads, (100, 37), window);
        let mut put = |x: &mut [f32], from: &[f32], most: usize| {
            for _ in 0..random.below(most + 1) {
                x[random.below(x.len())] = from[random.below(from.len())];
            }
        };
        for x in [&mut case_of.k, &mut case_of.v, &mut case_of.q] {
            put(x, &numbers, [0, 3, 60][case / 12]);
        }
        match case % 5 {
            1 => put(&mut case_of.k, &special, 2),
            2 => put(&mut case_of.v, &special, 1),
            3 => put(&mut case_of.q, &special, 4),
            _ => {}
        }
        case_of.check("many rows");
    }
}
