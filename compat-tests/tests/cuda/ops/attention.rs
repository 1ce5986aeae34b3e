//! Attention against trine's own, over caches of one cell and of thousands.

use trine::Isa;
use trine::kv::{self, PageLayout, PagePool};
use trine::math::{EXP2_32, expf, pexp};
use trine::ops::attention::{Attention, Reach, ScoreRules, Window, alibi_slopes};
use trine_compat_tests::inputs::Rng;
use trine_compat_tests::ptx::{Argument, Device, Emulated, Fault, Module, Schedule};
use trine_cuda::program::{Heads, ProgramError, Recorder, Span};
use trine_cuda::ptx::ATTENTION;
use trine_formats::types::num::{f16_to_f32, f32_to_f16};

use super::{bytes, launch};
use crate::mistakes::with_mistake;
use crate::product::{assert_same, module};

/// Queries of the last tokens of some sequences, and all their keys and values.
pub struct Case {
    pub kv_heads: usize,
    /// Query heads for each of them.
    pub shared: usize,
    pub key_size: usize,
    pub value_size: usize,
    pub window: Option<Window>,
    pub rules: Option<ScoreRules>,
    /// Cells before the pass and tokens of the pass, for each sequence.
    pub sequences: Vec<(usize, usize)>,
    pub q: Vec<f32>,
    /// Keys of each sequence.
    pub k: Vec<Vec<f32>>,
    pub v: Vec<Vec<f32>>,
}

const SCALE: f32 = 0.125;
/// Cells of a page.
const PAGE: usize = 1 << SHIFT;
const SHIFT: usize = 3;

impl Case {
    pub fn new(
        seed: u64,
        (kv_heads, shared): (usize, usize),
        (key_size, value_size): (usize, usize),
        sequences: &[(usize, usize)],
        window: Option<Window>,
    ) -> Case {
        let mut rng = Rng::new(seed);
        let mut values =
            |n: usize, factor: f32| -> Vec<f32> { (0..n).map(|_| factor * (2.0 * rng.unit() - 1.0)).collect() };
        let tokens: usize = sequences.iter().map(|s| s.1).sum();
        let mut all = |size: usize, factor: f32| -> Vec<Vec<f32>> {
            let each = sequences.iter();
            each.map(|(before, now)| values((before + now) * kv_heads * size, factor)).collect()
        };
        let (k, v) = (all(key_size, 3.0), all(value_size, 1.0));
        Case {
            kv_heads,
            shared,
            key_size,
            value_size,
            window,
            rules: None,
            sequences: sequences.to_vec(),
            q: values(tokens * kv_heads * shared * key_size, 2.0),
            k,
            v,
        }
    }

    /// Output of trine's attention.
    pub fn expected(&self) -> Vec<f32> {
        let layout = PageLayout::new(1, self.kv_heads, [self.key_size, self.value_size]);
        let pages = PagePool::new(layout, 1000);
        let isa = Isa::scalar();
        let mut all: Vec<_> = self.sequences.iter().map(|_| pages.sequence()).collect();
        let (key_row, value_row) = (self.kv_heads * self.key_size, self.kv_heads * self.value_size);
        for (i, (seq, &(before, now))) in all.iter_mut().zip(&self.sequences).enumerate() {
            for (from, count) in [(0, before), (before, now)] {
                seq.reserve(count).expect("pages");
                let rows = 0..count;
                let mut parts = [kv::SequenceRows { seq, rows }];
                let k = &self.k[i][from * key_row..][..count * key_row];
                let v = &self.v[i][from * value_row..][..count * value_row];
                kv::store(isa, 0, &mut parts, k, v);
                if from == 0 && before > 0 {
                    seq.advance(count);
                }
            }
        }
        let mut end = 0;
        let parts: Vec<kv::SequenceRows<'_>> = all
            .iter_mut()
            .zip(&self.sequences)
            .map(|(seq, (_, now))| {
                let rows = end..end + now;
                end = rows.end;
                kv::SequenceRows { seq, rows }
            })
            .collect();
        let attention = Attention {
            parts: &parts,
            layer: 0,
            n_head: self.kv_heads * self.shared,
            scale: SCALE,
            window: self.window,
            reach: Reach::Own,
            rules: self.rules.as_ref(),
            isa,
        };
        attention.run(&self.q).to_vec()
    }

