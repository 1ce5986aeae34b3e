//! Where models are kept and asked for, as the environment says it.

use std::ffi::OsString;
use std::fs;
use std::path::PathBuf;
use std::time::Duration;

/// Folders in which models may be.
#[derive(Clone, Debug, Default)]
pub struct Places {
    /// The cache of the hub's own client, in which models are kept.
    pub hub: PathBuf,
    /// The cache of earlier versions of llama.cpp.
    pub llama_cpp: PathBuf,
    /// The stores of ollama: the user's, and the one of the system's service.
    pub ollama: Vec<PathBuf>,
    /// Files from addresses that belong to no repository.
    pub urls: PathBuf,
}

/// Settings of the connection to the hub.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Address of the hub, without a slash at its end.
    pub endpoint: String,
    /// Token that says to the hub who asks; `None` for nobody in particular.
    pub token: Option<String>,
    /// True if no connection is to be opened.
    pub offline: bool,
    /// A file with certificates in PEM that are believed besides the usual ones.
    pub certificates: Option<PathBuf>,
    /// Bytes that one request asks for. Larger files are fetched over several connections.
    pub piece: u64,
    /// The pause after an attempt that brought nothing; those that follow are twice as long each.
    pub pause: Duration,
}

const PIECE: u64 = 8 << 20;
const PAUSE: Duration = Duration::from_millis(500);

/// The hub that is asked where no other is named.
const ENDPOINT: &str = "https://huggingface.co";

/// The longest token that is read from a file, in bytes.
const LONGEST_TOKEN: u64 = 4096;

/// The value of a variable of the environment, where it says anything.
pub type Variable<'a> = &'a dyn Fn(&str) -> Option<OsString>;

/// The process's own environment.
pub fn environment(name: &str) -> Option<OsString> {
    std::env::var_os(name).filter(|value| !value.is_empty())
}

fn path(get: Variable<'_>, name: &str) -> Option<PathBuf> {
    let value = PathBuf::from(get(name)?);
    // Python's client takes the user's folder by its short name.
    match value.strip_prefix("~") {
        Ok(rest) => Some(home(get).join(rest)),
        Err(_) => Some(value),
    }
}

fn home(get: Variable<'_>) -> PathBuf {
    let found = get("HOME").or_else(|| get("USERPROFILE"));
    found.map(PathBuf::from).unwrap_or_default()
}

fn cache(get: Variable<'_>) -> PathBuf {
    path(get, "XDG_CACHE_HOME").unwrap_or_else(|| home(get).join(".cache"))
}

fn hub_home(get: Variable<'_>) -> PathBuf {
    path(get, "HF_HOME").unwrap_or_else(|| cache(get).join("huggingface"))
}

impl Places {
    /// Places by the environment of this process.
    pub fn from_env() -> Places {
        Places::from(&environment)
    }

    /// Places by the variables of `get`.
    pub fn from(get: Variable<'_>) -> Places {
        let hub = path(get, "HF_HUB_CACHE").or_else(|| path(get, "HUGGINGFACE_HUB_CACHE"));
        let own = path(get, "OLLAMA_MODELS").unwrap_or_else(|| home(get).join(".ollama/models"));
        Places {
            hub: hub.unwrap_or_else(|| hub_home(get).join("hub")),
            llama_cpp: path(get, "LLAMA_CACHE").unwrap_or_else(|| cache(get).join("llama.cpp")),
            ollama: vec![own, PathBuf::from("/usr/share/ollama/.ollama/models")],
            urls: cache(get).join("trine").join("urls"),
        }
    }
}

impl Settings {
    /// Settings by the environment of this process.
    pub fn from_env() -> Settings {
        Settings::from(&environment)
    }

    /// Settings by the variables of `get`.
    pub fn from(get: Variable<'_>) -> Settings {
        let text = |name: &str| get(name).map(|value| value.to_string_lossy().trim().to_owned());
        let endpoint = text("MODEL_ENDPOINT").or_else(|| text("HF_ENDPOINT")).unwrap_or_else(|| ENDPOINT.to_owned());
        let on =
            |name: &str| text(name).is_some_and(|v| matches!(v.to_uppercase().as_str(), "1" | "ON" | "YES" | "TRUE"));
        let file = path(get, "HF_TOKEN_PATH").unwrap_or_else(|| hub_home(get).join("token"));
        let kept = || {
            let small = fs::metadata(&file).is_ok_and(|m| m.is_file() && m.len() <= LONGEST_TOKEN);
            small.then(|| fs::read_to_string(&file).ok()).flatten().map(|token| token.trim().to_owned())
        };
        let token = text("HF_TOKEN").or_else(|| text("HUGGING_FACE_HUB_TOKEN")).or_else(kept);
        Settings {
            endpoint: endpoint.trim_end_matches('/').to_owned(),
            token: token.filter(|token| !token.is_empty()),
            offline: on("HF_HUB_OFFLINE") || on("TRANSFORMERS_OFFLINE"),
            certificates: path(get, "SSL_CERT_FILE"),
            piece: PIECE,
            pause: PAUSE,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::*;

    fn from(pairs: &[(&str, &str)]) -> (Places, Settings) {
        let all: HashMap<&str, &str> = pairs.iter().copied().collect();
        let get = |name: &str| all.get(name).map(OsString::from);
        (Places::from(&get), Settings::from(&get))
    }

    #[test]
    fn the_folders_are_those_of_the_other_programs() {
        let (places, settings) = from(&[("HOME", "/h")]);
        assert_eq!(places.hub, PathBuf::from("/h/.cache/huggingface/hub"));
        assert_eq!(places.llama_cpp, PathBuf::from("/h/.cache/llama.cpp"));
        assert_eq!(places.ollama[0], PathBuf::from("/h/.ollama/models"));
        assert_eq!((settings.endpoint.as_str(), settings.token, settings.offline), (ENDPOINT, None, false));
        for (pairs, hub) in [
            (&[("HOME", "/h"), ("XDG_CACHE_HOME", "/x")][..], "/x/huggingface/hub"),
            (&[("HOME", "/h"), ("XDG_CACHE_HOME", "/x"), ("HF_HOME", "~/f")], "/h/f/hub"),
            (&[("HF_HOME", "/f"), ("HF_HUB_CACHE", "/c")], "/c"),
        ] {
            assert_eq!(from(pairs).0.hub, PathBuf::from(hub));
        }
    }

    #[test]
    fn the_hub_and_the_token_come_from_the_environment() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("token"), "hf_kept\n").unwrap();
        let kept = folder.path().to_str().unwrap();
        let settings = from(&[("HF_HOME", kept), ("HF_ENDPOINT", "http://e/"), ("HF_HUB_OFFLINE", "1")]).1;
        assert_eq!((settings.endpoint.as_str(), settings.offline), ("http://e", true));
        assert_eq!(settings.token.as_deref(), Some("hf_kept"));
        let settings =
            from(&[("HF_HOME", kept), ("HF_TOKEN", "hf_mine"), ("HF_ENDPOINT", "a"), ("MODEL_ENDPOINT", "b")]).1;
        assert_eq!((settings.endpoint.as_str(), settings.token.as_deref()), ("b", Some("hf_mine")));
    }
}
