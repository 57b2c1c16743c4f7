//! Text of glyphs that come without any: an embedded TrueType or OpenType font often still knows which
//! character each of its glyphs draws.

use std::collections::HashMap;

use hayro_interpret::font::OutlineGlyph;
use skrifa::{FontRef, MetadataProvider};

/// Glyph to character, one map a font, kept for the whole document.
#[derive(Default)]
pub(super) struct ReverseCmaps {
    fonts: HashMap<u128, HashMap<u32, char>>,
}

impl ReverseCmaps {
    pub(super) fn lookup(&mut self, glyph: &OutlineGlyph) -> Option<char> {
        let font = glyph.font_data()?;
        let map = self.fonts.entry(font.cache_key).or_insert_with(|| reversed((*font.data).as_ref()));
        map.get(&glyph.glyph_id().to_u32()).copied()
    }
}

/// The lowest character of each glyph; private-use characters say nothing to a reader.
fn reversed(font: &[u8]) -> HashMap<u32, char> {
    let mut map = HashMap::new();
    let Ok(font) = FontRef::new(font) else { return map };
    for (code, glyph) in font.charmap().mappings() {
        let private = matches!(code, 0xE000..=0xF8FF | 0xF_0000..=0x10_FFFF);
        let Some(c) = char::from_u32(code).filter(|c| !private && !c.is_control()) else { continue };
        map.entry(glyph.to_u32()).and_modify(|known: &mut char| *known = (*known).min(c)).or_insert(c);
    }
    map
}
