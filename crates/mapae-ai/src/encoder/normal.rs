//! A text as the pieces' model was trained on it: compatibility forms replaced, blanks made single and visible.

use std::sync::Arc;

use crate::pack::{Pack, PackError};

/// What a blank is written as.
const BLANK: &str = "\u{2581}";

/// The replacements of a pack: a double-array trie over bytes whose values are places in a table of texts.
pub(super) struct Normal {
    pack: Arc<Pack>,
}

impl Normal {
    pub(super) fn new(pack: Arc<Pack>) -> Result<Self, PackError> {
        if pack.numbers::<u32>("normal.trie").is_empty() {
            return Err(PackError::Malformed);
        }
        Ok(Self { pack })
    }

    pub(super) fn of(&self, text: &str) -> String {
        let (trie, table) = (self.pack.numbers::<u32>("normal.trie"), self.pack.section("normal.table"));
        let mut out = String::with_capacity(text.len() + text.len() / 4);
        let mut rest = text;
        // A blank after a blank is dropped, and so are those before the first word.
        let mut blank = true;
        while !rest.is_empty() {
            let (new, used) = replace(trie, table, rest);
            rest = &rest[used..];
            let new = if blank { new.trim_start_matches(' ') } else { new };
            if new.is_empty() {
                continue;
            }
            if out.is_empty() {
                out.push_str(BLANK);
            }
            for c in new.chars() {
                if c == ' ' { out.push_str(BLANK) } else { out.push(c) }
            }
            blank = new.ends_with(' ');
        }
        while let Some(shorter) = out.strip_suffix(BLANK) {
            out.truncate(shorter.len());
        }
        out
    }
}

/// What the beginning of a text becomes, and how many bytes of it that were: the longest there is a rule for,
/// or one character as it is.
fn replace<'t>(trie: &[u32], table: &'t [u8], text: &'t str) -> (&'t str, usize) {
    let mut found: Option<(usize, usize)> = None;
    let unit = |at: usize| trie.get(at).copied().unwrap_or_default();
    let offset = |unit: u32| ((unit >> 10) << ((unit & 0x200) >> 6)) as usize;
    let mut at = offset(unit(0));
    for (i, byte) in text.bytes().enumerate() {
        at ^= usize::from(byte);
        let here = unit(at);
        if here & 0x8000_00ff != u32::from(byte) {
            break;
        }
        at ^= offset(here);
        if here & 0x100 != 0 {
            found = Some(((unit(at) & 0x7fff_ffff) as usize, i + 1));
        }
    }
    let as_it_is = || {
        let used = text.chars().next().map_or(0, char::len_utf8);
        (&text[..used], used)
    };
    let Some((place, used)) = found.filter(|(_, used)| text.is_char_boundary(*used)) else {
        return as_it_is();
    };
    let Some(rest) = table.get(place..).filter(|rest| !rest.is_empty()) else { return as_it_is() };
    let end = rest.iter().position(|b| *b == 0).unwrap_or(rest.len());
    std::str::from_utf8(&rest[..end]).map_or_else(|_| as_it_is(), |new| (new, used))
}
