//! What of one partition has been read, and what of it may be committed.
//!
//! A partition has one mark in it, before which everything counts as settled. So it never stands beyond the first
//! message that is not.

use std::collections::BTreeSet;

/// A partition that is this reader's, for as long as it is.
#[derive(Debug)]
pub(super) struct Track {
    /// No two assignments have the same: it is in every receipt.
    pub(super) serial: u64,
    /// Arrived and not settled.
    open: BTreeSet<i64>,
    /// Behind the last that has arrived.
    end: Option<i64>,
    /// Where the mark stands, as far as is known.
    mark: Option<i64>,
}

impl Track {
    pub(super) fn new(serial: u64) -> Self {
        Self { serial, open: BTreeSet::new(), end: None, mark: None }
    }

    /// Whether the message comes after all that arrived before. If not, the topic is another than it was.
    pub(super) fn arrived(&mut self, offset: i64) -> bool {
        if self.end.is_some_and(|end| offset < end) {
            return false;
        }
        self.mark.get_or_insert(offset);
        self.end = Some(offset + 1);
        self.open.insert(offset)
    }

    /// Whether it was open.
    pub(super) fn settled(&mut self, offset: i64) -> bool {
        self.open.remove(&offset)
    }

    /// Where the mark belongs, if it does not stand there.
    pub(super) fn due(&self) -> Option<i64> {
        let mark = self.open.first().copied().or(self.end)?;
        (self.mark != Some(mark)).then_some(mark)
    }

    /// The mark has been sent there.
    pub(super) fn marked(&mut self, at: i64) {
        self.mark = Some(at);
    }

    /// It may not have arrived: it is due again.
    pub(super) fn doubt(&mut self) {
        if self.mark.is_some() {
            self.mark = Some(-1);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mark_never_passes_what_is_not_settled() {
        let mut track = Track::new(1);
        assert_eq!(track.due(), None, "nothing has arrived");
        for offset in [7, 8, 9, 12] {
            assert!(track.arrived(offset));
        }
        assert_eq!(track.due(), None, "nothing is settled");
        assert!(track.settled(8) && track.settled(12));
        assert_eq!(track.due(), None, "7 is open");
        assert!(track.settled(7));
        assert_eq!(track.due(), Some(9));
        track.marked(9);
        assert_eq!(track.due(), None);
        assert!(track.settled(9));
        assert_eq!(track.due(), Some(13), "all that has arrived");
        assert!(!track.settled(9), "once is enough");
    }

    #[test]
    fn a_mark_that_was_not_taken_is_due_again() {
        let mut track = Track::new(1);
        track.doubt();
        assert_eq!(track.due(), None);
        track.arrived(0);
        track.settled(0);
        track.marked(1);
        track.doubt();
        assert_eq!(track.due(), Some(1));
    }

    #[test]
    fn a_topic_that_begins_anew_is_noticed() {
        let mut track = Track::new(1);
        assert!(track.arrived(5) && track.arrived(6));
        assert!(!track.arrived(0) && !track.arrived(6));
    }
}
