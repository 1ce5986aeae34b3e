//! One request to a server, and when its parts came.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use serde_json::{Value, json};

/// Longest silence of a server.
const SILENCE: Duration = Duration::from_secs(600);
/// Longest line of an answer: an event, or a line of a head.
const MAX_LINE: u64 = 16 << 20;

/// Where a server listens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Address {
    host: String,
    /// What stands before `/v1`.
    path: String,
    /// What is sent as `Authorization`, if anything.
    key: Option<String>,
}

/// How a request went.
#[derive(Clone, Debug, Default)]
pub struct Served {
    /// The status of the answer.
    pub status: u16,
    /// From the request to the first text.
    pub first: Option<Duration>,
    /// When the parts of the text came.
    pub parts: Vec<Instant>,
    /// Tokens that were generated, as the server counts them.
    pub tokens: usize,
    /// Whether the stream came to its end.
    pub whole: bool,
}

/// What is asked of a server.
#[derive(Clone, Copy)]
pub struct Question<'a> {
    /// The name of the model.
    pub model: Option<&'a str>,
    /// What is to be continued.
    pub prompt: &'a [u32],
    /// Tokens that are wanted.
    pub most: usize,
    /// The seed.
    pub seed: usize,
    /// Whether the prompt may be taken from the server's cache.
    pub cache: bool,
}

impl Address {
    /// Of a URL such as `http://127.0.0.1:8080`; a `/v1` at its end is left out. `key` is shown to the server.
    ///
    /// # Errors
    /// It is no such URL.
    pub fn parse(url: &str, key: Option<String>) -> Result<Address> {
        let Some(rest) = url.strip_prefix("http://") else {
            bail!("--serve {url}: give a URL that begins with http://");
        };
        let rest = rest.trim_end_matches('/');
        let rest = rest.strip_suffix("/v1").unwrap_or(rest);
        let (host, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
        let plain = |c: char| c.is_ascii_graphic();
        if host.is_empty() || !rest.chars().all(plain) {
            bail!("--serve {url}: there is no host in it");
        }
        let port = host
            .rsplit_once(':')
            .is_some_and(|(_, p)| p.parse::<u16>().is_ok());
        Ok(Address {
            host: if port {
                host.to_owned()
            } else {
                format!("{host}:80")
            },
            path: path.to_owned(),
            key,
        })
    }

    fn connect(&self) -> Result<TcpStream> {
        let stream = TcpStream::connect(&self.host);
        let stream = stream.with_context(|| format!("no server answers at {}", self.host))?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(SILENCE))?;
        Ok(stream)
    }

    /// Sends a request and reads the head of the answer.
    fn send(&self, method: &str, path: &str, body: &str) -> Result<Answer> {
        let mut stream = self.connect()?;
        let (host, length) = (&self.host, body.len());
        let mut head = format!(
            "{method} {}{path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n",
            self.path
        );
        if let Some(key) = &self.key {
            head += &format!("Authorization: Bearer {key}\r\n");
        }
        head +=
            &format!("Content-Type: application/json\r\nContent-Length: {length}\r\n\r\n{body}");
        stream.write_all(head.as_bytes())?;
        Answer::read(BufReader::new(stream))
    }

    /// The number of tokens in the vocabulary of the server's model, where it says so.
    ///
    /// # Errors
    /// Nobody answers, or not in HTTP.
    pub fn n_vocab(&self) -> Result<Option<usize>> {
        let mut answer = self.send("GET", "/v1/models", "")?;
        let mut text = String::new();
        answer.body.read_to_string(&mut text)?;
        if answer.status != 200 {
            bail!(
                "{} answers /v1/models with status {}",
                self.host,
                answer.status
            );
        }
        let value: Value = serde_json::from_str(&text).context("/v1/models is no JSON")?;
        let n = value["data"][0]["meta"]["n_vocab"].as_u64();
        Ok(n.map(|n| n as usize))
    }

