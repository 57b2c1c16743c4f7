//! The characters of a paragraph: UTF-16, in which the codes below a space stand for something else. Most of those
//! take the room of eight characters; the ones that something is anchored at name it in a record of its own, in the
//! same order.

use super::record::Record;

/// A piece of a paragraph.
pub(super) enum Piece {
    Text(String),
    /// The next of the paragraph's controls stands here.
    Control,
}

/// Characters that a control takes.
const CONTROL: usize = 8;

pub(super) fn pieces(data: &[u8]) -> Vec<Piece> {
    let units: Vec<u16> = data.chunks_exact(2).map(|pair| u16::from_le_bytes([pair[0], pair[1]])).collect();
    let (mut pieces, mut run, mut at) = (Vec::new(), Vec::new(), 0);
    while let Some(unit) = units.get(at).copied() {
        let (width, written) = match unit {
            0 | 13 => (1, None),
            // A break of a line; a hyphen; spaces that do not break or do not stretch.
            10 => (1, Some('\n')),
            24 => (1, Some('-')),
            30 | 31 => (1, Some(' ')),
            25..=29 => (1, None),
            9 => (CONTROL, Some('\t')),
            // Ends of fields and marks of titles: something to lay out, nothing anchored.
            4..=8 | 19 | 20 => (CONTROL, None),
            1..=31 => {
                flush(&mut run, &mut pieces);
                pieces.push(Piece::Control);
                (CONTROL, None)
            }
            _ => {
                run.push(unit);
                at += 1;
                continue;
            }
        };
        run.extend(written.map(|c| c as u16));
        at += width;
    }
    flush(&mut run, &mut pieces);
    pieces
}

fn flush(run: &mut Vec<u16>, pieces: &mut Vec<Piece>) {
    if !run.is_empty() {
        pieces.push(Piece::Text(String::from_utf16_lossy(run)));
        run.clear();
    }
}

pub(super) fn utf16(bytes: &[u8]) -> String {
    let units: Vec<u16> = bytes.chunks_exact(2).map(|pair| u16::from_le_bytes([pair[0], pair[1]])).collect();
    String::from_utf16_lossy(&units)
}

/// The text of a control that is read within the line: a word with its gloss, characters set over each other.
pub(super) fn inline(control: &Record<'_, '_>) -> Option<String> {
    match control.id() {
        b"tdut" => {
            let main = control.text(4);
            let gloss = control.text(6 + 2 * usize::from(control.word(4)?));
            Some(format!("{main} {gloss} "))
        }
        b"tcps" => Some(control.text(4)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn controls_take_eight_characters_and_tabs_are_tabs() {
        let mut units: Vec<u16> = "가".encode_utf16().collect();
        units.extend([9, 0, 0, 0, 0, 0, 0, 9]);
        units.extend("나".encode_utf16());
        units.extend([11, 1, 2, 3, 4, 0, 0, 11]);
        units.extend("다".encode_utf16().chain([13]));
        let bytes: Vec<u8> = units.iter().flat_map(|unit| unit.to_le_bytes()).collect();
        let told: Vec<String> = pieces(&bytes)
            .into_iter()
            .map(|piece| match piece {
                Piece::Text(text) => text,
                Piece::Control => "*".to_owned(),
            })
            .collect();
        assert_eq!(told, ["가\t나", "*", "다"]);
    }
}
