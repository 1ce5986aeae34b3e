//! Which file of a repository is meant.
//!
//! A type is found as llama.cpp finds it: behind it stands a dot or a dash, and letters may be large or small. Where
//! none is named, `Q4_K_M` is taken as there, unless a limit of size speaks against it.

use crate::HubError;
use crate::space::human;

/// The type that is taken where none is named.
const USUAL: &str = "Q4_K_M";
/// The type that is taken where that one is missing, if nothing is known of the memory.
const SECOND: &str = "Q8_0";

/// Words in names of GGUF files that are no model of their own.
const NO_MODELS: [&str; 6] = ["mmproj", "imatrix", "mtp-", "eagle3-", "dflash-", "dspark-"];

/// Types that nothing was quantized to.
const FLOATS: [&str; 4] = ["F16", "BF16", "F32", "F64"];

/// Bytes that a model may have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limit {
    /// The most.
    pub bytes: u64,
    /// True if the user named it; otherwise it is what the machine has.
    pub asked: bool,
}

/// A GGUF file that the choice is between, or all shards of one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Candidate {
    /// The paths, in order of the shards.
    pub paths: Vec<String>,
    /// Bytes of all of them.
    pub size: u64,
}

/// A file that was chosen, and a line that says why, where nobody named it.
#[derive(Debug, PartialEq, Eq)]
pub struct Choice {
    /// The file.
    pub candidate: Candidate,
    /// The reason.
    pub why: Option<String>,
}

/// Number of a shard and how many there are, and what stands before them; `None` for a whole file.
fn shard(path: &str) -> Option<(&str, u32, u32)> {
    let stem = path.strip_suffix(".gguf")?;
    let (rest, of) = stem.rsplit_once("-of-")?;
    let (rest, number) = rest.rsplit_once('-')?;
    let digits = |text: &str| (text.len() == 5).then(|| text.parse().ok()).flatten();
    Some((rest, digits(number)?, digits(of)?))
}

/// Names of all shards of the set that a file belongs to; of a whole file its own.
pub fn all_shards(name: &str) -> Vec<String> {
    match shard(name) {
        Some((rest, _, of)) => (1..=of).map(|n| format!("{rest}-{n:05}-of-{of:05}.gguf")).collect(),
        None => vec![name.to_owned()],
    }
}

/// The models among the files of a repository. Sets of shards of which one is missing are none.
pub fn candidates<'a>(files: impl IntoIterator<Item = (&'a str, u64)>) -> Vec<Candidate> {
    let all: Vec<(&str, u64)> = files.into_iter().filter(|(path, _)| is_model(path)).collect();
    let one = |&(path, size): &(&str, u64)| match shard(path) {
        None => Some(Candidate { paths: vec![path.to_owned()], size }),
        Some((rest, 1, of)) => {
            let found = (1..=of).map(|n| all.iter().find(|(p, _)| shard(p) == Some((rest, n, of))));
            let found: Vec<&(&str, u64)> = found.collect::<Option<_>>()?;
            let size = found.iter().map(|(_, size)| *size).sum();
            Some(Candidate { paths: found.iter().map(|(path, _)| (*path).to_owned()).collect(), size })
        }
        Some(_) => None,
    };
    all.iter().filter_map(one).collect()
}

fn is_model(path: &str) -> bool {
    let name = path.rsplit('/').next().unwrap_or(path);
    name.ends_with(".gguf") && !NO_MODELS.iter().any(|word| name.contains(word))
}

impl Candidate {
    /// The type that the name ends with, in large letters; the whole name where it ends otherwise.
    pub fn tag(&self) -> String {
        let path = self.paths.first().map_or("", String::as_str);
        let stem = match shard(path) {
            Some((rest, ..)) => rest,
            None => path.strip_suffix(".gguf").unwrap_or(path),
        };
        let name = stem.rsplit('/').next().unwrap_or(stem);
        let last = name.rsplit(['-', '.']).next().unwrap_or(name);
        let is_type =
            last.bytes().any(|b| b.is_ascii_digit()) && last.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_');
        if is_type { last.to_ascii_uppercase() } else { name.to_owned() }
    }

    fn shown(&self) -> String {
        format!("{} ({})", self.tag(), human(self.size))
    }

    fn is_quantized(&self) -> bool {
        !FLOATS.contains(&self.tag().as_str())
    }

