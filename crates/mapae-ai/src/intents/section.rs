//! Lines of a text, and which of them are headings.

use std::ops::Range;

/// A line that holds something.
pub(super) struct Line<'t> {
    /// Without marks of a heading or list.
    pub(super) text: &'t str,
    /// The whole line, without the blanks around it.
    pub(super) at: Range<usize>,
    pub(super) heading: bool,
    /// An empty line, or nothing, stands before it.
    pub(super) apart: bool,
}

/// Characters of a heading, at most.
const HEADING_CHARS_MAX: usize = 80;

pub(super) fn lines(text: &str) -> Vec<Line<'_>> {
    let mut lines = Vec::new();
    let (mut at, mut apart) = (0, true);
    for raw in text.split_inclusive('\n') {
        let line = raw.trim();
        let start = at + (raw.len() - raw.trim_start().len());
        at += raw.len();
        if line.is_empty() {
            apart = true;
            continue;
        }
        let (rest, marked) = without_mark(line);
        lines.push(Line {
            text: rest,
            at: start..start + line.len(),
            heading: marked && is_title(rest),
            apart,
        });
        apart = false;
    }
    lines
}

/// A line without the mark of its heading, and whether it has one: `## X`, `1.2 X`, `제3조(X)`, `■ X`.
fn without_mark(line: &str) -> (&str, bool) {
    let hashes = line.bytes().take_while(|b| *b == b'#').count();
    if (1..=6).contains(&hashes) {
        let rest = &line[hashes..];
        return (rest.trim().trim_end_matches('#').trim(), rest.starts_with(' '));
    }
    if let Some(rest) = line.strip_prefix(['■', '□', '◆', '◇', '▶']) {
        return (rest.trim(), true);
    }
    if let Some((number, rest)) = line.strip_prefix('제').and_then(|l| l.split_once(['조', '장', '절']))
        && number.trim().chars().all(|c| c.is_ascii_digit())
        && !number.trim().is_empty()
    {
        let rest = rest.trim();
        let name = rest.strip_prefix('(').and_then(|r| r.split_once(')'));
        return match name {
            Some((name, after)) if after.trim().is_empty() => (name, true),
            Some(_) => (line, false),
            None => (rest, true),
        };
    }
    // Only numbers of parts of parts: `1. X` is as often an item of a list.
    let number = line.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(line.len());
    let parts = line[..number].trim_end_matches('.').split('.').filter(|part| !part.is_empty()).count();
    if parts >= 2 && line[number..].starts_with(' ') {
        return (line[number..].trim(), true);
    }
    (line, false)
}

fn is_title(line: &str) -> bool {
    !line.is_empty()
        && line.contains(char::is_alphabetic)
        && line.chars().count() <= HEADING_CHARS_MAX
        && !line.ends_with(['.', ',', ';', ':'])
}
