//! The part of HTTP/1.1 that clients of object stores use.

use std::collections::BTreeMap;
use std::io::{self, BufRead, Read, Write};

/// Maximum size of a body.
const MAX_BODY_BYTES: u64 = 1 << 30;

#[derive(Debug, Default)]
pub(crate) struct Request {
    pub(crate) method: String,
    /// Decoded, without the query.
    pub(crate) path: String,
    /// Decoded.
    pub(crate) query: BTreeMap<String, String>,
    /// Names in lower case.
    pub(crate) headers: BTreeMap<String, String>,
    pub(crate) body: Vec<u8>,
}

impl Request {
    /// Reads the next request. Returns `None` if the connection has ended.
    pub(crate) fn read(stream: &mut impl BufRead) -> io::Result<Option<Self>> {
        let mut line = String::new();
        if stream.read_line(&mut line)? == 0 {
            return Ok(None);
        }
        let mut words = line.split_whitespace();
        let (method, target) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
        let (path, query) = target.split_once('?').unwrap_or((target, ""));
        let query = query
            .split('&')
            .filter(|pair| !pair.is_empty())
            .map(|pair| pair.split_once('=').unwrap_or((pair, "")))
            .map(|(name, value)| (decoded(name), decoded(&value.replace('+', " "))))
            .collect();
        let mut request = Self { method: method.to_owned(), path: decoded(path), query, ..Self::default() };
        loop {
            let mut line = String::new();
            stream.read_line(&mut line)?;
            let line = line.trim_end();
            if line.is_empty() {
                break;
            }
            if let Some((name, value)) = line.split_once(':') {
                request.headers.insert(name.to_ascii_lowercase(), value.trim().to_owned());
            }
        }
        if request.header("transfer-encoding").is_some() {
            request.body = chunks(stream)?;
        }
        let bytes = request.header("content-length").and_then(|text| text.parse().ok()).unwrap_or(0u64);
        if bytes > MAX_BODY_BYTES {
            return Err(io::Error::from(io::ErrorKind::InvalidData));
        }
        if bytes > 0 {
            request.body = vec![0; bytes as usize];
            stream.read_exact(&mut request.body)?;
        }
        Ok(Some(request))
    }

    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).map(String::as_str)
    }
}

fn chunks(stream: &mut impl BufRead) -> io::Result<Vec<u8>> {
    let mut body = Vec::new();
    loop {
        let mut line = String::new();
        stream.read_line(&mut line)?;
        let bytes = u64::from_str_radix(line.trim().split(';').next().unwrap_or_default(), 16)
            .map_err(|_| io::Error::from(io::ErrorKind::InvalidData))?;
        if body.len() as u64 + bytes > MAX_BODY_BYTES {
            return Err(io::Error::from(io::ErrorKind::InvalidData));
        }
        stream.take(bytes).read_to_end(&mut body)?;
        line.clear();
        stream.read_line(&mut line)?;
        if bytes == 0 {
            return Ok(body);
        }
    }
}

fn decoded(text: &str) -> String {
    let bytes = text.as_bytes();
    let (mut out, mut at) = (Vec::new(), 0);
    while at < bytes.len() {
        let hex = text.get(at + 1..at + 3).and_then(|hex| u8::from_str_radix(hex, 16).ok());
        match (bytes[at], hex) {
            (b'%', Some(byte)) => {
                out.push(byte);
                at += 3;
            }
            (byte, _) => {
                out.push(byte);
                at += 1;
            }
        }
    }
    String::from_utf8_lossy(&out).into_owned()
}

#[derive(Debug, Default)]
pub(crate) struct Response {
    pub(crate) status: u16,
    pub(crate) headers: Vec<(&'static str, String)>,
    pub(crate) body: Vec<u8>,
    /// Size of the body that a response without one would have.
    pub(crate) length: Option<u64>,
}

impl Response {
    pub(crate) fn ok(body: Vec<u8>) -> Self {
        Self { status: 200, body, ..Self::default() }
    }

    /// Creates an error response as S3 sends it.
    pub(crate) fn error(status: u16, code: &str) -> Self {
        let xml = format!(
            "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<Error><Code>{code}</Code><Message>{code}, on purpose or not</Message></Error>"
        );
        Self { status, body: xml.into_bytes(), ..Self::default() }
    }

    /// Writes everything except the body, and returns the body.
    pub(crate) fn write_head(self, stream: &mut impl Write) -> io::Result<Vec<u8>> {
        let mut head =
            format!("HTTP/1.1 {} {}\r\n", self.status, if self.status < 300 { "OK" } else { "Error" });
        for (name, value) in &self.headers {
            head.push_str(&format!("{name}: {value}\r\n"));
        }
        let length = self.length.unwrap_or(self.body.len() as u64);
        if self.status != 204 {
            head.push_str(&format!("Content-Length: {length}\r\n"));
        }
        head.push_str("\r\n");
        stream.write_all(head.as_bytes())?;
        Ok(self.body)
    }
}
