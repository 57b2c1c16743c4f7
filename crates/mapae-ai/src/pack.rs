//! Packs: data of a model in one file that is mapped into memory, not read.
//!
//! ```text
//! "mapae-pk"  version u32  header length u32  header JSON  ·  section  ·  section …     each at a multiple of 64
//! ```
//!
//! Numbers are little-endian. Opening looks at the header only, so it takes as long for 80 MB as for one; whether
//! every byte is as it was made is a question for [`Pack::verify`]. Packs are made by `cargo xtask models` and are
//! never fetched while the program runs.

mod map;

use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytemuck::Pod;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

const MAGIC: &[u8; 8] = b"mapae-pk";
const VERSION: u32 = 1;
const ALIGNMENT: usize = 64;
const HEADER_BYTES_MAX: usize = 1 << 20;

/// Where a pack's data came from, and what is in it.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Header {
    /// Names the model and its version: what vectors and results say they were made by.
    pub id: String,
    /// What the pack is for: `embeddings` or `korean`.
    pub purpose: String,
    /// The package that the data came from, with its version.
    pub source: String,
    /// Of the package, lower-case hexadecimal.
    pub source_sha256: String,
    /// SPDX.
    pub licence: String,
    /// Of everything after the header, lower-case hexadecimal.
    pub body_sha256: String,
    /// Names and places from the beginning of the body.
    pub sections: Vec<(String, Range<usize>)>,
    /// What else a reader must know.
    pub facts: serde_json::Value,
}

/// Why a pack cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum PackError {
    #[error("the pack cannot be read: {0}; make it with `cargo xtask models`")]
    Read(#[from] io::Error),
    #[error("this is no pack, or not a whole one; make it again with `cargo xtask models`")]
    Malformed,
    #[error(
        "the pack is of version {0} and this program reads version 1; make it again with `cargo xtask models`"
    )]
    Version(u32),
    #[error("the pack's bytes are not those that were written; make it again with `cargo xtask models`")]
    Checksum,
}

impl PackError {
    /// Stable, for programs.
    pub fn code(&self) -> &'static str {
        match self {
            Self::Read(_) => "pack-unreadable",
            Self::Malformed => "pack-malformed",
            Self::Version(_) => "pack-version",
            Self::Checksum => "pack-checksum",
        }
    }
}

/// An open pack. Its pages are shared by all processes that have it open.
pub struct Pack {
    path: PathBuf,
    header: Header,
    body: usize,
    data: map::Mapped,
}

impl Pack {
    /// Opens a pack and checks that it is whole, not that every byte is right.
    ///
    /// # Errors
    /// [`PackError`]; [`PackError::Checksum`] only from [`Pack::verify`].
    pub fn open(path: &Path) -> Result<Self, PackError> {
        let data = map::map(path)?;
        let number = |at: usize| {
            data.get(at..at + 4)
                .and_then(|b| b.try_into().ok())
                .map(u32::from_le_bytes)
                .ok_or(PackError::Malformed)
        };
        if !data.starts_with(MAGIC) {
            return Err(PackError::Malformed);
        }
        let (version, length) = (number(8)?, number(12)? as usize);
        if version != VERSION {
            return Err(PackError::Version(version));
        }
        let header = data.get(16..16 + length.min(HEADER_BYTES_MAX)).ok_or(PackError::Malformed)?;
        let header: Header = serde_json::from_slice(header).map_err(|_| PackError::Malformed)?;
        let body = aligned(16 + length);
        let whole = |(_, at): &(String, Range<usize>)| {
            at.start <= at.end && at.end <= data.len().saturating_sub(body) && at.start % ALIGNMENT == 0
        };
        if !header.sections.iter().all(whole) {
            return Err(PackError::Malformed);
        }
        Ok(Self { path: path.to_owned(), header, body, data })
    }

