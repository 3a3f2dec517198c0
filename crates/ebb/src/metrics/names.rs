//! The names by which a listener may be asked.
//!
//! Whoever owns a name can let it stand for any address, a loopback one too, and then read with a
//! page in an operator's browser what that address answers (DNS rebinding). A browser tells the
//! name. Addresses and `localhost` stand for nothing else; other names the operator allows.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use anyhow::Result;
use hyper::header::{HOST, HeaderValue};
use hyper::http::uri::Authority;
use hyper::{HeaderMap, Uri};

use ebb_cli::usage;

/// Those that the operator allows.
#[derive(Debug, Clone, Default)]
pub struct Names(Arc<[String]>);

impl Names {
    /// Those `allowed` where metrics are served on `address`.
    ///
    /// # Errors
    /// Where one is no name of a host, or nothing is served.
    pub fn of(address: Option<SocketAddr>, allowed: &[String]) -> Result<Self> {
        match (address, allowed.first()) {
            (None, Some(name)) => Err(usage(format!(
                "metrics name '{name}': nobody can be asked by it without metrics, such as \
                 metrics = \"127.0.0.1:9421\" or --metrics 127.0.0.1:9421"
            ))),
            _ => Self::new(allowed),
        }
    }

    /// These.
    ///
    /// # Errors
    /// Where one is no name of a host.
    pub fn new(allowed: &[String]) -> Result<Self> {
        let is_host = |name: &str| name.parse::<Authority>().is_ok_and(|it| it.host() == name);
        match allowed.iter().find(|name| !is_host(name)) {
            None => Ok(Self(allowed.into())),
            Some(wrong) => Err(usage(format!(
                "metrics name '{wrong}': write a host's name without a port, such as \
                 storage7.example"
            ))),
        }
    }

    /// Whether a request with these headers may be answered. A browser always names a host. A
    /// target that names one itself counts (RFC 9112 3.2.2), too.
    pub fn admit(&self, target: &Uri, headers: &HeaderMap) -> bool {
        let is_host = |host: &HeaderValue| {
            Authority::try_from(host.as_bytes()).is_ok_and(|authority| self.has(&authority))
        };
        target.authority().is_none_or(|authority| self.has(authority))
            && headers.get_all(HOST).iter().all(is_host)
    }

    fn has(&self, authority: &Authority) -> bool {
        let host = authority.host();
        let is_address = host.trim_matches(['[', ']']).parse::<IpAddr>().is_ok();
        let mut allowed = self.0.iter().map(String::as_str).chain(["localhost"]);
        is_address || allowed.any(|name| name.eq_ignore_ascii_case(host))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_addresses_localhost_and_what_was_allowed_are_answered() {
        let names = Names::new(&["storage7.example".to_owned()]).unwrap();
        let admits = |hosts: &[&str]| {
            let mut headers = HeaderMap::new();
            for host in hosts {
                headers.append(HOST, HeaderValue::from_str(host).unwrap());
            }
            names.admit(&Uri::from_static("/status"), &headers)
        };
        for host in [
            "127.0.0.1:9421",
            "192.0.2.7",
            "[::1]:9421",
            "[2001:db8::7]",
            "localhost:9421",
            "LocalHost",
            "storage7.example",
            "Storage7.Example:9421",
        ] {
            assert!(admits(&[host]), "{host}");
        }
        for host in [
            "",
            "attacker.example:9421",
            "storage7.example.attacker.example",
            "localhost.attacker.example",
            "127.0.0.1.attacker.example",
            "127.0.0.1 attacker.example",
            "storage7",
            "[localhost]",
        ] {
            assert!(!admits(&[host]), "{host}");
        }
        assert!(admits(&[]) && !admits(&["localhost", "attacker.example"]));
        let local = HeaderMap::from_iter([(HOST, HeaderValue::from_static("localhost"))]);
        for (target, may) in [("http://evil.example/status", false), ("http://[::1]/", true)] {
            assert_eq!(names.admit(&Uri::from_static(target), &local), may, "{target}");
        }
    }

    #[test]
    fn a_name_is_a_host_alone() {
        for wrong in ["", "storage7:9421", "http://storage7", "a b", "user@storage7"] {
            let error = Names::new(&[wrong.to_owned()]).unwrap_err().to_string();
            assert!(error.contains("without a port"), "{wrong}: {error}");
        }
    }
}
