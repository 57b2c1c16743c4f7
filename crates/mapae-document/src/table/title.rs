//! The line that names a table.

use super::geometry::{Area, shared};
use super::line::Line;

/// Words that begin the caption of a table or a figure.
const CAPTIONS: [&str; 10] =
    ["table", "exhibit", "figure", "fig.", "chart", "표", "<표", "[표", "〈표", "그림"];

/// Whether a line begins as captions do: "Table 3", "표 2-1".
pub(crate) fn is_caption(text: &str) -> bool {
    let lower = text.to_lowercase();
    CAPTIONS.iter().any(|word| {
        lower.strip_prefix(word).is_some_and(|rest| {
            let rest = rest.trim_start();
            rest.chars().next().is_some_and(|c| c.is_ascii_digit())
                || rest.split([' ', '.', ':', '-']).next().is_some_and(is_number_word)
        })
    })
}

/// Whether what stands in `inside` is called a figure, by its first line or by the lines above it: a diagram's
/// labels stand in rows and columns too.
pub(super) fn is_figure(lines: &[Line], inside: &[Line]) -> bool {
    let Some(first) = inside.first() else { return false };
    let text = |line: &Line| line.chunks.iter().map(super::line::Chunk::text).collect::<Vec<_>>().join(" ");
    if names_figure(&text(first)) {
        return true;
    }
    let (mut y, area) = (first.base, first.area());
    for line in lines.iter().rev().filter(|l| l.base < first.base - 1.0).take(4) {
        if y - line.base > 3.5 * line.size().max(first.size()) || is_table(&text(line)) {
            return false;
        }
        if shared((line.area().x0, line.area().x1), (area.x0, area.x1)) > 0.0 && names_figure(&text(line)) {
            return true;
        }
        y = line.base;
    }
    false
}

fn names_figure(text: &str) -> bool {
    let lower = text.to_lowercase();
    is_caption(text) && ["fig", "chart", "그림"].iter().any(|word| lower.starts_with(word))
}

fn is_table(text: &str) -> bool {
    is_caption(text) && !names_figure(text)
}

/// A Roman number, or a letter with digits behind: "IV", "A-1".
fn is_number_word(word: &str) -> bool {
    !word.is_empty()
        && word.len() <= 4
        && word.chars().all(|c| matches!(c, 'i' | 'v' | 'x') || c.is_ascii_digit())
        || word.len() == 1 && word.chars().all(|c| c.is_ascii_alphabetic())
}

/// The caption above a table, else the short line of text that stands right above it.
pub(super) fn above(lines: &[Line], area: &Area) -> Option<String> {
    let mut near: Vec<&Line> = lines
        .iter()
        .filter(|l| l.base < area.y0 + 2.0 && shared((l.area().x0, l.area().x1), (area.x0, area.x1)) > 0.0)
        .collect();
    near.sort_by(|a, b| b.base.total_cmp(&a.base));
    let mut bottom = area.y0;
    let mut taken: Vec<String> = Vec::new();
    for line in near.into_iter().take(4) {
        if bottom - line.base > 3.0 * line.size() || line.chunks.len() > 2 {
            break;
        }
        let text = line.chunks.iter().map(super::line::Chunk::text).collect::<Vec<_>>().join(" ");
        let caption = is_caption(&text);
        bottom = line.area().y0;
        taken.push(text);
        if caption {
            taken.reverse();
            return Some(taken.join(" "));
        }
    }
    // "(in thousands)", "(단위: 원)": what the numbers are counted in names no table.
    let first = taken.into_iter().find(|line| !line.starts_with(['(', '[']))?;
    (first.split(' ').count() <= 14 && !first.ends_with(['.', ';', ','])).then_some(first)
}
