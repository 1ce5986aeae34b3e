//! `trine --install PREFIX`: the program, a link for each tool, and the pages of all, where shells and `man` look for
//! them.

use std::fs::{self, File};
use std::io::{self, Write as _};
use std::path::Path;

use anyhow::{Context, Result, bail};
use clap::Command;
use trine_formats::temp_file::TempFile;
use trine_tools::args::Short;
use trine_tools::commands::Tool;
use trine_tools::manual::PAGES;
use trine_tools::signals;

/// The name of the program.
const PROGRAM: &str = "trine";

/// Installs the running program below `prefix`. `command` is its own command line.
///
/// # Errors
/// There is something by the name of a tool that is no link to the program; then nothing is written. Folders or files
/// cannot be written.
pub fn install(prefix: &Path, command: &Command, tools: &[Tool]) -> Result<()> {
    let bin = prefix.join("bin");
    for tool in tools {
        let link = bin.join(link_name(tool.name));
        if fs::symlink_metadata(&link).is_ok() && !is_ours(&link) {
            bail!("'{}' is there already and is no link to {PROGRAM}: remove it first", link.display());
        }
    }
    let target = bin.join(format!("{PROGRAM}{}", std::env::consts::EXE_SUFFIX));
    let own = std::env::current_exe().context("cannot find this program's own file")?;
    if !same(&own, &target) {
        let mut program = open(&own)?;
        write(&target, |file| {
            io::copy(&mut program, file)?;
            file.set_permissions(program.metadata()?.permissions())
        })?;
    }
    for tool in tools {
        let path = bin.join(link_name(tool.name));
        if !is_ours(&path) {
            link(&target, &path).with_context(|| format!("cannot make '{}'", path.display()))?;
        }
        pages(prefix, tool.name, &tool.command(), tool.short)?;
    }
    pages(prefix, PROGRAM, command, &[])?;
    let (n, shown) = (tools.len(), prefix.display());
    let told = format!(
        "{shown}/bin: {PROGRAM}, and {n} tools that are links to it
{shown}/share: pages for man, completions for bash, zsh and fish
With {shown}/bin in $PATH man and bash find theirs; zsh needs this in ~/.zshrc before compinit: fpath+=({shown}/share/zsh/site-functions)
"
    );
    let mut stdout = signals::stdout();
    stdout.write_all(told.as_bytes())?;
    Ok(stdout.flush()?)
}

/// Writes the pages about one program.
fn pages(prefix: &Path, name: &str, command: &Command, short: Short) -> Result<()> {
    for page in PAGES {
        let text = page.of(command, short)?;
        write(&prefix.join(page.path(name)), |file| file.write_all(&text))?;
    }
    Ok(())
}

fn open(path: &Path) -> Result<File> {
    File::open(path).with_context(|| format!("cannot read '{}'", path.display()))
}

/// A file that appears when it is whole; folders on the way are made.
fn write(path: &Path, fill: impl FnOnce(&mut File) -> io::Result<()>) -> Result<()> {
    let whole = || -> Result<()> {
        if let Some(folder) = path.parent() {
            fs::create_dir_all(folder)?;
        }
        let (temporary, mut file) = TempFile::create(path)?;
        fill(&mut file)?;
        file.sync_all()?;
        Ok(temporary.keep(path)?)
    };
    whole().with_context(|| format!("cannot write '{}'", path.display()))
}

/// The name of the file by which a tool is called.
fn link_name(tool: &str) -> String {
    format!("{tool}{}", if cfg!(unix) { "" } else { ".cmd" })
}

/// True if two paths lead to one file.
fn same(one: &Path, other: &Path) -> bool {
    match (fs::canonicalize(one), fs::canonicalize(other)) {
        (Ok(one), Ok(other)) => one == other,
        _ => false,
    }
}

/// True if a path is a link that this program has made.
#[cfg(unix)]
fn is_ours(path: &Path) -> bool {
    fs::read_link(path).is_ok_and(|to| to == Path::new(PROGRAM))
}

/// Makes a link to the program beside it.
#[cfg(unix)]
fn link(_: &Path, path: &Path) -> io::Result<()> {
    std::os::unix::fs::symlink(PROGRAM, path)
}

/// The line of a batch file that starts the program as the tool whose name the file has.
#[cfg(not(unix))]
fn batch(tool: &Path) -> String {
    let name = tool.file_stem().unwrap_or_default().to_string_lossy();
    format!("@\"%~dp0{PROGRAM}.exe\" {name} %*\r\n")
}

/// True if a path is a batch file that this program has made.
#[cfg(not(unix))]
fn is_ours(path: &Path) -> bool {
    fs::read_to_string(path).is_ok_and(|text| text == batch(path))
}

/// Makes a batch file that starts the program beside it: links need rights that not everybody has on Windows.
#[cfg(not(unix))]
fn link(_: &Path, path: &Path) -> io::Result<()> {
    fs::write(path, batch(path))
}

#[cfg(all(test, unix))]
mod tests {
    use super::*;

    #[test]
    fn what_is_there_is_left_alone() {
        let folder = tempfile::tempdir().unwrap();
        let bin = folder.path().join("bin");
        fs::create_dir(&bin).unwrap();
        fs::write(bin.join("rgen"), "somebody's own").unwrap();
        let told = install(folder.path(), &crate::command(), &crate::tools()).unwrap_err();
        assert!(told.to_string().contains("rgen' is there already"), "{told}");
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
        assert_eq!(fs::read_dir(&bin).unwrap().count(), 1);
    }

    #[test]
    fn every_tool_gets_a_link_a_page_and_completions_and_a_second_time_changes_nothing() {
        let folder = tempfile::tempdir().unwrap();
        for _ in 0..2 {
            install(folder.path(), &crate::command(), &crate::tools()).unwrap();
            for tool in crate::tools() {
                let link = folder.path().join("bin").join(tool.name);
                assert!(same(&link, &folder.path().join("bin/trine")), "{}", tool.name);
                for page in PAGES {
                    let text = fs::read_to_string(folder.path().join(page.path(tool.name)));
                    assert!(text.unwrap().contains("help"), "{} {page:?}", tool.name);
                }
            }
        }
    }
}
