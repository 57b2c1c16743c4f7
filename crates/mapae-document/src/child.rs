//! A document is read in a child process of its own, and only there.
//!
//! A parser that overflows its stack or runs out of memory takes its process with it, so the process must
//! not be one that anybody needs. The parent runs a program (by default itself) with the argument
//! [`ARGUMENT`]; that program calls [`child_main`] first thing, before any runtime has threads.
//!
//! ```text
//! parent ── stdin:  the document, an open file ───────────────► child
//!        ── stdout: one socket, request down, answer up ◄─────►   limits on memory, time, files, processes
//!        ── stderr: never kept; it may quote the document ◄────   no environment, own process group
//!                                                                 no files, no network, few system calls (`sandbox`)
//! ```
//!
//! A child that needs a picture recognised asks on the same socket; the parent has `tesseract` read it, a process for
//! each picture (`converter`, `launch`), and answers.
//!
//! Whatever happens to the child is one clear answer here. Dropping the future of [`DocumentReader::parse`]
//! kills the child: that is how a caller cancels.

pub(crate) mod converter;
mod inside;
mod launch;
mod restrain;
pub mod sandbox;
mod spawn;
mod wire;

use std::fs::File;
use std::io::Seek;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::pin::pin;
use std::process::ExitStatus;
use std::time::Duration;

use rustix::process::Signal;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;

use serde::de::DeserializeOwned;

use crate::document::{Converted, Document, PageTables, Span};
use crate::error::{DocumentError, Excess};
use crate::limits::Limits;
use crate::ocr::{self, Installed, Missing, Scan, Tesseract};
use crate::table::Seen;
use crate::table::sight::Sight;
pub use inside::child_main;
#[doc(hidden)]
pub use inside::{Before, child_main_after};
use sandbox::Protection;
use spawn::Group;
use wire::Want;

/// The first argument of a program that is to be a child.
pub const ARGUMENT: &str = "document-child";

/// Bytes of a name, media type or password; what is longer was never meant to be one.
const WORD_MAX: usize = 4096;

/// What a caller knows about a file.
#[derive(Clone, Default)]
pub struct Request {
    /// The name it came under; folders in it are ignored.
    pub name: String,
    /// The media type its sender gave.
    pub media_type: Option<String>,
    pub password: Option<String>,
    /// Of a PDF only these pages are read.
    pub pages: Span,
}

/// The password is not for logs.
impl std::fmt::Debug for Request {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Request").field("media_type", &self.media_type).finish_non_exhaustive()
    }
}

/// Reads documents, each in a new child process.
#[derive(Clone, Debug)]
pub struct DocumentReader {
    program: PathBuf,
}

impl Default for DocumentReader {
    fn default() -> Self {
        Self::new()
    }
}

impl DocumentReader {
    /// The children are this very program, even after its file has been replaced by a newer one.
    pub fn new() -> Self {
        Self { program: PathBuf::from("/proc/self/exe") }
    }

    /// The children are `program`, which must call [`child_main`] when its first argument is [`ARGUMENT`].
    pub fn with_program(program: impl Into<PathBuf>) -> Self {
        Self { program: program.into() }
    }

    /// The tables on the pages of a document that has pages; of others, none. `scans` is what [`Self::scans`] saw on
    /// some of them. Otherwise as [`Self::parse`].
    pub async fn tables(
        &self,
        file: File,
        request: Request,
        scans: &[Sight],
        limits: &Limits,
    ) -> Result<PageTables, DocumentError> {
        let given = serde_json::to_vec(scans).map_err(|_| DocumentError::Unavailable)?;
        self.ask(Want::Tables, file, request, &given, None, limits).await
    }

    /// What recognises text on pictures, where it is there.
    pub async fn recogniser(&self, tesseract: &Tesseract) -> Result<Installed, Missing> {
        tesseract.installed(&self.program).await
    }

    /// These pages of a document, read by their pictures; a page that cannot be drawn is missing. Recognition may take
    /// its time for each page on top of `limits.wall`. Otherwise as [`Self::parse`].
    pub async fn scans(
        &self,
        file: File,
        request: Request,
        pages: &[u32],
        by: &Installed,
        limits: &Limits,
    ) -> Result<Vec<Scan>, DocumentError> {
        self.ask(Want::Scans { pages: pages.to_vec() }, file, request, &[], Some(by), limits).await
    }

    /// What is seen on `page`, or on every page, and the tables found in it: for people who want to know why
    /// a table came out as it did. Otherwise as [`Self::parse`].
    pub async fn seen(
        &self,
        file: File,
        request: Request,
        page: Option<u32>,
        limits: &Limits,
    ) -> Result<Vec<Seen>, DocumentError> {
        self.ask(Want::Seen { page }, file, request, &[], None, limits).await
    }

