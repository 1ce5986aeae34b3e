//! Split models: `NAME-00001-of-00003.gguf` and the keys `split.*` that hold a set together.

use std::path::{Path, PathBuf};

use super::{ErrorKind, GgufError, Shard};

/// Number of this shard, from 0.
pub const KEY_NO: &str = "split.no";
/// Number of shards.
pub const KEY_COUNT: &str = "split.count";
/// Number of tensors in all shards.
pub const KEY_TENSORS: &str = "split.tensors.count";

/// The parts of a shard's file name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ShardName {
    /// Path up to the number, without the dash.
    pub prefix: String,
    /// Number of the shard, from 0 (names count from 1).
    pub no: u32,
    /// Number of shards.
    pub count: u32,
}

impl ShardName {
    /// Reads `PREFIX-%05d-of-%05d.gguf`; `None` for any other name.
    pub fn parse(path: &Path) -> Option<ShardName> {
        let name = path.to_str()?.strip_suffix(".gguf")?;
        let (rest, count) = name.rsplit_once("-of-")?;
        let (prefix, no) = rest.rsplit_once('-')?;
        let number = |s: &str| {
            // "%05d": five digits, more only when the number needs them.
            let plain = s.bytes().all(|b| b.is_ascii_digit()) && (s.len() == 5 || (s.len() > 5 && !s.starts_with('0')));
            if plain { s.parse::<u32>().ok() } else { None }
        };
        let (no, count) = (number(no)?, number(count)?);
        (1..=count).contains(&no).then(|| ShardName { prefix: prefix.to_owned(), no: no - 1, count })
    }

    /// The path of shard `no` (from 0) of the same set.
    pub fn path(&self, no: u32) -> PathBuf {
        shard_path(&self.prefix, no, self.count)
    }
}

/// The path of shard `no` (from 0) of `count`.
pub fn shard_path(prefix: &str, no: u32, count: u32) -> PathBuf {
    PathBuf::from(format!("{prefix}-{:05}-of-{count:05}.gguf", no + 1))
}

/// How many shards the set of `shard` has: `split.count`, 1 when absent.
///
/// # Errors
/// `split.count` of another type, 0 or above 65535 (llama.cpp reads 16 bits).
pub fn count(shard: &super::Gguf) -> Result<u32, GgufError> {
    let count = shard.meta.get_u32(KEY_COUNT)?.unwrap_or(1);
    // llama.cpp takes 0 for "not split".
    match count {
        0 => Ok(1),
        1..=0xffff => Ok(count),
        _ => Err(GgufError::key(KEY_COUNT, ErrorKind::OutOfRange { value: count.into(), expected: "u16" })),
    }
}

/// Checks that `shards` are one whole set in order.
pub(super) fn check(shards: &[Shard]) -> Result<(), GgufError> {
    let Some(first) = shards.first() else {
        return Err(GgufError::new("model", ErrorKind::Split("no file was given".into())));
    };
    let total = count(&first.gguf)? as usize;
    if total != shards.len() {
        return Err(refuse(first, format!("{KEY_COUNT} is {total}, but {} file(s) were given", shards.len())));
    }
    if total == 1 {
        return Ok(());
    }
    for (i, shard) in shards.iter().enumerate() {
        let n = count(&shard.gguf)? as usize;
        if n != total {
            return Err(refuse(shard, format!("{KEY_COUNT} is {n}, the first shard says {total}")));
        }
        match shard.gguf.meta.get_u32(KEY_NO)? {
            Some(no) if no as usize == i => {}
            Some(no) => {
                return Err(refuse(shard, format!("{KEY_NO} is {no} in the place of shard {i}")));
            }
            None => return Err(refuse(shard, format!("key '{KEY_NO}' is missing"))),
        }
        if i > 0
            && let (Some(a), Some(b)) = (tag(first, "general.architecture"), tag(shard, "general.architecture"))
            && a != b
        {
            return Err(refuse(shard, "is a shard of another model: general.architecture differs".into()));
        }
    }
    let held: usize = shards.iter().map(|s| s.gguf.tensors.len()).sum();
    if let Some(claimed) = first.gguf.meta.get_u64(KEY_TENSORS)?
        && claimed != held as u64
    {
        return Err(refuse(first, format!("{KEY_TENSORS} is {claimed}, but the shards hold {held} tensors")));
    }
    Ok(())
}

fn tag<'a>(shard: &'a Shard, key: &str) -> Option<&'a super::Value> {
    shard.gguf.meta.get(key)
}

fn refuse(shard: &Shard, problem: String) -> GgufError {
    GgufError::new(shard.path.display().to_string(), ErrorKind::Split(problem))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shard_names_are_read_as_llama_cpp_writes_them() {
        let name = ShardName::parse(Path::new("dir/m-00002-of-00003.gguf")).unwrap();
        assert_eq!(name, ShardName { prefix: "dir/m".into(), no: 1, count: 3 });
        assert_eq!(name.path(2), Path::new("dir/m-00003-of-00003.gguf"));
        for other in
            ["m.gguf", "m-2-of-3.gguf", "m-00000-of-00003.gguf", "m-00004-of-00003.gguf", "m-00001-of-00003.bin"]
        {
            assert_eq!(ShardName::parse(Path::new(other)), None, "{other}");
        }
    }
}
