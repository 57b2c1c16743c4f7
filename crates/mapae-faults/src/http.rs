//! A client that is cut off like any other: one request, one connection.

use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) body: String,
}

/// `address` is host and port. An error says that it is not known what became of the request.
pub(crate) async fn call(
    address: &str,
    method: &str,
    path: &str,
    headers: &[(&str, &str)],
    body: &[u8],
    patience: Duration,
) -> std::io::Result<Answer> {
    let asked = async {
        let mut stream = TcpStream::connect(address).await?;
        let mut head = format!("{method} {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n");
        for (name, value) in headers {
            head += &format!("{name}: {value}\r\n");
        }
        head += &format!("content-length: {}\r\n\r\n", body.len());
        stream.write_all(head.as_bytes()).await?;
        stream.write_all(body).await?;
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).await?;
        let text = String::from_utf8_lossy(&answer).into_owned();
        let status = text.split(' ').nth(1).and_then(|status| status.parse().ok());
        let body = text.split_once("\r\n\r\n").map(|(_, body)| body.to_owned());
        match (status, body) {
            (Some(status), Some(body)) => Ok(Answer { status, body }),
            _ => Err(std::io::ErrorKind::UnexpectedEof.into()),
        }
    };
    tokio::time::timeout(patience, asked).await.unwrap_or_else(|_| Err(std::io::ErrorKind::TimedOut.into()))
}
