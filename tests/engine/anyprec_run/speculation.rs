use trine::generate::speculate::{DraftSource, SpeculateError, Speculator};
use trine::model::NumberPath;
use trine::sample::{Sampler, SamplerOptions};
use trine::step::Session;
use trine::{Model, OpenOptions};

use super::fixture::{files, logits, model_file, tokens};

const DRAFT: DraftSource = DraftSource::Narrow(3);
const TEXT: u8 = 6;

fn whole(number_path: NumberPath) -> Model {
    let options = OpenOptions { number_path, ..OpenOptions::default() };
    trine::open::load(model_file(files().whole.clone()), &options).expect("a model")
}

fn at(model: &Model, bits: u8) -> Session {
    super::fixture::session(model.weights(), bits)
}

/// A session with a prompt, and the logits after it.
fn prompted(model: &Model, prompt: &[u32]) -> (Session, Vec<f32>) {
    let mut session = at(model, TEXT);
    let mut after = Vec::new();
    session.eval(prompt, prompt.len() - 1, &mut |_, l| after = l.to_vec()).expect("room for the prompt");
    (session, after)
}

fn bits(logits: &[f32]) -> Vec<u32> {
    logits.iter().map(|l| l.to_bits()).collect()
}

/// Tokens and the logits that each was chosen from.
type Text = Vec<(u32, Vec<u32>)>;

fn plain(model: &Model, prompt: &[u32], n: usize, mut sampler: Sampler) -> Text {
    let (mut session, mut after) = prompted(model, prompt);
    let mut text = Vec::new();
    while text.len() < n {
        let id = sampler.sample(&after).expect("finite logits");
        sampler.accept(id);
        text.push((id, bits(&after)));
        let mut sink = |_, l: &[f32]| after = l.to_vec();
        session.eval(&[id], 0, &mut sink).expect("room");
    }
    text
}

/// The same with drafts; the session and speculator as the text leaves them.
fn drafted(model: &Model, prompt: &[u32], n: usize, mut sampler: Sampler, most: usize) -> (Text, Session, Speculator) {
    let (mut session, mut after) = prompted(model, prompt);
    let mut speculator = Speculator::new(model, &session, &DRAFT, most).expect("widths of the file");
    speculator.always();
    let mut text = Vec::new();
    while text.len() < n {
        let id = sampler.sample(&after).expect("finite logits");
        sampler.accept(id);
        text.push((id, bits(&after)));
        let mut guesser = sampler.clone();
        let mut guess = |row: &[f32]| {
            let id = guesser.sample(row).ok()?;
            guesser.accept(id);
            Some(id)
        };
        let so_far: Vec<u32> = prompt.iter().copied().chain(text.iter().map(|t| t.0)).collect();
        let so_far = &so_far[..so_far.len() - 1];
        speculator.advance(&mut session, so_far, id, n - text.len() + 8, &mut guess, &mut after).expect("room");
    }
    (text, session, speculator)
}

fn greedy() -> Sampler {
    let options = SamplerOptions { temp: 0.0, ..SamplerOptions::default() };
    Sampler::new(options).expect("valid")
}

#[test]
fn greedy_text_is_the_one_without_drafts() {
    let model = whole(NumberPath::I16);
    let all = tokens(60);
    let (mut total, mut rejected) = (0, 0);
    for (i, most) in [(0, 4), (7, 1), (21, 9)] {
        let prompt = &all[i..i + 9];
        let expected = plain(&model, prompt, 350, greedy());
        let (text, _, speculator) = drafted(&model, prompt, 350, greedy(), most);
        assert!(text == expected, "drafts of {most}");
        let counts = speculator.counts();
        assert!(counts.accepted > 0 && counts.rounds > 0);
        assert!(counts.drafted <= counts.rounds * most);
        total += text.len();
        rejected += counts.drafted - counts.accepted;
    }
    assert!(total >= 1000 && rejected > 20, "{total} {rejected}");
}

