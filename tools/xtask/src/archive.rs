//! Reproducible archives: the same files give identical bytes. Entries are sorted by name, with one time and one owner.

use std::fs::{self, File};
use std::io::{self, BufWriter, Read, Write};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use flate2::{Compression, GzBuilder};
use sha2::{Digest, Sha256};
use tar::{Builder, EntryType, Header};
use zip::ZipWriter;
use zip::write::SimpleFileOptions;

/// Writes all that is below `folder` to `target`, a gzipped tar in which everything is below `name`. `time`: seconds
/// since 1970.
///
/// # Errors
/// Errors of reading or writing; a thing that is neither folder, file nor link.
pub fn write(folder: &Path, name: &str, time: u64, target: &Path) -> Result<()> {
    let file = BufWriter::new(File::create(target)?);
    let gzip = GzBuilder::new().mtime(0).write(file, Compression::best());
    let mut tar = Builder::new(gzip);
    for path in below(folder)? {
        let inside = Path::new(name).join(&path);
        append(&mut tar, &folder.join(&path), &inside, time)
            .with_context(|| format!("cannot archive '{}'", path.display()))?;
    }
    tar.into_inner()?.finish()?.flush()?;
    Ok(())
}

fn append(tar: &mut Builder<impl Write>, path: &Path, inside: &Path, time: u64) -> Result<()> {
    let meta = fs::symlink_metadata(path)?;
    let mut header = Header::new_ustar();
    header.set_mtime(time);
    if meta.is_symlink() {
        header.set_entry_type(EntryType::Symlink);
        header.set_mode(0o777);
        header.set_size(0);
        tar.append_link(&mut header, inside, fs::read_link(path)?)?;
    } else if meta.is_file() {
        header.set_mode(if is_program(&meta) { 0o755 } else { 0o644 });
        header.set_size(meta.len());
        tar.append_data(&mut header, inside, File::open(path)?)?;
    } else {
        bail!("it is neither a file nor a link");
    }
    Ok(())
}

#[cfg(unix)]
fn is_program(meta: &fs::Metadata) -> bool {
    use std::os::unix::fs::PermissionsExt;
    meta.permissions().mode() & 0o100 != 0
}

#[cfg(not(unix))]
fn is_program(_: &fs::Metadata) -> bool {
    true
}

/// Writes all files below `folder` to `target`, a zip archive in which everything is below `name`. Its files have the
/// oldest time that the format knows.
///
/// # Errors
/// Errors of reading or writing; a thing that is no file, which the format has no form for that Windows knows.
pub fn zip(folder: &Path, name: &str, target: &Path) -> Result<()> {
    let mut zip = ZipWriter::new(BufWriter::new(File::create(target)?));
    for path in below(folder)? {
        let from = folder.join(&path);
        if !fs::symlink_metadata(&from)?.is_file() {
            bail!("cannot archive '{}': it is no file", path.display());
        }
        let parts: Vec<_> = path.iter().map(|part| part.to_string_lossy()).collect();
        let options = SimpleFileOptions::default().last_modified_time(zip::DateTime::DEFAULT).unix_permissions(0o644);
        zip.start_file(format!("{name}/{}", parts.join("/")), options)?;
        io::copy(&mut File::open(&from)?, &mut zip)?;
    }
    zip.finish()?.flush()?;
    Ok(())
}

/// Files and links below a folder, by their paths in it, in order.
///
/// # Errors
/// A folder that cannot be read.
pub fn below(folder: &Path) -> io::Result<Vec<PathBuf>> {
    let (mut found, mut folders) = (Vec::new(), vec![PathBuf::new()]);
    while let Some(inside) = folders.pop() {
        for entry in fs::read_dir(folder.join(&inside))? {
            let entry = entry?;
            let path = inside.join(entry.file_name());
            match entry.file_type()?.is_dir() {
                true => folders.push(path),
                false => found.push(path),
            }
        }
    }
    found.sort();
    Ok(found)
}

/// The SHA-256 of a file, as `sha256sum` writes it, with the name it is to be checked by.
///
/// # Errors
/// A file that cannot be read.
pub fn sum(path: &Path, name: &str) -> io::Result<String> {
    let mut sha = Sha256::new();
    let (mut file, mut bytes) = (File::open(path)?, vec![0; 1 << 20]);
    loop {
        match file.read(&mut bytes)? {
            0 => break,
            n => sha.update(&bytes[..n]),
        }
    }
    let hex: String = sha.finalize().iter().map(|b| format!("{b:02x}")).collect();
    Ok(format!("{hex}  {name}\n"))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Some files, made in an order.
    fn folder(names: &[&str]) -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        for name in names {
            let path = folder.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, name).unwrap();
        }
        folder
    }

    #[test]
    fn the_same_files_make_the_same_archive() {
        let (one, other) = (folder(&["b/c", "a", "b/a"]), folder(&["a", "b/a", "b/c"]));
        // Times of files are no part of it.
        let old = std::time::SystemTime::UNIX_EPOCH;
        let file = File::options().write(true).open(one.path().join("a"));
        file.unwrap().set_modified(old).unwrap();
        let target = tempfile::tempdir().unwrap();
        let archives = [&one, &other].map(|folder| {
            let path = target.path().join("archive");
            write(folder.path(), "name", 7, &path).unwrap();
            fs::read(path).unwrap()
        });
        assert!(archives[0] == archives[1]);
        let mut tar = tar::Archive::new(flate2::read::GzDecoder::new(&archives[0][..]));
        let entries = tar.entries().unwrap().map(|entry| {
            let entry = entry.unwrap();
            (entry.path().unwrap().into_owned(), entry.header().mtime().unwrap())
        });
        let wanted = ["name/a", "name/b/a", "name/b/c"].map(|name| (PathBuf::from(name), 7));
        assert_eq!(entries.collect::<Vec<_>>(), wanted);
    }

    #[test]
    fn the_same_files_make_the_same_zip_archive() {
        let (one, other) = (folder(&["b/c", "a", "b/a"]), folder(&["a", "b/a", "b/c"]));
        let target = tempfile::tempdir().unwrap();
        let archives = [&one, &other].map(|folder| {
            let path = target.path().join("archive");
            zip(folder.path(), "name", &path).unwrap();
            fs::read(path).unwrap()
        });
        assert!(archives[0] == archives[1]);
        let mut archive = zip::ZipArchive::new(io::Cursor::new(&archives[0])).unwrap();
        let names = archive.file_names().map(|name| name.expect("a name").into_owned());
        let names: Vec<String> = names.collect();
        assert_eq!(names, ["name/a", "name/b/a", "name/b/c"]);
        let mut text = String::new();
        archive.by_name("name/b/c").unwrap().read_to_string(&mut text).unwrap();
        assert_eq!(text, "b/c");
    }

    #[test]
    fn sums_are_those_of_sha256sum() {
        let folder = folder(&["abc"]);
        assert_eq!(
            sum(&folder.path().join("abc"), "abc").unwrap(),
            "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad  abc\n"
        );
    }
}