    /// Output of the checked-in kernels.
    pub fn run(&self, schedule: Schedule) -> Result<Vec<f32>, Fault> {
        self.run_in(module("attention"), schedule)
    }

    /// Output of a module's kernels: keys and values of earlier tokens lie in their cells, those of the pass are
    /// stored.
    pub fn run_in(&self, module: &Module, schedule: Schedule) -> Result<Vec<f32>, Fault> {
        let most = self.sequences.iter().map(|(before, now)| before + now).max();
        // Rows of scores with one more than there are cells, which nobody writes or may read.
        let context = most.expect("a sequence") + 1;
        // The pages of all sequences lie in turns, so that no sequence has two that follow each other.
        let row = context.div_ceil(PAGE);
        let table = |sequence: usize| (0..row).map(move |i| i * self.sequences.len() + sequence);
        let page_of = |sequence: usize, cell: usize| (cell / PAGE) * self.sequences.len() + sequence;
        let mut device = Device::new();
        let mut places = Vec::new();
        for (sequence, &(before, now)) in self.sequences.iter().enumerate() {
            places.extend((before..before + now).map(|position| [sequence as u32, position as u32]));
        }
        let tokens = places.len();
        let dwords = |pairs: &[[u32; 2]]| -> Vec<u8> {
            let all = pairs.iter().flatten();
            all.flat_map(|n| n.to_le_bytes()).collect()
        };
        let in_pages: Vec<[u32; 2]> = places
            .iter()
            .map(|&[sequence, cell]| {
                let (sequence, cell) = (sequence as usize, cell as usize);
                [page_of(sequence, cell) as u32, (cell % PAGE) as u32]
            })
            .collect();
        let in_pages = Argument::Buffer(device.constant(dwords(&in_pages)));
        let places = Argument::Buffer(device.constant(dwords(&places)));
        let tables = (0..self.sequences.len()).flat_map(table);
        let tables = tables.flat_map(|page| (page as u32).to_le_bytes());
        let tables = Argument::Buffer(device.constant(tables.collect()));
        let heads = self.kv_heads * self.shared;
        let cells = [(&self.k, self.key_size), (&self.v, self.value_size)].map(|(x, size)| {
            let cells = device.empty(2 * self.sequences.len() * self.kv_heads * size * row * PAGE);
            let row = self.kv_heads * size;
            let mut now = Vec::new();
            for (sequence, (x, &(before, _))) in x.iter().zip(&self.sequences).enumerate() {
                for (cell, x) in x.chunks_exact(row).enumerate() {
                    if cell >= before {
                        now.extend_from_slice(x);
                        continue;
                    }
                    for (head, x) in x.chunks_exact(size).enumerate() {
                        let page = page_of(sequence, cell);
                        let at = ((page * self.kv_heads + head) * PAGE + cell % PAGE) * size;
                        let halves: Vec<u8> = x.iter().flat_map(|&x| f32_to_f16(x).to_le_bytes()).collect();
                        device.fill(cells, 2 * at, &halves);
                    }
                }
            }
            let now = Argument::Buffer(device.constant(bytes(&now)));
            let mut arguments = vec![now, Argument::Buffer(cells), in_pages];
            arguments.extend([self.kv_heads, size, SHIFT].map(|n| Argument::U32(n as u32)));
            let blocks = [row.div_ceil(128) as u32, tokens as u32];
            let kernel = (module, "store");
            launch(&mut device, kernel, blocks, (128, 0), &arguments, schedule).map(|_| cells)
        });
        let [keys, values] = cells;
        let q = device.constant(bytes(&self.q));
        let work = device.empty(4 * tokens * heads * context);
        let out = device.empty(4 * tokens * heads * self.value_size);
        let none = ScoreRules::default();
        let ScoreRules { cap, slopes, sinks, .. } = self.rules.as_ref().unwrap_or(&none);
        let rules = u32::from(cap.is_some()) | u32::from(!slopes.is_empty()) << 1 | u32::from(!sinks.is_empty()) << 2;
        let of_heads = [slopes, sinks].map(|x| Argument::Buffer(device.constant(bytes(x))));
        let powers = Argument::Buffer(device.constant(EXP2_32.iter().flat_map(|x| x.to_le_bytes()).collect()));
        let (window, chunked) = self.window.map_or((0, false), |w| (w.size, w.chunked));
        // The tokens in two launches, as many as there are of them.
        for (first, count) in [(0, tokens.div_ceil(2)), (tokens.div_ceil(2), tokens / 2)] {
            let mut arguments = [q, keys.clone()?, values.clone()?].map(Argument::Buffer).to_vec();
            arguments.extend([places, tables]);
            arguments.extend([work, out].map(Argument::Buffer));
            arguments.push(Argument::F32(SCALE));
            let numbers = [
                window,
                usize::from(chunked),
                heads,
                self.kv_heads,
                self.key_size,
                self.value_size,
                context,
                row,
                SHIFT,
                first,
            ];
            arguments.extend(numbers.map(|n| Argument::U32(n as u32)));
            arguments.push(Argument::U32(rules));
            arguments.extend(cap.unwrap_or([0.0; 2]).map(Argument::F32));
            arguments.extend(of_heads);
            arguments.push(powers);
            if count > 0 {
                let blocks = [heads as u32, count as u32];
                let threads = (128, 4 * self.key_size as u32);
                let kernel = (module, "attend");
                launch(&mut device, kernel, blocks, threads, &arguments, schedule)?;
            }
        }
        Ok(device.floats(out))
    }

