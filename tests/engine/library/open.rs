//! Opening: the options change nothing but speed, and mistakes are told in one line.

use std::fs;

use trine::{GenerateOptions, OpenError, OpenOptions};

use super::{model, testdata};

#[test]
fn no_way_of_opening_changes_a_text() {
    let options = GenerateOptions::greedy(12);
    let expected = model().generate("The game", &options).expect("room");
    let expected = expected.complete().expect("finite logits");
    let path = testdata("models/trilm-wt-5.8m-F16.gguf");
    for (mmap, repack, threads) in [(false, true, 1), (true, false, 2)] {
        let how = OpenOptions { mmap, repack, threads: Some(threads), ..OpenOptions::default() };
        let other = trine::open_with(&path, &how).expect("the bundled model");
        let text = other.generate("The game", &options).expect("room");
        assert_eq!(text.complete().expect("finite logits"), expected);
        assert_eq!(other.path(), path);
    }
    // a file that is open already
    let file = trine::open_file(&path, true).expect("the bundled model");
    let other = trine::open::load(file, &OpenOptions::default()).expect("a model");
    assert!(format!("{other:?}").contains("trilm-wt"));
}

#[test]
fn mistakes_are_told_in_one_line_with_the_path() {
    let dir = tempfile::tempdir().expect("a folder");
    let write = |name: &str, bytes: &[u8]| {
        let path = dir.path().join(name);
        fs::write(&path, bytes).expect("room");
        path
    };
    let whole = fs::read(testdata("models/trilm-wt-5.8m-F16.gguf")).expect("the model");
    let cases = [
        (dir.path().join("missing.gguf"), "does not exist"),
        (dir.path().to_owned(), "is a directory"),
        (write("empty.gguf", b""), "is empty"),
        (write("lfs.gguf", b"version https://git-lfs.github.com/spec/v1\n"), "git lfs pull"),
        (write("page.gguf", b"<!DOCTYPE html>"), "a web page"),
        (write("cut.gguf", &whole[..whole.len() / 2]), "tensor"),
    ];
    for (path, expected) in &cases {
        for mmap in [true, false] {
            let how = OpenOptions { mmap, ..OpenOptions::default() };
            let error = trine::open_with(path, &how).expect_err(expected);
            let said = error.to_string();
            assert!(said.contains(expected), "{said}");
            assert!(said.contains(&path.display().to_string()), "{said}");
            assert!(!said.contains('\n'), "{said}");
        }
    }
    let missing = trine::open(&cases[0].0);
    assert!(matches!(missing, Err(OpenError::Missing { .. })));
}