    /// True if the type stands in the name, with a dot or a dash behind it; `alone` wants none of its letters before it.
    fn matches(&self, tag: &str, alone: bool) -> bool {
        let path = self.paths.first().map_or("", String::as_str).to_ascii_uppercase();
        let tag = tag.to_ascii_uppercase();
        path.match_indices(&tag).any(|(at, _)| {
            let ends = path[at + tag.len()..].starts_with(['.', '-']);
            let begins = !path[..at].ends_with(|c: char| c.is_ascii_alphanumeric() || c == '_');
            ends && (begins || !alone)
        })
    }
}

fn names(all: &[Candidate]) -> String {
    let names: Vec<String> = all.iter().map(Candidate::shown).collect();
    names.join(", ")
}

/// The candidate of a path.
///
/// # Errors
/// The repository has no such file.
pub fn by_file(repo: &str, all: &[Candidate], file: &str) -> Result<Choice, HubError> {
    let found = all.iter().find(|c| c.paths.iter().any(|path| path.eq_ignore_ascii_case(file)));
    let found = found.cloned().map(|candidate| Choice { candidate, why: None });
    found.ok_or_else(|| HubError::NoSuchFile {
        repo: repo.to_owned(),
        file: file.to_owned(),
        have: match all.is_empty() {
            true => "none".to_owned(),
            false => all.iter().flat_map(|c| c.paths.first().cloned()).collect::<Vec<_>>().join(", "),
        },
    })
}

/// The candidate that is meant by a type, or by nothing but the repository.
///
/// # Errors
/// There is no model, none of this type, or none that is small enough for a limit that the user named.
pub fn choose(repo: &str, all: &[Candidate], tag: Option<&str>, limit: Option<&Limit>) -> Result<Choice, HubError> {
    let Some(smallest) = all.iter().min_by_key(|c| c.size) else {
        return Err(HubError::NoGguf { repo: repo.to_owned() });
    };
    let fits = |c: &&Candidate| limit.is_none_or(|l| c.size <= l.bytes);
    let too_large = |c: &Candidate, limit: &Limit| HubError::TooLarge {
        repo: repo.to_owned(),
        limit: human(limit.bytes),
        smallest: c.shown(),
    };
    let of =
        |tag: &str| all.iter().find(|c| c.matches(tag, true)).or_else(|| all.iter().find(|c| c.matches(tag, false)));
    if let Some(tag) = tag {
        let found = of(tag).ok_or_else(|| HubError::NoSuchTag {
            repo: repo.to_owned(),
            tag: tag.to_owned(),
            have: names(all),
        })?;
        return match limit.filter(|l| l.asked && found.size > l.bytes) {
            Some(limit) => Err(too_large(found, limit)),
            None => Ok(Choice { candidate: found.clone(), why: None }),
        };
    }
    let largest = || {
        let quantized = all.iter().filter(fits).filter(|c| c.is_quantized()).max_by_key(|c| c.size);
        quantized.or_else(|| all.iter().filter(fits).max_by_key(|c| c.size))
    };
    let (found, why) = match limit {
        _ if all.len() == 1 && limit.is_none_or(|l| !l.asked || smallest.size <= l.bytes) => {
            (smallest, "the only model there".to_owned())
        }
        Some(limit) if limit.asked => {
            let found = largest().ok_or_else(|| too_large(smallest, limit))?;
            (found, format!("the largest of at most {}", human(limit.bytes)))
        }
        _ => match (of(USUAL).filter(fits), limit) {
            (Some(usual), _) => (usual, "the usual type where none is named".to_owned()),
            (None, Some(limit)) => match largest() {
                Some(found) => {
                    (found, format!("the largest that fits into the {} of memory that are free", human(limit.bytes)))
                }
                None => (
                    smallest,
                    format!("the smallest; the {} of memory that are free are not enough", human(limit.bytes)),
                ),
            },
            (None, None) => match of(SECOND) {
                Some(second) => (second, "the usual type where none is named".to_owned()),
                None => (&all[0], "the first one there".to_owned()),
            },
        },
    };
    let others: Vec<Candidate> = all.iter().filter(|c| *c != found).cloned().collect();
    let beside = if others.is_empty() { String::new() } else { format!("; there are also {}", names(&others)) };
    let why = format!("{repo}: {}, {why}{beside}", found.shown());
    Ok(Choice { candidate: found.clone(), why: Some(why) })
}

#[cfg(test)]
mod tests {
    use super::*;

    const GB: u64 = 1_000_000_000;

    fn all(files: &[(&str, u64)]) -> Vec<Candidate> {
        candidates(files.iter().map(|(path, gb)| (*path, gb * GB)))
    }