    /// Reads `file` from its beginning. Within `limits.wall` (and a moment) there is an answer; every error but
    /// [`DocumentError::Unavailable`] is final for this file. Needs a Tokio runtime with I/O and time enabled.
    pub async fn parse(
        &self,
        file: File,
        request: Request,
        limits: &Limits,
    ) -> Result<Document, DocumentError> {
        Ok(self.convert(file, request, limits).await?.document)
    }

    /// As [`Self::parse`], and which pages have text on their pictures only.
    pub async fn convert(
        &self,
        file: File,
        request: Request,
        limits: &Limits,
    ) -> Result<Converted, DocumentError> {
        self.ask(Want::Document, file, request, &[], None, limits).await
    }

    /// What holds in the children here, seen by one of them: kernels differ, and containers.
    pub async fn protection(&self) -> Result<Protection, DocumentError> {
        let nothing = File::open("/dev/null").map_err(|_| DocumentError::Unavailable)?;
        self.ask(Want::Protection, nothing, Request::default(), &[], None, &Limits::default()).await
    }

    async fn ask<T: DeserializeOwned + Send + 'static>(
        &self,
        want: Want,
        mut file: File,
        request: Request,
        given: &[u8],
        recogniser: Option<&Installed>,
        limits: &Limits,
    ) -> Result<T, DocumentError> {
        match file.metadata() {
            Ok(meta) if meta.is_file() && meta.len() == 0 => return Err(DocumentError::Empty),
            Ok(meta) if meta.len() > limits.input_bytes => return Err(DocumentError::TooLarge(Excess::File)),
            Ok(_) => {}
            Err(_) => return Err(DocumentError::Unavailable),
        }
        file.rewind().map_err(|_| DocumentError::Unavailable)?;
        if request.password.as_ref().is_some_and(|password| password.len() > WORD_MAX) {
            return Err(DocumentError::PasswordWrong);
        }
        let patience = match &want {
            Want::Scans { pages } => ocr::PAGE_WALL.saturating_mul(pages.len() as u32),
            _ => Duration::ZERO,
        };
        let order = wire::Order {
            want,
            name: ending(&request.name).to_owned(),
            media_type: request.media_type.filter(|media_type| media_type.len() <= WORD_MAX),
            password: request.password,
            pages: request.pages,
            limits: limits.clone(),
        };
        let order = wire::framed(&order, given).map_err(|_| DocumentError::Unavailable)?;
        let started = tokio::time::timeout(limits.wall, spawn::spawn(&self.program, file)).await;
        let Ok(Ok((mut group, socket))) = started else { return Err(DocumentError::Unavailable) };
        let helper = Helper { reader: &self.program, recogniser };
        let conversation = converse(&mut group, socket, &order, &helper, limits);
        let ended = match tokio::time::timeout(limits.wall + patience, conversation).await {
            Ok(ended) => ended?,
            Err(_) => return Err(DocumentError::TooSlow),
        };
        match ended {
            // A large answer takes a moment to parse, and this thread serves others.
            Ended::Answered(answer) => {
                tokio::task::spawn_blocking(move || serde_json::from_slice::<wire::Answer<T>>(&answer))
                    .await
                    .map_err(|_| DocumentError::Unavailable)?
                    .map_err(|_| DocumentError::Crashed)?
            }
            Ended::TooLong => Err(DocumentError::TooLarge(Excess::Output)),
            Ended::Died { status, out_of_memory } => Err(cause_of_death(status, out_of_memory)),
        }
    }
}

/// The end of a name, where its extension is.
fn ending(name: &str) -> &str {
    &name[name.ceil_char_boundary(name.len().saturating_sub(WORD_MAX))..]
}

/// How a conversation with a child ended.
enum Ended {
    Answered(Vec<u8>),
    /// The answer is longer than allowed.
    TooLong,
    /// No whole answer came.
    Died {
        status: ExitStatus,
        out_of_memory: bool,
    },
}

