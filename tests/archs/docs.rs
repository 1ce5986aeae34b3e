//! docs/models.md is what the code says.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::fs;
use std::path::PathBuf;

use trine::arch::{ARCHITECTURES, Arch, DFLASH, EAGLE3, GEMMA4_ASSISTANT, MISSING};
use trine::exec::Limits;
use trine::model::{LoadOptions, Weights};

use crate::{MODELS, NOT_YET, assistant, chained, dflash, eagle3, embed, encoder, made, mtp};
use trine_testkit::archs::{Listing, drafter, listing, with_heads};

const HEAD: &str = "\
# Models

Which architectures (`general.architecture`) trine runs with the bits of llama.cpp's portable build, and which it does not
yet. The tables are made from `src/arch` by `tests/archs`, which also checks that they are current:
`TRINE_WRITE_DOCS=1 cargo test --release --test archs docs` writes this file.

The last column names the small random models that hold an architecture: their logits are the reference's at every position,
or their vectors and ranks by every pooling, in F32, F16, Q8_0 and Q4_K_M, and so are the files that `rquantize` makes of them
(`testdata/archs/README.md`). Those that make vectors of texts and no logits say so: [Embeddings](embeddings.md). `rconvert`
tells whether Hugging Face checkpoints can be converted, or why not, `fisher` whether every operation of these models has a derivative, so that
`rimatrix --fisher` takes their gradients, and `GPU` whether an NVIDIA GPU has a kernel for every operation of their blocks ([cuda.md](cuda.md)), or the first for which there is
none.

| architecture | known models | experts | rconvert | fisher | GPU | held by |
|---|---|---|---|---|---|---|
";

const DRAFTERS: &str = "
## Drafters

