//! Small random models of every architecture: on the emulated GPU they have the CPU's logits, or are refused by name.

use std::fs;

use trine::model::{LoadOptions, Weights};
use trine_compat_tests::models;
use trine_compat_tests::ptx::Emulated;
use trine_formats::gguf::ModelFile;
use trine_testkit::{is_long, names_in, testdata};

use super::model::{hashes, limits, on_gpu};
use trine_testkit::archs::Listing;

const TOKENS: [u32; 3] = [3, 60, 101];

/// The model of a listing in a file type, and its file; types whose blocks do not fit a matrix have another one there.
pub fn made_as(name: &str, ty: &str) -> Option<(Weights, ModelFile)> {
    made(&listed(name), ty)
}

fn made(listing: &Listing, ty: &str) -> Option<(Weights, ModelFile)> {
    let mut recipe = trine::Recipe::new(trine::Target::parse(ty).expect("a type"));
    recipe.fallback = trine::quant::Fallback::Always;
    let file = made_of(listing, &recipe);
    let options = LoadOptions { repack: false, ..LoadOptions::default() };
    // A few are refused by the engine itself.
    Some((Weights::load(&file, &options).ok()?, file))
}

fn listed(name: &str) -> Listing {
    trine_testkit::archs::listing(&testdata(&format!("archs/{name}")))
}

/// The file of a listing's model by a recipe.
pub fn made_with(name: &str, recipe: &trine::Recipe) -> ModelFile {
    made_of(&listed(name), recipe)
}

fn made_of(listing: &Listing, recipe: &trine::Recipe) -> ModelFile {
    let folder = trine_testkit::folder();
    let [single, smaller] = ["F32", "smaller"].map(|ty| folder.path().join(format!("{ty}.gguf")));
    fs::write(&single, listing.file()).expect("room for the model");
    let file = trine::open_file(&single, true).expect("a model");
    let mut plan = trine::quant::Plan::new(&file, recipe).expect("a plan");
    // Random weights are not ternary.
    let options = trine::quant::RunOptions { force: true, ..trine::quant::RunOptions::default() };
    trine::quant::run(&file, &mut plan, &smaller, options, &mut ()).expect("a smaller file");
    trine_testkit::gguf::model(fs::read(&smaller).expect("the smaller file"))
}

/// Those that run; one that a change lets run or refuses has to be named or struck out here.
const RUN: &[&str] = &[
    "afmoe-moe",
    "apertus-long",
    "arcee-dense",
    "arctic-moe",
    "arwkv7-long",
    "arwkv7-ungated",
    "baichuan-dense",
    "bailingmoe-moe",
    "bailingmoe2-moe",
    "bailingmoe3-moe",
    "bitnet-25-long",
    "bitnet-b1.58-long",
    "bitnet-long",
    "bloom-dense",
    "chameleon-long",
    "chameleon-swin",
    "chatglm-dense",
    "codeshell-dense",
    "cogvlm-dense",
    "cohere2-dense",
    "cohere2moe-moe",
    "command-r-dense",
    "dbrx-moe",
    "deci-dense",
    "deepseek-moe",
    "deepseek2-long",
    "deepseek2-moe",
    "deepseek2-ocr-long",
    "deepseek32-moe",
    "deepseek4-long",
    "deepseek4-moe",
    "dots1-moe",
    "dots3note-moe",
    "dream-dense",
    "ernie4_5-moe-moe",
    "ernie4_5-moe",
    "exaone-dense",
    "exaone-moe-moe",
    "exaone4-dense",
    "falcon-dense",
    "falcon-h1-dense",
    "gemma-dense",
    "gemma2-dense",
    "gemma2-long",
    "gemma3-dense",
    "gemma3-long",
    "gemma3n-long",
    "gemma3n-short",
    "gemma4-long",
    "gemma4-moe",
    "gemma4-small",
    "gemma4-wide",
    "glm-dsa-moe",
    "glm4-dense",
    "glm4moe-moe",
    "glm5-next-long",
    "glm5-next-moe",
    "gpt-oss-moe",
    "gpt2-dense",
    "gptneox-dense",
    "granite-dense",
    "granite-long",
    "granite-moe",
    "granite_swa-dense",
    "granitehybrid-dense",
    "granitehybrid-long",
    "granitemoe-dense",
    "granitemoe-moe",
    "granitemoe-shared",
    "graniteswitch-long",
    "grok-moe",
    "grovemoe-moe",
    "hrm_text-dense",
    "hunyuan-dense-dense",
    "hunyuan-moe-moe",
    "hunyuan_vl-dense",
    "hy_v3-moe",
    "hy_v4-moe",
    "internlm2-dense",
    "jais-dense",
    "jais2-dense",
    "jamba-dense",
    "jamba-long",
    "kimi-k3-moe",
    "kimi-linear-long",
    "kimi-linear-moe",
    "laguna-long",
    "laguna-moe",
    "lfm2-dense",
    "lfm2-long",
    "lfm2moe-moe",
    "llada-dense",
    "llada-moe-moe",
    "llama-8x2",
    "llama-dense",
    "llama-long",
    "llama-moe",
    "llama4-moe",
    "maincoder-dense",
    "mamba-dense",
    "mamba-normed",
    "mamba2-dense",
    "mamba2-long",
    "maple-moe",
    "mellum-moe",
    "mimo2-long",
    "mimo2-moe",
    "minicpm-dense",
    "minicpm-moe",
    "minicpm3-dense",
    "minimax-01-moe",
    "minimax-m2-moe",
    "minimax-m3-moe",
    "mistral3-dense",
    "mistral3-moe",
    "mistral4-moe",
    "mpt-dense",
    "muse-glimmer-dense",
    "nanbeige-dense",
    "nemotron-dense",
    "nemotron_h-dense",
    "nemotron_h_moe-dense",
    "nemotron_h_moe-long",
    "olmo-dense",
    "olmo2-dense",
    "olmo2-long",
    "olmoe-moe",
    "openelm-dense",
    "openelm-long",
    "opt-long",
    "orion-dense",
    "paddleocr-moe",
    "pangu-embedded-dense",
    "phi2-dense",
    "phi3-dense",
    "phi3-long",
    "phi3-short",
    "phimoe-moe",
    "plamo-dense",
    "plamo2-dense",
    "plamo2-long",
    "plamo3-dense",
    "plamo3-long",
    "plm-long",
    "pockettts-dense",
    "qwen-dense",
    "qwen2-dense",
    "qwen2-long",
    "qwen2moe-moe",
    "qwen2vl-dense",
    "qwen3-dense",
    "qwen3-long",
    "qwen35-dense",
    "qwen35-long",
    "qwen35moe-moe",
    "qwen3moe-30x4",
    "qwen3moe-moe",
    "qwen3moe-ties",
    "qwen3next-long",
    "qwen3next-moe",
    "qwen3tts-dense",
    "qwen3vl-dense",
    "qwen3vlmoe-moe",
    "qwen4exp-long",
    "qwen4exp-moe",
    "refact-dense",
    "refact-moe",
    "rnd1-moe",
    "rwkv6-long",
    "rwkv6qwen2-long",
    "rwkv7-long",
    "seed_oss-dense",
    "smallthinker-moe",
    "smollm3-dense",
    "spark2_5-dense",
    "spark2_5-long",
    "stablelm-dense",
    "stablelm-parallel",
    "starcoder-dense",
    "starcoder2-dense",
    "step35-long",
    "step35-values",
    "talkie-dense",
    "xverse-dense",
];

