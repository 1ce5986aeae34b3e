//! Reads whole files that somebody else wrote, no more of them than is wanted.

use std::fs::{self, File};
use std::io::{self, Read};
use std::path::Path;

/// Opens a regular file. Devices, which may never end, and pipes, which may never begin, are refused before they are
/// opened.
///
/// # Errors
/// The system's error, or an error for anything but a regular file.
pub fn open_regular(path: &Path) -> io::Result<File> {
    let refuse = || {
        let what = "it is not a regular file; devices, pipes and folders are not read here";
        io::Error::new(io::ErrorKind::InvalidInput, what)
    };
    if !fs::metadata(path)?.is_file() {
        return Err(refuse());
    }
    let file = File::open(path)?;
    if !file.metadata()?.is_file() {
        return Err(refuse());
    }
    Ok(file)
}

/// All bytes of a regular file of at most `max` bytes.
///
/// # Errors
/// The errors of [`open_regular`]; a file that is longer; one that does not fit into memory.
pub fn read_regular(path: &Path, max: u64) -> io::Result<Vec<u8>> {
    let file = open_regular(path)?;
    let len = file.metadata()?.len();
    read_up_to(file, len, max)
}

/// All bytes of a stream that are at most `max`; `expected` of them are likely.
///
/// # Errors
/// The system's error; more bytes; no memory for them.
pub fn read_up_to(input: impl Read, expected: u64, max: u64) -> io::Result<Vec<u8>> {
    let too_large = || {
        let what = format!("it has more than the {max} bytes that are read of such a file");
        io::Error::new(io::ErrorKind::FileTooLarge, what)
    };
    if expected > max {
        return Err(too_large());
    }
    let mut bytes = Vec::new();
    let room = usize::try_from(expected).unwrap_or(usize::MAX);
    if bytes.try_reserve_exact(room).is_err() {
        return Err(io::ErrorKind::OutOfMemory.into());
    }
    input.take(max.saturating_add(1)).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > max {
        return Err(too_large());
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_more_is_read_than_is_wanted() {
        assert_eq!(read_up_to(&b"abc"[..], 3, 3).unwrap(), b"abc");
        for (expected, max) in [(3, 2), (0, 2)] {
            let error = read_up_to(&b"abc"[..], expected, max).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::FileTooLarge);
        }
        let endless = io::repeat(7);
        assert!(read_up_to(endless, 0, 1 << 20).is_err());
    }

    #[cfg(unix)]
    #[test]
    fn devices_are_not_opened() {
        for device in ["/dev/zero", "/dev/null", "/"] {
            let error = read_regular(Path::new(device), 10).unwrap_err();
            assert!(error.to_string().contains("not a regular file"), "{error}");
        }
    }
}