#[test]
fn sampled_text_is_the_one_without_drafts() {
    for path in [NumberPath::I16, NumberPath::F32] {
        let model = whole(path);
        for seed in [1, 2] {
            let sampler = Sampler::new(SamplerOptions { seed, repeat_penalty: 1.1, ..SamplerOptions::default() });
            let sampler = sampler.expect("valid");
            let prompt = tokens(12);
            let expected = plain(&model, &prompt, 120, sampler.clone());
            let (text, _, speculator) = drafted(&model, &prompt, 120, sampler, 4);
            assert!(text == expected, "{path:?}, seed {seed}");
            // the same random numbers make most drafts the same
            let counts = speculator.counts();
            assert!(counts.acceptance() > 0.2, "{counts:?}");
            assert!(counts.accepted < counts.drafted);
        }
    }
}

#[test]
fn the_cache_after_a_rejected_draft_is_that_of_a_fresh_prompt() {
    let model = whole(NumberPath::I16);
    let prompt = tokens(40);
    let next = tokens(20);
    for n in [1, 2, 3, 8, 30] {
        let (text, mut session, mut speculator) = drafted(&model, &prompt, n, greedy(), 6);
        speculator.forget(&mut session);
        assert_eq!(session.n_past(), prompt.len() + n);
        assert_eq!(session.bits(), Some(TEXT));
        let context: Vec<u32> = prompt.iter().copied().chain(text.iter().map(|t| t.0)).collect();
        let mut fresh = at(&model, TEXT);
        logits(&mut fresh, &context);
        assert!(logits(&mut session, &next) == logits(&mut fresh, &next), "{n}");
    }
    // guesses that are all wrong
    let (mut session, after) = prompted(&model, &prompt);
    let mut speculator = Speculator::new(&model, &session, &DRAFT, 5).expect("widths of the file");
    speculator.always();
    let mut row = after.clone();
    let mut text = prompt.clone();
    for &id in &next {
        let mut wrong = |_: &[f32]| Some(17);
        speculator.advance(&mut session, &text, id, 100, &mut wrong, &mut row).expect("room");
        text.push(id);
    }
    let mut fresh = at(&model, TEXT);
    logits(&mut fresh, &prompt);
    let expected = logits(&mut fresh, &next);
    assert!(Some(&bits(&row)) == expected.last());
    let expected_accepted = next.iter().skip(1).filter(|&&id| id == 17).count();
    assert_eq!(speculator.counts().accepted, expected_accepted);
}

#[test]
fn drafts_end_with_the_context() {
    let model = whole(NumberPath::I16);
    let mut text = tokens(500);
    let (mut session, mut after) = prompted(&model, &text);
    let mut speculator = Speculator::new(&model, &session, &DRAFT, 50).expect("widths of the file");
    speculator.always();
    let mut sampler = greedy();
    for _ in 500..512 {
        let id = sampler.sample(&after).expect("finite logits");
        let mut guesser = sampler.clone();
        let mut guess = |row: &[f32]| guesser.sample(row).ok();
        speculator.advance(&mut session, &text, id, 1000, &mut guess, &mut after).expect("room for this one");
        text.push(id);
    }
    speculator.forget(&mut session);
    assert_eq!(session.n_past(), session.n_ctx());
    let full = speculator.advance(&mut session, &text, 1, 9, &mut |_| None, &mut after);
    assert!(full.is_err());
}

#[test]
fn drafts_need_fewer_bits() {
    let model = whole(NumberPath::I16);
    let mut session = at(&model, 4);
    let new = |session: &Session, draft: u8| Speculator::new(&model, session, &DraftSource::Narrow(draft), 4);
    for draft in [4, 6] {
        let refused = new(&session, draft).err().expect("not narrower");
        assert!(matches!(refused, SpeculateError::NotNarrower { text: 4, .. }));
    }
    let refused = new(&session, 5).err().expect("not in the file");
    assert!(refused.to_string().contains("3, 4 and 6"), "{refused}");
    let mut speculator = new(&session, 3).expect("widths of the file");
    session.set_bits(3).expect("a width of the file");
    assert!(speculator.follow(&session).is_err());
    session.set_bits(6).expect("a width of the file");
    assert!(speculator.follow(&session).is_ok());
}