Models in files of their own that run beside the model that they were made for and not alone ([Drafts](run.md#drafts)). Their logits
are the reference's, too.

| architecture | models | run with | rconvert | held by |
|---|---|---|---|---|
";

const HEADS: &str = "
DFlash drafters with a selector (DFlash 2) or with blocks of DeepSeek 4 are refused; those with a Markov head (DSpark) are run.

Heads for multi-token prediction, which are part of a model's own file (`--spec-type draft-mtp`), are run of the architectures
";

const MORE_HEADS: &str = "llama.cpp has no graph for those of glm5-next, which nothing runs.
";

const REST: &str = "
## Not yet

Architectures of llama.cpp that trine refuses by name, and what they need.

| what | architectures |
|---|---|
";

/// The models of the test by architecture.
fn held() -> BTreeMap<String, Vec<&'static str>> {
    let mut held: BTreeMap<String, Vec<&str>> = BTreeMap::new();
    for name in MODELS.iter().filter(|name| !NOT_YET.contains(name)) {
        let path = trine_testkit::testdata(&format!("archs/{name}.txt"));
        let listing = Listing::parse(&fs::read_to_string(path).expect("a listing"));
        held.entry(listing.architecture()).or_default().push(name);
    }
    for name in embed::VECTORS {
        held.entry(embed::listing(name).architecture()).or_default().push(name);
    }
    for name in encoder::ENCODERS {
        held.entry(encoder::listing(name).architecture()).or_default().push(name);
    }
    // Its test makes its models itself.
    held.insert("fairy2i".to_owned(), vec!["tests/engine/widely"]);
    held
}

/// True if all operations of a model have derivatives; widely linear matrices have none.
fn has_gradients(name: &str) -> bool {
    let path = trine_testkit::testdata(&format!("archs/{name}.txt"));
    path.exists() && {
        let options = LoadOptions { repack: false, ..LoadOptions::default() };
        let model = Weights::load(&trine_testkit::gguf::model(made(name)), &options);
        model.expect("a model").check_gradient().is_ok()
    }
}

/// The first operation of a model for which a GPU has no kernel; `None` where it has all.
fn missing_on_gpu(name: &str) -> Option<String> {
    let options = LoadOptions { repack: false, ..LoadOptions::default() };
    let model = Weights::load(&trine_testkit::gguf::model(made(name)), &options).expect("a model");
    let limits = Limits { tokens: 1, wanted: 1, context: 64, page: 16, pages: 4, slots: 2 };
    let refused = model.check_on_device(limits, 0).err()?;
    assert!(refused.is_missing(), "{name}: {refused}");
    let what = refused.to_string().replace("the GPU has no kernel for ", "");
    // The tensor that shows it is one of many.
    Some(what.split(" (").next().unwrap_or_default().to_owned())
}

/// The column that says if a GPU runs all models of an architecture, or what it lacks.
fn on_gpu(models: &[&str]) -> String {
    let listed = |name: &&&str| trine_testkit::testdata(&format!("archs/{name}.txt")).exists();
    let missing: BTreeSet<Option<String>> = models.iter().filter(listed).map(|name| missing_on_gpu(name)).collect();
    match missing.iter().flatten().next() {
        _ if missing.is_empty() => String::new(),
        None => "yes".to_owned(),
        Some(what) if missing.contains(&None) => format!("some, others not: {what}"),
        Some(what) => format!("no: {what}"),
    }
}

/// Those of some models that make logits.
fn logits_of<'n>(models: &'n [&'n str]) -> impl Iterator<Item = &'n str> {
    models.iter().copied().filter(|name| !embed::VECTORS.contains(name))
}

/// The column that says if checkpoints are converted, or why not.
fn converts(arch: &Arch) -> &'static str {
    assert!(
        arch.checkpoints.is_empty() != arch.unconverted.is_empty(),
        "{}: either checkpoints or a reason",
        arch.name
    );
    if arch.checkpoints.is_empty() { arch.unconverted } else { "yes" }
}

fn table() -> String {
    let (mut out, mut held) = (HEAD.to_owned(), held());
    let mut archs = ARCHITECTURES.to_vec();
    archs.sort_by_key(|arch| arch.name);
    for arch in archs {
        let yes = |is: bool| if is { "yes" } else { "" };
        let experts = match (arch.block.is_empty(), arch.expert_block.is_empty()) {
            (true, _) => "always",
            (_, false) => "or dense",
            (_, true) => "",
        };
        let models = held.remove(arch.name);
        let models = models.unwrap_or_else(|| panic!("no test holds {}", arch.name));
        writeln!(
            out,
            "| {} | {}{} | {experts} | {} | {} | {} | {} |",
            arch.name,
            arch.models,
            if arch.vectors { " (vectors)" } else { "" },
            converts(arch),
            yes(!arch.vectors && logits_of(&models).all(has_gradients)),
            if arch.vectors { String::new() } else { on_gpu(&logits_of(&models).collect::<Vec<_>>()) },
            models.join(", ")
        )
        .expect("text");
    }
    assert!(held.is_empty(), "{held:?} are no architectures");
    out += DRAFTERS;
    for (arch, option) in [
        (&EAGLE3, "--spec-type draft-eagle3 -md"),
        (&DFLASH, "--spec-type draft-dflash -md"),
        (&GEMMA4_ASSISTANT, "--spec-type draft-mtp -md"),
    ] {
        let models = match arch.name {
            "eagle3" => eagle3::DRAFTERS,
            "dflash" => dflash::DRAFTERS,
            _ => assistant::ASSISTANTS,
        };
        writeln!(out, "| {} | {} | `{option}` | {} | {} |", arch.name, arch.models, converts(arch), models.join(", "))
            .expect("text");
    }
    let list = |models: &[&str], path: fn(&str) -> PathBuf| {
        let names: BTreeSet<String> = models.iter().map(|name| listing(&path(name)).architecture()).collect();
        names.into_iter().collect::<Vec<_>>().join(", ")
    };
    let (one, several) = (list(mtp::HEADS, with_heads), list(chained::CHAINED, |name| drafter("chained", name)));
    out += HEADS;
    writeln!(out, "{one};\nseveral of one model of {several}.").expect("text");
    out += MORE_HEADS;
    out += REST;
    let mut missing: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for m in MISSING {
        missing.entry(m.what).or_default().push(m.name);
    }
    for (what, mut names) in missing {
        names.sort_unstable();
        writeln!(out, "| {what} | {} |", names.join(", ")).expect("text");
    }
    out
}

#[test]
fn the_tables_are_current() {
    trine_testkit::is_written("docs/models.md", &table());
}
