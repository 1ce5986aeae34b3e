//! Attention against trine's own, over caches of one cell and of thousands.

use std::sync::Arc;

use trine::Isa;
use trine::kv::{self, CacheTypes, LayerLayout, PageLayout, PagePool};
use trine::math::EXP2_32;
use trine::ops::attention::{Attention, Reach, ScoreRules, Window, alibi_slopes};
use trine_compat_tests::inputs::Rng;
use trine_compat_tests::ptx::{Argument, Device, Emulated, Fault, Launch, Module, Schedule};
use trine_cuda::program::{Form, Heads, Limits, Recorder, Rules};
use trine_cuda::ptx::ATTENTION;
use trine_cuda::run::{Failure, Host, Input, Part, Shared, Slot};
use trine_formats::types::num::f32_to_f16;

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
    /// The types of keys and values; quantized ones are turned.
    pub types: CacheTypes,
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
            types: CacheTypes::HALVES,
            sequences: sequences.to_vec(),
            q: values(tokens * kv_heads * shared * key_size, 2.0),
            k,
            v,
        }
    }

    fn layout(&self) -> PageLayout {
        PageLayout::new(1, self.kv_heads, [self.key_size, self.value_size]).with_types(self.types, [true; 2])
    }

    /// How the kernels keep keys and values.
    fn forms(&self) -> [Form; 2] {
        let layout: LayerLayout = self.layout().layer(0);
        let forms = [(self.types.keys, layout.key_turn()), (self.types.values, layout.value_turn())];
        forms.map(|(ty, turn)| Form { ty, turn: turn.unwrap_or(0) })
    }

    /// Output of trine's attention.
    pub fn expected(&self) -> Vec<f32> {
        let pages = PagePool::new(self.layout(), 1000);
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

    /// Output of a module's kernels, with `parts` blocks that share the cells of a head: keys and values of earlier tokens
    /// lie in their cells, those of the pass are stored.
    pub fn run_in(&self, module: &Module, parts: usize, schedule: Schedule) -> Result<Vec<f32>, Fault> {
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
        let q = Argument::Buffer(device.constant(bytes(&self.q)));
        let work = Argument::Buffer(device.empty(4 * tokens * heads * context));
        let out = device.empty(4 * tokens * heads * self.value_size);
        let to = Argument::Buffer(out);
        let none = ScoreRules::default();
        let ScoreRules { cap, slopes, sinks, .. } = self.rules.as_ref().unwrap_or(&none);
        let bits = u32::from(cap.is_some()) | u32::from(!slopes.is_empty()) << 1 | u32::from(!sinks.is_empty()) << 2;
        let [slopes, sinks] = [slopes, sinks].map(|x| Argument::Buffer(device.constant(bytes(x))));
        let powers = Argument::Buffer(device.constant(EXP2_32.iter().flat_map(|x| x.to_le_bytes()).collect()));
        let [factor, cap] = cap.unwrap_or([0.0; 2]).map(Argument::F32);
        let number = |n: usize| Argument::U32(n as u32);
        let (window, chunked) = self.window.map_or((0, false), |w| (w.size, w.chunked));
        let [window, chunked] = [window, usize::from(chunked)].map(number);
        let [keys, values] = [keys?, values?].map(Argument::Buffer);
        let [of_heads, of_keys, key_size, value_size] =
            [heads, self.kv_heads, self.key_size, self.value_size].map(number);
        let [context, row, shift, rules] = [context, row, SHIFT, bits as usize].map(number);
        // What the kernels of parts leave for each other.
        let rows = tokens * heads;
        let mut left = |bytes: usize| Argument::Buffer(device.empty(rows * bytes));
        let (mosts, totals, inverses) = (left(4 * parts), left(8 * parts), left(4));
        let sums = left(16 * parts * self.value_size);
        let tickets = Argument::Buffer(device.variable(vec![0; 4 * rows]));
        let scale = Argument::F32(SCALE);
        // The tokens in two launches, as many as there are of them.
        for (first, count) in [(0, tokens.div_ceil(2)), (tokens.div_ceil(2), tokens / 2)] {
            if count == 0 {
                continue;
            }
            let first = number(first);
            let query = 4 * self.key_size as u32;
            let whole = [
                q, keys, values, places, tables, work, to, scale, window, chunked, of_heads, of_keys, key_size,
                value_size, context, row, shift, first, rules, factor, cap, slopes, sinks, powers,
            ];
            let scores = [
                q, keys, places, tables, work, mosts, scale, window, chunked, of_heads, of_keys, key_size, context,
                row, shift, first, rules, factor, cap, slopes,
            ];
            let exponentials = [
                places, work, mosts, totals, inverses, tickets, window, chunked, of_heads, context, first, rules,
                sinks, powers,
            ];
            let weighed = [
                values, places, tables, work, inverses, sums, tickets, to, window, chunked, of_heads, of_keys,
                value_size, context, row, shift, first,
            ];
            let whole: [(&str, u32, &[Argument]); 1] = [("attend", query, &whole)];
            let shared: [(&str, u32, &[Argument]); 3] = [
                ("attend_scores", query, &scores),
                ("attend_exponentials", 0, &exponentials),
                ("attend_values", 0, &weighed),
            ];
            for &(kernel, shared, arguments) in if parts == 1 { &whole[..] } else { &shared[..] } {
                let launch = Launch {
                    blocks: [heads as u32, count as u32, parts as u32],
                    threads: [128, 1, 1],
                    shared,
                    arguments,
                    schedule,
                    ..Launch::default()
                };
                device.launch(module, kernel, &launch)?;
            }
        }
        Ok(device.floats(out))
    }

    /// Output of a recorded program for the only sequence. Its earlier cells are written page by page, in passes that know
    /// of no other pages.
    pub fn run_program(&self, device: Emulated) -> Result<Vec<f32>, Failure> {
        let [(before, now)] = self.sequences[..] else { panic!("several sequences") };
        let heads = Heads {
            queries: self.kv_heads * self.shared,
            keys: self.kv_heads,
            key_size: self.key_size,
            value_size: self.value_size,
        };
        let none = ScoreRules::default();
        let ScoreRules { cap, slopes, sinks, .. } = self.rules.as_ref().unwrap_or(&none);
        let sinks = (!sinks.is_empty()).then_some((&sinks[..], &EXP2_32));
        let rules = Rules { cap: *cap, slopes, sinks };
        let pages: Vec<u32> = (0..(before + now).div_ceil(PAGE) as u32).rev().collect();
        let (context, tokens) = (pages.len() * PAGE, PAGE.max(now));
        let limits = Limits { tokens, wanted: now, context, page: PAGE, pages: pages.len(), slots: 1 };
        let mut recorder = Recorder::new(limits, heads.queries * self.value_size).expect("a recorder");
        let widths = [heads.queries * self.key_size, self.kv_heads * self.key_size, self.kv_heads * self.value_size];
        let rows = widths.map(|columns| recorder.given(columns).expect("rows"));
        let window = self.window.map(|w| (w.size, w.chunked));
        let cells = recorder.store_as(self.forms(), [rows[1], rows[2]], heads, &EXP2_32).expect("cells");
        let out = recorder.attend_over(rows[0], cells, heads, SCALE, window, &rules).expect("attention");
        let wanted = recorder.take_wanted(out).expect("rows");
        let (program, weights) = recorder.finish(wanted).expect("a program");
        let mut passes = Shared::new(device).start(program, &weights).unwrap_or_else(|e| panic!("{e}"));
        let mut pass = |q: &[f32], (first, tokens): (usize, usize), pages: &[u32], at: usize| {
            let [_, k, v] = widths;
            let (k, v) = (&self.k[0][first * k..][..tokens * k], &self.v[0][first * v..][..tokens * v]);
            let part = Part { pages, first: at, tokens, slot: Slot::default() };
            let input = Input { tokens: &vec![0; tokens], rows: &[q, k, v] };
            passes.pass(input, &[part], 0, &|_, _| Vec::new())
        };
        for (page, first) in (0..before).step_by(PAGE).enumerate() {
            let tokens = PAGE.min(before - first);
            pass(&vec![0.0; tokens * widths[0]], (first, tokens), &pages[page..=page], 0)?;
        }
        pass(&self.q, (before, now), &pages, before)?;
        let all: Vec<usize> = (0..now).collect();
        passes.logits(&all)
    }

    #[track_caller]
    pub fn check(&self, what: &str) {
        let expected = self.expected();
        for (parts, schedule) in [
            (1, Schedule::InTurn),
            (1, Schedule::Random(3)),
            (1, Schedule::Last(1)),
            (2, Schedule::InTurn),
            (3, Schedule::Random(5)),
            (16, Schedule::Last(2)),
        ] {
            let what = format!("{what}, {parts} parts");
            let found = self.run_in(module("attention"), parts, schedule).unwrap_or_else(|e| panic!("{what}: {e}"));
            assert_same(&found, &expected, &what);
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

/// A head whose first 512 cells have the weight 2^-9 and whose last 512 the least half, 2^-24. The first two values give
/// 64 and 2^-18, which is just between two floats; the last ones 2^-48 each, which a sum of 64 forgets one by one, and not
/// all at once.
pub fn order_shows() -> Case {
    let mut case = Case::new(22, (1, 1), (2, 2), &[(1023, 1)], None);
    case.q = vec![1.0, 0.0];
    case.k[0] = (0..1024).flat_map(|cell| [if cell < 512 { 0.0 } else { -83.2 }, 0.0]).collect();
    let value = |cell| match cell {
        0 => 32768.0,
        1 => 1.0 / 512.0,
        2..512 => 0.0,
        _ => 1.0 / f32::from(1u16 << 12) / f32::from(1u16 << 12),
    };
    case.v[0] = (0..1024).flat_map(|cell| [value(cell), -value(cell)]).collect();
    case
}

#[test]
fn large_values_are_added_in_order_where_it_shows() {
    let case = order_shows();
    assert_eq!(case.expected(), [64.0, -64.0]);
    case.check("sums between two floats");
    // Just below the bound every order gives the same, and above it nearly every sum does.
    for (seed, factor) in [(23, 15.99), (24, 16.5), (25, 6e4)] {
        let mut case = Case::new(seed, (1, 2), (16, 16), &[(600, 2)], None);
        case.v[0].iter_mut().for_each(|v| *v *= factor);
        // Weights from one down to the least halves.
        case.k[0].iter_mut().for_each(|k| *k *= 4.0);
        case.check(&format!("values up to {factor}"));
    }
}

#[test]
fn programs_share_long_caches_among_multiprocessors() {
    let rules = |heads: usize| ScoreRules {
        cap: Some([0.25, 2.0]),
        slopes: alibi_slopes(heads, 8.0),
        sinks: vec![0.5; heads],
        ..Default::default()
    };
    let wide = Some(Window { size: 1030, chunked: false });
    let narrow = Some(Window { size: 1000, chunked: false });
    let standing = Some(Window { size: 1024, chunked: true });
    let of = |kv, sizes, before, now, window| Case::new(26, kv, sizes, &[(before, now)], window);
    // A device that says nothing, one that eight blocks keep busy, and one with many multiprocessors.
    let many: &[usize] = &[132];
    let mistake = |t: &str| t.replacen("cvt.rn.f16.f32", "cvt.u16.u32", 1);
    let broken = Arc::new(with_mistake(ATTENTION, "attend_values", mistake));
    for (what, multiprocessors, case) in [
        ("a cache", &[0, 1, 132][..], of((2, 2), (8, 4), 1100, 1, None)),
        ("two tokens and a page that is not full", many, of((1, 2), (4, 6), 1023, 2, None)),
        ("latent attention", many, of((1, 4), (10, 8), 1200, 1, None)),
        ("rules", many, Case { rules: Some(rules(4)), ..of((2, 2), (4, 4), 1100, 1, None) }),
        ("a wide window", many, of((1, 2), (4, 4), 1300, 1, wide)),
        ("a window that has just begun", many, of((1, 1), (4, 4), 2050, 1, standing)),
        ("a narrow window", many, of((1, 1), (4, 4), 1300, 1, narrow)),
        ("a short cache", many, of((1, 1), (4, 4), 1022, 1, None)),
    ] {
        let expected = case.expected();
        for &multiprocessors in multiprocessors {
            let emulated = |schedule| {
                let mut device = Emulated::new().expect("PTX");
                (device.multiprocessors, device.schedule) = (multiprocessors, schedule);
                device
            };
            let found = case.run_program(emulated(Schedule::Random(1))).unwrap_or_else(|e| panic!("{e}"));
            assert_same(&found, &expected, what);
            // A mistake in a kernel of parts shows where that kernel runs.
            let mut device = emulated(Schedule::InTurn);
            device.replace(ATTENTION.name, broken.clone());
            let found = case.run_program(device).unwrap_or_else(|e| panic!("{e}"));
            let differ = found.iter().zip(&expected).any(|(a, b)| a.to_bits() != b.to_bits());
            let is_long = multiprocessors > 0 && !["a narrow window", "a short cache"].contains(&what);
            assert_eq!(differ, is_long, "{what}, {multiprocessors} multiprocessors");
        }
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