async fn converse(
    group: &mut Group,
    mut socket: UnixStream,
    order: &[u8],
    helper: &Helper<'_>,
    limits: &Limits,
) -> Result<Ended, DocumentError> {
    let errors = group.child.stderr.take();
    let mut answer = pin!(exchange(&mut socket, order, helper, limits));
    let mut out_of_memory = pin!(async {
        match errors {
            Some(errors) => says_out_of_memory(errors).await,
            None => false,
        }
    });
    // Both at once: a child that fills the one must not wait for the other. A whole answer is enough.
    let (answer, out_of_memory) = tokio::select! {
        answer = &mut answer => match answer {
            Ok(ended) => return Ok(ended),
            Err(_) => (None, out_of_memory.await),
        },
        said = &mut out_of_memory => (answer.await.ok(), said),
    };
    match answer {
        Some(ended) => Ok(ended),
        // Cut off, or never begun: how the child ended says why.
        None => match group.child.wait().await {
            Ok(status) => Ok(Ended::Died { status, out_of_memory }),
            Err(_) => Err(DocumentError::Unavailable),
        },
    }
}

/// What a child may ask for.
struct Helper<'r> {
    reader: &'r Path,
    recogniser: Option<&'r Installed>,
}

impl Helper<'_> {
    /// What is read on a picture; nothing where reading fails, which costs one page.
    async fn words(&self, picture: Vec<u8>) -> Vec<u8> {
        let Some(recogniser) = self.recogniser else { return Vec::new() };
        recogniser.words(self.reader, picture).await.unwrap_or_default()
    }
}

async fn exchange(
    socket: &mut UnixStream,
    order: &[u8],
    helper: &Helper<'_>,
    limits: &Limits,
) -> std::io::Result<Ended> {
    socket.write_all(order).await?;
    let mut length = socket.read_u64().await?;
    while length & wire::ASK != 0 {
        let length_asked = length & !wire::ASK;
        if length_asked > ocr::PICTURE_BYTES_MAX {
            return Ok(Ended::TooLong);
        }
        let mut picture = Vec::new();
        (&mut *socket).take(length_asked).read_to_end(&mut picture).await?;
        let words = helper.words(picture).await;
        socket.write_u64(words.len() as u64).await?;
        socket.write_all(&words).await?;
        length = socket.read_u64().await?;
    }
    if length > limits.output_bytes {
        return Ok(Ended::TooLong);
    }
    // The length is a claim; memory grows with what really comes.
    let mut answer = Vec::new();
    socket.take(length).read_to_end(&mut answer).await?;
    if answer.len() as u64 == length {
        Ok(Ended::Answered(answer))
    } else {
        Err(std::io::ErrorKind::UnexpectedEof.into())
    }
}

/// Whether the standard library's words on a failed allocation come first. All else is thrown away.
async fn says_out_of_memory(mut errors: impl AsyncRead + Unpin) -> bool {
    const WORDS: &[u8] = b"memory allocation of ";
    let mut start = Vec::with_capacity(WORDS.len());
    let _ = (&mut errors).take(WORDS.len() as u64).read_to_end(&mut start).await;
    let _ = tokio::io::copy(&mut errors, &mut tokio::io::sink()).await;
    start == WORDS
}

fn cause_of_death(status: ExitStatus, out_of_memory: bool) -> DocumentError {
    let signal = status.signal().and_then(Signal::from_named_raw);
    if status.code() == Some(restrain::CANNOT_START) {
        DocumentError::Unavailable
    } else if out_of_memory || signal == Some(Signal::KILL) {
        // Nobody but the kernel kills a child that is waited for, and it does so where there is no memory left.
        DocumentError::TooLarge(Excess::Memory)
    } else if signal == Some(Signal::XCPU) {
        DocumentError::TooSlow
    } else if signal == Some(Signal::SYS) {
        DocumentError::Forbidden
    } else {
        DocumentError::Crashed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn how_a_child_died_says_what_was_wrong_with_the_document() {
        let killed_by = |signal: i32| ExitStatus::from_raw(signal);
        let xcpu = Signal::XCPU.as_raw();
        assert_eq!(cause_of_death(killed_by(xcpu), false), DocumentError::TooSlow);
        let forbidden = Signal::SYS.as_raw();
        assert_eq!(cause_of_death(killed_by(forbidden), false), DocumentError::Forbidden);
        assert_eq!(cause_of_death(killed_by(6), true), DocumentError::TooLarge(Excess::Memory));
        assert_eq!(cause_of_death(killed_by(9), false), DocumentError::TooLarge(Excess::Memory));
        for signal in [6, 11] {
            assert_eq!(cause_of_death(killed_by(signal), false), DocumentError::Crashed);
        }
        assert_eq!(cause_of_death(ExitStatus::from_raw(0), false), DocumentError::Crashed);
        let cannot_start = ExitStatus::from_raw(restrain::CANNOT_START << 8);
        assert_eq!(cause_of_death(cannot_start, false), DocumentError::Unavailable);
    }
}
