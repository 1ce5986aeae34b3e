//! A small HTTP client: one request, one connection.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use serde_json::Value;

/// An answer.
pub struct Response {
    pub status: u16,
    headers: Vec<(String, String)>,
    pub body: Vec<u8>,
}

impl Response {
    #[track_caller]
    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|e| panic!("{e}: {}", self.text()))
    }

    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    pub fn header(&self, name: &str) -> Option<&str> {
        let found = self.headers.iter().find(|(n, _)| n == name);
        found.map(|(_, value)| value.as_str())
    }

    /// The objects of a stream, and whether `[DONE]` came after them.
    #[track_caller]
    pub fn events(&self) -> (Vec<Value>, bool) {
        assert_eq!(self.header("content-type"), Some("text/event-stream"), "{}", self.text());
        let text = self.text();
        let mut data: Vec<&str> = text.split("\n\n").filter_map(|e| e.strip_prefix("data: ")).collect();
        let done = data.last() == Some(&"[DONE]");
        if done {
            data.pop();
        }
        let objects = data.iter().map(|d| serde_json::from_str(d).expect("JSON"));
        (objects.collect(), done)
    }

    /// The objects of a stream that came whole, where the stream may have been broken off.
    pub fn whole_events(&self) -> Vec<Value> {
        let text = self.text();
        let data = text.split("\n\n").filter_map(|e| e.strip_prefix("data: "));
        data.filter_map(|d| serde_json::from_str(d).ok()).collect()
    }

    /// The error of a refusal with this status, in whatever form.
    #[track_caller]
    pub fn error_of(&self, status: u16) -> Value {
        assert_eq!(self.status, status, "{}", self.text());
        self.json()["error"].clone()
    }

    /// The error of a refusal with this status.
    #[track_caller]
    pub fn error(&self, status: u16) -> Value {
        let error = self.error_of(status);
        assert_eq!(error["code"], status);
        assert!(error["message"].is_string() && error["type"].is_string(), "{error}");
        error
    }
}

/// A connection on which a request was sent.
pub fn open(to: SocketAddr, request: &[u8]) -> TcpStream {
    let mut stream = TcpStream::connect(to).expect("a connection");
    stream.set_read_timeout(Some(Duration::from_secs(120))).expect("a timeout");
    // A server may refuse before it has read everything.
    let _ = stream.write_all(request);
    stream
}

/// Sends `request` as it is and reads the answer to its end.
#[track_caller]
pub fn raw(to: SocketAddr, request: &[u8]) -> Response {
    answer(open(to, request))
}

/// Reads the answer that comes on a connection, to its end.
#[track_caller]
pub fn answer(mut stream: TcpStream) -> Response {
    let mut bytes = Vec::new();
    let mut buffer = [0; 4096];
    // An error after an answer is the end of a connection that the server closed on us.
    while let Ok(n @ 1..) = stream.read(&mut buffer) {
        bytes.extend_from_slice(&buffer[..n]);
    }
    parse(&bytes)
}

#[track_caller]
fn parse(bytes: &[u8]) -> Response {
    let end = bytes.windows(4).position(|w| w == b"\r\n\r\n");
    let end = end.unwrap_or_else(|| panic!("no answer: {}", String::from_utf8_lossy(bytes)));
    let head = std::str::from_utf8(&bytes[..end]).expect("a head");
    let mut lines = head.split("\r\n");
    let status = lines.next().and_then(|l| l.split(' ').nth(1)).expect("a status");
    let headers: Vec<(String, String)> =
        lines.filter_map(|l| l.split_once(": ")).map(|(n, v)| (n.to_ascii_lowercase(), v.to_owned())).collect();
    let chunked = headers.iter().any(|(n, v)| n == "transfer-encoding" && v == "chunked");
    let body = &bytes[end + 4..];
    Response {
        status: status.parse().expect("a number"),
        body: if chunked { unchunked(body) } else { body.to_vec() },
        headers,
    }
}

fn unchunked(mut body: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    while let Some(line) = body.windows(2).position(|w| w == b"\r\n") {
        let size = std::str::from_utf8(&body[..line]).expect("a size");
        let size = usize::from_str_radix(size, 16).expect("a size");
        let rest = &body[line + 2..];
        if size == 0 || rest.len() < size + 2 {
            break;
        }
        out.extend_from_slice(&rest[..size]);
        body = &rest[size + 2..];
    }
    out
}

/// The bytes of a request.
pub fn request(method: &str, path: &str, headers: &[(&str, &str)], body: &[u8]) -> Vec<u8> {
    let mut head = format!("{method} {path} HTTP/1.1\r\nconnection: close\r\ncontent-length: {}\r\n", body.len());
    if !headers.iter().any(|(n, _)| *n == "host") {
        head += "host: localhost\r\n";
    }
    for (name, value) in headers {
        head += &format!("{name}: {value}\r\n");
    }
    head += "\r\n";
    [head.as_bytes(), body].concat()
}

#[track_caller]
pub fn get(to: SocketAddr, path: &str) -> Response {
    raw(to, &request("GET", path, &[], b""))
}

#[track_caller]
pub fn post(to: SocketAddr, path: &str, body: &Value) -> Response {
    raw(to, &request("POST", path, &[], body.to_string().as_bytes()))
}

/// The JSON of an answer that must be one.
#[track_caller]
pub fn ask(to: SocketAddr, path: &str, body: &Value) -> Value {
    let response = post(to, path, body);
    assert_eq!(response.status, 200, "{body}: {}", response.text());
    response.json()
}
