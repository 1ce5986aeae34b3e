//! Requests: to the hub with its token, to all others without; redirects are followed here, where that is seen to.

use std::io;
use std::time::Duration;

use ureq::http::{HeaderMap, Method, Request, Response};
use ureq::{Agent, Body, Proxy};

use crate::places::Settings;
use crate::{HubError, tls, url};

/// How long a connection and an answer may take, and how long a server may be silent in the middle of a file.
const CONNECT: Duration = Duration::from_secs(20);
const ANSWER: Duration = Duration::from_secs(60);
const SILENCE: Duration = Duration::from_secs(30);

/// How often an answer may send the question to another address.
const REDIRECTS: usize = 10;

/// The largest answer that is read into memory, in bytes.
const LARGEST: u64 = 64 << 20;

/// Name of this program in requests.
const PROGRAM: &str = concat!("trine/", env!("CARGO_PKG_VERSION"));

/// Connections to a hub and to where it sends those who ask.
pub struct Web {
    agent: Agent,
    /// True if `https://` can be spoken.
    tls: bool,
    /// The only origin that sees the token.
    origin: Option<String>,
    token: Option<String>,
}

/// Why there is no answer.
#[derive(Debug)]
pub enum WebError {
    /// The connection cannot be made, or broke.
    Connection(String),
    /// It makes no sense to ask again.
    Final(HubError),
}

/// An answer, and the address that gave it.
pub struct Answer {
    /// Status, headers and body.
    pub response: Response<Body>,
    /// The address.
    pub url: String,
    /// Headers of the answers on the way that came from the hub itself, the first ones first.
    pub way: Vec<HeaderMap>,
}

impl Answer {
    /// The status.
    pub fn status(&self) -> u16 {
        self.response.status().as_u16()
    }

    /// A header of this answer.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.response.headers().get(name)?.to_str().ok()
    }

    /// A header that the hub itself gave, on the way or with the answer.
    pub fn told(&self, name: &str) -> Option<&str> {
        let all = self.way.iter().chain([self.response.headers()]);
        all.filter_map(|headers| headers.get(name)?.to_str().ok()).next()
    }
}

impl Web {
    /// # Errors
    /// Certificates or the proxy of the environment cannot be used.
    pub fn new(settings: &Settings) -> Result<Web, HubError> {
        let tls = tls::config(settings.certificates.as_deref())?;
        let mut config = Agent::config_builder()
            .http_status_as_error(false)
            .max_redirects(0)
            .max_redirects_will_error(false)
            .user_agent(PROGRAM)
            .timeout_connect(Some(CONNECT))
            .timeout_recv_response(Some(ANSWER))
            .timeout_per_read(Some(SILENCE))
            .proxy(Proxy::try_from_env());
        let can = tls.is_some();
        if let Some(tls) = tls {
            config = config.tls_config(tls);
        }
        let origin = url::origin(&settings.endpoint);
        Ok(Web { agent: Agent::new_with_config(config.build()), tls: can, origin, token: settings.token.clone() })
    }

    /// True if a token is there to be given.
    pub fn has_token(&self) -> bool {
        self.token.is_some()
    }

    /// Asks, and follows where the answers lead.
    ///
    /// # Errors
    /// There is no answer, or none that may be followed. A status that is none of success is an answer.
    pub fn ask(&self, method: Method, url: &str, headers: &[(&str, String)]) -> Result<Answer, WebError> {
        let mut url = url.to_owned();
        let mut way = Vec::new();
        for _ in 0..=REDIRECTS {
            let response = self.once(&method, &url, headers)?;
            let status = response.status().as_u16();
            let to = response.headers().get("location").and_then(|to| to.to_str().ok());
            let Some(to) = to.filter(|_| matches!(status, 301 | 302 | 303 | 307 | 308)) else {
                return Ok(Answer { response, url, way });
            };
            let next = url::join(&url, to).ok_or_else(|| nonsense(&url, "it leads to what is no address"))?;
            if url.starts_with("https:") && !next.starts_with("https:") {
                return Err(nonsense(&url, "it leads from https to an address without encryption"));
            }
            if url::origin(&url) == self.origin {
                way.push(response.headers().clone());
            }
            url = next;
        }
        Err(nonsense(&url, "its answers lead in a circle"))
    }

    fn once(&self, method: &Method, url: &str, headers: &[(&str, String)]) -> Result<Response<Body>, WebError> {
        let origin = url::origin(url).ok_or_else(|| WebError::Final(HubError::NotAnAddress(url.to_owned())))?;
        if !self.tls && origin.starts_with("https:") {
            return Err(WebError::Final(HubError::Tls(format!(
                "{}: this processor lacks instructions that TLS is made with here (AES, ADX, BMI and AVX2, on ARM AES and SHA-2): fetch the file with another program, or give an http:// address with HF_ENDPOINT",
                url::host(url)
            ))));
        }
        let mut request = Request::builder().method(method).uri(url).header("accept-encoding", "identity");
        for (name, value) in headers {
            request = request.header(*name, value);
        }
        if let Some(token) = self.token.as_ref().filter(|_| Some(&origin) == self.origin.as_ref()) {
            request = request.header("authorization", format!("Bearer {token}"));
        }
        let request =
            request.body(()).map_err(|e| WebError::Final(HubError::Tls(format!("a header cannot be sent: {e}"))))?;
        self.agent.run(request).map_err(|e| failed(url, e))
    }

    /// The body of an answer, all of it.
    ///
    /// # Errors
    /// The connection broke, or the answer is far too long.
    pub fn body(&self, mut answer: Answer) -> Result<Vec<u8>, WebError> {
        let body = answer.response.body_mut().with_config().limit(LARGEST).read_to_vec();
        body.map_err(|e| failed(&answer.url, e))
    }
}

fn nonsense(url: &str, why: &str) -> WebError {
    WebError::Final(HubError::Nonsense { host: url::host(url), why: why.to_owned() })
}

fn failed(url: &str, error: ureq::Error) -> WebError {
    match error {
        ureq::Error::HostNotFound => WebError::Connection("there is no such host, or no network".to_owned()),
        ureq::Error::Rustls(e) => WebError::Final(HubError::Tls(format!(
            "{}: TLS: {e}; SSL_CERT_FILE names a file with more certificates to believe",
            url::host(url)
        ))),
        ureq::Error::Io(e) if certificate(&e) => WebError::Final(HubError::Tls(format!(
            "{}: TLS: {e}; SSL_CERT_FILE names a file with more certificates to believe",
            url::host(url)
        ))),
        ureq::Error::BodyExceedsLimit(_) => nonsense(url, "it is far too long"),
        ureq::Error::Timeout(_) => WebError::Connection("it is silent".to_owned()),
        other => WebError::Connection(other.to_string()),
    }
}

/// True if an error of a connection says that the server's certificate is not believed, which asking again does not
/// change.
fn certificate(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::InvalidData && error.to_string().contains("certificate")
}
