//! Drafters in files of their own: how they are opened, heard and asked, whatever their kind.

use std::fs;
use std::sync::Arc;

use serde_json::Value;
use trine::generate::speculate::{Aside, AsideSource};
use trine::model::{DrafterFile, LoadOptions, Weights};
use trine::step::{SessionOptions, Sink};
use trine::{ContextOptions, DraftOptions, DraftSource, GenerateOptions, Isa, OpenOptions, SamplerOptions};
use trine_testkit::archs::{Listing, drafter, listing};
use trine_testkit::golden::long_tokens;
use trine_testkit::sha256;

use crate::{TYPES, made, quantize, write_models};

/// Drafters of one kind, and the model that they were made for.
pub struct Drafters {
    /// Their folder.
    pub kind: &'static str,
    /// The model, by the path of its listing.
    pub model: &'static str,
    /// The source of drafts by them.
    pub source: DraftSource,
}

/// The first digits of the hash of some rows.
pub fn hash(rows: &[Vec<f32>]) -> String {
    let bytes: Vec<u8> = rows.iter().flatten().flat_map(|v| v.to_le_bytes()).collect();
    sha256(&bytes)[..16].to_owned()
}

fn likeliest(row: &[f32]) -> u32 {
    (0..row.len()).rev().max_by(|&a, &b| row[a].total_cmp(&row[b])).expect("a token") as u32
}

/// The position of a step's first token, and the drafter that hears.
struct Listening<'a>(usize, &'a mut Aside, Vec<f32>);

impl Sink for Listening<'_> {
    fn wants_hidden(&self, _: usize) -> bool {
        false
    }

    fn hears_hidden(&self, _: usize) -> bool {
        true
    }

    fn logits(&mut self, _: usize, _: usize, logits: &[f32]) {
        self.2 = logits.to_vec();
    }

    fn hidden(&mut self, _: usize, index: usize, state: &[f32]) {
        self.1.hear(self.0 + index, state);
    }
}

/// The logits of at most `most` tokens that a source drafts behind `last`, or behind the model's likeliest token, in a text that
/// it hears in steps of so many tokens.
pub fn drafted(
    (source, model): (&DraftSource, &trine::Model),
    text: &[u32],
    last: Option<u32>,
    most: usize,
    step: usize,
) -> Vec<Vec<f32>> {
    let source = AsideSource::new(source, model).expect("a drafter").expect("a source");
    let mut session = model.session(SessionOptions { n_ctx: 512, n_ubatch: step });
    let mut aside = source.for_text(512);
    let mut row = Vec::new();
    for part in text.chunks(step) {
        let mut sink = Listening(session.n_past(), &mut aside, Vec::new());
        session.eval_into(part, part.len() - 1, &mut sink).expect("room");
        row = sink.2;
    }
    aside.read(text).expect("nobody cancels");
    let mut rows = Vec::new();
    let mut guess = |logits: &[f32]| {
        rows.push(logits.to_vec());
        Some(likeliest(logits))
    };
    let last = last.unwrap_or_else(|| likeliest(&row));
    aside.lend(|| session.part(text.len(), None));
    aside.draft((text, last), most, &mut guess).expect("nobody cancels").expect("the text was heard");
    rows
}

/// Checks the logits of drafts behind texts of the lengths that a golden file names, of a model in all types: `open` opens the
/// bytes of a file, `most` says how many tokens are drafted behind the length of this number.
#[track_caller]
pub fn check_lengths(
    golden: &Value,
    (name, file): (&str, Vec<u8>),
    source: &DraftSource,
    open: impl Fn(&[u8], Isa, usize) -> trine::Model,
    most: impl Fn(usize) -> usize,
) {
    let tokens = long_tokens();
    let lengths: Vec<usize> = serde_json::from_value(golden["lengths"].clone()).expect("lengths");
    let dir = tempfile::tempdir().expect("a temporary directory");
    let plain = dir.path().join("F32.gguf");
    fs::write(&plain, file).expect("room for the model");
    for ty in TYPES {
        let form = &golden["models"][name][ty];
        let path = dir.path().join(format!("{ty}.gguf"));
        if ty != TYPES[0] {
            quantize(&plain, ty, &path);
        }
        let bytes = trine_testkit::read(&path);
        assert_eq!(sha256(&bytes), form["file"].as_str().expect("a hash"), "{name} {ty}: the file");
        let want: Vec<String> = serde_json::from_value(form["logits"].clone()).expect("hashes");
        let best = Isa::from_env().expect("a set that the processor has");
        for (isa, threads, step, every) in [(best, 2, 512, 1), (Isa::scalar(), 1, 7, 6)] {
            let model = open(&bytes, isa, threads);
            for (turn, (&length, want)) in lengths.iter().zip(&want).enumerate().step_by(every) {
                let text = &tokens[..length];
                let rows = drafted((source, &model), text, Some(tokens[length]), most(turn), step);
                assert_eq!(&hash(&rows), want, "{name} {ty} {isa:?}: {length} tokens");
            }
        }
    }
}

