//! What parent and child say to each other: a length of eight bytes, big end first, then JSON, once each way.
//!
//! An order may have something with it (`given`), a second frame. A child that needs a picture recognised asks on
//! its way: a length with [`ASK`] in it, then the picture; the parent answers with a length and what was read.

use std::io::{Read, Write};

use serde::{Deserialize, Serialize};

use crate::document::Span;
use crate::error::{DocumentError, Excess};
use crate::limits::Limits;

/// A request is names and numbers.
const ORDER_MAX: u64 = 64 * 1024;
/// Marks the length of a question.
pub(super) const ASK: u64 = 1 << 63;
/// Bytes of what a picture's words take: far more than any page has.
pub(super) const WORDS_MAX: u64 = 16 * 1024 * 1024;
/// Bytes of what is given with an order.
pub(super) const GIVEN_MAX: u64 = 256 * 1024 * 1024;

/// What is asked of a document.
#[derive(Clone, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Want {
    /// Text, and what comes with it.
    Document,
    /// The tables of pages. What recognition saw on some of them is given with the order.
    Tables,
    /// What recognition reads on these pages, by pictures of them.
    Scans { pages: Vec<u32> },
    /// What is seen on a page, or on every page, and the tables found in it.
    Seen { page: Option<u32> },
    /// Nothing of the document: what holds in the process that would read it.
    Protection,
}

/// From parent to child.
#[derive(Serialize, Deserialize)]
pub(super) struct Order {
    pub(super) want: Want,
    pub(super) name: String,
    pub(super) media_type: Option<String>,
    pub(super) password: Option<String>,
    pub(super) pages: Span,
    pub(super) limits: Limits,
}

impl Order {
    /// What it asks for, for a [`super::Before`].
    pub(super) fn name(&self) -> &'static str {
        match self.want {
            Want::Document if self.limits.text_only => "text",
            Want::Document => "document",
            Want::Tables => "tables",
            Want::Scans { .. } => "scans",
            Want::Seen { .. } => "seen",
            Want::Protection => "protection",
        }
    }
}

/// From child to parent.
pub(super) type Answer<T> = Result<T, DocumentError>;

/// An order and what goes with it.
pub(super) fn framed(order: &Order, given: &[u8]) -> std::io::Result<Vec<u8>> {
    let json = serde_json::to_vec(order)?;
    if json.len() as u64 > ORDER_MAX || given.len() as u64 > GIVEN_MAX {
        return Err(std::io::ErrorKind::InvalidInput.into());
    }
    Ok([&length(&json)[..], &json, &length(given), given].concat())
}

fn length(bytes: &[u8]) -> [u8; 8] {
    (bytes.len() as u64).to_be_bytes()
}

pub(super) fn read_order(source: &mut impl Read) -> std::io::Result<Order> {
    Ok(serde_json::from_slice(&read_frame(source, ORDER_MAX)?)?)
}

pub(super) fn read_frame(source: &mut impl Read, bytes_max: u64) -> std::io::Result<Vec<u8>> {
    let mut length = [0; 8];
    source.read_exact(&mut length)?;
    let length = u64::from_be_bytes(length);
    let mut bytes = Vec::new();
    source.take(length.min(bytes_max)).read_to_end(&mut bytes)?;
    if bytes.len() as u64 == length { Ok(bytes) } else { Err(std::io::ErrorKind::UnexpectedEof.into()) }
}

/// What the parent reads on a picture.
pub(super) fn ask(picture: &[u8], socket: &mut (impl Read + Write)) -> std::io::Result<Vec<u8>> {
    socket.write_all(&(picture.len() as u64 | ASK).to_be_bytes())?;
    socket.write_all(picture)?;
    socket.flush()?;
    read_frame(socket, WORDS_MAX)
}

/// Writes `answer`, or that it is too large.
pub(super) fn write_answer<T: Serialize>(
    answer: &Answer<T>,
    bytes_max: u64,
    sink: &mut impl Write,
) -> std::io::Result<()> {
    let mut capped = Capped { bytes: Vec::new(), bytes_max };
    let json = match serde_json::to_writer(&mut capped, answer) {
        Ok(()) => capped.bytes,
        Err(_) => serde_json::to_vec(&Answer::<T>::Err(DocumentError::TooLarge(Excess::Output)))?,
    };
    sink.write_all(&(json.len() as u64).to_be_bytes())?;
    sink.write_all(&json)?;
    sink.flush()
}

/// Memory that refuses to grow beyond a size.
struct Capped {
    bytes: Vec<u8>,
    bytes_max: u64,
}

impl Write for Capped {
    fn write(&mut self, more: &[u8]) -> std::io::Result<usize> {
        if (self.bytes.len() + more.len()) as u64 > self.bytes_max {
            return Err(std::io::ErrorKind::FileTooLarge.into());
        }
        self.bytes.extend_from_slice(more);
        Ok(more.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}
