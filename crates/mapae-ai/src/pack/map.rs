//! A file as memory: the one place of this crate that needs `unsafe`.

use std::fs::File;
use std::io;
use std::ops::Deref;
use std::path::Path;

/// The bytes of a file, loaded by the kernel page by page when they are looked at.
pub(super) struct Mapped(Option<memmap2::Mmap>);

/// Maps a file for reading.
#[allow(unsafe_code)]
pub(super) fn map(path: &Path) -> io::Result<Mapped> {
    let file = File::open(path)?;
    if file.metadata()?.len() == 0 {
        return Ok(Mapped(None));
    }
    // SAFETY: what a mapping asks for is that its bytes do not change while they are borrowed. A pack is written
    // under another name, made read-only, synced and then renamed (`write` in the parent module), so its inode is
    // never written again: a newer pack is another inode, and the mapping keeps the old one alive. Somebody who
    // writes into it against its permissions also has the right to change this program's own file, which is
    // mapped in the same way. All that is read from the bytes is plain numbers, for which every pattern of bits
    // is a value, and every place that they name is checked where it is used.
    let map = unsafe { memmap2::Mmap::map(&file)? };
    Ok(Mapped(Some(map)))
}

impl Deref for Mapped {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        self.0.as_deref().unwrap_or_default()
    }
}
