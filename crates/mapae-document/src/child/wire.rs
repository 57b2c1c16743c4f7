//! What parent and child say to each other: a length of eight bytes, big end first, then JSON, once each way.

use std::io::{Read, Write};

use serde::{Deserialize, Serialize};

use crate::error::{DocumentError, Excess};
use crate::limits::Limits;

/// A request is names and numbers.
const ORDER_MAX: u64 = 64 * 1024;

/// What is asked of a document.
#[derive(Clone, Copy, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Want {
    /// Text, and what comes with it.
    Document,
    /// The tables of pages.
    Tables,
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
    pub(super) limits: Limits,
}

impl Order {
    /// What it asks for, for a [`super::Before`].
    pub(super) fn name(&self) -> &'static str {
        match self.want {
            Want::Document if self.limits.text_only => "text",
            Want::Document => "document",
            Want::Tables => "tables",
            Want::Seen { .. } => "seen",
            Want::Protection => "protection",
        }
    }
}

/// From child to parent.
pub(super) type Answer<T> = Result<T, DocumentError>;

pub(super) fn framed(order: &Order) -> std::io::Result<Vec<u8>> {
    let json = serde_json::to_vec(order)?;
    if json.len() as u64 > ORDER_MAX {
        return Err(std::io::ErrorKind::InvalidInput.into());
    }
    Ok([&(json.len() as u64).to_be_bytes()[..], &json].concat())
}

pub(super) fn read_order(source: &mut impl Read) -> std::io::Result<Order> {
    let mut length = [0; 8];
    source.read_exact(&mut length)?;
    let mut json = Vec::new();
    source.take(u64::from_be_bytes(length).min(ORDER_MAX)).read_to_end(&mut json)?;
    Ok(serde_json::from_slice(&json)?)
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
