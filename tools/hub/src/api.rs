//! The hub's API: what is in a repository.

use serde_json::Value;
use ureq::http::Method;

use crate::name::Name;
use crate::web::{Answer, Web, WebError};
use crate::{HubError, url};

/// A file of a repository.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct File {
    /// Its path in the repository.
    pub path: String,
    /// Its size in bytes.
    pub size: u64,
    /// Its name in the cache: the SHA-256 of large files, the hash of git of small ones.
    pub etag: String,
}

impl File {
    /// The SHA-256 of its bytes, where the hub names it.
    pub fn sha256(&self) -> Option<&str> {
        (self.etag.len() == 64).then_some(self.etag.as_str())
    }
}

/// A state of a repository.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listing {
    /// The commit, in hexadecimal.
    pub commit: String,
    /// Its files in the hub's order, those alone whose names could stand in a folder.
    pub files: Vec<File>,
}

/// Asks for the newest state of a repository.
///
/// # Errors
/// See [`HubError`]; no connection is [`WebError::Connection`].
pub fn listing(web: &Web, endpoint: &str, name: &Name) -> Result<Listing, WebError> {
    let repo = name.both();
    let address = format!("{endpoint}/api/models/{repo}/revision/main?blobs=true");
    let answer = web.ask(Method::GET, &address, &[])?;
    let from = answer.url.clone();
    if answer.status() != 200 {
        return Err(WebError::Final(refusal(web, &answer, &repo, &format!("{endpoint}/{repo}"))));
    }
    let nonsense = |why: &str| WebError::Final(HubError::Nonsense { host: url::host(&from), why: why.to_owned() });
    let value: Value = serde_json::from_slice(&web.body(answer)?).map_err(|e| nonsense(&e.to_string()))?;
    let commit = value["sha"].as_str().filter(|sha| is_hash(sha));
    let commit = commit.ok_or_else(|| nonsense("it names no commit"))?.to_owned();
    let siblings = value["siblings"].as_array().ok_or_else(|| nonsense("it lists no files"))?;
    Ok(Listing { commit, files: siblings.iter().filter_map(file).collect() })
}

/// A file of the listing; `None` where one of its parts is not there, or its name would lead out of a folder.
fn file(value: &Value) -> Option<File> {
    let path = value["rfilename"].as_str().filter(|path| is_inside(path))?;
    let lfs = &value["lfs"];
    let etag = lfs["sha256"].as_str().or_else(|| lfs["oid"].as_str()).or_else(|| value["blobId"].as_str())?;
    let size = lfs["size"].as_u64().or_else(|| value["size"].as_u64())?;
    is_hash(etag).then(|| File { path: path.to_owned(), size, etag: etag.to_ascii_lowercase() })
}

/// True for a hash of git or a SHA-256.
pub fn is_hash(text: &str) -> bool {
    matches!(text.len(), 40 | 64) && text.bytes().all(|b| b.is_ascii_hexdigit())
}

/// True for a relative path that stays in its folder on every system.
pub fn is_inside(path: &str) -> bool {
    let good = |part: &str| !matches!(part, "" | "." | "..");
    !path.contains(['\\', ':', '\0']) && path.split('/').all(good)
}

/// The error in an answer that is none of success. `what` is the repository or an address, `page` where its terms are.
pub fn refusal(web: &Web, answer: &Answer, what: &str, page: &str) -> HubError {
    let (host, status, what) = (url::host(&answer.url), answer.status(), what.to_owned());
    let code = answer.told("x-error-code").unwrap_or_default().to_owned();
    let message = answer.told("x-error-message").unwrap_or_default();
    let said: String = message.chars().filter(|c| !c.is_control()).take(200).collect();
    match (status, code.as_str()) {
        (401 | 403, "GatedRepo") => HubError::Gated { repo: what, page: page.to_owned() },
        (401, "RepoNotFound") | (404, _) if !web.has_token() && code == "RepoNotFound" => HubError::Denied {
            what,
            host,
            status,
            advice: "there is no such repository, or it is private: look at the name, or give a token with -hft or HF_TOKEN",
        },
        (404, _) | (401, "RepoNotFound") => HubError::NotFound { what, host },
        (401, _) if web.has_token() => {
            HubError::Denied { what, host, status, advice: "the token is not valid, or no longer: make a new one" }
        }
        (401, _) => HubError::Denied { what, host, status, advice: "give a token with -hft or HF_TOKEN" },
        (403, _) => HubError::Denied { what, host, status, advice: "the token does not allow it" },
        _ => {
            let said = if said.is_empty() { said } else { format!(": {said}") };
            HubError::Status { what, host, status, said }
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn files_of_a_listing() {
        let sha = "a".repeat(64);
        let value =
            json!({"rfilename": "m/x.gguf", "size": 5, "blobId": "b".repeat(40), "lfs": {"sha256": sha, "size": 7}});
        assert_eq!(file(&value), Some(File { path: "m/x.gguf".to_owned(), size: 7, etag: sha.clone() }));
        let small = json!({"rfilename": "x", "size": 5, "blobId": "b".repeat(40)});
        let small = file(&small).unwrap();
        assert_eq!((small.size, small.sha256()), (5, None));
    }

    #[test]
    fn names_that_lead_out_of_the_folder_are_left_out() {
        for path in ["../x", "a/../x", "/x", "a//x", "C:x", "a\\x", "", ".", "a/."] {
            let value = json!({"rfilename": path, "size": 5, "blobId": "b".repeat(40)});
            assert_eq!(file(&value), None, "{path}");
        }
        for etag in ["", "../../x", "zz", &"g".repeat(64)] {
            let value = json!({"rfilename": "x", "size": 5, "blobId": etag});
            assert_eq!(file(&value), None, "{etag}");
        }
    }
}
