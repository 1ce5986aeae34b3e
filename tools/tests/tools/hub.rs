//! Models by name, as users ask for them: `-hf`, `-mu`, and names of what is here.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use serde_json::Value as Json;
use trine_testkit::hub::{Hub, sha256};
use trine_testkit::tool::{command, only_error, stdout, texts};
use trine_testkit::{TempDir, trilm};

const RGEN: &str = env!("CARGO_BIN_EXE_rgen");
const FILE: &str = "trilm-Q4_K_M.gguf";

fn hub() -> (Hub, Vec<u8>) {
    let bytes = fs::read(trilm()).unwrap();
    (Hub::new([(FILE, bytes.clone())]), bytes)
}

/// A tool that knows this hub and no other, and keeps all it has in a folder.
fn tool(program: &str, hub: &Hub, folder: &Path, args: &[&str]) -> Command {
    let mut tool = command(program);
    tool.args(args).env("HOME", folder).env("HF_ENDPOINT", &hub.endpoint);
    for name in [
        "HF_HOME",
        "HF_HUB_CACHE",
        "HF_TOKEN",
        "HF_HUB_OFFLINE",
        "MODEL_ENDPOINT",
        "XDG_CACHE_HOME",
        "LLAMA_CACHE",
        "OLLAMA_MODELS",
    ] {
        tool.env_remove(name);
    }
    for name in ["ALL_PROXY", "HTTPS_PROXY", "HTTP_PROXY", "all_proxy", "https_proxy", "http_proxy"] {
        tool.env_remove(name);
    }
    tool
}

const TEXT: [&str; 6] = ["-p", "The game", "-n", "8", "--temp", "0"];

#[test]
fn a_model_is_fetched_by_its_name_and_found_again() {
    let (hub, bytes) = hub();
    let folder = TempDir::new().unwrap();
    let run = |args: &[&str]| tool(RGEN, &hub, folder.path(), &[args, &TEXT[..]].concat()).output().unwrap();
    let (text, told) = texts(run(&["-hf", "user/repo"]));
    assert!(told.contains(&format!("fetching {FILE}")), "{told}");
    let file = command(RGEN).arg("-m").arg(trilm()).args(TEXT).output().unwrap();
    assert_eq!(text, stdout(file));
    assert_eq!(hub.sent(), bytes.len() as u64);
    for again in [
        &["-hf", "user/repo:Q4_K_M"][..],
        &["-m", "user/repo"],
        &["repo:q4_k_m"],
        &["-hff", FILE, "-hfr", "user/repo", "--offline"],
    ] {
        assert_eq!(stdout(run(again)), text, "{again:?}");
    }
    let address = format!("{}/user/repo/resolve/main/{FILE}", hub.endpoint);
    assert_eq!(stdout(run(&["-mu", &address])), text);
    assert_eq!(hub.sent(), bytes.len() as u64);
    let told = only_error("rgen", run(&["-m", "user/other"]));
    assert_eq!(told, "'user/other' is no file, and no model of this name is here: -hf user/other fetches it");
}

/// `-hfd` names the second model, beside a first one of any kind.
#[test]
fn the_model_that_drafts_is_fetched_by_its_name() {
    let (hub, bytes) = hub();
    let folder = TempDir::new().unwrap();
    let model = trilm();
    let model = model.to_str().unwrap();
    let run = |args: &[&str]| -> Json {
        let args = [args, &["--json"], &TEXT[..]].concat();
        serde_json::from_str(&stdout(tool(RGEN, &hub, folder.path(), &args).output().unwrap())).unwrap()
    };
    let plain = run(&["-m", model]);
    for args in [
        &["-m", model, "-hfd", "user/repo"][..],
        &["-hf", "user/repo", "--hf-repo-draft", "user/repo:Q4_K_M", "--spec-type", "draft-simple"],
        &["-m", "user/repo", "--spec-draft-hf", "user/repo", "--draft-max", "3"],
    ] {
        let drafted = run(&[args, &["--draft-always"]].concat());
        assert_eq!(drafted["text"], plain["text"], "{args:?}");
        let second = drafted["draft"]["model"].as_str().unwrap_or_default();
        assert!(second.ends_with(FILE) && drafted["draft"]["drafted"].as_u64() > Some(0), "{args:?}: {drafted}");
        assert_eq!(hub.sent(), bytes.len() as u64, "{args:?}");
    }
    let other = env!("CARGO_BIN_EXE_rperplexity");
    let output = tool(other, &hub, folder.path(), &["-m", model, "-hfd", "user/repo"]).output().unwrap();
    let told = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.code() == Some(2) && told.contains("this tool drafts nothing"), "{told}");
}

/// Killed in the middle, the tool leaves the beginning of the file and nothing else; the next run goes on from there.
#[test]
fn a_download_that_was_killed_goes_on() {
    let (hub, bytes) = hub();
    let folder = TempDir::new().unwrap();
    let half = bytes.len() as u64 / 2;
    hub.manners().stalls_after = Some(half);
    let args = [&["-hf", "user/repo"][..], &TEXT].concat();
    let blobs = folder.path().join(".cache/huggingface/hub/models--user--repo/blobs");
    let part = blobs.join(format!("{}.incomplete", sha256(&bytes)));
    let mut child = tool(RGEN, &hub, folder.path(), &args).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    while fs::metadata(&part).map_or(0, |meta| meta.len()) == 0 {
        assert!(child.try_wait().unwrap().is_none(), "it ended before it was killed");
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    child.kill().unwrap();
    child.wait().unwrap();
    let have = fs::read(&part).unwrap();
    assert!(!have.is_empty() && bytes.starts_with(&have));
    assert_eq!(fs::read_dir(&blobs).unwrap().count(), 1);
    hub.manners().stalls_after = None;
    let before = hub.seen().iter().filter(|seen| seen.host == "cdn").count();
    texts(tool(RGEN, &hub, folder.path(), &args).output().unwrap());
    let rest: u64 = hub.seen()[..].iter().filter(|seen| seen.host == "cdn").skip(before).map(|seen| seen.sent).sum();
    assert!(rest >= bytes.len() as u64 - have.len() as u64);
    assert_eq!(fs::read(blobs.join(sha256(&bytes))).unwrap(), bytes);
    assert!(!part.exists());
}

#[test]
fn mistakes_are_told_before_anything_is_fetched() {
    let (hub, _) = hub();
    let folder = TempDir::new().unwrap();
    for (args, words) in [
        (&["-hf", "user/repo", "-n", "many"][..], "invalid value 'many'"),
        (&["-hf", "user/repo", "-m", "x.gguf"], "give one model"),
        (&["-hff", "x.gguf"], "--hf-file needs the repository"),
        (&["-hf", "user/repo", "--size", "much"], "--size: give a number of bytes"),
    ] {
        let output = tool(RGEN, &hub, folder.path(), args).output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{args:?}");
        assert!(String::from_utf8_lossy(&output.stderr).contains(words), "{args:?}: {output:?}");
    }
    assert_eq!(hub.seen().len(), 0);
    let told = only_error("rgen", tool(RGEN, &hub, folder.path(), &["-hf", "repo", "-p", "x"]).output().unwrap());
    assert!(told.starts_with("'repo' names no repository"), "{told}");
}
