//! How much of everything one document may take. Each limit ends in a clear answer, never in a dead worker.

use std::time::Duration;

use serde::{Deserialize, Serialize};

/// Limits on one document. The inner ones (pages, cells, …) are meant to be met first and give the clearest
/// answer; those of the child process (`memory_bytes`, `cpu_seconds`, `wall`) catch what the inner ones missed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Limits {
    /// Bytes of the file.
    pub input_bytes: u64,
    /// Pages of a PDF.
    pub pages: u32,
    /// Glyphs, paths, images and clips of one page. A page over it is cut there, with a warning.
    pub page_operations: u64,
    /// Pages of a document that are read by their pictures; those after them are left out, with a warning.
    pub scans: u32,
    /// Pixels of a file that is a picture.
    pub pixels: u64,
    /// Bytes (UTF-8) of the text of a document. A PDF over it is cut there, with a warning.
    pub text_bytes: u64,
    /// Sheets of a workbook.
    pub sheets: u32,
    /// Cells of a workbook that hold something.
    pub cells: u64,
    /// Bytes of one unbroken run of markup or text inside a packed part; bounds the longest string.
    pub string_bytes: u64,
    /// Files in a packed workbook.
    pub archive_entries: u32,
    /// Bytes of a packed workbook once unpacked, counted while unpacking.
    pub unpacked_bytes: u64,
    /// Bytes of one unpacked part that a reader holds in memory whole (shared strings, styles).
    pub part_bytes: u64,
    /// Bytes that one stream of a PDF may unpack to. A larger one is left out, with a warning.
    pub stream_bytes: u64,
    /// Unpacked over packed bytes of one part, from 10 MiB on.
    pub unpack_ratio: u64,
    /// Bytes of the answer of the child process.
    pub output_bytes: u64,
    /// Address space of the child process, bytes. Under 256 MiB a child may not be able to begin.
    pub memory_bytes: u64,
    /// Processor time of the child process, seconds.
    pub cpu_seconds: u64,
    /// Time by the clock, from the start of the child process to its answer.
    pub wall: Duration,
    /// Only the text is wanted: tables stand in it as lines, and nothing is made of them.
    pub text_only: bool,
}

const MIB: u64 = 1024 * 1024;

impl Default for Limits {
    fn default() -> Self {
        Self {
            input_bytes: 256 * MIB,
            pages: 2_000,
            page_operations: 500_000,
            scans: 1_000,
            pixels: 100_000_000,
            text_bytes: 64 * MIB,
            sheets: 1_000,
            cells: 5_000_000,
            string_bytes: 4 * MIB,
            archive_entries: 10_000,
            unpacked_bytes: 500_000_000,
            part_bytes: 64 * MIB,
            stream_bytes: 256 * MIB,
            unpack_ratio: 200,
            output_bytes: 256 * MIB,
            memory_bytes: 1024 * MIB,
            cpu_seconds: 30,
            wall: Duration::from_secs(60),
            text_only: false,
        }
    }
}

impl Limits {
    /// A cheaper reading, for a document that a whole one did not survive: its text, in a third of the time, and a
    /// tenth of what a page may draw.
    pub fn cheap(&self) -> Self {
        Self {
            page_operations: self.page_operations / 10,
            cpu_seconds: (self.cpu_seconds / 3).max(1),
            wall: self.wall / 3,
            text_only: true,
            ..self.clone()
        }
    }
}
