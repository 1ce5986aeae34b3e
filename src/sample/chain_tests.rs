//! Whole chains against the reference's own (`testdata/sampling`).

use super::dry::{DryBreakers, DryOptions, Vocabulary};
use super::{Mirostat, MirostatVersion, Sampler, SamplerKind, SamplerOptions};

const TOKENS: &str = include_str!("../../testdata/sampling/tokens.txt");

struct Case {
    name: &'static str,
    n: usize,
    /// Logits rounded down to quarters, so that many are equal.
    steps: bool,
    scale: f32,
    prompt: usize,
    options: SamplerOptions,
}

fn case(name: &'static str, (n, steps, scale): (usize, bool, f32), options: SamplerOptions) -> Case {
    Case { name, n, steps, scale, prompt: 0, options }
}

/// Options of a chain by its letters, where nothing but the temperature is on.
fn chain(seed: u32, letters: &str) -> SamplerOptions {
    let kinds = letters.chars().map(|l| SamplerKind::by_letter(l).expect("a letter"));
    SamplerOptions { seed, samplers: kinds.collect(), top_p: 1.0, min_p: 0.0, temp: 1.0, ..SamplerOptions::default() }
}

fn mirostat(seed: u32, version: MirostatVersion, temp: f32, tau: f32, eta: f32) -> SamplerOptions {
    let mirostat = Mirostat { version, tau, eta };
    SamplerOptions { mirostat, temp, ..chain(seed, "") }
}

fn dry(multiplier: f32, base: f32, allowed_length: usize, last_n: usize, breakers: &[&[u32]]) -> DryOptions {
    let breakers: Vec<Vec<u32>> = breakers.iter().map(|b| b.to_vec()).collect();
    DryOptions { multiplier, base, allowed_length, last_n, breakers: DryBreakers::from_tokens(&breakers) }
}

fn cases() -> Vec<Case> {
    let whole = (4096, true, 1.0);
    let off = f32::NEG_INFINITY;
    let mut cases = vec![
        case("xtc", whole, SamplerOptions { xtc_probability: 0.5, xtc_threshold: 0.05, temp: 0.8, ..chain(21, "kxt") }),
        case(
            "xtc_whole_list",
            (500, false, 1.0),
            SamplerOptions { xtc_probability: 0.7, xtc_threshold: 0.02, min_keep: 3, ..chain(22, "xt") },
        ),
        case("sigma", whole, SamplerOptions { top_n_sigma: 1.0, temp: 1.5, ..chain(23, "st") }),
        case(
            "sigma_k",
            (4096, false, 0.5),
            SamplerOptions { top_n_sigma: 2.0, top_k: 60, top_p: 0.9, min_p: 0.02, temp: 1.2, ..chain(24, "skpmt") },
        ),
        case(
            "dynatemp",
            whole,
            SamplerOptions { top_k: 100, dynatemp_range: 0.7, dynatemp_exponent: 1.5, ..chain(25, "kt") },
        ),
        case(
            "dynatemp_whole",
            (300, false, 0.3),
            SamplerOptions { temp: 0.5, dynatemp_range: 0.5, dynatemp_exponent: 0.5, ..chain(26, "t") },
        ),
        case("mirostat1", whole, mirostat(27, MirostatVersion::V1, 0.9, 4.0, 0.2)),
        case("mirostat1_flat", (600, false, 0.25), mirostat(28, MirostatVersion::V1, 1.0, 5.0, 0.1)),
        case("mirostat2", whole, mirostat(29, MirostatVersion::V2, 0.8, 3.0, 0.3)),
        case("mirostat2_flat", (600, false, 0.25), mirostat(30, MirostatVersion::V2, 1.0, 5.0, 0.1)),
        case("dry", (12, false, 0.2), SamplerOptions { dry: dry(0.8, 1.75, 2, 64, &[&[3]]), ..chain(31, "dt") }),
        case(
            "dry_breakers",
            (8, true, 0.2),
            SamplerOptions { dry: dry(2.0, 1.2, 1, 20, &[&[2, 5], &[2, 1], &[7, 0, 0]]), top_k: 6, ..chain(32, "dkt") },
        ),
        case("dry_strong", (5, false, 0.1), SamplerOptions { dry: dry(1.0, 3.0, 0, 200, &[&[4]]), ..chain(33, "dt") }),
        case("adaptive", whole, SamplerOptions { top_k: 80, top_p: 0.98, adaptive_target: 0.3, ..chain(34, "kpa") }),
        case("adaptive_off", (300, false, 0.5), SamplerOptions { top_k: 50, adaptive_decay: 0.5, ..chain(35, "ka") }),
        case(
            "order",
            whole,
            SamplerOptions {
                top_k: 50,
                top_p: 0.9,
                min_p: 0.03,
                typical_p: 0.8,
                temp: 1.3,
                repeat_last_n: 32,
                repeat_penalty: 1.2,
                frequency_penalty: 0.3,
                presence_penalty: 0.4,
                ..chain(36, "tmpyke")
            },
        ),
        case(
            "penalties_last",
            (200, true, 0.5),
            SamplerOptions {
                top_k: 30,
                repeat_last_n: 16,
                repeat_penalty: 1.5,
                frequency_penalty: 0.5,
                presence_penalty: 0.1,
                ..chain(37, "ket")
            },
        ),
        case(
            "keep",
            whole,
            SamplerOptions { top_p: 0.3, min_p: 0.4, typical_p: 0.2, min_keep: 7, ..chain(38, "ypmt") },
        ),
        case(
            "twice",
            whole,
            SamplerOptions { xtc_probability: 0.5, xtc_threshold: 0.05, temp: 0.9, ..chain(39, "kxxtt") },
        ),
        case(
            "bias",
            (500, true, 1.0),
            SamplerOptions { top_k: 20, logit_bias: vec![(7, 3.5), (11, off), (7, 0.25)], ..chain(40, "kt") },
        ),
    ];
    for case in &mut cases {
        case.prompt = match case.name {
            "dry" => 30,
            "dry_breakers" => 40,
            "dry_strong" => 60,
            _ => 0,
        };
    }
    cases
}