impl Drafters {
    /// The bytes of a drafter.
    pub fn file(&self, name: &str) -> Vec<u8> {
        listing(&drafter(self.kind, name)).file()
    }

    /// Writes the drafters and the model for the reference to read, to the directory that `TRINE_ARCHS` names.
    pub fn write(&self, names: &[&str]) {
        write_models(names.iter().map(|name| (*name, self.file(name))));
        let name = self.model.rsplit('/').next().expect("a name");
        write_models([(name, made(self.model))]);
    }

    /// The model with a drafter in a folder, opened as users open it.
    pub fn open(&self, bytes: &[u8], isa: Isa, threads: usize) -> trine::Model {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("drafter.gguf");
        fs::write(&path, bytes).expect("room");
        let options = OpenOptions {
            drafter: Some(path),
            isa: Some(isa),
            threads: Some(threads),
            mmap: false,
            ..OpenOptions::default()
        };
        trine::open::load(trine_testkit::gguf::model(made(self.model)), &options).expect("a model with a drafter")
    }

    /// Checks that texts with drafts by these drafters are those without.
    pub fn change_no_text(&self, names: &[&str]) {
        for name in names {
            let model = self.open(&self.file(name), Isa::detect(), 2);
            let prompt = &long_tokens()[..40];
            let greedy = GenerateOptions { past_eos: true, ..GenerateOptions::greedy(60) };
            let sampler = SamplerOptions { temp: 0.7, seed: 11, ..SamplerOptions::default() };
            let sampled = GenerateOptions { sampler, ..greedy.clone() };
            for options in [greedy, sampled] {
                let mut context = model.context(&ContextOptions { n_ctx: Some(256), ..ContextOptions::default() });
                let plain = context.generate(prompt, &options).expect("room").complete().expect("finite logits").tokens;
                let draft = Some(DraftOptions { most: 5, always: true, ..DraftOptions::of(self.source.clone()) });
                let options = GenerateOptions { draft, ..options };
                let mut context = model.context(&ContextOptions { n_ctx: Some(256), ..ContextOptions::default() });
                let drafted =
                    context.generate(prompt, &options).expect("room").complete().expect("finite logits").tokens;
                assert_eq!(drafted, plain, "{name}");
                let counts = context.drafts().expect("drafts").1.counts();
                assert!(counts.rounds > 10 && counts.drafted > 10, "{name}: {counts:?}");
            }
        }
    }

    /// The line that refuses a drafter in whose listing a text stands for another.
    pub fn refused(&self, name: &str, from: &str, to: &str) -> String {
        let text = fs::read_to_string(drafter(self.kind, name)).expect("a listing");
        let lines: Vec<String> = text.lines().map(|line| line.replace(from, to)).collect();
        let changed = lines.join("\n");
        assert!(changed != text.trim_end(), "{name}: nothing was changed");
        let file = Arc::new(trine_testkit::gguf::model(Listing::parse(&changed).file()));
        let options = LoadOptions { drafter: Some(DrafterFile(file)), ..LoadOptions::default() };
        let line = Weights::load(&trine_testkit::gguf::model(made(self.model)), &options);
        let line = line.err().expect("a refusal").to_string();
        assert!(!line.contains('\n'), "{line}");
        line
    }

    /// The line that refuses drafts by the drafter of `bytes`, or by none.
    pub fn refused_source(&self, bytes: Option<&[u8]>) -> String {
        let model = match bytes {
            Some(bytes) => self.open(bytes, Isa::detect(), 1),
            None => trine::open::load(trine_testkit::gguf::model(made(self.model)), &OpenOptions::default())
                .expect("a model"),
        };
        let draft = Some(DraftOptions::of(self.source.clone()));
        let refused = model.generate(&[1u32, 2][..], &GenerateOptions { draft, ..GenerateOptions::greedy(4) });
        refused.err().expect("a refusal").to_string()
    }
}
