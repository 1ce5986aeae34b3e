//! Recurrences over the positions of sequences: several of them in a pass, cut into passes, continued from copies of
//! their states and from states that were away, and begun in slots that others have left.

use std::ops::Range;

use trine::math::{EXP2_32, LOG_16, log2f, powf};
use trine::ops::compress::Compress;
use trine::ops::convolution::Convolution;
use trine::ops::delta::{self, Delta};
use trine::ops::lightning::{BLOCK, Lightning};
use trine::ops::scan::{self, Scan};
use trine::ops::wkv::{GatedLinear, Wkv6, Wkv7};
use trine::ops::{self, rows};
use trine_compat_tests::inputs::Rng;
use trine_compat_tests::ptx::{Emulated, Schedule};
use trine_cuda::program::{self as gpu, Caches, Limits, Matrix, ProgramError, Recorder, Span};
use trine_cuda::ptx::RECURRENT;
use trine_cuda::run::{Failure, Host, Input, Part, Passes, Shared, Slot};
use trine_formats::types::TypeId;

use super::{Case, bytes};
use crate::mistakes::with_mistake;
use crate::product::assert_same;

const TABLES: [&[u64; 32]; 2] = [&EXP2_32, &LOG_16];
/// Rows that the sequences of a script consist of.
pub const ROWS: usize = 16;

/// Records an operation for its inputs.
pub type Record = dyn Fn(&mut Recorder<'static>, &[Span]) -> Result<Span, ProgramError>;
/// The processor's outputs for inputs of all positions of a sequence.
pub type Run = dyn Fn(&[Vec<f32>]) -> Vec<f32>;

/// An operation over sequences.
pub struct Recurrence {
    pub name: &'static str,
    pub kernels: &'static [&'static str],
    /// Columns of its inputs, and of its output.
    pub widths: Vec<usize>,
    pub results: usize,
    /// Records it for its inputs.
    pub record: Box<Record>,
    /// The processor's outputs for inputs of all positions of a sequence.
    pub run: Box<Run>,
}

pub fn leaked(rng: &mut Rng, count: usize, f: impl Fn(f32) -> f32) -> &'static [f32] {
    let numbers: Vec<f32> = (0..count).map(|_| f(2.0 * rng.unit() - 1.0)).collect();
    numbers.leak()
}

fn convolution(distance: usize, biased: bool) -> Recurrence {
    let (columns, kernel) = (37, 4);
    let mut rng = Rng::new(61);
    let weights = leaked(&mut rng, kernel * columns, |x| x);
    let bias = biased.then(|| leaked(&mut rng, columns, |x| x));
    let of_channel: Vec<f32> = (0..columns * kernel).map(|i| weights[i % kernel * columns + i / kernel]).collect();
    let rule = Convolution::new(&of_channel, kernel, bias.map(<[f32]>::to_vec)).with_distance(distance);
    Recurrence {
        name: "convolution",
        kernels: &["convolve", "keep_rows"],
        widths: vec![columns],
        results: columns,
        record: Box::new(move |r, x| r.convolve(x[0], &gpu::Convolution { weights, bias, distance })),
        run: Box::new(move |x| {
            let mut state = vec![0.0; (kernel - 1) * distance * columns];
            rule.run(&x[0], &mut state).to_vec()
        }),
    }
}

fn shift() -> Recurrence {
    let columns = 133;
    Recurrence {
        name: "shift",
        kernels: &["shift", "keep_rows"],
        widths: vec![columns],
        results: columns,
        record: Box::new(|r, x| r.shift(x[0])),
        run: Box::new(move |x| rows::shift(&x[0], &mut vec![0.0; columns]).to_vec()),
    }
}

