//! A caller with one connection that it keeps, and as little of HTTP as that takes.

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

pub(crate) struct Caller {
    stream: TcpStream,
    host: String,
    key: String,
    read: Vec<u8>,
}

impl Caller {
    pub(crate) async fn to(address: &str, key: &str) -> Option<Self> {
        let stream = TcpStream::connect(address).await.ok()?;
        stream.set_nodelay(true).ok()?;
        Some(Self { stream, host: address.to_owned(), key: key.to_owned(), read: Vec::new() })
    }

    pub(crate) async fn get(&mut self, path: &str) -> Option<(u16, String)> {
        self.ask("GET", path, "").await
    }

    pub(crate) async fn post(&mut self, path: &str, body: &str) -> Option<(u16, String)> {
        self.ask("POST", path, body).await
    }

    /// Status and body; `None` where the connection is of no use any more.
    async fn ask(&mut self, method: &str, path: &str, body: &str) -> Option<(u16, String)> {
        let request = format!(
            "{method} {path} HTTP/1.1\r\nhost: {}\r\nauthorization: Bearer {}\r\ncontent-type: application/json\r\n\
             content-length: {}\r\n\r\n{body}",
            self.host,
            self.key,
            body.len()
        );
        self.stream.write_all(request.as_bytes()).await.ok()?;
        self.read.clear();
        loop {
            if let Some(answer) = answer(&self.read) {
                return Some(answer);
            }
            if self.stream.read_buf(&mut self.read).await.ok()? == 0 {
                return None;
            }
        }
    }
}

/// One that has come as a whole, with a length that it tells.
fn answer(read: &[u8]) -> Option<(u16, String)> {
    let text = std::str::from_utf8(read).ok()?;
    let (head, body) = text.split_once("\r\n\r\n")?;
    let status = head.split(' ').nth(1)?.parse().ok()?;
    let head = head.to_ascii_lowercase();
    let length: usize = match head.lines().find_map(|line| line.strip_prefix("content-length:")) {
        Some(length) => length.trim().parse().ok()?,
        None => 0,
    };
    (body.len() >= length).then(|| (status, body.to_owned()))
}
