//! Strings as files hold them: bytes that should be UTF-8 and sometimes are not.

use std::borrow::Cow;
use std::fmt;

/// A string as the file holds it. GGUF says UTF-8, files do not always obey: token texts are bytes.
#[derive(Clone, PartialEq, Eq, Default)]
pub struct GgufStr(pub Vec<u8>);

impl GgufStr {
    /// The text, when it is UTF-8.
    pub fn as_str(&self) -> Option<&str> {
        std::str::from_utf8(&self.0).ok()
    }

    /// The text with U+FFFD for what is not UTF-8; for display only.
    pub fn lossy(&self) -> Cow<'_, str> {
        String::from_utf8_lossy(&self.0)
    }
}

impl From<&str> for GgufStr {
    fn from(s: &str) -> Self {
        GgufStr(s.as_bytes().to_vec())
    }
}

impl fmt::Debug for GgufStr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.lossy(), f)
    }
}

/// An array of strings in two allocations: all bytes in a row, and where each string ends.
///
/// It never takes more memory than the file does (4 bytes a string where the file has 8), so that a
/// vocabulary of 300 000 tokens costs a few MB and a hostile array no more than its own length.
#[derive(Clone, PartialEq, Eq, Default)]
pub struct StrArray {
    bytes: Vec<u8>,
    ends: Vec<u32>,
}

impl StrArray {
    /// An empty array with room for `strings` strings of `bytes` bytes in all.
    pub fn with_capacity(strings: usize, bytes: usize) -> Self {
        StrArray { bytes: Vec::with_capacity(bytes), ends: Vec::with_capacity(strings) }
    }

    /// Adds a string; `false` when the array would pass 4 GiB, and then it is unchanged.
    pub fn push(&mut self, s: &[u8]) -> bool {
        let Ok(end) = u32::try_from(self.bytes.len() + s.len()) else {
            return false;
        };
        self.bytes.extend_from_slice(s);
        self.ends.push(end);
        true
    }

    /// Number of strings.
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    /// True if there is no string.
    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// The bytes of string `i`.
    pub fn get(&self, i: usize) -> Option<&[u8]> {
        let end = *self.ends.get(i)? as usize;
        let start = if i == 0 { 0 } else { self.ends[i - 1] as usize };
        Some(&self.bytes[start..end])
    }

    /// String `i`, when it is there and UTF-8.
    pub fn get_str(&self, i: usize) -> Option<&str> {
        std::str::from_utf8(self.get(i)?).ok()
    }

    /// All strings in order.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = &[u8]> + Clone {
        (0..self.ends.len()).map(|i| {
            let start = if i == 0 { 0 } else { self.ends[i - 1] as usize };
            &self.bytes[start..self.ends[i] as usize]
        })
    }

    /// Length of all strings together, in bytes.
    pub fn total_bytes(&self) -> usize {
        self.bytes.len()
    }
}

impl<S: AsRef<[u8]>> FromIterator<S> for StrArray {
    /// Strings past 4 GiB in all are not a vocabulary; collecting them panics.
    fn from_iter<I: IntoIterator<Item = S>>(strings: I) -> Self {
        let mut out = StrArray::default();
        for s in strings {
            assert!(out.push(s.as_ref()), "more than 4 GiB of strings in one array");
        }
        out
    }
}

impl fmt::Debug for StrArray {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.iter().map(String::from_utf8_lossy)).finish()
    }
}
