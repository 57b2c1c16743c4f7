//! What can go wrong with a stored file, and what to do about it.
//!
//! A message never repeats its cause: the cause is for the operator's log, by way of `source`.

use std::io;

use uuid::Uuid;

/// Why a file could not be stored, read or removed: one variant for each thing a caller does differently.
#[derive(Debug, thiserror::Error)]
pub enum BlobError {
    /// The address in the configuration cannot be used.
    #[error("the address of the file store cannot be used: {0}")]
    Address(String),
    /// There is no such file, and the store itself is well.
    #[error("the file is not in the file store")]
    Missing,
    /// A file of this name exists already; it is untouched.
    #[error("a file of this name is in the file store already")]
    AlreadyThere,
    /// The body went past the limit. Nothing was kept.
    #[error("the file is larger than the {bytes_max} bytes that are allowed")]
    TooLarge {
        /// The limit it went past.
        bytes_max: u64,
    },
    /// The body ended with an error. Nothing was kept.
    #[error("the file was cut off while it was sent")]
    BodyCut(#[source] io::Error),
    /// No space, or a quota is used up. Nothing was kept.
    #[error("the file store is full")]
    Full(#[source] io::Error),
    /// The store can be read and not written.
    #[error("the file store is read-only")]
    ReadOnly(#[source] io::Error),
    /// The store refuses this process: permissions of the folder, or the keys of the bucket.
    #[error("the file store refuses access")]
    NotPermitted(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// It is not the store that the database's jobs have their files in: another, or none at all yet.
    #[error(
        "this is not the file store that the jobs of the database have their files in: that is {known}, and this is {}",
        .found.as_ref().map_or_else(|| "one without an identity".to_owned(), ToString::to_string)
    )]
    Foreign {
        /// The store that the database knows.
        known: Uuid,
        /// This one; `None` where it holds no `identity`: a disk that is not mounted, a folder that is new.
        found: Option<Uuid>,
    },
    /// The store overwrites or loses what it was given, found by [`Blobs::check`](super::Blobs::check).
    #[error("the file store does not keep its word: {0}")]
    Unsound(&'static str),
    /// Anything else: unreachable, a broken disk, an answer that makes no sense. Trying later may help.
    #[error("the file store does not work at the moment")]
    Unavailable(#[source] Box<dyn std::error::Error + Send + Sync>),
}

impl BlobError {
    /// A stable code for programs.
    pub fn code(&self) -> &'static str {
        match self {
            Self::Address(_) => "files-address",
            Self::Missing => "file-missing",
            Self::AlreadyThere => "file-already-there",
            Self::TooLarge { .. } => "file-too-large",
            Self::BodyCut(_) => "body-cut",
            Self::Full(_) => "files-full",
            Self::ReadOnly(_) => "files-read-only",
            Self::NotPermitted(_) => "files-not-permitted",
            Self::Foreign { .. } => "files-foreign",
            Self::Unsound(_) => "files-unsound",
            Self::Unavailable(_) => "files-unavailable",
        }
    }

    /// One sentence on what to do next.
    pub fn help(&self) -> &'static str {
        match self {
            Self::Address(_) => "set files.url to file:PATH, s3://BUCKET/PREFIX or gs://BUCKET/PREFIX",
            Self::Missing => "it was deleted or its time of keeping is over: upload it again",
            Self::AlreadyThere => "nothing to do if this is a repeated request; otherwise use a new id",
            Self::TooLarge { .. } => "send a smaller file, or raise the limit in the configuration",
            Self::BodyCut(_) => "send the file again",
            Self::Full(_) => {
                "free some space or raise the quota; nothing was accepted, send the file again then"
            }
            Self::ReadOnly(_) => "mount the file store writable, or point files.url elsewhere",
            Self::NotPermitted(_) => {
                "give this process read and write access to the folder, or check the bucket's keys"
            }
            Self::Foreign { .. } => {
                "mount it, or give every process the same files.url; where the files were moved here, copy the file `identity` too"
            }
            Self::Unsound(_) => {
                "use a file store that supports conditional writes and keeps what it is given"
            }
            Self::Unavailable(_) => "try again later; `mapae doctor` tells what the file store answers",
        }
    }

    /// Whether waiting may help: a disk is mounted, a service comes back.
    pub fn may_pass(&self) -> bool {
        !matches!(self, Self::Address(_) | Self::Foreign { found: Some(_), .. })
    }

    /// What an error of the local disk means to a caller.
    pub(super) fn from_disk(error: io::Error) -> Self {
        use io::ErrorKind::{FileTooLarge, PermissionDenied, QuotaExceeded, ReadOnlyFilesystem, StorageFull};
        match error.kind() {
            // A file size limit of the process or the file system is a full disk to whoever sent the file.
            StorageFull | QuotaExceeded | FileTooLarge => Self::Full(error),
            ReadOnlyFilesystem => Self::ReadOnly(error),
            PermissionDenied => Self::NotPermitted(Box::new(error)),
            _ => Self::Unavailable(Box::new(error)),
        }
    }
}