/// A scan of heads that decay together, or of channels with rates of their own.
fn scan(by_number: bool) -> Recurrence {
    let (numbers, groups) = if by_number { (5, 1) } else { (6, 2) };
    // A last block that is not full; or four heads.
    let (channels, lanes) = if by_number { (37, 16) } else { (36, 9) };
    let mut rng = Rng::new(62);
    let own = leaked(&mut rng, channels * numbers, |x| -2.0 * x.abs());
    let (rates, rule) = match by_number {
        true => {
            let blocks = own.chunks(lanes * numbers);
            let rates: Vec<f32> = blocks
                .flat_map(|block| (0..numbers).flat_map(move |i| block.iter().skip(i).step_by(numbers).copied()))
                .collect();
            (&*rates.leak(), Scan::of_channels(own, numbers))
        }
        false => {
            let rates = &own[..channels / lanes];
            (rates, Scan::of_heads(rates.to_vec(), channels, numbers, groups))
        }
    };
    let steps = if by_number { channels } else { channels / lanes };
    Recurrence {
        name: if by_number { "scan of channels" } else { "scan of heads" },
        kernels: &["scan"],
        widths: vec![channels, steps, groups * numbers, groups * numbers],
        results: channels,
        record: Box::new(move |r, x| {
            let rule = gpu::Scan { rates, by_number, lanes, groups, tables: TABLES };
            r.scan([x[0], x[1], x[2], x[3]], &rule)
        }),
        run: Box::new(move |x| {
            let steps = scan::Steps { x: &x[0], dt: &x[1], b: &x[2], c: &x[3] };
            rule.run(&steps, &mut vec![0.0; channels * numbers]).to_vec()
        }),
    }
}

fn delta(neighbours: bool, by_row: bool) -> Recurrence {
    let (heads, key_heads, size) = (6, 3, 10);
    let rule = Delta { heads, key_heads, neighbours, size };
    let of_decays = if by_row { heads * size } else { heads };
    Recurrence {
        name: "delta rule",
        kernels: &["delta"],
        widths: vec![key_heads * size, key_heads * size, heads * size, of_decays, heads],
        results: heads * size,
        record: Box::new(move |r, x| {
            let rule = gpu::Delta { heads, key_heads, neighbours, size, powers: &EXP2_32 };
            r.delta([x[0], x[1], x[2], x[3], x[4]], &rule)
        }),
        run: Box::new(move |x| {
            let steps = delta::Steps { q: &x[0], k: &x[1], v: &x[2], g: &x[3], b: &x[4] };
            rule.run(&steps, &mut vec![0.0; heads * size * size]).to_vec()
        }),
    }
}

const OF_HEAD: usize = 9;
const HEADS: usize = 3;

fn wkv6(adds_first: bool) -> Recurrence {
    let width = HEADS * OF_HEAD;
    let first = leaked(&mut Rng::new(63), width, |x| x);
    let (six, linear) = (Wkv6 { size: OF_HEAD, first: first.to_vec() }, GatedLinear { size: OF_HEAD, heads: HEADS });
    Recurrence {
        name: if adds_first { "RWKV 6" } else { "QRWKV" },
        kernels: &["wkv6"],
        widths: vec![width; 4],
        results: width,
        record: Box::new(move |r, x| {
            let rule = gpu::Wkv6 { size: OF_HEAD, first: adds_first.then_some(first), powers: &EXP2_32 };
            r.wkv6([x[0], x[1], x[2], x[3]], &rule)
        }),
        run: Box::new(move |x| {
            let (inputs, mut state) = ([&x[0][..], &x[1], &x[2], &x[3]], vec![0.0; width * OF_HEAD]);
            match adds_first {
                true => six.run(inputs, &mut state).to_vec(),
                false => linear.run(inputs, &mut state).to_vec(),
            }
        }),
    }
}

