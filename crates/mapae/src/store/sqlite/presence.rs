//! Who is alive on this machine: locks that the system lets go of when a process ends, however it ends.
//!
//! | | |
//! |---|---|
//! | `<database>.presence/<incarnation>` | held by a worker while it lives; removed by it, or by a keeper that finds it free |
//! | `<database>.presence/name-<hash>` | held by the one worker that has this name |
//!
//! A file may be removed only by whoever holds its lock, and a lock counts only while the file still
//! stands where it was opened. So two can never hold one name by two files.

use std::collections::HashSet;
use std::fs::{File, OpenOptions, TryLockError};
use std::io::ErrorKind;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use crate::store::contract::StoreError;
use crate::store::fault::disk;

/// How often a lock's file may be removed under the hands of whoever takes it.
const REMOVED_MAX: u32 = 10;

#[derive(Clone)]
pub(super) enum Presence {
    /// Beside a database file.
    Folder(PathBuf),
    /// Of a database in memory, which no other process can see.
    Memory(Arc<Mutex<HashSet<String>>>),
}

impl Presence {
    pub(super) fn beside(database: &Path) -> Self {
        let mut folder = database.as_os_str().to_owned();
        folder.push(".presence");
        Self::Folder(folder.into())
    }

    pub(super) fn memory() -> Self {
        Self::Memory(Arc::default())
    }

    /// The lock of that key, unless another has it.
    pub(super) fn take(&self, key: &str) -> Result<Option<Held>, StoreError> {
        match self {
            Self::Folder(folder) => {
                std::fs::create_dir_all(folder).map_err(disk)?;
                let path = folder.join(key);
                for _ in 0..REMOVED_MAX {
                    let file = OpenOptions::new()
                        .create(true)
                        .truncate(false)
                        .write(true)
                        .open(&path)
                        .map_err(disk)?;
                    match file.try_lock() {
                        Ok(()) if is_at(&file, &path) => return Ok(Some(Held::File { file, path })),
                        Ok(()) => {} // removed between opening and locking
                        Err(TryLockError::WouldBlock) => return Ok(None),
                        Err(TryLockError::Error(error)) => return Err(disk(error)),
                    }
                }
                Ok(None)
            }
            Self::Memory(all) => {
                let taken = all.lock().unwrap_or_else(PoisonError::into_inner).insert(key.to_owned());
                Ok(taken.then(|| Held::Memory { all: all.clone(), key: key.to_owned() }))
            }
        }
    }

    /// Nobody holds the lock of that key. What a dead holder left of it is removed.
    pub(super) fn is_gone(&self, key: &str) -> bool {
        match self {
            Self::Folder(folder) => {
                let path = folder.join(key);
                let file = match OpenOptions::new().write(true).open(&path) {
                    Ok(file) => file,
                    // Anything but an absence proves nothing.
                    Err(error) => return error.kind() == ErrorKind::NotFound,
                };
                if file.try_lock().is_err() {
                    return false;
                }
                drop(Held::File { file, path });
                true
            }
            Self::Memory(all) => !all.lock().unwrap_or_else(PoisonError::into_inner).contains(key),
        }
    }
}

/// A lock, given up when dropped.
pub(super) enum Held {
    File { file: File, path: PathBuf },
    Memory { all: Arc<Mutex<HashSet<String>>>, key: String },
}

impl Held {
    /// Others can see that it is held: nobody has removed its file.
    pub(super) fn stands(&self) -> bool {
        match self {
            Self::File { file, path } => is_at(file, path),
            Self::Memory { .. } => true,
        }
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        match self {
            Self::File { file, path } if is_at(file, path) => {
                let _ = std::fs::remove_file(path);
            }
            Self::File { .. } => {}
            Self::Memory { all, key } => {
                all.lock().unwrap_or_else(PoisonError::into_inner).remove(key);
            }
        }
    }
}

fn is_at(file: &File, path: &Path) -> bool {
    match (file.metadata(), std::fs::metadata(path)) {
        (Ok(mine), Ok(there)) => (mine.dev(), mine.ino()) == (there.dev(), there.ino()),
        _ => false,
    }
}