    #[track_caller]
    pub fn check(&self, what: &str) {
        let expected = self.expected();
        for schedule in [Schedule::InTurn, Schedule::Random(3), Schedule::Last(1)] {
            let found = self.run(schedule).unwrap_or_else(|e| panic!("{what}: {e}"));
            assert_same(&found, &expected, what);
        }
    }
}

const MOVING: Option<Window> = Some(Window { size: 5, chunked: false });
const STANDING: Option<Window> = Some(Window { size: 6, chunked: true });

#[test]
fn few_cells() {
    // One cell; ends of groups of four; several tokens, whose windows begin in the middle of a group.
    for window in [None, MOVING, STANDING] {
        for (before, now) in [(0, 1), (0, 2), (3, 1), (4, 1), (0, 9), (11, 7), (130, 3)] {
            let case = Case::new(7, (2, 2), (32, 32), &[(before, now)], window);
            case.check(&format!("{before} + {now} cells, {window:?}"));
        }
    }
}

#[test]
fn heads_of_all_sizes_and_shares() {
    for (heads, sizes) in
        [((1, 1), (2, 1)), ((3, 1), (64, 64)), ((1, 5), (80, 48)), ((2, 4), (128, 160)), ((1, 2), (256, 256))]
    {
        Case::new(8, heads, sizes, &[(20, 2)], None).check(&format!("{heads:?} of {sizes:?}"));
    }
}

#[test]
fn sequences_of_one_pass() {
    let sequences = [(70, 3), (0, 5), (127, 1), (1, 2)];
    Case::new(9, (2, 3), (16, 16), &sequences, Some(Window { size: 40, chunked: false })).check("four sequences");
}

#[test]
fn thousands_of_cells() {
    for window in [None, Some(Window { size: 1000, chunked: false })] {
        Case::new(10, (1, 2), (16, 16), &[(4096, 1)], window).check(&format!("4097 cells, {window:?}"));
    }
}