/// In the short form the logits of one in this number of them are compared, and of those with what few have.
const SHORT: usize = 10;

/// Models with gates of heads, xIELU, slopes, clamps, caps of scores, sinks beside a gate of OpenAI's, parts of rows,
/// matrices of heads, attention in both directions, several residual streams, gates by the soft-plus and within limits,
/// factors by position, rows that are divided, and streams that are predicted.
/// and with scans, lightning attention, delta rules and RWKV's recurrence; adapters that tokens switch on, embeddings of
/// n-grams, streams that are blended, and compressed keys.
const RARE: &[&str] = &[
    "afmoe-moe",
    "apertus-long",
    "bloom-dense",
    "deepseek2-long",
    "deepseek4-long",
    "deepseek4-moe",
    "dream-dense",
    "gemma2-dense",
    "gemma3n-short",
    "gpt-oss-moe",
    "graniteswitch-long",
    "hrm_text-dense",
    "hy_v4-moe",
    "kimi-k3-moe",
    "laguna-moe",
    "llama4-moe",
    "maple-moe",
    "minicpm3-dense",
    "mpt-dense",
    "olmo-dense",
    "plm-long",
    "step35-long",
    "gemma2-dense",
    "gpt-oss-moe",
    "jamba-long",
    "minimax-01-moe",
    "olmo-dense",
    "plm-long",
    "qwen35-dense",
    "qwen4exp-long",
    "qwen4exp-moe",
    "rwkv7-long",
];

#[test]
fn architectures_have_the_bits_of_the_cpu_or_are_refused() {
    let mut run = Vec::new();
    let mut names = names_in(&testdata("archs"));
    names.sort();
    for listing in names {
        let Some(name) = listing.strip_suffix(".txt") else {
            continue;
        };
        let compared = is_long() || run.len().is_multiple_of(SHORT) || RARE.contains(&name);
        // Only the logits of a model depend on its weights.
        let listing = if compared { listed(&listing) } else { listed(&listing).undrawn() };
        let Some((model, file)) = made(&listing, "F16") else {
            continue;
        };
        match model.check_on_device(limits(TOKENS.len()), 0) {
            Ok(()) => {}
            Err(e) if e.is_missing() => {
                let what = e.to_string();
                assert!(!what.contains('\n'), "{name}: {what}");
                continue;
            }
            Err(e) => panic!("{name}: {e}"),
        }
        if compared {
            let expected = models::logits_sha256(&model, &TOKENS).expect("logits");
            let device = Emulated::new().expect("PTX");
            // A sequence that is read in both directions is read at once.
            let at_once = if model.attends_both_ways() { TOKENS.len() } else { 2 };
            let found = hashes(&on_gpu(&file, device, usize::MAX), &TOKENS, at_once);
            assert_eq!(found, expected, "{name}");
        }
        run.push(name.to_owned());
    }
    assert_eq!(run, RUN);
}
