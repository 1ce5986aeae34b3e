//! Damaged and malicious files: the fuzz targets on the corpus of `testdata/hostile` and on inputs that
//! proptest makes. Memory is bounded by the budget that `formats/tests/hostile.rs` measures.

use std::fs;
use std::path::PathBuf;

use proptest::prelude::*;
use trine_compat_tests::inputs::Rng;
use trine_compat_tests::targets::{self, FILES};
use trine_compat_tests::{is_long, samples, testdata};
use trine_formats::gguf::{Gguf, Limits};

fn corpus(folder: &str) -> Vec<(PathBuf, Vec<u8>)> {
    let dir = fs::read_dir(testdata("hostile").join(folder)).expect("the corpus");
    let paths = dir.map(|entry| entry.expect("a file").path());
    let files: Vec<_> = paths.map(|path| (path.clone(), fs::read(path).expect("a file"))).collect();
    assert!(files.len() >= 6, "{folder} is nearly empty");
    files
}

#[test]
fn refused_files_are_refused() {
    for (path, data) in corpus("refused") {
        let parsed = Gguf::parse(&data, &Limits::default());
        assert!(parsed.is_err(), "{} is accepted", path.display());
        FILES.iter().for_each(|(_, target)| target(&data));
    }
}

#[test]
fn what_lies_in_valid_containers_is_found_without_a_panic() {
    for (path, data) in corpus("accepted") {
        let parsed = Gguf::parse(&data, &Limits::default());
        assert!(parsed.is_ok(), "{}: {parsed:?}", path.display());
        FILES.iter().for_each(|(_, target)| target(&data));
    }
}

#[test]
fn damaged_importance_matrices() {
    for (_, data) in corpus("imatrix") {
        targets::imatrix_read(&data);
    }
}

#[test]
fn malicious_templates() {
    for (_, data) in corpus("template") {
        targets::template_render(&data);
    }
}

/// The corpora of the other targets: a folder for each.
#[test]
fn files_beside_gguf() {
    for (name, target) in targets::OTHERS {
        for (_, data) in corpus(name) {
            target(&data);
            // What a fuzzer does first.
            for cut in [data.len() / 3, data.len() / 2, data.len().saturating_sub(1)] {
                target(&data[..cut]);
            }
            let mut rng = Rng::named(name);
            for _ in 0..if is_long() { 40 } else { 6 } {
                let mut damaged = data.clone();
                if !damaged.is_empty() {
                    let at = rng.below(damaged.len());
                    damaged[at] ^= 1 << rng.below(8);
                }
                target(&damaged);
            }
        }
    }
}

/// Every sample is valid, or damaging it would test nothing.
#[test]
fn samples_are_valid() {
    use trine::tokenizer::Tokenizer;
    use trine_formats::imatrix::Imatrix;
    let samples = samples::all();
    assert_eq!(samples.len(), 7);
    for sample in &samples[..5] {
        Gguf::parse(sample, &Limits::default()).expect("a valid file");
    }
    for sample in &samples[1..4] {
        let gguf = Gguf::parse(sample, &Limits::default()).expect("a valid file");
        Tokenizer::from_metadata(&gguf.meta).expect("a tokenizer");
    }
    let file = trine_compat_tests::files::model(samples[3].clone());
    trine_compat_tests::models::load(&file).expect("a model");
    for sample in &samples[4..6] {
        Imatrix::parse(sample).expect("an importance matrix");
    }
    let file = trine_compat_tests::files::model(samples[6].clone());
    let ap = trine_formats::anyprec::AnyPrec::read(&file).expect("no damage");
    assert!(ap.is_some_and(|ap| ap.widths() == [2, 3]));
}

/// Every field of every sample with every dangerous value, one at a time.
#[test]
fn every_field_with_every_value() {
    for (sample, file) in samples::all().iter().enumerate() {
        let fields = targets::fields(file).len();
        // Vocabularies have hundreds of equal fields: the lengths and values of their arrays' elements.
        let step = 1 + fields / 150;
        for field in (0..fields).step_by(step) {
            for value in (0..16).chain([248]) {
                let [low, high] = (field as u16).to_le_bytes();
                targets::damaged_fields(&[sample as u8, low, high, value]);
            }
        }
    }
}

/// Parts of templates, valid and not.
fn template() -> impl Strategy<Value = String> {
    let parts = [
        "{% for m in messages %}",
        "{% endfor %}",
        "{{ m.role }}",
        "{{ m['content'] | trim | upper }}",
        "{% if loop.first and m.role == 'user' %}",
        "{% else %}",
        "{% endif %}",
        "{% set x = messages[-1].content.split('a') %}",
        "{{ x | tojson }}",
        "{{ bos_token ~ eos_token }}",
        "{{- raise_exception('no') -}}",
        "{{ strftime_now('%Y') }}",
        "{% macro f(a, b=1) %}{{ f(a) }}{% endmacro %}",
        "{{ namespace(a=[1, 2][0:9**9]).a }}",
        "{{ 'x' * 99999999 }}",
        "{{ range(10**12) | list }}",
        "{% generation %}",
        "{% endgeneration %}",
        "{{",
        "}}",
        "\u{1f600}",
    ];
    prop::collection::vec(prop::sample::select(parts.to_vec()), 0..8).prop_map(|p| p.concat())
}

fn config(cases: u32) -> ProptestConfig {
    ProptestConfig { cases, failure_persistence: None, ..ProptestConfig::default() }
}

proptest! {
    #![proptest_config(config(30_000))]

    #[test]
    fn damaged_fields(edits in prop::collection::vec(any::<u8>(), 1..25)) {
        targets::damaged_fields(&edits);
    }

    #[test]
    fn damaged_bytes(
        sample in any::<prop::sample::Index>(),
        edits in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..6),
        cut in prop::option::of(any::<prop::sample::Index>()),
    ) {
        let mut file = sample.get(samples::all()).clone();
        for (at, value) in edits {
            let at = at.index(file.len());
            file[at] = value;
        }
        if let Some(cut) = cut {
            file.truncate(cut.index(file.len()));
        }
        FILES.iter().for_each(|(_, target)| target(&file));
    }

    #[test]
    fn any_bytes(data in prop::collection::vec(any::<u8>(), 0..200)) {
        FILES.iter().for_each(|(_, target)| target(&data));
        let file = [b"GGUF\x03\0\0\0".as_slice(), &data].concat();
        FILES.iter().for_each(|(_, target)| target(&file));
    }
}

proptest! {
    #![proptest_config(config(300))]

    #[test]
    fn templates(source in template()) {
        targets::template_render(source.as_bytes());
    }
}
