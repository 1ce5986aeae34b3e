//! Addresses: the few things that are done with them.

/// Scheme, host and port, in lower case: `https://host:port`, without the port where none is named. `None` for what is
/// no address of HTTP.
pub fn origin(url: &str) -> Option<String> {
    let (scheme, rest) = url.split_once("://")?;
    let scheme = scheme.to_ascii_lowercase();
    let authority = rest.split(['/', '?', '#']).next()?;
    // Whoever stands before an at sign is no host.
    let host = authority.rsplit('@').next()?.to_ascii_lowercase();
    let default = if scheme == "https" { ":443" } else { ":80" };
    let host = host.strip_suffix(default).unwrap_or(&host);
    (matches!(scheme.as_str(), "http" | "https") && !host.is_empty()).then(|| format!("{scheme}://{host}"))
}

/// The host and its port, for messages.
pub fn host(url: &str) -> String {
    let origin = origin(url).unwrap_or_else(|| url.to_owned());
    origin.split_once("://").map_or(origin.clone(), |(_, host)| host.to_owned())
}

/// The path of an address, without what is asked behind it.
pub fn path(url: &str) -> &str {
    let rest = url.split_once("://").map_or(url, |(_, rest)| rest);
    let path = rest.find('/').map_or("", |at| &rest[at..]);
    path.split(['?', '#']).next().unwrap_or_default()
}

/// Where an answer from `base` leads with the header `Location: to`.
pub fn join(base: &str, to: &str) -> Option<String> {
    let to = to.trim();
    if to.contains("://") {
        return origin(to).map(|_| to.to_owned());
    }
    let origin = origin(base)?;
    if let Some(host) = to.strip_prefix("//") {
        let scheme = origin.split_once("://")?.0;
        return Some(format!("{scheme}://{host}"));
    }
    if to.starts_with('/') {
        return Some(format!("{origin}{to}"));
    }
    let folder = path(base).rsplit_once('/').map_or("", |(folder, _)| folder);
    Some(format!("{origin}{folder}/{to}"))
}

/// A path as it stands in an address: what is no letter, digit, slash or one of `-._~` is written as `%XX`.
pub fn encode(path: &str) -> String {
    let mut out = String::with_capacity(path.len());
    for byte in path.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'/' | b'-' | b'.' | b'_' | b'~' => out.push(char::from(byte)),
            _ => out.push_str(&format!("%{byte:02X}")),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn origins_tell_hosts_and_ports_apart() {
        assert_eq!(origin("HTTPS://Host.example/x").unwrap(), "https://host.example");
        assert_eq!(origin("https://host.example:443/x"), origin("https://host.example"));
        assert_ne!(origin("http://host.example:443/x"), origin("http://host.example"));
        assert_ne!(origin("https://host.example/x"), origin("http://host.example/x"));
        assert_eq!(origin("https://host.example@evil.example/x").unwrap(), "https://evil.example");
        assert_eq!(origin("https://evil.example?host.example").unwrap(), "https://evil.example");
        for text in ["", "host/x", "ftp://host/x", "https://", "https:///x"] {
            assert_eq!(origin(text), None, "{text}");
        }
    }

    #[test]
    fn locations_lead_on() {
        let base = "https://a.example/u/r/file?x=1";
        assert_eq!(join(base, "/new/r/file").unwrap(), "https://a.example/new/r/file");
        assert_eq!(join(base, "other").unwrap(), "https://a.example/u/r/other");
        assert_eq!(join(base, "//b.example/y").unwrap(), "https://b.example/y");
        assert_eq!(join(base, "http://b.example:8/y?z").unwrap(), "http://b.example:8/y?z");
        assert_eq!(join(base, "file:///etc/passwd"), None);
    }

    #[test]
    fn paths_and_what_is_special_in_them() {
        assert_eq!(path("https://a.example/x/y.gguf?download=true"), "/x/y.gguf");
        assert_eq!(path("https://a.example"), "");
        assert_eq!(encode("a b/ü?#%.gguf"), "a%20b/%C3%BC%3F%23%25.gguf");
    }
}
