//! Whether the chains of sectors in a compound file come to an end.
//!
//! The reader of `xls` follows a chain until its end and keeps what it passes, so a chain that comes back to where it
//! was takes all memory there is. Only that is looked at here: sectors that lie nowhere are refused by the reader.

use crate::error::DocumentError;

/// The first number that names no sector.
const RESERVED: u32 = 0xffff_fffa;
/// Table sectors that the header itself names.
const IN_HEADER: usize = 109;

/// Refuses a file in which a chain goes round in a circle.
pub(super) fn check(data: &[u8]) -> Result<(), DocumentError> {
    let size = match data.get(30) {
        Some(12) => 4096,
        _ => 512,
    };
    let sector = |id: u32| {
        let at = (id as usize).checked_add(1)?.checked_mul(size)?;
        data.get(at..data.len().min(at.checked_add(size)?)).filter(|sector| !sector.is_empty())
    };
    let sectors = data.len() / size;
    // The table lies in sectors that the header lists, and a chain of further lists.
    let mut table_at: Vec<u32> = (0..IN_HEADER).filter_map(|i| word(data, 76 + 4 * i)).collect();
    let mut list = word(data, 68).unwrap_or(RESERVED);
    for _ in 0..=sectors {
        let Some(ids) = sector(list).filter(|_| list < RESERVED) else { break };
        let mut ids: Vec<u32> = words(ids).collect();
        list = ids.pop().unwrap_or(RESERVED);
        table_at.extend(ids);
    }
    let whole = |ids: &[u32]| -> Vec<u32> {
        let named = ids.iter().filter(|id| **id < RESERVED).take(sectors + 1);
        named.filter_map(|id| sector(*id)).flat_map(words).collect()
    };
    let table = whole(&table_at);
    if goes_round(&table) {
        return Err(DocumentError::Damaged);
    }
    // The table of small sectors is a chain in the other one, which is known to end.
    let begin = word(data, 60).unwrap_or(RESERVED);
    let next = |id: &u32| table.get(*id as usize).copied();
    let small: Vec<u32> = std::iter::successors(Some(begin), next).take_while(|id| *id < RESERVED).collect();
    if goes_round(&whole(&small)) { Err(DocumentError::Damaged) } else { Ok(()) }
}

/// Whether from some place on, going where each place says, one comes back to it.
fn goes_round(table: &[u32]) -> bool {
    // In which walk each place was first passed; 0 for none yet.
    let mut passed = vec![0u32; table.len()];
    for (begin, walk) in (0..table.len()).zip(1..) {
        let mut at = begin;
        while let Some(mark) = passed.get_mut(at) {
            if *mark == walk {
                return true;
            }
            if *mark != 0 {
                break;
            }
            *mark = walk;
            at = table[at] as usize;
        }
    }
    false
}

fn word(data: &[u8], at: usize) -> Option<u32> {
    data.get(at..)?.first_chunk().map(|bytes| u32::from_le_bytes(*bytes))
}

fn words(data: &[u8]) -> impl Iterator<Item = u32> {
    data.as_chunks().0.iter().map(|bytes| u32::from_le_bytes(*bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chains_that_join_or_end_are_told_from_those_that_go_round() {
        let end = u32::MAX - 1;
        assert!(!goes_round(&[1, 2, end, 2, end, u32::MAX]));
        assert!(!goes_round(&[900, end]));
        assert!(goes_round(&[0]));
        assert!(goes_round(&[end, 2, 3, 1, 1]));
    }
}