    /// Asks, hears the tokens as they come, and calls `begun` when the first one does.
    ///
    /// # Errors
    /// Nobody answers, or not in HTTP.
    pub fn generate(&self, question: &Question<'_>, begun: &dyn Fn()) -> Result<Served> {
        let mut body = json!({
            "prompt": question.prompt,
            "max_tokens": question.most,
            "seed": question.seed,
            "stream": true,
            "stream_options": {"include_usage": true},
            "ignore_eos": true,
            "cache_prompt": question.cache,
        });
        if let Some(model) = question.model {
            body["model"] = model.into();
        }
        let start = Instant::now();
        let mut answer = self.send("POST", "/v1/completions", &body.to_string())?;
        let mut served = Served {
            status: answer.status,
            ..Served::default()
        };
        if served.status != 200 {
            return Ok(served);
        }
        let mut line = String::new();
        while read_line(&mut answer.body, &mut line)? {
            let Some(data) = line.strip_prefix("data: ").map(str::trim_end) else {
                continue;
            };
            if data == "[DONE]" {
                served.whole = true;
                break;
            }
            let event: Value =
                serde_json::from_str(data).context("an event of the stream is no JSON")?;
            if let Some(n) = event["usage"]["completion_tokens"].as_u64() {
                served.tokens = n as usize;
            }
            let text = event["choices"][0]["text"].as_str().unwrap_or_default();
            if !text.is_empty() {
                if served.parts.is_empty() {
                    served.first = Some(start.elapsed());
                    begun();
                }
                served.parts.push(Instant::now());
            }
        }
        Ok(served)
    }
}

/// The answer to a request.
struct Answer {
    status: u16,
    body: BufReader<Body>,
}

impl Answer {
    fn read(mut stream: BufReader<TcpStream>) -> Result<Answer> {
        let mut line = String::new();
        read_line(&mut stream, &mut line)?;
        let status = line.split(' ').nth(1).and_then(|s| s.parse().ok());
        let Some(status) = status.filter(|_| line.starts_with("HTTP/1.")) else {
            bail!("the server does not speak HTTP/1.1");
        };
        let mut chunked = false;
        while read_line(&mut stream, &mut line)? && !line.trim_end().is_empty() {
            let line = line.to_ascii_lowercase();
            chunked |= line.starts_with("transfer-encoding:") && line.contains("chunked");
        }
        let body = Body {
            stream,
            left: if chunked { Some(0) } else { None },
        };
        Ok(Answer {
            status,
            body: BufReader::new(body),
        })
    }
}

/// The bytes of an answer, without the sizes of its chunks.
struct Body {
    stream: BufReader<TcpStream>,
    /// Bytes left of the chunk; `None`: there are no chunks, and the body ends with the connection.
    left: Option<u64>,
}

impl Read for Body {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let Some(left) = &mut self.left else {
            return self.stream.read(buffer);
        };
        while *left == 0 {
            let mut line = String::new();
            if !read_line(&mut self.stream, &mut line)? {
                return Ok(0);
            }
            let line = line.trim_end();
            // The line that ends a chunk.
            if line.is_empty() {
                continue;
            }
            let size = line
                .split(';')
                .next()
                .and_then(|s| u64::from_str_radix(s, 16).ok());
            match size {
                Some(0) => return Ok(0),
                Some(size) => *left = size,
                None => return Err(io::Error::other("a chunk without its size")),
            }
        }
        let most = buffer
            .len()
            .min(usize::try_from(*left).unwrap_or(usize::MAX));
        let n = self.stream.read(&mut buffer[..most])?;
        *left -= n as u64;
        Ok(n)
    }
}

/// The next line; false at the end.
fn read_line(from: &mut impl BufRead, line: &mut String) -> io::Result<bool> {
    line.clear();
    Ok(from.take(MAX_LINE).read_line(line)? > 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls() {
        let parse = |url: &str| Address::parse(url, None).map(|a| (a.host, a.path));
        let is = |host: &str, path: &str| (host.to_owned(), path.to_owned());
        assert_eq!(parse("http://a:1").unwrap(), is("a:1", ""));
        assert_eq!(parse("http://a/v1/").unwrap(), is("a:80", ""));
        assert_eq!(parse("http://[::1]:9/x/v1").unwrap(), is("[::1]:9", "/x"));
        for url in ["https://a", "a:1", "http://", "http://a b", "http:///v1"] {
            assert!(parse(url).is_err(), "{url}");
        }
    }
}
