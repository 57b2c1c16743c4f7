//! A stand-in for a pooler in transaction mode, of which only this is played: a client's next transaction runs
//! in another session of the server than its last, and nobody tells it. Only statements without parameters
//! begin such a transaction here; a real pooler keeps prepared ones apart, which this one does not.

use std::str::FromStr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use sqlx::ConnectOptions;
use sqlx::postgres::PgConnectOptions;
use tokio::io::{AsyncReadExt, AsyncWriteExt, ReadHalf, WriteHalf};
use tokio::net::{TcpListener, TcpStream};

/// Codes of the first message of a client, after its length.
const TLS: [u8; 4] = 80_877_103_u32.to_be_bytes();

pub(crate) struct Pooler {
    /// The server's address through it.
    pub(crate) url: String,
    shares: Arc<AtomicBool>,
}

impl Pooler {
    /// Every client has a session of its own until [`Pooler::share`].
    pub(crate) async fn before(url: &str) -> Self {
        let options = PgConnectOptions::from_str(url).unwrap();
        let server = (options.get_host().to_owned(), options.get_port());
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let url = options.host("127.0.0.1").port(port).to_url_lossy().to_string();
        let shares = Arc::new(AtomicBool::new(false));
        let asked = shares.clone();
        tokio::spawn(async move {
            loop {
                let (client, _) = listener.accept().await.unwrap();
                tokio::spawn(serve(client, server.clone(), asked.clone()));
            }
        });
        Self { url, shares }
    }

    pub(crate) fn share(&self) {
        self.shares.store(true, Ordering::SeqCst);
    }
}

/// Until one of the two hangs up.
async fn serve(client: TcpStream, server: (String, u16), shares: Arc<AtomicBool>) -> std::io::Result<()> {
    let (mut from_client, mut to_client) = tokio::io::split(client);
    let mut hello = first(&mut from_client).await?;
    if hello[4..8] == TLS {
        to_client.write_all(b"N").await?;
        hello = first(&mut from_client).await?;
    }
    let (mut from_server, mut to_server) = session(&server, &hello).await?;
    loop {
        answer(&mut from_server, Some(&mut to_client)).await?;
        // Whatever a client sends until it waits for an answer.
        loop {
            let message = next(&mut from_client).await?;
            if message[0] == b'Q' && shares.load(Ordering::SeqCst) {
                (from_server, to_server) = session(&server, &hello).await?;
                answer(&mut from_server, None).await?;
            }
            to_server.write_all(&message).await?;
            if matches!(message[0], b'Q' | b'S' | b'X') {
                break;
            }
        }
    }
}

async fn session(
    server: &(String, u16),
    hello: &[u8],
) -> std::io::Result<(ReadHalf<TcpStream>, WriteHalf<TcpStream>)> {
    let mut stream = TcpStream::connect(server.clone()).await?;
    stream.write_all(hello).await?;
    Ok(tokio::io::split(stream))
}

/// All that the server says until it waits for more.
async fn answer(
    from: &mut ReadHalf<TcpStream>,
    mut to: Option<&mut WriteHalf<TcpStream>>,
) -> std::io::Result<()> {
    loop {
        let message = next(from).await?;
        if let Some(to) = &mut to {
            to.write_all(&message).await?;
        }
        if message[0] == b'Z' {
            return Ok(());
        }
    }
}

/// A message with no type: only the first ones of a client.
async fn first(from: &mut ReadHalf<TcpStream>) -> std::io::Result<Vec<u8>> {
    let length = from.read_u32().await?;
    rest(from, length.to_be_bytes().to_vec(), length).await
}

async fn next(from: &mut ReadHalf<TcpStream>) -> std::io::Result<Vec<u8>> {
    let sort = from.read_u8().await?;
    let length = from.read_u32().await?;
    let mut message = vec![sort];
    message.extend(length.to_be_bytes());
    rest(from, message, length).await
}

async fn rest(from: &mut ReadHalf<TcpStream>, mut message: Vec<u8>, length: u32) -> std::io::Result<Vec<u8>> {
    let before = message.len();
    message.resize(before + length as usize - 4, 0);
    from.read_exact(&mut message[before..]).await?;
    Ok(message)
}
