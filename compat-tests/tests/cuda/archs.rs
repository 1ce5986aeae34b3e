//! Small random models of every architecture: on the emulated GPU they have the CPU's logits, or are refused by name.

use std::fs;

use trine::model::{LoadOptions, Model};
use trine_compat_tests::models;
use trine_compat_tests::ptx::Schedule;
use trine_cuda::program::ProgramError;
use trine_testkit::{names_in, testdata};

use super::listing::Listing;
use super::model::{hashes, limits};

const TOKENS: [u32; 4] = [3, 60, 7, 101];

/// The model of a listing, with matrices in half floats.
fn made(name: &str) -> Option<Model> {
    let listing = fs::read_to_string(testdata(&format!("archs/{name}"))).expect("a listing");
    let folder = trine_testkit::folder();
    let [single, half] = ["F32", "F16"].map(|ty| folder.path().join(format!("{ty}.gguf")));
    fs::write(&single, Listing::parse(&listing).file()).expect("room for the model");
    let file = trine::open_file(&single, true).expect("a model");
    let mut recipe = trine::Recipe::new(trine::Target::parse("F16").expect("a type"));
    recipe.fallback = trine::quant::Fallback::Always;
    trine::quantize(&file, &recipe, &half).expect("a smaller file");
    let bytes = fs::read(&half).expect("the smaller file");
    let options = LoadOptions {
        repack: false,
        ..LoadOptions::default()
    };
    // A few are refused by the engine itself.
    Model::load(&trine_testkit::gguf::model(bytes), &options).ok()
}

/// Those whose logits are compared; one that a change lets run or refuses has to be named or struck out here.
const RUN: &[&str] = &[];

#[test]
fn architectures_have_the_bits_of_the_cpu_or_are_refused() {
    let mut run = Vec::new();
    for listing in names_in(&testdata("archs")) {
        let Some(name) = listing.strip_suffix(".txt") else {
            continue;
        };
        let Some(model) = made(&listing) else {
            continue;
        };
        match model.record(limits(TOKENS.len())) {
            Ok(_) => {}
            Err(ProgramError::Missing(what)) => {
                assert!(!what.is_empty() && !what.contains('\n'), "{name}: {what}");
                continue;
            }
            Err(e) => panic!("{name}: {e}"),
        }
        let expected = models::logits_sha256(&model, &TOKENS).expect("logits");
        let found = hashes(&model, &TOKENS, &[3, 1], Schedule::InTurn);
        assert_eq!(found, expected, "{name}");
        run.push(name.to_owned());
    }
    run.sort();
    assert_eq!(run, RUN);
}
