//! A line to a server that can go dead: what is open stays open and carries nothing, as when a host has
//! lost power or a firewall has forgotten a connection. Neither end is told.

use std::str::FromStr;

use sqlx::ConnectOptions;
use sqlx::postgres::PgConnectOptions;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

pub(crate) struct Line {
    /// The server's address over this line.
    pub(crate) url: String,
    cut: watch::Sender<Cut>,
}

/// Connections are numbered as they come: what is below a number has met that fate.
#[derive(Clone, Copy, Default)]
struct Cut {
    opened: usize,
    dead: usize,
    hung_up: usize,
    muted: usize,
}

impl Line {
    /// To a PostgreSQL.
    pub(crate) async fn to(url: &str) -> Self {
        let options = PgConnectOptions::from_str(url).unwrap();
        let server = (options.get_host().to_owned(), options.get_port());
        let named = |port| options.host("127.0.0.1").port(port).to_url_lossy().to_string();
        Self::laid(server, named).await
    }

    /// To whatever is at `host:port`, which the address has to name.
    #[cfg(feature = "rabbitmq")]
    pub(crate) async fn instead_of(server: &str, url: &str) -> Self {
        let (host, port) = server.rsplit_once(':').unwrap();
        let named = |port| url.replace(server, &format!("127.0.0.1:{port}"));
        Self::laid((host.to_owned(), port.parse().unwrap()), named).await
    }

    /// From where somebody listens already to `server`; the address names it as `named`.
    #[cfg(feature = "kafka")]
    pub(crate) async fn from(listener: std::net::TcpListener, server: &str, named: &str, url: &str) -> Self {
        let (host, port) = server.rsplit_once(':').unwrap();
        let url = url.replace(named, &listener.local_addr().unwrap().to_string());
        listener.set_nonblocking(true).unwrap();
        let listener = TcpListener::from_std(listener).unwrap();
        let cut = watch::Sender::new(Cut::default());
        tokio::spawn(lay(listener, (host.to_owned(), port.parse().unwrap()), cut.clone()));
        Self { url, cut }
    }

    async fn laid(server: (String, u16), named: impl FnOnce(u16) -> String) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = named(listener.local_addr().unwrap().port());
        let cut = watch::Sender::new(Cut::default());
        tokio::spawn(lay(listener, server, cut.clone()));
        Self { url, cut }
    }

    /// Every open connection is dead from now on. New ones pass.
    pub(crate) fn freeze(&self) {
        self.cut.send_modify(|cut| cut.dead = cut.opened);
    }

    /// As [`Line::freeze`], and new ones are dead from their beginning.
    pub(crate) fn cut(&self) {
        self.cut.send_modify(|cut| cut.dead = usize::MAX);
    }

    /// What the server answers on the first `number` connections arrives no more; what it is told, and that
    /// the other side has hung up, does.
    pub(crate) fn mute(&self, number: usize) {
        self.cut.send_modify(|cut| cut.muted = number);
    }

    /// Both ends learn that the dead connections are gone.
    pub(crate) fn hang_up(&self) {
        self.cut.send_modify(|cut| cut.hung_up = cut.dead);
    }
}

async fn lay(listener: TcpListener, server: (String, u16), cut: watch::Sender<Cut>) {
    loop {
        let (client, _) = listener.accept().await.unwrap();
        let server = TcpStream::connect(server.clone()).await.unwrap();
        let number = cut.borrow().opened;
        cut.send_modify(|cut| cut.opened += 1);
        tokio::spawn(carry(number, client, server, cut.subscribe()));
    }
}

async fn carry(number: usize, mut client: TcpStream, mut server: TcpStream, mut cut: watch::Receiver<Cut>) {
    tokio::select! {
        biased;
        _ = cut.wait_for(|cut| number < cut.dead || number < cut.muted) => {}
        _ = tokio::io::copy_bidirectional(&mut client, &mut server) => return,
    }
    if number < cut.borrow().muted {
        let _ = tokio::io::copy(&mut client, &mut server).await;
        return;
    }
    // Both ends stay open, unread, until somebody hangs up; a test that ends does.
    let _ = cut.wait_for(|cut| number < cut.hung_up).await;
}
