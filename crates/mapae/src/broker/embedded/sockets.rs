//! The line between processes that share a SQLite file: each listens on a datagram socket in a folder
//! beside it, and a ring is one byte to every socket there.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};

use tokio::sync::watch;

use super::Line;

/// A socket's whole path must stay below 108 bytes (unix(7)); its own name takes 42.
const FOLDER_BYTES_MAX: usize = 64;

/// How often a socket is bound in a folder that goes away.
const TRIES: u32 = 3;

pub(super) struct Sockets {
    folder: PathBuf,
    sender: Option<UnixDatagram>,
}

impl Sockets {
    /// `url` is `sqlite:PATH`, with or without slashes and a query.
    pub(super) fn beside(url: &str) -> Self {
        let path = url.trim_start_matches("sqlite:").trim_start_matches("//");
        let path = Path::new(path.split('?').next().unwrap_or_default());
        let path = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
        let mut folder = path.clone().into_os_string();
        folder.push(".bells");
        let mut folder = PathBuf::from(folder);
        if folder.as_os_str().len() > FOLDER_BYTES_MAX {
            let mut hash = DefaultHasher::new();
            path.hash(&mut hash);
            folder = std::env::temp_dir().join(format!("mapae-bells-{:016x}", hash.finish()));
        }
        let sender = UnixDatagram::unbound().ok().filter(|socket| socket.set_nonblocking(true).is_ok());
        Self { folder, sender }
    }
}

impl Line for Sockets {
    fn ring(&self) {
        let (Some(sender), Ok(entries)) = (&self.sender, std::fs::read_dir(&self.folder)) else { return };
        for entry in entries.flatten() {
            let sent = sender.send_to(&[1], entry.path());
            // Nobody is behind this socket any more: its process was killed.
            if sent.is_err_and(|error| error.kind() == std::io::ErrorKind::ConnectionRefused) {
                let _ = std::fs::remove_file(entry.path());
            }
        }
    }

    fn listen(&self, bell: watch::Sender<u64>) -> Box<dyn Send + Sync> {
        let path = self.folder.join(format!("{}.sock", uuid::Uuid::new_v4()));
        // Whoever stops listening may take the folder away in between.
        let bind =
            || std::fs::create_dir_all(&self.folder).and_then(|()| tokio::net::UnixDatagram::bind(&path));
        let Some(socket) = (0..TRIES).find_map(|_| bind().ok()) else {
            tracing::warn!(
                "no bell between processes beside this database; work starts at the next poll instead"
            );
            return Box::new(());
        };
        let task = tokio::spawn(async move {
            let mut byte = [0];
            while socket.recv(&mut byte).await.is_ok() {
                super::ring(&bell);
            }
        });
        Box::new(Listening { path, task })
    }
}

struct Listening {
    path: PathBuf,
    task: tokio::task::JoinHandle<()>,
}

impl Drop for Listening {
    fn drop(&mut self) {
        self.task.abort();
        let _ = std::fs::remove_file(&self.path);
        // The folder goes with the last who listens: it is not empty while there are others.
        if let Some(folder) = self.path.parent() {
            let _ = std::fs::remove_dir(folder);
        }
    }
}
