//! Which names a server answers to.
//!
//! A web page can make a browser send requests to any address, and with a name of its own that it lets point to a
//! loopback address it may read the answers too (DNS rebinding). Such a request shows the page's name as its host.

use std::net::IpAddr;

/// The hosts that are answered.
#[derive(Clone, Debug)]
pub struct Hosts {
    /// True if only local names and addresses are answered, besides `further`.
    local_only: bool,
    machine: Option<String>,
    further: Vec<String>,
}

impl Hosts {
    /// The hosts of a server that listens on a loopback address (`local`) or another.
    pub fn new(local: bool, further: &[String]) -> Hosts {
        let machine = std::fs::read_to_string("/proc/sys/kernel/hostname");
        Hosts {
            local_only: local || !further.is_empty(),
            machine: machine.ok().map(|m| m.trim().to_ascii_lowercase()),
            further: further.iter().map(|h| h.to_ascii_lowercase()).collect(),
        }
    }

    /// True if a request to `host`, a value of the header, is answered; `None` when it is none.
    pub fn admit(&self, host: &str) -> Option<bool> {
        let name = name(host)?.to_ascii_lowercase();
        Some(!self.local_only || self.is_local(&name) || self.further.contains(&name))
    }

    fn is_local(&self, name: &str) -> bool {
        if let Ok(ip) = name.parse::<IpAddr>() {
            return match ip {
                IpAddr::V4(ip) => ip.is_loopback() || ip.is_private() || ip.is_unspecified(),
                IpAddr::V6(ip) => ip.is_loopback() || ip.is_unique_local() || ip.is_unspecified(),
            };
        }
        name == "localhost" || name.ends_with(".localhost") || self.machine.as_deref() == Some(name)
    }
}

/// The name or address in a value of the header, without its port.
fn name(host: &str) -> Option<&str> {
    let (name, port) = match host.strip_prefix('[') {
        Some(rest) => {
            let (name, rest) = rest.split_once(']')?;
            name.parse::<std::net::Ipv6Addr>().ok()?;
            (name, rest)
        }
        None => match host.find(':') {
            Some(colon) => host.split_at(colon),
            None => (host, ""),
        },
    };
    let port = match port.strip_prefix(':') {
        Some(digits) => digits,
        None if port.is_empty() => "",
        None => return None,
    };
    let plain = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'-' | b'_' | b':');
    let fine = !name.is_empty() && name.bytes().all(plain) && port.bytes().all(|b| b.is_ascii_digit());
    fine.then_some(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn local_names_and_addresses() {
        let hosts = Hosts::new(true, &[]);
        for host in
            ["localhost", "LOCALHOST:8080", "a.localhost", "127.0.0.1:1", "[::1]:8080", "0.0.0.0", "192.168.1.2"]
        {
            assert_eq!(hosts.admit(host), Some(true), "{host}");
        }
        for host in ["evil.example", "localhost.evil.example", "8.8.8.8", "127.0.0.1.evil.example"] {
            assert_eq!(hosts.admit(host), Some(false), "{host}");
        }
        for host in [
            "",
            "localhost/v1/models?",
            "a@localhost",
            "localhost#",
            "[::1",
            "[::1]x",
            "localhost:80:80",
            "localhost:x",
        ] {
            assert_eq!(hosts.admit(host), None, "{host}");
        }
    }

    #[test]
    fn further_names() {
        let hosts = Hosts::new(true, &["My.Example".to_owned()]);
        assert_eq!(hosts.admit("my.example:80"), Some(true));
        assert_eq!(Hosts::new(false, &[]).admit("any.example"), Some(true));
        assert_eq!(Hosts::new(false, &["my.example".to_owned()]).admit("any.example"), Some(false));
    }
}
