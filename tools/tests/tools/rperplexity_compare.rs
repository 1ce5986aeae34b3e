//! `rperplexity --compare`: its numbers are those of the other modes, its files are whole or not there.

use std::fs;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::sync::OnceLock;
use std::thread::sleep;
use std::time::Duration;

use serde_json::Value;
use tempfile::TempDir;
use trine_testkit::{names_in, testdata, tool, trilm};

/// The ternary model with 8 bits, at 1 to 3 bits and at 1 to 2.
fn models() -> &'static Path {
    static DIR: OnceLock<TempDir> = OnceLock::new();
    let dir = DIR.get_or_init(|| {
        let dir = TempDir::new().unwrap();
        for (name, to) in [("trilm-Q8_0.gguf", "Q8_0"), ("trilm-ap.gguf", "AP1-3"), ("trilm-narrow.gguf", "AP1-2")] {
            let made = Command::new(env!("CARGO_BIN_EXE_rquantize"))
                .arg(trilm())
                .arg(dir.path().join(name))
                .arg(to)
                .output()
                .unwrap();
            assert!(made.status.success(), "{made:?}");
        }
        fs::copy(trilm(), dir.path().join("trilm-F16.gguf")).unwrap();
        dir
    });
    dir.path()
}

/// `rperplexity` among the models, with its temporary files in `temp`.
fn rperplexity(temp: &Path, args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_rperplexity"));
    command.current_dir(models()).env("TMPDIR", temp);
    command.args(["-m", "trilm-F16.gguf"]).args(args);
    command
}

const SHORT: [&str; 4] = ["-c", "128", "--chunks", "3"];

fn compare(temp: &Path, args: &[&str]) -> Command {
    let mut command = rperplexity(temp, &["--compare", "-f"]);
    command.arg(testdata("wikitext-2/wiki.test.raw")).args(SHORT).args(args);
    command
}

fn ok(mut command: Command) -> (String, String) {
    tool::texts(command.output().unwrap())
}

fn rows(command: Command) -> Vec<Value> {
    let all: Value = serde_json::from_str(&ok(command).0).unwrap();
    all["rows"].as_array().unwrap().clone()
}

fn refused(output: Output, expected: &str) {
    let error = tool::refusal("rperplexity", output).error;
    assert!(error.contains(expected), "{expected}: {error}");
}

