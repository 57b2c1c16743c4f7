//! A line to a database that can be cut, before a request or between a commit and its answer.

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

/// What the line does to whoever uses it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Weather {
    Good,
    /// Requests arrive and answers do not.
    Mute,
    /// Every connection is closed, and every new one.
    Down,
}

pub(crate) struct Line {
    /// Host and port to use instead of the server's.
    pub(crate) address: String,
    weather: watch::Sender<Weather>,
}

impl Line {
    pub(crate) async fn to(server: &str) -> std::io::Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?.to_string();
        let weather = watch::Sender::new(Weather::Good);
        let (server, told) = (server.to_owned(), weather.clone());
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                tokio::spawn(carry(client, server.clone(), told.subscribe()));
            }
        });
        Ok(Self { address, weather })
    }

    pub(crate) fn set(&self, weather: Weather) {
        self.weather.send_replace(weather);
    }
}

async fn carry(client: TcpStream, server: String, mut weather: watch::Receiver<Weather>) {
    let Ok(server) = TcpStream::connect(server).await else { return };
    let ((mut from_client, mut to_client), (mut from_server, mut to_server)) =
        (client.into_split(), server.into_split());
    let answers = weather.clone();
    let asking = async { tokio::io::copy(&mut from_client, &mut to_server).await.map(drop) };
    let answering = async {
        let mut bytes = [0; 16 * 1024];
        loop {
            let read = from_server.read(&mut bytes).await?;
            if read == 0 {
                return Ok::<_, std::io::Error>(());
            }
            if *answers.borrow() == Weather::Good {
                to_client.write_all(&bytes[..read]).await?;
            }
        }
    };
    // Whoever ends, both ends learn of it: dropping the halves closes them.
    tokio::select! {
        _ = asking => {}
        _ = answering => {}
        _ = weather.wait_for(|weather| *weather == Weather::Down) => {}
    }
}