#[test]
fn equal_scores_and_cells_that_are_no_numbers() {
    let new = || Case::new(11, (1, 2), (16, 16), &[(37, 2)], None);
    let mut equal = new();
    equal.k[0].fill(0.75);
    equal.check("all scores are equal");
    let mut zero = new();
    zero.q.fill(0.0);
    zero.v[0].fill(-0.0);
    zero.check("all scores are zero");
    // Two cells share the greatest score, and everything else vanishes beside them.
    let mut two = new();
    two.k[0].fill(-200.0);
    for cell in [5, 30] {
        two.k[0][16 * cell..][..16].fill(200.0);
    }
    two.q.fill(1.0);
    two.check("two greatest scores");
    for (value, what) in [(f32::NAN, "NaN"), (f32::INFINITY, "infinity"), (1e6, "more than a half holds")] {
        let mut key = new();
        key.k[0][16 * 9 + 3] = value;
        key.check(&format!("a key of {what}"));
        let mut of_value = new();
        of_value.v[0][16 * 20 + 2] = value;
        of_value.check(&format!("a value of {what}"));
        let mut query = new();
        query.q[4] = value;
        query.check(&format!("a query of {what}"));
        // Behind the window nobody sees it.
        let mut hidden = Case::new(12, (1, 2), (16, 16), &[(37, 2)], MOVING);
        hidden.k[0][16 * 9 + 3] = value;
        hidden.v[0][16 * 20 + 2] = value;
        hidden.check(&format!("{what} out of sight"));
    }
}

#[test]
fn caps_slopes_and_sinks() {
    let slopes = alibi_slopes(6, 8.0);
    let sinks = vec![0.5, -3.0, 40.0, 0.0, -200.0, 2.25];
    let all = ScoreRules { cap: Some([0.25, 2.0]), slopes: slopes.clone(), sinks: sinks.clone(), ..Default::default() };
    for (what, rules) in [
        ("caps", ScoreRules { cap: Some([0.02, 50.0]), ..Default::default() }),
        ("slopes", ScoreRules { slopes, ..Default::default() }),
        ("sinks", ScoreRules { sinks, ..Default::default() }),
        ("all", all),
    ] {
        for window in [None, MOVING] {
            let sequences = [(70, 3), (0, 5), (2, 1)];
            let new = || Case { rules: Some(rules.clone()), ..Case::new(14, (3, 2), (16, 16), &sequences, window) };
            new().check(what);
            let mut key = new();
            key.k[0][16 * 9 + 3] = f32::NAN;
            key.check(&format!("{what}, a key of NaN"));
            // Each rule is there: without it there are other bits.
            let without = Case { rules: None, ..new() };
            assert_ne!(without.expected(), new().expected(), "{what}");
        }
    }
    // Among many totals with a sink some have to be added in order.
    let sequences: Vec<(usize, usize)> = (0..40).map(|i| (200 + i, 1)).collect();
    let sinks = ScoreRules { sinks: vec![0.25, -1.0, 0.75, 3.0], ..Default::default() };
    Case { rules: Some(sinks), ..Case::new(15, (1, 4), (4, 2), &sequences, None) }.check("totals with sinks");
}

#[test]
fn many_totals() {
    // Among this many totals some lie so near to the middle of two floats that one thread has to add them in order.
    let sequences: Vec<(usize, usize)> = (0..40).map(|i| (200 + i, 1)).collect();
    Case::new(13, (1, 4), (4, 2), &sequences, None).check("totals");
}

/// Attention of some heads to the keys of the last positions and to compressed keys, by its definition.
fn compressed(
    [q, own, packed]: [&[f32]; 3],
    [heads, size, window, ratio]: [usize; 4],
    scale: f32,
    sinks: &[f32],
) -> Vec<f32> {
    let half = |x: &[f32]| x.iter().map(|&x| f16_to_f32(f32_to_f16(x))).collect::<Vec<f32>>();
    let (q, own, packed) = (half(q), half(own), half(packed));
    let dot = |a: &[f32], b: &[f32]| a.iter().zip(b).fold(0f64, |sum, (a, b)| sum + f64::from(a * b)) as f32;
    let head = |position: usize, head: usize| {
        let begin = (position + 1).saturating_sub(window);
        let from = begin / 4 * 4;
        let in_window = (position + 1 - from).next_multiple_of(4);
        let q = &q[(position * heads + head) * size..][..size];
        let mut row = vec![f32::NEG_INFINITY; in_window];
        (begin..=position).for_each(|cell| row[cell - from] = dot(&own[cell * size..][..size], q));
        let blocks: Vec<&[f32]> =
            (1..=(position + 1) / ratio).map(|b| &packed[(b * ratio - 1) * size..][..size]).collect();
        row.extend(blocks.iter().map(|key| dot(key, q)));
        row.iter_mut().for_each(|w| *w = *w * scale + 0.0);
        let most = row.iter().chain(sinks.get(head)).copied().fold(f32::NEG_INFINITY, f32::max);
        row.iter_mut().for_each(|w| *w = pexp(*w - most));
        let mut total = row.chunks(4).fold(0f64, |total, e| {
            let e: [f32; 4] = std::array::from_fn(|i| e.get(i).copied().unwrap_or(0.0));
            total + f64::from((e[0] + e[1]) + (e[2] + e[3]))
        });
        if let Some(sink) = sinks.get(head) {
            total += f64::from(expf(sink - most));
        }
        let inverse = (1.0 / total) as f32;
        let p = half(&row.iter().map(|e| e * inverse).collect::<Vec<f32>>());
        let values = (from..=position).map(|cell| &own[cell * size..][..size]);
        let values = values.zip(&p).chain(blocks.iter().copied().zip(&p[in_window..]));
        let mut sums = vec![0f64; size];
        for (value, &p) in values {
            sums.iter_mut().zip(value).for_each(|(sum, v)| *sum += f64::from(p * v));
        }
        sums.into_iter().map(|sum| sum as f32).collect::<Vec<f32>>()
    };
    let tokens = own.len() / size;
    (0..tokens).flat_map(|position| (0..heads).flat_map(move |h| head(position, h)).collect::<Vec<f32>>()).collect()
}