    fn chosen(all: &[Candidate], tag: Option<&str>, limit: Option<(u64, bool)>) -> Result<String, String> {
        let limit = limit.map(|(gb, asked)| Limit { bytes: gb * GB, asked });
        let choice = choose("a/b", all, tag, limit.as_ref()).map_err(|e| e.to_string())?;
        Ok(choice.candidate.paths[0].clone())
    }

    #[test]
    fn types_are_found_as_in_llama_cpp_and_words_of_their_own_first() {
        let all = all(&[
            ("m-TQ2_0.gguf", 2),
            ("m-Q2_0.gguf", 3),
            ("m-q4_k_m.gguf", 4),
            ("q8/m.Q8_0.gguf", 8),
            ("mmproj-Q2_0.gguf", 1),
        ]);
        for (tag, path) in [
            ("Q2_0", "m-Q2_0.gguf"),
            ("q2_0", "m-Q2_0.gguf"),
            ("TQ2_0", "m-TQ2_0.gguf"),
            ("Q4_K_M", "m-q4_k_m.gguf"),
            ("Q8_0", "q8/m.Q8_0.gguf"),
        ] {
            assert_eq!(chosen(&all, Some(tag), None).as_deref(), Ok(path));
        }
        assert_eq!(chosen(&all[..1], Some("Q2_0"), None).as_deref(), Ok("m-TQ2_0.gguf"));
        let told = chosen(&all, Some("Q3_K"), None).unwrap_err();
        assert_eq!(told, "a/b has no Q3_K; it has TQ2_0 (2.0 GB), Q2_0 (3.0 GB), Q4_K_M (4.0 GB), Q8_0 (8.0 GB)");
    }

    #[test]
    fn without_a_type_sizes_decide() {
        let many = all(&[("m-F16.gguf", 16), ("m-Q2_K.gguf", 3), ("m-Q4_K_M.gguf", 5), ("m-Q8_0.gguf", 9)]);
        for (limit, path) in [
            (None, "m-Q4_K_M.gguf"),
            (Some((64, false)), "m-Q4_K_M.gguf"),
            (Some((4, false)), "m-Q2_K.gguf"),
            (Some((1, false)), "m-Q2_K.gguf"),
            (Some((8, true)), "m-Q4_K_M.gguf"),
            (Some((10, true)), "m-Q8_0.gguf"),
            (Some((64, true)), "m-Q8_0.gguf"),
            (Some((3, true)), "m-Q2_K.gguf"),
        ] {
            assert_eq!(chosen(&many, None, limit).as_deref(), Ok(path), "{limit:?}");
        }
        assert_eq!(
            chosen(&many, None, Some((2, true))).unwrap_err(),
            "a/b has nothing of at most 2.0 GB: the smallest is Q2_K (3.0 GB)"
        );
        assert!(chosen(&many, Some("Q8_0"), Some((2, true))).is_err());
        let ternary = all(&[("m-F16.gguf", 16), ("m-TQ2_0.gguf", 2), ("m-Q2_0.gguf", 3)]);
        assert_eq!(chosen(&ternary, None, Some((64, false))).as_deref(), Ok("m-Q2_0.gguf"));
        assert_eq!(chosen(&ternary, None, None).as_deref(), Ok("m-F16.gguf"));
        assert_eq!(
            chosen(&[], None, None).unwrap_err(),
            "a/b has no GGUF file; repositories of GGUF files often have names that end in -GGUF"
        );
    }

    #[test]
    fn the_line_says_what_was_taken_and_what_else_there_is() {
        let all = all(&[("m-Q2_K.gguf", 3), ("m-Q4_K_M.gguf", 5)]);
        let choice = choose("a/b", &all, None, None).unwrap();
        let line = "a/b: Q4_K_M (5.0 GB), the usual type where none is named; there are also Q2_K (3.0 GB)";
        assert_eq!(choice.why.as_deref(), Some(line));
        assert_eq!(choose("a/b", &all, Some("Q2_K"), None).unwrap().why, None);
    }

    #[test]
    fn shards_are_one_model_when_all_are_there() {
        let set = all(&[
            ("x/m-Q4_0-00002-of-00002.gguf", 3),
            ("x/m-Q4_0-00001-of-00002.gguf", 4),
            ("m-Q8_0-00001-of-00002.gguf", 1),
        ]);
        assert_eq!(set.len(), 1);
        assert_eq!((set[0].size, set[0].tag().as_str()), (7 * GB, "Q4_0"));
        assert_eq!(set[0].paths, ["x/m-Q4_0-00001-of-00002.gguf", "x/m-Q4_0-00002-of-00002.gguf"]);
    }
}
