//! Results are bit-identical however a model is run: micro-batch, threads, instruction set, packed weights, other
//! sequences in a step.

use trine::Isa;
use trine::model::{LoadOptions, Weights};
use trine::pool::Pool;
use trine::step::{Engine, Segment, Session, SessionOptions, StepOptions};

use crate::golden;

/// Models that have between them every operation of the interpreter.
const MODELS: &[&str] = &[
    "afmoe-moe",
    "arctic-moe",
    "cohere2moe-moe",
    "deepseek2-moe",
    "deepseek4-long",
    "dots3note-moe",
    "falcon-h1-dense",
    "gemma2-long",
    "gemma3n-long",
    "gemma4-moe",
    "gemma4-small",
    "glm5-next-long",
    "gpt-oss-moe",
    "grok-moe",
    "hrm_text-dense",
    "jamba-dense",
    "kimi-linear-moe",
    "lfm2moe-moe",
    "llama4-moe",
    "mimo2-long",
    "minicpm3-dense",
    "mpt-dense",
    "nemotron_h-dense",
    "nemotron_h_moe-long",
    "phi3-long",
    "plamo2-dense",
    "plamo2-long",
    "qwen2moe-moe",
    "qwen35-dense",
    "qwen3next-moe",
    "qwen4exp-long",
    "rwkv6-long",
    "rwkv6qwen2-long",
    "rwkv7-long",
    "smallthinker-moe",
    "stablelm-parallel",
    "step35-long",
    "step35-values",
    "talkie-dense",
];

/// Tokens that are evaluated: enough for windows to count.
const TOKENS: usize = 45;

fn load(name: &str, isa: Isa, repack: bool) -> Weights {
    let options = LoadOptions { isa, repack, ..LoadOptions::default() };
    Weights::load(&trine_testkit::gguf::model(crate::made(name)), &options).expect("a model")
}

fn bits(logits: &[f32]) -> Vec<u32> {
    logits.iter().map(|v| v.to_bits()).collect()
}

fn alone(model: &Weights, tokens: &[u32], threads: usize, n_ubatch: usize) -> Vec<Vec<u32>> {
    let pool = Pool::new(threads).expect("threads");
    let n_ctx = 512;
    let mut session = Session::new(model, &pool, SessionOptions { n_ctx, n_ubatch });
    let mut out = Vec::new();
    session.eval(tokens, 0, &mut |_, logits| out.push(bits(logits))).expect("room for the tokens");
    out
}

/// Two sequences in steps of both.
fn together(model: &Weights, tokens: &[u32], others: &[u32]) -> Vec<Vec<u32>> {
    let pool = Pool::new(2).expect("threads");
    let engine = Engine::new(model, &pool, 64 << 20);
    let (mut first, mut second) = (engine.sequence(), engine.sequence());
    let options = StepOptions { n_ctx: 512, n_ubatch: 16, ..StepOptions::default() };
    let mut out = Vec::new();
    for (tokens, others) in tokens.chunks(7).zip(others.chunks(9)) {
        let mut segments = [
            Segment { seq: &mut second, tokens: others, logits_from: others.len() },
            Segment { seq: &mut first, tokens, logits_from: 0 },
        ];
        let sink = &mut |segment: usize, _: usize, logits: &[f32]| {
            assert_eq!(segment, 1);
            out.push(bits(logits));
        };
        engine.step(&mut segments, &options, sink).expect("a step");
    }
    out
}

#[test]
fn how_a_model_is_run_changes_no_bit() {
    let golden = golden::read();
    for name in MODELS {
        let tokens = &golden[*name].tokens;
        let (others, tokens) = (&tokens[5..], &tokens[..TOKENS]);
        let model = load(name, Isa::detect(), true);
        let expected = alone(&model, tokens, 2, 512);
        assert_eq!(expected.len(), TOKENS);
        for (threads, n_ubatch) in [(1, 512), (2, 7), (1, 1)] {
            let got = alone(&model, tokens, threads, n_ubatch);
            assert!(got == expected, "{name}: {threads} threads, micro-batch {n_ubatch}");
        }
        assert!(together(&model, tokens, others) == expected, "{name}: batch mates");
        let scalar = load(name, Isa::scalar(), false);
        assert!(alone(&scalar, tokens, 2, 32) == expected, "{name}: scalar");
        let rows = load(name, Isa::detect(), false);
        assert!(alone(&rows, tokens, 2, 512) == expected, "{name}: rows as in the file");
    }
}
