//! The pages for people: their commands run, their links lead somewhere, and the table of contents has all of them.
//!
//! A block that is fenced as `sh` is run, in a folder with the files that docs/README.md makes; one that is fenced as
//! `sh,ignore` is not.

#![cfg(unix)]

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use trine_testkit::skipped;

/// Stands before the commands of a page: a server takes any free port, and goes on while the commands that follow ask
/// it; curl asks that port and fails where the server refuses.
const PRELUDE: &str = r#"
set -Eeuo pipefail
trap 'echo "failed: $BASH_COMMAND" >&2' ERR
server=
trap '[ -z "$server" ] || kill $server' EXIT
rserve() {
    [ -z "$server" ] || kill $server
    exec 9< <(exec rserve "$@" --port 0 2>&1)
    server=$!
    while read -r line <&9; do
        case $line in *" is ready at "*) address=${line#* is ready at }; address=${address%% *}; return ;; esac
        echo "$line" >&2
    done
    return 1
}
curl() {
    local word words=()
    for word; do
        case $word in http://127.0.0.1:*/*) word=$address/${word#http://127.0.0.1:*/} ;; esac
        words+=("$word")
    done
    command curl --silent --show-error --fail "${words[@]}"
}
"#;

/// All tools.
const TOOLS: [&str; 9] =
    ["rbench", "rconvert", "rgen", "rimatrix", "rinspect", "rperplexity", "rquantize", "rserve", "rtokenize"];

fn root() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.ancestors().nth(2).expect("the folder of the repository").to_owned()
}

/// The pages below a folder, in order.
fn pages_below(folder: &Path) -> Vec<PathBuf> {
    let mut pages = Vec::new();
    for entry in fs::read_dir(folder).expect("a folder of pages") {
        let path = entry.expect("an entry").path();
        match path.is_dir() {
            true => pages.extend(pages_below(&path)),
            false if path.extension().is_some_and(|e| e == "md") => pages.push(path),
            false => {}
        }
    }
    pages.sort();
    pages
}

/// The pages for users.
fn pages() -> Vec<PathBuf> {
    let mut pages = pages_below(&root().join("docs"));
    pages.push(root().join("README.md"));
    pages
}

/// All pages, those for contributors too.
fn all_pages() -> Vec<PathBuf> {
    let others = ["CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md"].map(|name| root().join(name));
    [pages(), others.into()].concat()
}

fn text_of(page: &Path) -> String {
    fs::read_to_string(page).unwrap_or_else(|e| panic!("{}: {e}", page.display()))
}

/// The fenced blocks of a page, each with what stands behind its fence, and the page without them.
fn blocks(page: &str) -> (Vec<(&str, String)>, String) {
    let (mut blocks, mut prose) = (Vec::new(), String::new());
    let mut lines = page.lines();
    while let Some(line) = lines.next() {
        match line.strip_prefix("```") {
            Some(kind) => {
                let inside = lines.by_ref().take_while(|line| *line != "```");
                blocks.push((kind, inside.map(|line| format!("{line}\n")).collect()));
            }
            None => prose.extend([line, "\n"]),
        }
    }
    (blocks, prose)
}

/// The commands of a page that are to be run.
fn commands(page: &Path) -> String {
    let text = text_of(page);
    let (blocks, _) = blocks(&text);
    blocks.into_iter().filter(|(kind, _)| *kind == "sh").map(|(_, block)| block).collect()
}

#[test]
fn every_block_of_commands_is_run_or_marked() {
    for page in pages() {
        let text = text_of(&page);
        for (kind, _) in blocks(&text).0 {
            let known = [
                "sh",
                "sh,ignore",
                "text",
                "toml",
                "json",
                "js",
                "python",
                "python,ignore",
                "rust",
                "rust,ignore",
                "rust,no_run",
            ];
            assert!(known.contains(&kind), "{}: a block is fenced as '{kind}'", page.display());
        }
    }
}

/// The anchor of a heading, as mdBook and GitHub make it.
fn anchor(heading: &str) -> String {
    let kept = heading.trim().chars().filter(|c| c.is_alphanumeric() || " -_".contains(*c));
    kept.collect::<String>().to_lowercase().replace(' ', "-")
}

/// The targets of the links in a page.
fn links(prose: &str) -> Vec<&str> {
    let ends = prose.split("](").skip(1);
    ends.filter_map(|rest| rest.split_once(')')).map(|(target, _)| target).collect()
}

