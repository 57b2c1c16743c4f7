//! Which file store this is: an id in a file of its own, `identity`, at the root of the folder or prefix.
//!
//! The database keeps the id of the store that its jobs have their files in. A process whose store is another one
//! would take the files that it does not find for deleted ones, and give their jobs up.
//!
//! ```text
//!                     store without an id            store with one
//! database without    a new id is written into both  the database adopts it
//! database with one   refused: not mounted, or new   refused unless it is the same
//! ```
//!
//! The id is a file among the others, so it goes where they are copied to.

use uuid::Uuid;

use super::{BlobError, Blobs, Place};

/// The name of the file, and the longest content that is looked at.
pub(super) const IDENTITY: &str = "identity";
pub(super) const BYTES_MAX: u64 = 64;

impl Blobs {
    /// The id of this store; `None` where it holds none.
    ///
    /// # Errors
    /// [`BlobError::Unsound`] where the file `identity` holds something else; what the disk or service says.
    pub async fn identity(&self) -> Result<Option<Uuid>, BlobError> {
        let content = match &self.place {
            Place::Folder(folder) => folder.identity().await?,
            #[cfg(any(feature = "s3", feature = "gcs"))]
            Place::Bucket(bucket) => bucket.identity().await?,
        };
        let read = |content: Vec<u8>| {
            let text = String::from_utf8(content).ok()?;
            Uuid::try_parse(text.trim()).ok()
        };
        let broken = || BlobError::Unsound("its file `identity` does not hold an id");
        content.map(|content| read(content).ok_or_else(broken)).transpose()
    }

    /// The id of this store: a new one where it held none. Of many processes at once, all get the same answer.
    ///
    /// # Errors
    /// As [`identity`](Self::identity); a store without an id that cannot be written is an error.
    pub async fn identify(&self) -> Result<Uuid, BlobError> {
        if let Some(id) = self.identity().await? {
            return Ok(id);
        }
        let content = format!("{}\n", Uuid::new_v4()).into_bytes();
        let written = match &self.place {
            Place::Folder(folder) => folder.put_identity(content).await,
            #[cfg(any(feature = "s3", feature = "gcs"))]
            Place::Bucket(bucket) => bucket.put_identity(content).await,
        };
        match written {
            Ok(()) | Err(BlobError::AlreadyThere) => {}
            Err(error) => return Err(error),
        }
        self.identity().await?.ok_or(BlobError::Unsound("its file `identity` vanished"))
    }

    /// This has to be the store `id`: from now on a file that is not here is [`Missing`](BlobError::Missing) only
    /// if this is that store, and otherwise [`BlobError::Foreign`].
    pub fn expect(&self, id: Uuid) {
        let _ = self.expected.set(id);
    }

    /// This is the store that it has to be.
    ///
    /// # Errors
    /// [`BlobError::Foreign`] where it is another; what the disk or service says.
    pub async fn verify(&self) -> Result<(), BlobError> {
        let Some(known) = self.expected.get().copied() else { return Ok(()) };
        match self.identity().await? {
            Some(found) if found == known => Ok(()),
            found => Err(BlobError::Foreign { known, found }),
        }
    }

    /// A file that is missing here says something only of the store that it would have been in.
    pub(super) async fn missing_here<T>(&self, got: Result<T, BlobError>) -> Result<T, BlobError> {
        if let Err(BlobError::Missing) = &got {
            self.verify().await?;
        }
        got
    }
}