#[test]
fn compressed_keys_beside_a_window() {
    const HEADS: usize = 3;
    const SIZE: usize = 16;
    static SINKS: [f32; HEADS] = [0.5, -2.0, 7.0];
    let widths = [HEADS * SIZE, SIZE, SIZE];
    let columns = widths.iter().sum();
    let mut rng = Rng::new(37);
    for (tokens, window, ratio, sinks) in [(1, 4, 4, true), (23, 6, 4, true), (30, 64, 3, false), (41, 9, 16, true)] {
        let x: Vec<f32> = (0..tokens * columns).map(|_| 4.0 * rng.unit() - 2.0).collect();
        let x: &'static [f32] = x.leak();
        let parts = trine::ops::rows::split(x, &widths);
        let sinks: &'static [f32] = if sinks { &SINKS } else { &[] };
        let expected = compressed([&parts[0], &parts[1], &parts[2]], [HEADS, SIZE, window, ratio], 0.7, sinks);
        let record = |r: &mut Recorder<'static>, x: Span| -> Result<Span, ProgramError> {
            let parts = r.split(x, &widths)?;
            let heads = Heads { queries: HEADS, keys: 1, key_size: SIZE, value_size: SIZE };
            let cells = r.store([parts[1], parts[2]], heads)?;
            let sinks = (!sinks.is_empty()).then_some((sinks, &EXP2_32));
            r.attend_compressed(parts[0], cells, [window, ratio], 0.7, sinks)
        };
        let case = super::Case { results: HEADS * SIZE, ..super::Case::new(x, columns) };
        let what = format!("{tokens} tokens, a window of {window}, blocks of {ratio}");
        let run = |device| case.run_on(device, record);
        let found = run(Emulated::new().expect("PTX")).unwrap_or_else(|e| panic!("{what}: {e}"));
        assert_same(&found, &expected, &what);
        if tokens != 23 {
            continue;
        }
        let of = |change: &dyn Fn(&str) -> String| {
            let mut device = Emulated::new().expect("PTX");
            device.replace(ATTENTION.name, with_mistake(ATTENTION, "attend_compressed", change));
            let differ = |(a, b): (&f32, &f32)| a.to_bits() != b.to_bits();
            run(device).map_or(true, |found| found.iter().zip(&expected).any(differ))
        };
        assert!(!of(&|t| format!("{t} ")), "no mistake");
        assert!(of(&|t| t.replace("bar.sync", "// ")), "no barriers");
        assert!(of(&|t| t.replace("add.rn.f64", "sub.rn.f64")), "differences");
        assert!(of(&|t| t.replace("mul.rn.f64", "add.rn.f64")), "another exponential of the sink");
        assert!(of(&|t| t.replace("cvt.rn.f16.f32", "cvt.u16.u32")), "queries that are not rounded");
    }
}