#[test]
fn links_lead_to_pages_and_headings() {
    for page in all_pages() {
        let (text, folder) = (text_of(&page), page.parent().expect("a folder"));
        for link in links(&blocks(&text).1).into_iter().filter(|link| !link.starts_with("http")) {
            let (file, heading) = link.split_once('#').unwrap_or((link, ""));
            let target = if file.is_empty() { page.clone() } else { folder.join(file) };
            assert!(target.exists(), "{}: there is no {link}", page.display());
            let there = || {
                let text = text_of(&target);
                let prose = blocks(&text).1;
                let headings = prose.lines().filter(|line| line.starts_with('#'));
                headings.map(|line| anchor(line.trim_start_matches('#'))).any(|a| a == heading)
            };
            assert!(heading.is_empty() || there(), "{}: there is no heading {link}", page.display());
        }
    }
}

#[test]
fn the_table_of_contents_has_every_page_once() {
    let docs = root().join("docs");
    let contents = text_of(&docs.join("SUMMARY.md"));
    let mut listed: Vec<PathBuf> = links(&contents).into_iter().map(|link| docs.join(link)).collect();
    listed.sort();
    let there = pages_below(&docs).into_iter().filter(|page| !page.ends_with("SUMMARY.md"));
    assert_eq!(listed, there.collect::<Vec<_>>());
}

/// The options that lines of a help begin with, by their long names.
fn options<'a>(lines: impl Iterator<Item = &'a str>) -> Vec<&'a str> {
    let first_two = lines.map(|line| line.split_whitespace().take(2));
    let named = first_two.filter(|words| words.clone().next().is_some_and(|word| word.starts_with('-')));
    named.filter_map(|mut words| words.find(|word| word.starts_with("--"))).collect()
}

#[test]
fn the_short_help_is_a_screen_with_the_options_that_have_no_heading() {
    for tool in TOOLS {
        let help = |option: &str| {
            let trine = Command::new(env!("CARGO_BIN_EXE_trine")).args([tool, option]).output().expect("trine");
            String::from_utf8(trine.stdout).expect("text")
        };
        let (short, long) = (help("-h"), help("--help"));
        let size = (short.lines().count(), short.lines().map(str::len).max().unwrap_or_default());
        assert!(size.0 <= 40 && size.1 <= 140, "{tool} -h has {} lines, of {} columns at most", size.0, size.1);
        let (_, below) = long.split_once("\nOptions:\n").expect("options");
        let is_heading = |line: &&str| line.starts_with(char::is_alphabetic);
        let without_heading = below.lines().take_while(|line| !is_heading(line));
        assert_eq!(options(short.lines()), options(without_heading), "{tool}");
    }
}

/// A folder in which a page's commands run: the tools by their names in `bin`, `trine` itself, and the bundled data.
fn workplace() -> tempfile::TempDir {
    let place = tempfile::tempdir().expect("a folder");
    symlink(root().join("testdata"), place.path().join("testdata")).expect("a link");
    let bin = place.path().join("bin");
    fs::create_dir(&bin).expect("a folder");
    for name in TOOLS.into_iter().chain(["trine"]) {
        symlink(env!("CARGO_BIN_EXE_trine"), bin.join(name)).expect("a link");
    }
    place
}

/// Runs the commands of a page; what went wrong, if something did.
fn run(page: &Path) -> Result<(), String> {
    let place = workplace();
    let prepared = commands(&root().join("docs/README.md"));
    let script = format!("{PRELUDE}{prepared}{}", commands(page));
    let path = std::env::var("PATH").unwrap_or_default();
    let output = Command::new("bash")
        .args(["-c", &script])
        .env("PATH", format!("{}:{path}", place.path().join("bin").display()))
        .env("TRINE_SEED", "7")
        .current_dir(place.path())
        .stdin(Stdio::null())
        .output()
        .map_err(|e| format!("bash: {e}"))?;
    match output.status.success() {
        true => Ok(()),
        false => Err(format!("{}: {}", page.display(), String::from_utf8_lossy(&output.stderr))),
    }
}

#[test]
fn commands_run_in_a_fresh_clone() {
    let has_curl = Command::new("curl").arg("--version").output().is_ok();
    let mut ran = 0;
    std::thread::scope(|scope| {
        let mut running = Vec::new();
        for page in pages() {
            let commands = commands(&page);
            if commands.is_empty() {
                continue;
            }
            if commands.contains("curl ") && !has_curl {
                skipped(&format!("{} needs curl", page.display()));
                continue;
            }
            ran += 1;
            running.push(scope.spawn(move || run(&page)));
        }
        let failed: Vec<String> = running.into_iter().filter_map(|page| page.join().expect("a page").err()).collect();
        assert!(failed.is_empty(), "{}", failed.join("\n"));
    });
    assert!(ran >= 10, "{ran} pages have commands that run");
}