fn wkv7() -> Recurrence {
    let width = HEADS * OF_HEAD;
    let mut rng = Rng::new(64);
    let factors = [(); 3].map(|()| leaked(&mut rng, width, |x| x));
    let [removal, replacement, bonus] = factors.map(<[f32]>::to_vec);
    let rule = Wkv7 { size: OF_HEAD, removal, replacement, bonus };
    Recurrence {
        name: "RWKV 7",
        kernels: &["wkv7"],
        widths: vec![width; 5],
        results: 2 * width,
        record: Box::new(move |r, x| {
            let rule = gpu::Wkv7 { size: OF_HEAD, factors, powers: &EXP2_32 };
            r.wkv7([x[0], x[1], x[2], x[3], x[4]], &rule)
        }),
        run: Box::new(move |x| {
            let inputs = [&x[0][..], &x[1], &x[2], &x[3], &x[4]];
            rule.run(inputs, &mut vec![0.0; width * OF_HEAD]).to_vec()
        }),
    }
}

fn lightning(heads: usize, size: usize) -> Recurrence {
    let (layer, layers) = (1, 3);
    let rule = Lightning::new(heads, size, layer, layers);
    // As its paper has them.
    let start = powf(2.0, -powf(2.0, -(log2f(heads as f32) - 3.0)));
    let slopes: Vec<f32> = (0..heads).map(|head| start * powf(start, head as f32)).collect();
    let slopes: &'static [f32] = slopes.leak();
    let factor = (1.0 - layer as f64 / (layers as f64 - 1.0) + 1e-5) as f32;
    Recurrence {
        name: "lightning attention",
        kernels: &["lightning"],
        widths: vec![heads * size; 3],
        results: heads * size,
        record: Box::new(move |r, x| {
            let rule = gpu::Lightning { size, slopes, factor, block: BLOCK, powers: &EXP2_32 };
            r.lightning([x[0], x[1], x[2]], &rule)
        }),
        run: Box::new(move |x| rule.run([&x[0], &x[1], &x[2]], &mut vec![0.0; Lightning::state(heads, size)]).to_vec()),
    }
}

/// Keys of blocks of positions: a group of four scores and two more, or two.
fn compressed(overlap: bool) -> Recurrence {
    let (size, ratio) = (18, if overlap { 3 } else { 2 });
    let width = if overlap { 2 * size } else { size };
    let places = leaked(&mut Rng::new(68), ratio * width, |x| x);
    let rule = Compress { size, ratio, overlap, places: places.to_vec() };
    Recurrence {
        name: COMPRESSED,
        kernels: &["compress", "keep_blocks"],
        widths: vec![width; 2],
        results: size,
        record: Box::new(move |r, x| {
            let rule = gpu::Compress { size, ratio, overlap, places, powers: &EXP2_32 };
            r.compress([x[0], x[1]], &rule)
        }),
        run: Box::new(move |x| {
            rule.run([&x[0], &x[1]], &mut vec![0.0; Compress::state(size, ratio, overlap)]).to_vec()
        }),
    }
}

/// Keys of blocks: nothing is read of positions before the first one, whatever is in a slot.
const COMPRESSED: &str = "compressed keys";

fn all() -> Vec<Recurrence> {
    vec![
        convolution(1, false),
        convolution(2, true),
        shift(),
        scan(false),
        scan(true),
        delta(true, false),
        delta(false, true),
        wkv6(true),
        wkv6(false),
        wkv7(),
        lightning(2, 8),
        compressed(true),
        compressed(false),
    ]
}

impl Recurrence {
    fn columns(&self) -> usize {
        self.widths.iter().sum()
    }

    /// The processor's outputs for these rows in a sequence of their own.
    fn expected(&self, x: &[f32], sequence: &[usize]) -> Vec<f32> {
        let rows: Vec<f32> =
            sequence.iter().flat_map(|row| &x[row * self.columns()..][..self.columns()]).copied().collect();
        let parts = ops::rows::split(&rows, &self.widths);
        (self.run)(&parts.iter().map(|part| part.to_vec()).collect::<Vec<_>>())
    }

