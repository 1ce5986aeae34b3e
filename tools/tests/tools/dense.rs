//! The dense model of the test data: what is kept of it gives the file that its README names, and with `TRINE_TESTS=long` types
//! chosen for a size diverge less than a file type of that size.

use std::fs;

use trine_testkit::tool::{self, stdout};
use trine_testkit::{dense, folder, is_long, read, sha256, skipped, testdata};

use super::rquantize_size;

#[test]
fn it_is_the_file_that_its_readme_names() {
    let dir = folder();
    let path = dir.path().join("dense.gguf");
    dense::write(&path);
    let readme = fs::read_to_string(testdata("dense/README.md")).unwrap();
    assert!(readme.contains(&sha256(&read(&path))));
}

#[test]
fn types_for_a_size_lose_less_than_a_file_type() {
    if !is_long() {
        return skipped("files of 21 million weights are made with TRINE_TESTS=long");
    }
    let dir = folder();
    let dir = dir.path();
    dense::write(&dir.join("dense.gguf"));
    let run = |program: &str, words: &str| {
        let mut command = tool::command(program);
        stdout(command.current_dir(dir).args(words.split_ascii_whitespace()).output().unwrap())
    };
    let rquantize = env!("CARGO_BIN_EXE_rquantize");
    let calibration = testdata("imatrix/calib.txt");
    run(
        env!("CARGO_BIN_EXE_rimatrix"),
        &format!("-m dense.gguf -f {} --chunks 8 -o imatrix.gguf", calibration.display()),
    );
    let text = trine_testkit::wikitext().display().to_string();
    let diverges = |file: &str| rquantize_size::diverges(dir, file, &text, 4);
    for ty in ["IQ2_XXS", "IQ3_XXS", "Q3_K_M", "Q4_K_M", "Q5_K_M"] {
        run(rquantize, &format!("--imatrix imatrix.gguf dense.gguf usual.gguf {ty}"));
        let size = fs::metadata(dir.join("usual.gguf")).unwrap().len();
        run(rquantize, &format!("--imatrix imatrix.gguf --target-size {size} dense.gguf chosen.gguf"));
        assert!(fs::metadata(dir.join("chosen.gguf")).unwrap().len() <= size);
        let (usual, chosen) = (diverges("usual.gguf"), diverges("chosen.gguf"));
        assert!(chosen < usual, "{ty}: {chosen} of {usual}");
    }
}