#[test]
fn rows_are_those_of_the_divergence_mode() {
    let temp = TempDir::new().unwrap();
    let path = |name: &str| temp.path().join(name).to_str().unwrap().to_owned();
    let (base, same) = (path("a.kld"), path("b.kld"));
    let files = ["trilm-Q8_0.gguf", "trilm-ap.gguf"];
    let args = |base: &'static [&'static str]| [&files[..], base, &["--json", "--no-speed"]].concat();
    let kept: Vec<&str> = vec!["--bits", "3,1", "--kl-divergence-base", &base];
    let first = rows(compare(temp.path(), &[&args(&[])[..], &kept].concat()));
    assert_eq!(names_in(temp.path()), ["a.kld"]);

    // The base file is that of the other mode.
    let mut write = rperplexity(temp.path(), &["--kl-divergence-base", &same, "-f"]);
    write.arg(testdata("wikitext-2/wiki.test.raw")).args(SHORT);
    ok(write);
    assert!(fs::read(&base).unwrap() == fs::read(&same).unwrap());

    // So is every number.
    let bits: Vec<Option<u64>> = first.iter().map(|r| r["bits"].as_u64()).collect();
    assert_eq!(bits, [None, None, Some(3), Some(1)]);
    let alone = |row: &Value| {
        let mut args = vec!["--kl-divergence", "--kl-divergence-base", &same, "--json"];
        let bits = row["bits"].to_string();
        if row["bits"].is_u64() {
            args.extend(["--bits", &bits]);
        }
        args.extend(["-m", row["file"].as_str().unwrap()]);
        let all: Value = serde_json::from_str(&ok(rperplexity(temp.path(), &args)).0).unwrap();
        all
    };
    for row in &first[1..] {
        let alone = alone(row);
        for key in [
            "tokens_scored",
            "ln_ppl",
            "ln_ppl_base",
            "ln_ppl_ratio",
            "kld",
            "kld_quantiles",
            "p_diff",
            "p_diff_quantiles",
            "p_diff_rms",
            "same_top",
        ] {
            assert!(!alone[key].is_null(), "{key}");
            assert_eq!(row[key], alone[key], "{key}");
        }
        assert_eq!(first[0]["ln_ppl"], alone["ln_ppl_base"]);
        let ppl = trine::math::exp(alone["ln_ppl"]["value"].as_f64().unwrap());
        let told = row["ppl"]["value"].as_f64().unwrap();
        assert!((told - ppl).abs() < 1e-9 * ppl, "{told} {ppl}");
    }
    assert!(first[3]["kld"]["value"].as_f64() > first[2]["kld"]["value"].as_f64());
    let reference = &first[0];
    assert_eq!(reference["reference"], true);
    assert_eq!(reference["kld"]["value"], 0.0);
    assert_eq!(reference["same_top"]["value"], 1.0);

    // A base file that is there is read; one that is not is made and removed.
    let numbers = |rows: &[Value]| -> Vec<Value> {
        let mut rows = rows.to_vec();
        for row in &mut rows {
            row["prompt_tokens_per_second"] = Value::Null;
        }
        rows
    };
    let before = fs::metadata(&base).unwrap().modified().unwrap();
    let again = rows(compare(temp.path(), &[&args(&[])[..], &kept].concat()));
    assert_eq!(numbers(&again), numbers(&first));
    assert_eq!(fs::metadata(&base).unwrap().modified().unwrap(), before);
    let (said, note) = ok(compare(temp.path(), &args(&["--bits", "3,1", "-b", "50", "-t", "1"])));
    let third: Value = serde_json::from_str(&said).unwrap();
    assert_eq!(numbers(third["rows"].as_array().unwrap()), numbers(&first));
    assert!(note.contains("MB of disk until the end, in '"), "{note}");
    assert_eq!(names_in(temp.path()), ["a.kld", "b.kld"]);

    // Fewer chunks are the beginning of the same file, more are not in it.
    let fewer = [&files[..1], &["--chunks", "1"], &kept[2..]].concat();
    ok(compare(temp.path(), &fewer));
    let more = [&files[..1], &["--chunks", "4"], &kept[2..]].concat();
    let output = compare(temp.path(), &more).output().unwrap();
    refused(output, "it has 3 chunks, the comparison 4");
    let other = [&files[..1], &["-c", "64"], &kept[2..]].concat();
    let output = compare(temp.path(), &other).output().unwrap();
    refused(output, "made with a context of 128, not 64");
    let widest = [&["-m", "trilm-ap.gguf", "--bits", "1"], &["trilm-narrow.gguf"][..], &kept[2..]];
    let output = compare(temp.path(), &widest.concat());
    // the reference at its widest is nearly the original
    let (_, note) = ok(output);
    assert!(!note.contains("another model than"), "{note}");
}

#[test]
fn commas_separate_the_values_of_all_columns() {
    let temp = TempDir::new().unwrap();
    let args = ["trilm-Q8_0.gguf", "--csv", "--no-speed"];
    let text = ok(compare(temp.path(), &args)).0;
    let rows: Vec<Vec<&str>> = text.lines().map(|l| l.split(',').collect()).collect();
    assert_eq!(rows.len(), 3, "{text}");
    assert!(rows.iter().all(|row| row.len() == 14), "{text}");
    assert_eq!(rows[0][..4], ["file", "bits", "megabytes", "bits_per_weight"]);
    assert_eq!(rows[0][12..], ["prompt_tokens_per_second", "decode_tokens_per_second"]);
    assert_eq!((rows[2][1], rows[2][4], rows[2][13]), ("", "8.5000", ""));
}

