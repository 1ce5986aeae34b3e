//! All descriptions, by family.

mod afmoe;
mod bitnet;
mod cohere;
mod deepseek;
mod diffusion;
mod ernie;
mod exaone;
mod fairy2i;
mod falcon;
mod gemma;
mod glm;
mod gpt2;
mod gpt_oss;
mod granite;
mod grok;
mod hunyuan;
mod llama;
mod llama4;
mod mimo;
mod neox;
mod olmo;
mod openelm;
mod phi;
mod plamo;
mod qwen;
mod relatives;
mod smallthinker;
mod talkie;

use super::Arch;

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
    &relatives::ARCEE,
    &grok::ARCTIC,
    &relatives::BAICHUAN,
    &deepseek::BAILINGMOE,
    &deepseek::BAILINGMOE2,
    &gpt2::BLOOM,
    &glm::CHATGLM,
    &neox::CODESHELL,
    &qwen::COGVLM,
    &cohere::COHERE2,
    &cohere::COHERE2MOE,
    &cohere::COMMAND_R,
    &grok::DBRX,
    &relatives::DECI,
    &deepseek::DEEPSEEK,
    &deepseek::DOTS1,
    &diffusion::DREAM,
    &ernie::ERNIE4_5,
    &ernie::ERNIE4_5_MOE,
    &exaone::EXAONE,
    &exaone::EXAONE4,
    &exaone::EXAONE_MOE,
    &falcon::FALCON,
    &gemma::GEMMA,
    &gemma::GEMMA2,
    &glm::GLM4,
    &glm::GLM4MOE,
    &gpt2::GPT2,
    &gpt_oss::GPT_OSS,
    &neox::GPTNEOX,
    &granite::GRANITE_SWA,
    &granite::GRANITEMOE,
    &grok::GROK,
    &qwen::GROVEMOE,
    &hunyuan::HUNYUAN_DENSE,
    &hunyuan::HUNYUAN_MOE,
    &hunyuan::HUNYUAN_VL,
    &hunyuan::HY_V3,
    &relatives::INTERNLM2,
    &gpt2::JAIS,
    &neox::JAIS2,
    &afmoe::LAGUNA,
    &diffusion::LLADA,
    &diffusion::LLADA_MOE,
    &llama4::LLAMA4,
    &relatives::MAINCODER,
    &mimo::MAPLE,
    &mimo::MELLUM,
    &mimo::MIMO2,
    &granite::MINICPM,
    &mimo::MINIMAX_M2,
    &llama::MISTRAL3,
    &gpt2::MPT,
    &afmoe::MUSE_GLIMMER,
    &relatives::NANBEIGE,
    &neox::NEMOTRON,
    &olmo::OLMO,
    &olmo::OLMOE,
    &openelm::OPENELM,
    &neox::ORION,
    &ernie::PADDLEOCR,
    &relatives::PANGU,
    &phi::PHI2,
    &phi::PHI3,
    &phi::PHIMOE,
    &plamo::PLAMO,
    &plamo::PLAMO3,
    &neox::POCKETTTS,
    &qwen::QWEN,
    &qwen::QWEN2MOE,
    &qwen::QWEN2VL,
    &qwen::QWEN3TTS,
    &qwen::QWEN3VL,
    &qwen::QWEN3VLMOE,
    &relatives::REFACT,
    &diffusion::RND1,
    &relatives::SEED_OSS,
    &smallthinker::SMALLTHINKER,
    &relatives::SMOLLM3,
    &afmoe::SPARK2_5,
    &neox::STABLELM,
    &gpt2::STARCODER,
    &neox::STARCODER2,
    &talkie::TALKIE,
    &relatives::XVERSE,
];
