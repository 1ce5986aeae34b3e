//! All descriptions, by family.

mod afmoe;
mod apertus;
mod bert;
mod bitnet;
mod chameleon;
mod cohere;
mod deepseek;
mod deepseek2;
mod deepseek4;
mod dflash;
mod diffusion;
mod eagle3;
mod encoder;
mod ernie;
mod exaone;
mod fairy2i;
mod falcon;
mod gemma;
mod glm;
mod glm_next;
mod gpt2;
mod gpt_oss;
mod granite;
mod grok;
mod hrm;
mod hunyuan;
mod indexed;
mod kimi;
mod lfm2;
mod llama;
mod llama4;
mod mamba;
mod mimo;
mod minimax;
mod nemotron_h;
mod neox;
mod olmo;
mod openelm;
mod phi;
mod plamo;
mod qwen;
mod qwen4;
mod qwen_delta;
mod relatives;
mod rwkv;
mod smallthinker;
mod step;
mod t5;
mod talkie;

use super::Arch;
pub use dflash::DFLASH;
pub use eagle3::EAGLE3;
pub use gemma::GEMMA4_ASSISTANT;

/// All architectures, in the order in which messages name them.
pub static ARCHITECTURES: &[&Arch] = &[
    &llama::LLAMA,
    &gemma::GEMMA3,
    &granite::GRANITE,
    &qwen::QWEN2,
    &qwen::QWEN3,
    &qwen::QWEN3MOE,
    &olmo::OLMO2,
    &bitnet::BITNET,
    &bitnet::BITNET_25,
    &bitnet::BITNET_B158,
    &fairy2i::FAIRY2I,
    &afmoe::AFMOE,
    &apertus::APERTUS,
    &relatives::ARCEE,
    &rwkv::ARWKV7,
    &grok::ARCTIC,
    &relatives::BAICHUAN,
    &deepseek::BAILINGMOE,
    &deepseek::BAILINGMOE2,
    &kimi::BAILINGMOE3,
    &bert::BERT,
    &gpt2::BLOOM,
    &chameleon::CHAMELEON,
    &glm::CHATGLM,
    &neox::CODESHELL,
    &qwen::COGVLM,
    &cohere::COHERE2,
    &cohere::COHERE2MOE,
    &cohere::COMMAND_R,
    &grok::DBRX,
    &relatives::DECI,
    &deepseek::DEEPSEEK,
    &deepseek2::DEEPSEEK2,
    &deepseek::DEEPSEEK2_OCR,
    &indexed::DEEPSEEK32,
    &deepseek4::DEEPSEEK4,
    &deepseek::DOTS1,
    &indexed::DOTS3NOTE,
    &diffusion::DREAM,
    &ernie::ERNIE4_5,
    &ernie::ERNIE4_5_MOE,
    &encoder::EUROBERT,
    &exaone::EXAONE,
    &exaone::EXAONE4,
    &exaone::EXAONE_MOE,
    &falcon::FALCON,
    &falcon::FALCON_H1,
    &gemma::GEMMA,
    &gemma::GEMMA2,
    &gemma::GEMMA3N,
    &gemma::GEMMA4,
    &encoder::GEMMA_EMBEDDING,
    &glm::GLM4,
    &glm::GLM4MOE,
    &glm_next::GLM5_NEXT,
    &indexed::GLM_DSA,
    &indexed::HY_V4,
    &gpt2::GPT2,
    &gpt_oss::GPT_OSS,
    &neox::GPTNEOX,
    &granite::GRANITE_SWA,
    &granite::GRANITESWITCH,
    &granite::GRANITEHYBRID,
    &granite::GRANITEMOE,
    &grok::GROK,
    &qwen::GROVEMOE,
    &hrm::HRM_TEXT,
    &hunyuan::HUNYUAN_DENSE,
    &hunyuan::HUNYUAN_MOE,
    &hunyuan::HUNYUAN_VL,
    &hunyuan::HY_V3,
    &relatives::INTERNLM2,
    &gpt2::JAIS,
    &neox::JAIS2,
    &mamba::JAMBA,
    &bert::JINA_BERT_V2,
    &bert::JINA_BERT_V3,
    &kimi::KIMI_K3,
    &kimi::KIMI_LINEAR,
    &afmoe::LAGUNA,
    &lfm2::LFM2,
    &lfm2::LFM2MOE,
    &diffusion::LLADA,
    &diffusion::LLADA_MOE,
    &llama4::LLAMA4,
    &encoder::LLAMA_EMBED,
    &relatives::MAINCODER,
    &mamba::MAMBA_1,
    &mamba::MAMBA2,
    &mimo::MAPLE,
    &mimo::MELLUM,
    &mimo::MIMO2,
    &granite::MINICPM,
    &deepseek2::MINICPM3,
    &mimo::MINIMAX_M2,
    &minimax::MINIMAX_01,
    &minimax::MINIMAX_M3,
    &llama::MISTRAL3,
    &deepseek2::MISTRAL4,
    &encoder::MODERN_BERT,
    &gpt2::MPT,
    &afmoe::MUSE_GLIMMER,
    &relatives::NANBEIGE,
    &neox::NEMOTRON,
    &nemotron_h::NEMOTRON_H,
    &nemotron_h::NEMOTRON_H_MOE,
    &olmo::OLMO,
    &olmo::OLMOE,
    &openelm::OPENELM,
    &gpt2::OPT,
    &encoder::NEO_BERT,
    &bert::NOMIC_BERT,
    &bert::NOMIC_BERT_MOE,
    &neox::ORION,
    &ernie::PADDLEOCR,
    &relatives::PANGU,
    &phi::PHI2,
    &phi::PHI3,
    &phi::PHIMOE,
    &plamo::PLAMO,
    &plamo::PLAMO2,
    &plamo::PLAMO3,
    &deepseek2::PLM,
    &neox::POCKETTTS,
    &qwen::QWEN,
    &qwen::QWEN2MOE,
    &qwen::QWEN2VL,
    &qwen_delta::QWEN35,
    &qwen_delta::QWEN35MOE,
    &qwen_delta::QWEN3NEXT,
    &qwen4::QWEN4EXP,
    &qwen::QWEN3TTS,
    &qwen::QWEN3VL,
    &qwen::QWEN3VLMOE,
    &relatives::REFACT,
    &diffusion::RND1,
    &rwkv::RWKV6,
    &rwkv::RWKV6QWEN2,
    &rwkv::RWKV7,
    &relatives::SEED_OSS,
    &smallthinker::SMALLTHINKER,
    &relatives::SMOLLM3,
    &afmoe::SPARK2_5,
    &neox::STABLELM,
    &gpt2::STARCODER,
    &neox::STARCODER2,
    &step::STEP35,
    &t5::T5,
    &t5::T5ENCODER,
    &talkie::TALKIE,
    &relatives::XVERSE,
];
