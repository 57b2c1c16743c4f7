//! What a stored file may be called.
//!
//! A name is built only from parts the runtime makes (a job's id, the epoch of a claim, a short file name),
//! so `..`, an absolute path, a second slash or a NUL cannot be expressed. What a person called the file is
//! a column of the row and never part of a path.

use std::fmt;

use uuid::Uuid;

/// The longest file part of a result, in bytes.
const FILE_BYTES_MAX: usize = 120;

/// The name of one stored file: `originals/JOB` or `results/JOB/EPOCH/FILE`.
///
/// Two names are equal exactly when their text is: ids are lower-case and hyphenated, an epoch has no
/// leading zero.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct BlobName {
    text: String,
    job: Uuid,
}

/// The two kinds of stored files, and so the two folders.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Area {
    /// What was uploaded, one file a job.
    Originals,
    /// What attempts wrote, visible only through the reference in the job's row.
    Results,
}

/// A text that is not the name of a stored file. It does not repeat the text: that may come from outside.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("this is not the name of a stored file")]
pub struct NameRefused;

impl Area {
    /// The folder's name, the first part of every name in it.
    pub fn folder(self) -> &'static str {
        match self {
            Self::Originals => "originals",
            Self::Results => "results",
        }
    }
}

impl BlobName {
    /// The name of the uploaded file of `job`.
    pub fn original(job: Uuid) -> Self {
        Self { text: format!("{}/{job}", Area::Originals.folder()), job }
    }

    /// The name of a file that the attempt of `epoch` writes. The epoch keeps a worker that lost its lease
    /// from writing over its successor's file.
    ///
    /// `file` is 1 to 120 bytes of `a-z`, `0-9`, `.`, `_` and `-`, beginning with a letter or a digit.
    ///
    /// # Errors
    /// [`NameRefused`] for any other `file`.
    pub fn result(job: Uuid, epoch: u64, file: &str) -> Result<Self, NameRefused> {
        let plain = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || matches!(b, b'.' | b'_' | b'-');
        let first_is_plain = file.bytes().next().is_some_and(|b| b.is_ascii_alphanumeric());
        if !first_is_plain || file.len() > FILE_BYTES_MAX || !file.bytes().all(plain) {
            return Err(NameRefused);
        }
        Ok(Self { text: format!("{}/{job}/{epoch}/{file}", Area::Results.folder()), job })
    }

    /// Reads a name back from a row. Only the text that [`original`](Self::original) or
    /// [`result`](Self::result) would have written is taken.
    ///
    /// # Errors
    /// [`NameRefused`] for everything else.
    pub fn parse(text: &str) -> Result<Self, NameRefused> {
        let parts: Vec<&str> = text.splitn(5, '/').collect();
        let name = match parts[..] {
            ["originals", job] => Self::original(parse_id(job)?),
            ["results", job, epoch, file] => {
                Self::result(parse_id(job)?, epoch.parse().map_err(|_| NameRefused)?, file)?
            }
            _ => return Err(NameRefused),
        };
        // An id in capitals, a `+7` or a `007` would be a second spelling of the same file.
        if name.text == text { Ok(name) } else { Err(NameRefused) }
    }

    /// The job the file belongs to.
    pub fn job(&self) -> Uuid {
        self.job
    }

    /// The text for the row, which [`parse`](Self::parse) takes back.
    pub fn as_str(&self) -> &str {
        &self.text
    }
}

impl fmt::Display for BlobName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

fn parse_id(text: &str) -> Result<Uuid, NameRefused> {
    Uuid::try_parse(text).map_err(|_| NameRefused)
}