    /// Passes of at most `tokens` rows of `x` on a device with `slots` slots.
    pub fn started(&self, device: Emulated, x: &[f32], [tokens, slots]: [usize; 2]) -> Box<dyn Passes> {
        let count = (x.len() / self.columns()).max(self.results);
        let mut table = bytes(x);
        table.resize(4 * count * self.columns(), 0);
        let limits = Limits { tokens, wanted: tokens, context: count, page: 1, pages: count, slots };
        let mut recorder = Recorder::new(limits, self.results).expect("limits");
        let table = Matrix {
            name: "rows",
            ty: TypeId::F32,
            rows: count,
            columns: self.columns(),
            data: table.leak(),
            scale: 1.0,
        };
        let x = recorder.embed(table).expect("rows");
        let parts = recorder.split(x, &self.widths).expect("parts");
        let y = (self.record)(&mut recorder, &parts).expect("a recurrence");
        let wanted = recorder.take_wanted(y).expect("rows");
        let (program, weights) = recorder.finish(wanted).expect("a program");
        Shared::new(device).start(program, &weights).expect("a device")
    }
}

/// Rows of a pass: their numbers, the position of the first in its sequence, and its slot.
type Rows = (Range<usize>, usize, Slot);

/// One pass; its outputs.
fn pass(passes: &mut dyn Passes, parts: &[Rows]) -> Result<Vec<f32>, Failure> {
    // Rows are tokens of a vocabulary that is as large as a row of the result.
    let pages: Vec<u32> = (0..1024).collect();
    let ids: Vec<u32> = parts.iter().flat_map(|(rows, ..)| rows.clone()).map(|row| row as u32).collect();
    let pages = |end: usize| &pages[..end];
    let parts: Vec<Part<'_>> = parts
        .iter()
        .map(|&(ref rows, first, slot)| Part { pages: pages(first + rows.len()), first, tokens: rows.len(), slot })
        .collect();
    passes.pass(Input::of_tokens(&ids), &parts, 0, &|_, _| Vec::new())?;
    passes.logits(&(0..ids.len()).collect::<Vec<_>>())
}

pub const fn at(number: usize) -> Slot {
    Slot { number, fresh: false }
}

pub const fn new(number: usize) -> Slot {
    Slot { number, fresh: true }
}

/// Sequences `a` of the rows 0 to 7 and `b` of 10 to 14; one that leaves `a` behind its row 4 for the rows 7 to 9, and
/// goes on in a slot that its state is read from and written to; and one of the rows 14 to 16, in a slot that had
/// another's state, which is `new` or is not.
pub fn script(passes: &mut dyn Passes, last: Slot) -> Result<Vec<Vec<f32>>, Failure> {
    let mut all = Vec::new();
    all.push(pass(passes, &[(0..4, 0, new(2)), (10..11, 0, new(0))])?);
    all.push(pass(passes, &[(11..14, 1, at(0)), (4..5, 4, at(2))])?);
    passes.copy_state(2, 1)?;
    all.push(pass(passes, &[(5..7, 5, at(2)), (7..9, 5, at(1))])?);
    let state = passes.read_state(1)?;
    passes.write_state(0, &state)?;
    all.push(pass(passes, &[(9..10, 7, at(0))])?);
    all.push(pass(passes, &[(14..16, 0, last)])?);
    Ok(all)
}

/// The processor's outputs of the script.
pub fn expected(rule: &Recurrence, x: &[f32]) -> Vec<Vec<f32>> {
    let of = |sequence: &[usize], rows: Range<usize>| {
        let y = rule.expected(x, sequence);
        y[rows.start * rule.results..rows.end * rule.results].to_vec()
    };
    let (a, b, fork) = ([0, 1, 2, 3, 4, 5, 6], [10, 11, 12, 13], [0, 1, 2, 3, 4, 7, 8, 9]);
    vec![
        [of(&a, 0..4), of(&b, 0..1)].concat(),
        [of(&b, 1..4), of(&a, 4..5)].concat(),
        [of(&a, 5..7), of(&fork, 5..7)].concat(),
        of(&fork, 7..8),
        of(&[14, 15], 0..2),
    ]
}