/// Sizes by the shapes: planes of rows of 256 or 768 weights, and 2^b half floats for each row.
#[test]
fn sizes_are_what_a_run_reads() {
    let temp = TempDir::new().unwrap();
    let args = ["trilm-Q8_0.gguf", "trilm-ap.gguf", "--json", "--no-speed"];
    let text = ok(compare(temp.path(), &args)).0;
    let all: Value = serde_json::from_str(&text).unwrap();
    let weights = all["weights"].as_u64().unwrap();
    let blocks = 6 * (256 * (2 * 256 + 2 * 128) + 3 * 256 * 768);
    let table_rows = 6 * (2 * 256 + 2 * 128 + 2 * 768 + 256);
    let rows = all["rows"].as_array().unwrap();
    assert_eq!(rows.len(), 5);
    let bytes = |row: &Value| row["bytes"].as_u64().unwrap();
    for row in rows {
        let per_weight = bytes(row) as f64 * 8.0 / weights as f64;
        // the reader of JSON may be wrong in the last bit
        let told = row["bits_per_weight"].as_f64().unwrap();
        assert!((told - per_weight).abs() < 1e-9 * per_weight, "{row}");
    }
    assert_eq!(rows[0]["block_bits_per_weight"], 16.0);
    assert_eq!(rows[1]["block_bits_per_weight"], 8.5);
    // what is no matrix of the blocks is copied
    let copied = bytes(&rows[0]) - 2 * blocks;
    for (row, bits) in rows[2..].iter().zip(1..) {
        assert_eq!(row["bits"], bits);
        let matrices = blocks * bits / 8 + table_rows * 2 * (1 << bits);
        assert_eq!(bytes(row), copied + matrices, "{bits}");
        let per_weight = matrices as f64 * 8.0 / blocks as f64;
        let told = row["block_bits_per_weight"].as_f64().unwrap();
        assert!((told - per_weight).abs() < 1e-9 * per_weight, "{row}");
    }
}

#[test]
fn the_table_has_a_line_for_each_form() {
    let temp = TempDir::new().unwrap();
    let args = ["trilm-narrow.gguf", "trilm-ap.gguf", "./trilm-ap.gguf", "--bits", "3,2"];
    let (table, said) = ok(compare(temp.path(), &args));
    assert!(said.contains("'trilm-narrow.gguf' has no 3 bits; they are left out there"), "{said}");
    assert!(said.contains("'./trilm-ap.gguf' is given twice"), "{said}");
    let (tables, advice) = table.rsplit_once("\n\n").unwrap();
    // Three tables with the same names: no line has room for all columns.
    let mut numbers = vec![0; 4];
    for table in tables.split("\n\n") {
        let lines: Vec<Vec<&str>> = table.lines().map(|l| l.split_whitespace().collect()).collect();
        let names: Vec<&[&str]> = lines.iter().map(|l| &l[..2]).collect();
        assert_eq!(
            names,
            [
                ["file", "bits"],
                ["trilm-F16.gguf", "-"],
                ["trilm-narrow.gguf", "2"],
                ["trilm-ap.gguf", "3"],
                ["trilm-ap.gguf", "2"],
            ]
        );
        for (line, numbers) in lines[1..].iter().zip(&mut numbers) {
            *numbers += line[2..].len();
            assert!(line[2..].iter().all(|cell| cell.parse::<f64>().is_ok()), "{line:?}");
        }
        // Prompts and single tokens.
        if table.contains("decode t/s") {
            assert!(lines[1..].iter().all(|line| line[2..].iter().all(|cell| cell.parse::<f64>().unwrap() > 0.0)));
        }
    }
    assert_eq!(numbers, [12; 4]);
    // weights of three values are the same at 2 bits and at 3: the first of the smallest is enough
    let advice: Vec<&str> = advice.lines().collect();
    assert_eq!(advice[0], "Nearest to the reference for their size:");
    assert!(advice[1].starts_with("  from ") && advice[1].ends_with("trilm-narrow.gguf at width 2"), "{advice:?}");
    for (line, width) in advice[2..].iter().zip([3, 2]) {
        let told = format!(
            "  never      trilm-ap.gguf at width {width}: trilm-narrow.gguf at width 2 is not larger and no farther"
        );
        assert_eq!(*line, told);
    }
    assert_eq!(advice.len(), 4);
    let (table, _) = ok(compare(temp.path(), &["trilm-Q8_0.gguf", "--no-speed"]));
    assert!(table.contains("prompt t/s") && !table.contains("decode"), "{table}");
    let lines = table.lines().filter(|line| line.starts_with("trilm-Q8_0.gguf "));
    assert_eq!(lines.map(|line| line.split_whitespace().count() - 2).sum::<usize>(), 11, "{table}");
    assert!(names_in(temp.path()).is_empty());
}

