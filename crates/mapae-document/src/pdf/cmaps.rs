//! Korean character maps without holes.
//!
//! The interpreter reads a code that its character map does not have as one byte, whatever the map's codes
//! are. In a map of two-byte codes one such code shifts all that follow, and shifted bytes are other,
//! perfectly good Hangul: wrong text without a sign. So the predefined Korean maps get an entry for every
//! two-byte code: those without a character become "not defined" and come out as U+FFFD, one each. (Of a
//! character beyond the first 65,536, which none of the maps has, that is two.)

use std::collections::HashMap;
use std::fmt::Write;
use std::ops::RangeInclusive;
use std::sync::{LazyLock, Mutex, PoisonError};

use hayro_interpret::hayro_cmap::{CMap, CMapName, load_embedded};

/// Names of the maps inside of the ones with holes filled.
const INNER: &[u8] = b"inner-";

/// A predefined map, the map that stands in for it, and the first bytes of its two-byte codes.
struct Korean {
    name: &'static [u8],
    inner: &'static [u8],
    vertical: bool,
    first_bytes: RangeInclusive<u32>,
}

const fn unicode(name: &'static [u8], inner: &'static [u8], vertical: bool) -> Korean {
    Korean { name, inner, vertical, first_bytes: 0..=0xff }
}

const fn legacy(name: &'static [u8], vertical: bool) -> Korean {
    Korean { name, inner: name, vertical, first_bytes: 0x81..=0xfe }
}

/// The maps of UCS-2 lack characters that those of UTF-16 have, the middle dot among them, and programs
/// write them all the same.
const MAPS: [Korean; 10] = [
    unicode(b"UniKS-UCS2-H", b"UniKS-UTF16-H", false),
    unicode(b"UniKS-UCS2-V", b"UniKS-UTF16-V", true),
    unicode(b"UniKS-UTF16-H", b"UniKS-UTF16-H", false),
    unicode(b"UniKS-UTF16-V", b"UniKS-UTF16-V", true),
    legacy(b"KSCms-UHC-H", false),
    legacy(b"KSCms-UHC-V", true),
    legacy(b"KSCms-UHC-HW-H", false),
    legacy(b"KSCms-UHC-HW-V", true),
    legacy(b"KSC-EUC-H", false),
    legacy(b"KSC-EUC-V", true),
];

/// The data of a predefined map.
pub(super) fn resolve(name: CMapName<'_>) -> Option<&'static [u8]> {
    if let CMapName::Custom(name) = &name
        && let Some(inner) = name.strip_prefix(INNER)
    {
        return load_embedded(CMapName::from_bytes(inner));
    }
    match MAPS.iter().position(|map| CMapName::from_bytes(map.name) == name) {
        Some(index) => filled(index),
        None => load_embedded(name),
    }
}

/// The map with its holes filled, made once a process: there are ten of them at most.
fn filled(index: usize) -> Option<&'static [u8]> {
    static MADE: LazyLock<Mutex<HashMap<usize, &'static [u8]>>> = LazyLock::new(Mutex::default);
    let mut made = MADE.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(data) = made.get(&index) {
        return Some(data);
    }
    let data: &'static [u8] = Box::leak(fill(&MAPS[index])?.into_boxed_str()).as_bytes();
    made.insert(index, data);
    Some(data)
}

fn fill(korean: &Korean) -> Option<String> {
    let load = |name: CMapName<'_>| load_embedded(name);
    let map = CMap::parse(load_embedded(CMapName::from_bytes(korean.inner))?, load)?;
    let mut holes: Vec<RangeInclusive<u32>> = Vec::new();
    let codes =
        korean.first_bytes.clone().flat_map(|first| (0..=0xff).map(move |second| first << 8 | second));
    for code in codes {
        if map.lookup_cid_code(code, 2).is_some() || map.lookup_cid_code(code >> 8, 1).is_some() {
            continue;
        }
        match holes.last_mut() {
            Some(hole) if hole.end() + 1 == code => *hole = *hole.start()..=code,
            _ => holes.push(code..=code),
        }
    }
    let mut text = format!(
        "/Registry (Adobe) def /Ordering (Korea1) def /Supplement 2 def /WMode {} def\n/{}{} usecmap\n\
         1 beginnotdefrange\n",
        u8::from(korean.vertical),
        String::from_utf8_lossy(INNER),
        String::from_utf8_lossy(korean.inner),
    );
    for hole in holes {
        let _ = writeln!(text, "<{:04x}> <{:04x}> 0", hole.start(), hole.end());
    }
    text.push_str("endnotdefrange\n");
    Some(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_two_byte_code_of_a_korean_map_has_an_answer_and_known_ones_keep_theirs() {
        for map in &MAPS {
            let before =
                CMap::parse(load_embedded(CMapName::from_bytes(map.inner)).unwrap(), load_embedded).unwrap();
            let after = CMap::parse(resolve(CMapName::from_bytes(map.name)).unwrap(), resolve).unwrap();
            for code in (map.first_bytes.start() << 8)..=(map.first_bytes.end() << 8 | 0xff) {
                let one_byte = before.lookup_cid_code(code >> 8, 1).is_some();
                let cid = after.lookup_cid_code(code, 2);
                match before.lookup_cid_code(code, 2) {
                    Some(known) => assert_eq!(cid, Some(known)),
                    None => assert_eq!(cid.is_some(), !one_byte, "{code:04x}"),
                }
            }
        }
    }
}
