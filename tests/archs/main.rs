//! Small random models of many architectures have the reference's logits, in every position and four tensor types.
//!
//! The models are made here from listings of their keys and tensors; that the hash of each file is the reference's
//! proves that it is the file which the reference evaluated.
#![allow(missing_docs)]

/// The models of a list, each with a test of its name.
macro_rules! models {
    ($(#[$doc:meta])* $list:ident: $($test:ident $name:literal,)*) => {
        $(#[$doc])*
        pub const $list: &[&str] = &[$($name),*];
        $(#[test] fn $test() { check($name) })*
    };
}

mod assistant;
mod cache;
mod chained;
mod changed;
mod dflash;
// A GPU is asked what it runs.
#[cfg(feature = "cuda")]
mod docs;
mod drafters;
mod eagle3;
mod embed;
mod encoder;
mod factors;
mod golden;
mod gradients;
mod headers;
mod input_norms;
mod invariance;
mod mtp;
mod recurrent;
mod refusals;
mod rotated;
mod saved;
mod switch;
mod ternary;
mod turned;
mod turned_all;
mod turned_golden;
mod unread;

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use golden::Golden;
use serde_json::Value;
use trine::model::{LoadOptions, Weights};
use trine::pool::Pool;
use trine::quant::{Fallback, Plan, Recipe, RunOptions, Target};
use trine::step::{Session, SessionOptions};
use trine_formats::gguf::Limits;
use trine_testkit::archs::Listing;
use trine_testkit::sha256;

/// Models that the engine refuses or computes otherwise. One that becomes equal must leave this list.
const NOT_YET: &[&str] = &[];

/// Tensor types the models are evaluated in; the first is that of the files as they are made.
const TYPES: [&str; 4] = ["F32", "F16", "Q8_0", "Q4_K_M"];

models! {
    MODELS:
    afmoe_moe "afmoe-moe",
    apertus_long "apertus-long",
    arcee_dense "arcee-dense",
    arctic_moe "arctic-moe",
    arwkv7_long "arwkv7-long",
    arwkv7_ungated "arwkv7-ungated",
    baichuan_dense "baichuan-dense",
    bailingmoe2_moe "bailingmoe2-moe",
    bailingmoe3_moe "bailingmoe3-moe",
    bailingmoe_moe "bailingmoe-moe",
    bitnet_25_long "bitnet-25-long",
    bitnet_b158_long "bitnet-b1.58-long",
    bitnet_long "bitnet-long",
    bloom_dense "bloom-dense",
    chatglm_dense "chatglm-dense",
    chameleon_long "chameleon-long",
    chameleon_swin "chameleon-swin",
    codeshell_dense "codeshell-dense",
    cogvlm_dense "cogvlm-dense",
    cohere2_dense "cohere2-dense",
    cohere2moe_moe "cohere2moe-moe",
    command_r_dense "command-r-dense",
    dbrx_moe "dbrx-moe",
    deci_dense "deci-dense",
    deepseek2_long "deepseek2-long",
    deepseek2_moe "deepseek2-moe",
    deepseek2_ocr_long "deepseek2-ocr-long",
    deepseek32_moe "deepseek32-moe",
    deepseek4_long "deepseek4-long",
    deepseek4_moe "deepseek4-moe",
    deepseek_moe "deepseek-moe",
    dots1_moe "dots1-moe",
    dots3note_moe "dots3note-moe",
    dream_dense "dream-dense",
    ernie4_5_moe "ernie4_5-moe",
    ernie4_5_moe_moe "ernie4_5-moe-moe",
    exaone4_dense "exaone4-dense",
    exaone_dense "exaone-dense",
    exaone_moe_moe "exaone-moe-moe",
    falcon_dense "falcon-dense",
    falcon_h1_dense "falcon-h1-dense",
    gemma2_dense "gemma2-dense",
    gemma2_long "gemma2-long",
    gemma3_dense "gemma3-dense",
    gemma3_long "gemma3-long",
    gemma3n_long "gemma3n-long",
    gemma3n_short "gemma3n-short",
    gemma4_long "gemma4-long",
    gemma4_moe "gemma4-moe",
    gemma4_small "gemma4-small",
    gemma4_wide "gemma4-wide",
    gemma_dense "gemma-dense",
    glm4_dense "glm4-dense",
    glm4moe_moe "glm4moe-moe",
    glm5_next_long "glm5-next-long",
    glm5_next_moe "glm5-next-moe",
    glm_dsa_moe "glm-dsa-moe",
    gpt2_dense "gpt2-dense",
    gpt_oss_moe "gpt-oss-moe",
    gptneox_dense "gptneox-dense",
    granite_dense "granite-dense",
    granite_long "granite-long",
    granite_moe "granite-moe",
    granite_swa_dense "granite_swa-dense",
    graniteswitch_long "graniteswitch-long",
    granitehybrid_dense "granitehybrid-dense",
    granitehybrid_long "granitehybrid-long",
    granitemoe_dense "granitemoe-dense",
    granitemoe_moe "granitemoe-moe",
    granitemoe_shared "granitemoe-shared",
    grok_moe "grok-moe",
    grovemoe_moe "grovemoe-moe",
    hrm_text_dense "hrm_text-dense",
    hunyuan_dense_dense "hunyuan-dense-dense",
    hunyuan_moe_moe "hunyuan-moe-moe",
    hunyuan_vl_dense "hunyuan_vl-dense",
    hy_v3_moe "hy_v3-moe",
    hy_v4_moe "hy_v4-moe",
    internlm2_dense "internlm2-dense",
    jais2_dense "jais2-dense",
    jais_dense "jais-dense",
    jamba_dense "jamba-dense",
    jamba_long "jamba-long",
    kimi_k3_moe "kimi-k3-moe",
    kimi_linear_long "kimi-linear-long",
    kimi_linear_moe "kimi-linear-moe",
    laguna_long "laguna-long",
    laguna_moe "laguna-moe",
    lfm2_dense "lfm2-dense",
    lfm2_long "lfm2-long",
    lfm2moe_moe "lfm2moe-moe",
    llada_dense "llada-dense",
    llada_moe_moe "llada-moe-moe",
    llama4_moe "llama4-moe",
    llama_8x2 "llama-8x2",
    llama_dense "llama-dense",
    llama_long "llama-long",
    llama_moe "llama-moe",
    maincoder_dense "maincoder-dense",
    mamba2_dense "mamba2-dense",
    mamba2_long "mamba2-long",
    mamba_dense "mamba-dense",
    mamba_normed "mamba-normed",
    maple_moe "maple-moe",
    mellum_moe "mellum-moe",
    mimo2_long "mimo2-long",
    mimo2_moe "mimo2-moe",
    minicpm3_dense "minicpm3-dense",
    minicpm_dense "minicpm-dense",
    minicpm_moe "minicpm-moe",
    minimax_01_moe "minimax-01-moe",
    minimax_m2_moe "minimax-m2-moe",
    minimax_m3_moe "minimax-m3-moe",
    mistral3_dense "mistral3-dense",
    mistral3_moe "mistral3-moe",
    mistral4_moe "mistral4-moe",
    mpt_dense "mpt-dense",
    muse_glimmer_dense "muse-glimmer-dense",
    nanbeige_dense "nanbeige-dense",
    nemotron_dense "nemotron-dense",
    nemotron_h_dense "nemotron_h-dense",
    nemotron_h_moe_dense "nemotron_h_moe-dense",
    nemotron_h_moe_long "nemotron_h_moe-long",
    olmo2_dense "olmo2-dense",
    olmo2_long "olmo2-long",
    olmo_dense "olmo-dense",
    olmoe_moe "olmoe-moe",
    openelm_dense "openelm-dense",
    openelm_long "openelm-long",
    opt_long "opt-long",
    orion_dense "orion-dense",
    paddleocr_moe "paddleocr-moe",
    pangu_embedded_dense "pangu-embedded-dense",
    phi2_dense "phi2-dense",
    phi3_dense "phi3-dense",
    phi3_long "phi3-long",
    phi3_short "phi3-short",
    phimoe_moe "phimoe-moe",
    plamo2_dense "plamo2-dense",
    plamo2_long "plamo2-long",
    plamo3_dense "plamo3-dense",
    plamo3_long "plamo3-long",
    plamo_dense "plamo-dense",
    plm_long "plm-long",
    pockettts_dense "pockettts-dense",
    qwen2_dense "qwen2-dense",
    qwen2_long "qwen2-long",
    qwen2moe_moe "qwen2moe-moe",
    qwen2vl_dense "qwen2vl-dense",
    qwen35_dense "qwen35-dense",
    qwen35_long "qwen35-long",
    qwen35moe_moe "qwen35moe-moe",
    qwen3_dense "qwen3-dense",
    qwen3_long "qwen3-long",
    qwen3moe_30x4 "qwen3moe-30x4",
    qwen3moe_moe "qwen3moe-moe",
    qwen3moe_ties "qwen3moe-ties",
    qwen3next_long "qwen3next-long",
    qwen3next_moe "qwen3next-moe",
    qwen3tts_dense "qwen3tts-dense",
    qwen3vl_dense "qwen3vl-dense",
    qwen3vlmoe_moe "qwen3vlmoe-moe",
    qwen4exp_long "qwen4exp-long",
    qwen4exp_moe "qwen4exp-moe",
    qwen_dense "qwen-dense",
    refact_dense "refact-dense",
    refact_moe "refact-moe",
    rnd1_moe "rnd1-moe",
    rwkv6_long "rwkv6-long",
    rwkv6qwen2_long "rwkv6qwen2-long",
    rwkv7_long "rwkv7-long",
    seed_oss_dense "seed_oss-dense",
    smallthinker_moe "smallthinker-moe",
    smollm3_dense "smollm3-dense",
    spark2_5_dense "spark2_5-dense",
    spark2_5_long "spark2_5-long",
    stablelm_dense "stablelm-dense",
    stablelm_parallel "stablelm-parallel",
    starcoder2_dense "starcoder2-dense",
    starcoder_dense "starcoder-dense",
    step35_long "step35-long",
    step35_values "step35-values",
    talkie_dense "talkie-dense",
    xverse_dense "xverse-dense",
}

#[test]
fn every_golden_model_is_tested() {
    let golden = golden::read();
    let mut names = MODELS.to_vec();
    names.sort_unstable();
    assert!(golden.keys().eq(&names), "{names:?}");
    assert!(NOT_YET.iter().all(|name| MODELS.contains(name)));
}

/// Writes the models for a reference program to read, to the directory that `TRINE_ARCHS` names.
#[test]
#[ignore = "writes files, see testdata/archs/README.md"]
fn write_the_models() {
    let dir = std::env::var_os("TRINE_ARCHS").expect("TRINE_ARCHS names no directory");
    for entry in fs::read_dir(trine_testkit::testdata("archs")).expect("the listings") {
        let path = entry.expect("a listing").path();
        if path.extension().is_some_and(|e| e == "txt") {
            let name = path.file_stem().expect("a name").to_str().expect("UTF-8");
            let file = Path::new(&dir).join(format!("{name}.gguf"));
            fs::write(file, made(name)).expect("a writable directory");
        }
    }
}

/// Asserts that the models of a file of golden values are those of a list.
fn assert_all_tested(golden: &Value, models: &[&str]) {
    let names: BTreeSet<&str> = golden["models"].as_object().expect("models").keys().map(String::as_str).collect();
    assert_eq!(names, models.iter().copied().collect());
}

/// Writes models for a reference program to read, to the directory that `TRINE_ARCHS` names.
fn write_models<'a>(models: impl IntoIterator<Item = (&'a str, Vec<u8>)>) {
    let dir = std::env::var_os("TRINE_ARCHS").expect("TRINE_ARCHS names no directory");
    for (name, file) in models {
        fs::write(Path::new(&dir).join(format!("{name}.gguf")), file).expect("a writable directory");
    }
}

fn made(name: &str) -> Vec<u8> {
    let path = trine_testkit::testdata(&format!("archs/{name}.txt"));
    Listing::parse(&fs::read_to_string(path).expect("a listing")).file()
}

#[track_caller]
fn check(name: &str) {
    let golden = &golden::read()[name];
    let dir = tempfile::tempdir().expect("a temporary directory");
    let source = dir.path().join("F32.gguf");
    fs::write(&source, made(name)).expect("room for the model");
    let mut differences = Vec::new();
    // in the short form one of the three types that are made of the file, another one for each name
    let turn = name.bytes().map(usize::from).sum::<usize>() % (TYPES.len() - 1) + 1;
    for (i, ty) in TYPES.into_iter().enumerate() {
        if i != 0 && i != turn && !trine_testkit::is_long() {
            continue;
        }
        let form = &golden.forms[ty];
        let path = dir.path().join(format!("{ty}.gguf"));
        if ty != TYPES[0] {
            quantize(&source, ty, &path);
        }
        let bytes = trine_testkit::read(&path);
        assert_eq!(sha256(&bytes), form.file, "{name} {ty}: the file");
        // a form that the reference cannot run has no logits
        if form.logits.is_empty() {
            continue;
        }
        differences.extend(difference(golden, ty, bytes).map(|d| format!("{name} {ty}: {d}")));
    }
    match (NOT_YET.contains(&name), differences.first()) {
        (true, Some(difference)) => eprintln!("SKIPPED {difference}"),
        (true, None) => panic!("{name} equals the reference: take it off the list"),
        (false, Some(_)) => panic!("{}", differences.join("\n")),
        (false, None) => {}
    }
}

/// Quantizes as `llama-quantize SOURCE OUT TYPE` does.
fn quantize(source: &Path, ty: &str, out: &Path) {
    let mut recipe = Recipe::new(Target::parse(ty).expect("a type"));
    recipe.fallback = Fallback::Always;
    let bytes = trine_testkit::read(source);
    let model = trine_testkit::gguf::model_at(source.to_owned(), bytes, &Limits::default());
    let mut plan = Plan::new(&model, &recipe).expect("a plan");
    let options = RunOptions { threads: 2, ..RunOptions::default() };
    trine::quant::run(&model, &mut plan, out, options, &mut ()).expect("a quantized file");
}

/// The first difference between the engine and the reference.
fn difference(golden: &Golden, ty: &str, bytes: Vec<u8>) -> Option<String> {
    let isa = trine::Isa::from_env().expect("a set that the processor has");
    let options = LoadOptions { isa, ..LoadOptions::default() };
    let model = match Weights::load(&trine_testkit::gguf::model(bytes), &options) {
        Ok(model) => model,
        Err(e) => return Some(e.to_string()),
    };
    let want = &golden.forms[ty].logits;
    let got = logits(&model, golden);
    assert_eq!(got.len(), want.len());
    let first = got.iter().zip(want).position(|(got, want)| got != want)?;
    let wrong = got.iter().zip(want).filter(|(got, want)| got != want);
    let (wrong, all) = (wrong.count(), want.len());
    let position = first * golden.positions;
    Some(format!("logits differ from position {position} on, in {wrong} of {all} hashes"))
}

/// The hashes of the logits.
fn logits(model: &Weights, golden: &Golden) -> Vec<String> {
    let n_ctx = golden.tokens.len();
    let n_ubatch = 512;
    let pool = Pool::new(2).expect("threads");
    let mut session = Session::new(model, &pool, SessionOptions { n_ctx, n_ubatch });
    let mut groups = Vec::new();
    session
        .eval(&golden.tokens, 0, &mut |position, logits| {
            if position % golden.positions == 0 {
                groups.push(Vec::new());
            }
            let group: &mut Vec<u8> = groups.last_mut().expect("a group");
            group.extend(logits.iter().flat_map(|v| v.to_le_bytes()));
        })
        .expect("room for the tokens");
    let short = |group: &Vec<u8>| sha256(group)[..16].to_owned();
    groups.iter().map(short).collect()
}