#[test]
fn the_plot_is_a_picture_with_labels() {
    let temp = TempDir::new().unwrap();
    let plot = temp.path().join("plot.svg");
    let name = plot.to_str().unwrap();
    let odd = temp.path().join("trilm-<a & \"b\">\u{1}.gguf");
    fs::copy(models().join("trilm-Q8_0.gguf"), &odd).unwrap();
    let args = [odd.to_str().unwrap(), "trilm-ap.gguf", "--plot", name];
    ok(compare(temp.path(), &args));
    let svg = fs::read_to_string(&plot).unwrap();
    let texts = texts(&svg);
    let count = |text: &str| texts.iter().filter(|t| t.trim() == text).count();
    for width in ["ap 1", "ap 2", "ap 3"] {
        assert_eq!(count(width), 4, "{width}: {texts:?}");
    }
    // the legend and four panels
    assert_eq!(count("&lt;a &amp; &quot;b&quot;&gt;\u{fffd}"), 5);
    assert_eq!(count("perplexity"), 2);
    assert_eq!(count("bits per weight of the whole model"), 2);
    assert_eq!(count("tokens per second, one by one"), 2);
    assert!(texts.iter().any(|t| t.contains("(reference): perplexity")));
    assert!(!svg.contains("NaN") && !svg.contains("inf"));
    assert_eq!(names_in(temp.path()).len(), 2);

    // Without speeds there are two panels; an older picture is replaced.
    ok(compare(temp.path(), &["trilm-ap.gguf", "--plot", name, "--no-speed"]));
    let svg = fs::read_to_string(&plot).unwrap();
    let texts = self::texts(&svg);
    assert_eq!(texts.iter().filter(|t| t.trim() == "ap 2").count(), 2);
    assert!(!svg.contains("tokens per second"));
    assert_eq!(names_in(temp.path()).len(), 2);
}

/// The texts between the tags of well-formed XML.
fn texts(xml: &str) -> Vec<String> {
    let mut open: Vec<&str> = Vec::new();
    let mut texts = Vec::new();
    let mut roots = 0;
    let mut rest = xml.trim();
    while let Some((text, after)) = rest.split_once('<') {
        assert!(!text.contains('>') && !text.chars().any(|c| c < ' ' && c != '\n'));
        for entity in text.split('&').skip(1) {
            let known = ["lt;", "gt;", "amp;", "quot;", "apos;"];
            assert!(known.iter().any(|k| entity.starts_with(k)), "{text}");
        }
        if !open.is_empty() && !text.trim().is_empty() {
            texts.push(text.to_owned());
        }
        let (tag, after) = after.split_once('>').expect("a tag that ends");
        assert!(!tag.contains('<') && tag.matches('"').count() % 2 == 0, "{tag}");
        let name = tag.split([' ', '\n', '/']).next().unwrap();
        if let Some(closed) = tag.strip_prefix('/') {
            assert_eq!(open.pop(), Some(closed.trim()));
        } else if !tag.ends_with('/') && !tag.starts_with(['?', '!']) {
            roots += usize::from(open.is_empty());
            open.push(name);
        }
        rest = after;
    }
    assert!(open.is_empty() && rest.is_empty() && roots == 1, "{open:?}");
    texts
}