/// Uniform numbers of a linear congruential generator.
struct Draws(u32);

impl Draws {
    fn next(&mut self) -> f32 {
        self.0 = self.0.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (self.0 >> 8) as f32 / 16_777_216.0
    }

    fn logits(&mut self, case: &Case) -> Vec<f32> {
        let one = |_| {
            let l = (self.next() + self.next() + self.next() - 1.5) * 12.0 * case.scale;
            if case.steps { (l * 4.0).floor() / 4.0 } else { l }
        };
        (0..case.n).map(one).collect()
    }
}

#[test]
fn chains_choose_the_tokens_of_the_reference() {
    let cases = cases();
    assert_eq!(cases.len(), TOKENS.lines().count());
    for case in cases {
        let line = TOKENS.lines().find(|l| l.split(' ').next() == Some(case.name));
        let wanted: Vec<u32> = line.expect("a line").split(' ').skip(1).map(|t| t.parse().unwrap()).collect();
        let mut sampler = Sampler::new(case.options.clone()).unwrap();
        for round in 0..2 {
            let mut draws = Draws(case.options.seed.wrapping_mul(7919).wrapping_add(1));
            for _ in 0..case.prompt {
                sampler.accept((draws.next() * case.n as f32) as u32);
            }
            for (step, &token) in wanted.iter().enumerate() {
                let id = sampler.sample(&draws.logits(&case)).unwrap();
                assert_eq!(id, token, "{}, round {round}, step {step}", case.name);
                sampler.accept(id);
            }
            sampler.reset();
        }
    }
}

#[test]
fn what_replays_goes_on_as_if_it_had_been_chosen() {
    for case in cases() {
        if !case.options.replays() {
            continue;
        }
        let mut chosen = Sampler::new(case.options.clone()).unwrap();
        let mut replayed = Sampler::new(case.options.clone()).unwrap();
        let mut draws = Draws(5);
        for _ in 0..20 {
            let id = chosen.sample(&draws.logits(&case)).unwrap();
            chosen.accept(id);
            replayed.replay(id);
        }
        let logits = draws.logits(&case);
        assert_eq!(chosen.sample(&logits), replayed.sample(&logits), "{}", case.name);
    }
    let xtc = SamplerOptions { xtc_probability: 0.5, ..SamplerOptions::default() };
    assert!(SamplerOptions::default().replays() && !xtc.replays());
}

#[test]
fn names_of_steps_are_llama_cpps() {
    for name in ["top_k", "top-k", "TOPK", "topk"] {
        assert_eq!(SamplerKind::by_name(name), Some(SamplerKind::TopK), "{name}");
    }
    for (name, kind) in
        [("nucleus", SamplerKind::TopP), ("temp", SamplerKind::Temperature), ("typical-p", SamplerKind::Typical)]
    {
        assert_eq!(SamplerKind::by_name(name), Some(kind));
    }
    assert_eq!(SamplerKind::by_name("top"), None);
    assert_eq!(SamplerKind::by_letter('z'), None);
    assert!(SamplerKind::DEFAULT_CHAIN.iter().all(|k| SamplerKind::by_name(k.name()) == Some(*k)));
}

/// Tokens that are their texts.
struct Pieces(&'static [&'static str]);

impl Vocabulary for Pieces {
    fn n_tokens(&self) -> u32 {
        self.0.len() as u32
    }

    fn bytes(&self, id: u32) -> Vec<u8> {
        self.0[id as usize].as_bytes().to_vec()
    }

    fn tokens(&self, text: &[u8]) -> Vec<u32> {
        // One byte a token.
        let place = |b: &u8| self.0.iter().position(|p| p.as_bytes() == [*b]);
        text.iter().filter_map(place).map(|p| p as u32).collect()
    }
}

#[test]
fn breakers_are_found_wherever_they_begin_in_a_token() {
    let pieces = Pieces(&["a", "b", "c", "xa", "xab", "abcy", "ab", "q"]);
    let found = DryBreakers::new(&pieces, &["abc", ""]);
    let wanted = DryBreakers::from_tokens(&[
        vec![0, 1, 2], // a | bc
        vec![3, 1, 2], // xa | bc
        vec![4, 2],    // xab | c
        vec![5],       // abcy has all of it
        vec![6, 2],    // ab | c
    ]);
    assert_eq!(found, wanted);
}