/// Rows of numbers of usual sizes, and rows of random bytes.
fn inputs(columns: usize) -> [Vec<f32>; 2] {
    let mut rng = Rng::new(65);
    let usual = (0..ROWS * columns).map(|_| 4.0 * rng.unit() - 2.0).collect();
    let raw = (0..ROWS * columns).map(|_| f32::from_bits(rng.bits() as u32)).collect();
    [usual, raw]
}

#[test]
fn sequences_have_the_bits_of_the_processor() {
    for rule in all() {
        // tokens are rows, and so there are no fewer tokens of the vocabulary than rows
        assert!(rule.results >= ROWS, "{}", rule.name);
        for (x, schedule) in inputs(rule.columns()).iter().zip([Schedule::Random(3), Schedule::InTurn]) {
            let mut device = Emulated::new().expect("PTX");
            device.schedule = schedule;
            let mut passes = rule.started(device, x, [5, 3]);
            let found = script(&mut *passes, new(1)).unwrap_or_else(|e| panic!("{}: {e}", rule.name));
            assert_same(&found.concat(), &expected(&rule, x).concat(), rule.name);
        }
    }
}

#[test]
fn what_was_left_in_a_slot_is_no_state_of_a_new_sequence() {
    for rule in all() {
        let [x, _] = inputs(rule.columns());
        let mut passes = rule.started(Emulated::new().expect("PTX"), &x, [5, 3]);
        let found = script(&mut *passes, at(1)).unwrap_or_else(|e| panic!("{}: {e}", rule.name));
        let expected = expected(&rule, &x);
        assert_same(&found[..4].concat(), &expected[..4].concat(), rule.name);
        let differ = found[4].iter().zip(&expected[4]).any(|(a, b)| a.to_bits() != b.to_bits());
        // No block was full, and the cells of one are written before they are read.
        let seen = differ || ["lightning attention", COMPRESSED].contains(&rule.name);
        assert!(seen, "{}: a state that belongs to nobody was not seen", rule.name);
        // Nothing was ever written to this slot.
        let mut passes = rule.started(Emulated::new().expect("PTX"), &x, [5, 3]);
        let unread = pass(&mut *passes, &[(0..2, 0, at(0))]).is_ok();
        assert_eq!(unread, rule.name == COMPRESSED, "{}", rule.name);
        assert!(pass(&mut *passes, &[(0..2, 0, new(3))]).is_err(), "{}: no such slot", rule.name);
        assert!(passes.write_state(0, &[0.0]).is_err() && passes.copy_state(0, 3).is_err());
    }
}

#[test]
fn mistakes_in_recurrences_are_found() {
    for rule in all() {
        let [x, _] = inputs(rule.columns());
        let expected = expected(&rule, &x);
        for kernel in rule.kernels {
            let of = |change: &dyn Fn(&str) -> String| {
                let mut device = Emulated::new().expect("PTX");
                device.replace(RECURRENT.name, with_mistake(RECURRENT, kernel, change));
                let mut passes = rule.started(device, &x, [5, 3]);
                let differ = |(a, b): (&f32, &f32)| a.to_bits() != b.to_bits();
                script(&mut *passes, new(1))
                    .map_or(true, |found| found.concat().iter().zip(&expected.concat()).any(differ))
            };
            let name = format!("{}, {kernel}", rule.name);
            assert!(!of(&|t| format!("{t} ")), "{name}: no mistake");
            assert!(of(&|t| t.replace("st.global.f32", "// ")), "{name}: nothing is written");
            match *kernel {
                "keep_rows" | "shift" => {}
                "keep_blocks" => assert!(of(&|t| t.replace("add.rn.f32", "mul.rn.f32")), "{name}: products"),
                _ => {
                    assert!(of(&|t| t.replace("add.rn.f32", "mul.rn.f32")), "{name}: products");
                    assert!(of(&|t| t.replace("mul.rn.f32", "add.rn.f32")), "{name}: sums");
                }
            }
            if ["delta", "wkv6", "wkv7", "lightning"].contains(kernel) {
                assert!(of(&|t| t.replace("bar.sync", "// ")), "{name}: no barriers");
            }
        }
    }
}

