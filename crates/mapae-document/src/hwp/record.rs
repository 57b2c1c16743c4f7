//! A stream of records to a tree: each has a tag, a level and bytes, and belongs to the last one of a lower level.

use crate::error::{DocumentError, Excess};

/// Tags of records that are looked at.
pub(super) mod tag {
    const BEGIN: u16 = 0x10;
    pub(crate) const DOCUMENT_PROPERTIES: u16 = BEGIN;
    pub(crate) const NUMBERING: u16 = BEGIN + 7;
    pub(crate) const PARA_SHAPE: u16 = BEGIN + 9;
    pub(crate) const DISTRIBUTION: u16 = BEGIN + 12;
    pub(crate) const PARA_HEADER: u16 = BEGIN + 50;
    pub(crate) const PARA_TEXT: u16 = BEGIN + 51;
    pub(crate) const CTRL_HEADER: u16 = BEGIN + 55;
    pub(crate) const LIST_HEADER: u16 = BEGIN + 56;
    pub(crate) const TABLE: u16 = BEGIN + 61;
    pub(crate) const CTRL_DATA: u16 = BEGIN + 71;
    pub(crate) const EQUATION: u16 = BEGIN + 72;
}

/// Records of one stream; a report of a thousand pages has half a million.
const RECORDS_MAX: usize = 4_000_000;
/// Records inside of each other that are told apart.
const DEPTH_MAX: u16 = 512;

/// A stream of records.
pub(super) struct Records<'b> {
    list: Vec<Entry<'b>>,
    broken: bool,
}

struct Entry<'b> {
    tag: u16,
    level: u16,
    data: &'b [u8],
    /// The record after all that belongs to this one.
    end: u32,
}

/// The tag, level and bytes of the record that `stream` begins with, and what follows it.
pub(super) fn first(stream: &[u8]) -> Option<(u16, u16, &[u8], &[u8])> {
    let (head, mut rest) = stream.split_first_chunk::<4>()?;
    let head = u32::from_le_bytes(*head);
    let mut size = (head >> 20) as usize;
    if size == 0xfff {
        let (long, after) = rest.split_first_chunk::<4>()?;
        size = u32::from_le_bytes(*long) as usize;
        rest = after;
    }
    let (data, rest) = rest.split_at_checked(size)?;
    Some(((head & 0x3ff) as u16, (head >> 10 & 0x3ff) as u16, data, rest))
}

impl<'b> Records<'b> {
    pub(super) fn parse(stream: &'b [u8]) -> Result<Self, DocumentError> {
        let mut records = Self { list: Vec::new(), broken: false };
        let mut open: Vec<usize> = Vec::new();
        let mut rest = stream;
        while let Some((tag, level, data, after)) = first(rest) {
            rest = after;
            if records.list.len() >= RECORDS_MAX {
                return Err(DocumentError::TooLarge(Excess::Unpacked));
            }
            let level = level.min(DEPTH_MAX);
            let here = records.list.len();
            while let Some(at) = open.pop_if(|at| records.list[*at].level >= level) {
                records.list[at].end = here as u32;
            }
            open.push(here);
            records.list.push(Entry { tag, level, data, end: 0 });
        }
        let end = records.list.len() as u32;
        open.into_iter().for_each(|at| records.list[at].end = end);
        records.broken = !rest.is_empty();
        Ok(records)
    }

    /// Whether the stream ends within a record.
    pub(super) fn broken(&self) -> bool {
        self.broken
    }

    /// Records that belong to no other.
    pub(super) fn top(&self) -> impl Iterator<Item = Record<'_, 'b>> {
        siblings(self, 0, self.list.len())
    }

    pub(super) fn all(&self) -> impl Iterator<Item = Record<'_, 'b>> {
        (0..self.list.len()).map(|at| Record { records: self, at })
    }
}

fn siblings<'r, 'b>(
    records: &'r Records<'b>,
    mut at: usize,
    end: usize,
) -> impl Iterator<Item = Record<'r, 'b>> {
    std::iter::from_fn(move || {
        let record = (at < end).then_some(Record { records, at })?;
        at = records.list[at].end as usize;
        Some(record)
    })
}

/// A record and what belongs to it.
#[derive(Clone, Copy)]
pub(super) struct Record<'r, 'b> {
    records: &'r Records<'b>,
    at: usize,
}

impl<'r, 'b> Record<'r, 'b> {
    fn entry(&self) -> &'r Entry<'b> {
        &self.records.list[self.at]
    }

    pub(super) fn tag(&self) -> u16 {
        self.entry().tag
    }

    pub(super) fn data(&self) -> &'b [u8] {
        self.entry().data
    }

    pub(super) fn children(&self) -> impl Iterator<Item = Record<'r, 'b>> + use<'r, 'b> {
        siblings(self.records, self.at + 1, self.entry().end as usize)
    }

    pub(super) fn word(&self, at: usize) -> Option<u16> {
        self.data().get(at..)?.first_chunk().map(|bytes| u16::from_le_bytes(*bytes))
    }

    pub(super) fn double_word(&self, at: usize) -> Option<u32> {
        self.data().get(at..)?.first_chunk().map(|bytes| u32::from_le_bytes(*bytes))
    }

    /// What kind of control a control header begins: four letters, stored backwards.
    pub(super) fn id(&self) -> &'static [u8; 4] {
        const KNOWN: [&[u8; 4]; 7] = [b"tbl ", b"tcmt", b"bokm", b"gso ", b"tdut", b"tcps", b"secd"];
        let id = self.double_word(0).map(u32::to_be_bytes);
        KNOWN.into_iter().find(|known| Some(**known) == id).unwrap_or(b"    ")
    }

    /// A counted text: its length in characters, then the characters.
    pub(super) fn text(&self, at: usize) -> String {
        let length = usize::from(self.word(at).unwrap_or(0));
        let bytes = self.data().get(at + 2..).unwrap_or_default();
        super::text::utf16(&bytes[..bytes.len().min(length * 2)])
    }
}

#[cfg(test)]
pub(super) fn record(tag: u16, level: u16, data: &[u8]) -> Vec<u8> {
    let head = u32::from(tag) | u32::from(level) << 10 | 0xfff << 20;
    [&head.to_le_bytes()[..], &(data.len() as u32).to_le_bytes(), data].concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_belongs_to_the_last_one_of_a_lower_level() {
        let stream = [
            record(tag::PARA_HEADER, 0, &[]),
            record(tag::PARA_TEXT, 1, &[]),
            record(tag::CTRL_HEADER, 1, b" lbt"),
            record(tag::LIST_HEADER, 2, &[]),
            record(tag::PARA_HEADER, 0, &[]),
        ]
        .concat();
        let records = Records::parse(&stream).expect("small");
        assert_eq!(records.top().count(), 2);
        let inside: Vec<_> = records.top().next().expect("one").children().collect();
        assert_eq!((inside.len(), inside[1].id()), (2, b"tbl "));
        assert_eq!(inside[1].children().count(), 1);
        assert!(!records.broken());
        assert!(Records::parse(&stream[..stream.len() - 1]).expect("small").broken());
    }
}