    pub fn header(&self) -> &Header {
        &self.header
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The size of the file.
    pub fn bytes(&self) -> usize {
        self.data.len()
    }

    /// Reads every byte.
    ///
    /// # Errors
    /// [`PackError::Checksum`] where they are not those that were written.
    pub fn verify(&self) -> Result<(), PackError> {
        let body = self.data.get(self.body..).unwrap_or_default();
        if hex(&Sha256::digest(body)) == self.header.body_sha256 { Ok(()) } else { Err(PackError::Checksum) }
    }

    /// A part of the pack, empty where there is none of that name.
    pub(crate) fn section(&self, name: &str) -> &[u8] {
        let found = self.header.sections.iter().find(|(section, _)| section == name);
        found.and_then(|(_, at)| self.data.get(self.body + at.start..self.body + at.end)).unwrap_or_default()
    }

    /// A part of the pack as numbers, empty where it is not there or not a whole number of them.
    pub(crate) fn numbers<T: Pod>(&self, name: &str) -> &[T] {
        bytemuck::try_cast_slice(self.section(name)).unwrap_or_default()
    }

    pub(crate) fn facts<T: serde::de::DeserializeOwned>(&self) -> Result<T, PackError> {
        serde_json::from_value(self.header.facts.clone()).map_err(|_| PackError::Malformed)
    }
}

/// A part of a pack that keeps the pack open.
pub(crate) struct Section {
    pack: Arc<Pack>,
    at: Range<usize>,
}

impl Section {
    /// The part of that name, an empty one where there is none.
    pub(crate) fn new(pack: Arc<Pack>, name: &str) -> Self {
        let found = pack.header.sections.iter().find(|(section, _)| section == name);
        let at = found.map_or(0..0, |(_, at)| pack.body + at.start..pack.body + at.end);
        Self { pack, at }
    }
}

impl AsRef<[u8]> for Section {
    fn as_ref(&self) -> &[u8] {
        self.pack.data.get(self.at.clone()).unwrap_or_default()
    }
}

/// Writes a pack under its final name only when it is whole and on the disk.
///
/// # Errors
/// Those of the file system; a file of that name is then as it was.
pub fn write(path: &Path, mut header: Header, sections: &[(&str, &[u8])]) -> io::Result<()> {
    let mut body = Vec::new();
    header.sections.clear();
    for (name, data) in sections {
        body.resize(body.len().next_multiple_of(ALIGNMENT), 0);
        header.sections.push(((*name).to_owned(), body.len()..body.len() + data.len()));
        body.extend_from_slice(data);
    }
    header.body_sha256 = hex(&Sha256::digest(&body));
    let json = serde_json::to_vec(&header)?;
    let unfinished = path.with_extension("unfinished");
    // One that an interrupted run left is read-only and could not be written to.
    match fs::remove_file(&unfinished) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let mut file = BufWriter::new(File::create(&unfinished)?);
    file.write_all(MAGIC)?;
    file.write_all(&VERSION.to_le_bytes())?;
    file.write_all(&u32::try_from(json.len()).map_err(io::Error::other)?.to_le_bytes())?;
    file.write_all(&json)?;
    file.write_all(&vec![0; aligned(16 + json.len()) - 16 - json.len()])?;
    file.write_all(&body)?;
    let file = file.into_inner().map_err(io::IntoInnerError::into_error)?;
    // Nobody writes into a pack: it is mapped into running programs.
    let mut permissions = file.metadata()?.permissions();
    permissions.set_readonly(true);
    file.set_permissions(permissions)?;
    file.sync_all()?;
    fs::rename(&unfinished, path)
}

fn aligned(at: usize) -> usize {
    at.next_multiple_of(ALIGNMENT)
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::{Header, Pack, PackError, write};

    #[test]
    fn a_pack_comes_back_as_it_was_written_and_a_damaged_one_is_noticed() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("a.mpk");
        let numbers: Vec<u8> = [1.5f32, -2.0].iter().flat_map(|n| n.to_le_bytes()).collect();
        write(
            &path,
            Header { id: "a/1".into(), ..Header::default() },
            &[("odd", b"abc"), ("numbers", &numbers)],
        )
        .expect("written");
        let pack = Pack::open(&path).expect("opens");
        assert_eq!(pack.section("odd"), b"abc");
        assert_eq!(pack.numbers::<f32>("numbers"), [1.5, -2.0]);
        assert!(pack.numbers::<f32>("odd").is_empty() && pack.section("none").is_empty());
        pack.verify().expect("right");

        let good = std::fs::read(&path).expect("reads");
        let open = |bytes: &[u8]| {
            let other = folder.path().join("b.mpk");
            std::fs::write(&other, bytes).expect("written");
            let opened = Pack::open(&other).and_then(|pack| pack.verify());
            std::fs::remove_file(&other).expect("removed");
            opened.expect_err("is noticed").code()
        };
        let mut flipped = good.clone();
        *flipped.last_mut().expect("not empty") ^= 1;
        assert_eq!(open(&flipped), "pack-checksum");
        let mut newer = good.clone();
        newer[8] = 9;
        assert_eq!(open(&newer), "pack-version");
        assert_eq!(open(&good[..good.len() - 4]), "pack-malformed");
        assert_eq!(open(b""), "pack-malformed");
        assert!(matches!(Pack::open(&folder.path().join("none")), Err(PackError::Read(_))));
    }
}