/// The positions of a prompt are gone through within a launch.
#[test]
fn a_prompt_has_as_many_launches_as_a_token() {
    for rule in all() {
        let limits = Limits { tokens: 64, wanted: 1, context: 64, page: 64, pages: 1, slots: 2 };
        let mut recorder = Recorder::new(limits, rule.results).expect("limits");
        let given = recorder.given(rule.columns()).expect("rows");
        let parts = recorder.split(given, &rule.widths).expect("parts");
        let y = (rule.record)(&mut recorder, &parts).expect("a recurrence");
        let wanted = recorder.take_wanted(y).expect("rows");
        let (program, _) = recorder.finish(wanted).expect("a program");
        let launches = |tokens| program.body(tokens, 0, Caches::default()).expect("launches").len();
        assert_eq!(launches(64), launches(1), "{}", rule.name);
    }
}

#[test]
fn full_blocks_of_lightning_attention_go_into_the_state() {
    let rule = lightning(2, 3);
    let mut rng = Rng::new(66);
    let rows = BLOCK + 9;
    let x: Vec<f32> = (0..rows * rule.columns()).map(|_| 2.0 * rng.unit() - 1.0).collect();
    // Rows are tokens of a vocabulary that is as large as a row of the result, and so they come as numbers.
    let expected = rule.expected(&x, &(0..rows).collect::<Vec<_>>());
    let limits = Limits { tokens: 180, wanted: 180, context: 1024, page: 1024, pages: 1, slots: 1 };
    let mut recorder = Recorder::new(limits, rule.results).expect("limits");
    let given = recorder.given(rule.columns()).expect("rows");
    let parts = recorder.split(given, &rule.widths).expect("parts");
    let y = (rule.record)(&mut recorder, &parts).expect("a recurrence");
    let wanted = recorder.take_wanted(y).expect("rows");
    let (program, weights) = recorder.finish(wanted).expect("a program");
    let mut passes = Shared::new(Emulated::new().expect("PTX")).start(program, &weights).expect("a device");
    let mut found = Vec::new();
    for (i, x) in x.chunks(180 * rule.columns()).enumerate() {
        let tokens = x.len() / rule.columns();
        let part = Part { pages: &[0], first: 180 * i, tokens, slot: Slot { number: 0, fresh: i == 0 } };
        passes
            .pass(Input { tokens: &[], rows: &[x] }, &[part], 0, &|_, _| Vec::new())
            .unwrap_or_else(|e| panic!("{e}"));
        found.extend(passes.logits(&(0..tokens).collect::<Vec<_>>()).expect("rows"));
    }
    assert_same(&found, &expected, "lightning attention over a full block");
}

#[test]
fn decays_and_sums_of_products_have_the_bits_of_the_processor() {
    let columns = 96;
    let mut rng = Rng::new(67);
    let mut x: Vec<f32> = (0..300 * columns)
        .map(|i| match i % 4 {
            0 => f32::from_bits(rng.bits() as u32),
            1 => 44.0 * rng.unit() - 22.0,
            2 => 0.5 * rng.unit() - 0.25,
            _ => [20.0, 20.000_002, 0.0, -0.0, -17.5, -103.9, -104.0, f32::NAN, f32::INFINITY][i / 4 % 9],
        })
        .collect();
    x.truncate(300 * columns);
    let x: &'static [f32] = x.leak();
    for (of_head, bound) in [(1, None), (8, None), (8, Some(-5.0))] {
        let factors = leaked(&mut rng, columns / of_head, |x| 2.0 * x);
        let mut expected = x.to_vec();
        delta::Decay { factors: factors.to_vec(), of_head, bound }.apply(&mut expected);
        let rule = gpu::Decay { factors, of_head, bound, tables: TABLES };
        let found = Case::new(x, columns).run(|r, x| r.decay(x, &rule).map(|()| x));
        assert_same(&found, &expected, &format!("decays of {of_head}, {bound:?}"));
    }
}