#[test]
fn mistakes_are_told_before_the_work() {
    let temp = TempDir::new().unwrap();
    let write = |name: &str, bytes: &[u8]| {
        let path = temp.path().join(name);
        fs::write(&path, bytes).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let original = fs::read(models().join("trilm-F16.gguf")).unwrap();
    let replaced = |name: &str, from: &[u8], to: &[u8]| {
        assert_eq!(from.len(), to.len());
        let at = original.windows(from.len()).position(|w| w == from).unwrap();
        let mut bytes = original.clone();
        bytes[at..at + to.len()].copy_from_slice(to);
        write(name, &bytes)
    };
    let text = write("text.gguf", b"no model at all");
    let alien = replaced("alien.gguf", b"\x05\0\0\0\0\0\0\0llama", b"\x05\0\0\0\0\0\0\0mamba");
    let one = |c: u8| [1, 0, 0, 0, 0, 0, 0, 0, c];
    let tokens = replaced(
        "tokens.gguf",
        &[one(b'!'), one(b'"'), one(b'#')].concat(),
        &[one(b'#'), one(b'"'), one(b'!')].concat(),
    );
    let base = write("text.kld", b"text");
    let nowhere = temp.path().join("no/plot.svg").to_str().unwrap().to_owned();
    let missing = temp.path().join("missing.gguf").to_str().unwrap().to_owned();
    let folder = temp.path().to_str().unwrap();
    let there = names_in(temp.path());
    for (args, expected) in [
        (&[] as &[&str], "nothing to compare with the reference"),
        (&[&missing], "missing.gguf' does not exist"),
        (&["trilm-Q8_0.gguf", folder], "is a directory"),
        (&["trilm-Q8_0.gguf", &text], "text.gguf' is not a GGUF file"),
        (&["trilm-Q8_0.gguf", &alien], "mamba"),
        (
            &["trilm-Q8_0.gguf", &tokens],
            "tokens.gguf' has another vocabulary: its token 1 is \"#\", the reference's is \"!\"",
        ),
        (&["trilm-Q8_0.gguf", "--bits", "3"], "there is none among FILES"),
        (&["trilm-ap.gguf", "--bits", "2,4"], "4 bits are in none of the any-precision files"),
        (&["trilm-Q8_0.gguf", "--plot", &nowhere], "cannot write"),
        (&["trilm-Q8_0.gguf", "--plot", folder], "is a directory"),
        (&["trilm-Q8_0.gguf", "--plot", "trilm-Q8_0.gguf"], "it is also an input; give another name to --plot"),
        (&["trilm-Q8_0.gguf", "--plot", "x", "--kl-divergence-base", "./x"], "both name"),
        (&["trilm-Q8_0.gguf", "--kl-divergence-base", &base], "_logits_"),
        (&["trilm-Q8_0.gguf", "--kl-divergence-base", folder], "is not a regular file"),
        (&["trilm-Q8_0.gguf", "--chunks", "3", "-c", "1000000"], "too short"),
    ] {
        let output = compare(temp.path(), args).output().unwrap();
        assert!(output.stdout.is_empty(), "{args:?}");
        refused(output, expected);
    }
    assert_eq!(names_in(temp.path()), there);
    assert!(fs::read(models().join("trilm-Q8_0.gguf")).unwrap().starts_with(b"GGUF"));
    for args in [
        &["--compare", "x.gguf"][..],
        &["x.gguf", "-f", "x"],
        &["--plot", "x.svg", "-f", "x"],
        &["--no-speed", "-f", "x"],
        &["--compare", "-f", "x", "x.gguf", "--kl-divergence", "--kl-divergence-base", "y"],
        &["--compare", "-f", "x", "x.gguf", "--ppl-output-type", "1"],
    ] {
        let output = rperplexity(temp.path(), args).output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{args:?}");
    }
}

/// A base file of the right text and another model is not taken for the reference's.
#[test]
fn the_base_file_of_another_model_is_refused() {
    let temp = TempDir::new().unwrap();
    let base = temp.path().join("other.kld").to_str().unwrap().to_owned();
    let kept = ["trilm-Q8_0.gguf", "--no-speed", "--kl-divergence-base", &base];
    // one bit is another model
    let mut one = rperplexity(temp.path(), &["-m", "trilm-ap.gguf", "--bits", "1", "-f"]);
    one.arg(testdata("wikitext-2/wiki.test.raw")).args(SHORT);
    one.args(&kept[2..]);
    ok(one);
    refused(compare(temp.path(), &kept).output().unwrap(), "was made from another model than the reference");
    // eight bits are nearly the same
    fs::remove_file(&base).unwrap();
    let eight = [&["-m", "trilm-Q8_0.gguf"], &kept[..]].concat();
    let (_, said) = ok(compare(temp.path(), &eight));
    assert!(said.contains("is the reference itself"), "{said}");
    let (_, said) = ok(compare(temp.path(), &kept));
    assert!(said.contains("warning: '") && said.contains("another quantization"), "{said}");
}

#[cfg(unix)]
#[test]
fn an_interrupted_comparison_leaves_nothing() {
    let temp = TempDir::new().unwrap();
    for plot in [false, true] {
        let mut long = rperplexity(temp.path(), &["--compare", "trilm-Q8_0.gguf", "-f"]);
        long.arg(testdata("wikitext-2/wiki.test.raw"));
        if plot {
            long.arg("--plot").arg(temp.path().join("plot.svg"));
        }
        let mut child = long.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        let begun = |name: &String| {
            let written = fs::metadata(temp.path().join(name)).map_or(0, |m| m.len());
            name.contains(".kld.") && written > 1 << 20
        };
        while !names_in(temp.path()).iter().any(begun) {
            assert!(child.try_wait().unwrap().is_none(), "it ended by itself");
            sleep(Duration::from_millis(20));
        }
        let id = child.id().to_string();
        let killed = Command::new("kill").args([tool::end_signal(), &id]).status().unwrap();
        assert!(killed.success());
        assert_eq!(child.wait().unwrap().code(), Some(130));
        assert!(names_in(temp.path()).is_empty(), "{:?}", names_in(temp.path()));
    }
}
