//! Words to lines and chunks, and what kind of text a chunk is.

use super::frame::Word;
use super::geometry::Area;
use super::tuning::Tuning;

/// Dots in a row that lead the eye and say nothing.
const LEADER: usize = 4;
/// How far the baselines of one line may be apart, in ems.
const BASELINE: f64 = 0.35;

/// A piece of a line that belongs together.
#[derive(Clone, Debug)]
pub(super) struct Chunk {
    pub(super) words: Vec<Word>,
    pub(super) area: Area,
}

impl Chunk {
    fn of(word: Word) -> Self {
        Self { area: word.area, words: vec![word] }
    }

    fn push(&mut self, word: Word) {
        self.area = self.area.union(&word.area);
        self.words.push(word);
    }

    pub(super) fn from_words(words: &[Word]) -> Option<Self> {
        let mut words = words.iter().cloned();
        let mut chunk = Self::of(words.next()?);
        words.for_each(|word| chunk.push(word));
        Some(chunk)
    }

    pub(super) fn text(&self) -> String {
        text(&self.words)
    }

    pub(crate) fn is_number(&self) -> bool {
        self.words.iter().all(|word| is_number(&word.text))
    }

    /// Whether it is a mark before an item: a bullet, a number or a letter with a point or a bracket.
    pub(super) fn is_bullet(&self) -> bool {
        let [word] = self.words.as_slice() else { return false };
        is_bullet(&word.text)
    }

    /// Whether it is a sign that belongs to a number beside it: a currency, a per cent, a note.
    pub(super) fn is_mark(&self) -> bool {
        let [word] = self.words.as_slice() else { return false };
        let inner = word.text.strip_prefix('(').and_then(|rest| rest.strip_suffix(')'));
        inner.is_some_and(|inner| inner.len() == 1 && inner.chars().all(char::is_alphanumeric))
            || matches!(word.text.as_str(), "%" | "*" | "**" | "***" | "†" | "‡" | ")" | "a" | "b" | "c")
            || self.is_currency()
    }

    pub(super) fn is_currency(&self) -> bool {
        self.words.iter().all(|w| matches!(w.text.as_str(), "$" | "€" | "£" | "₩" | "¥" | "US$"))
    }

    pub(super) fn size(&self) -> f64 {
        self.words.iter().map(|w| w.size).fold(0.0, f64::max)
    }
}

/// Chunks on one baseline, from left to right.
#[derive(Clone, Debug)]
pub(super) struct Line {
    pub(super) base: f64,
    pub(super) chunks: Vec<Chunk>,
}

impl Line {
    pub(super) fn area(&self) -> Area {
        Area::around(self.chunks.iter().map(|c| &c.area)).unwrap_or(Area::new(0.0, 0.0, 0.0, 0.0))
    }

    pub(super) fn size(&self) -> f64 {
        self.chunks.iter().map(Chunk::size).fold(0.0, f64::max)
    }
}

pub(super) fn text(words: &[Word]) -> String {
    let mut text = String::new();
    for word in words {
        if !text.is_empty() {
            text.push(' ');
        }
        text.push_str(&word.text);
    }
    text
}

/// Words on one baseline, line by line, each from left to right.
pub(super) fn rows_of_words(words: &[Word]) -> Vec<Vec<Word>> {
    let mut sorted: Vec<&Word> = words.iter().collect();
    sorted.sort_by(|a, b| a.base.total_cmp(&b.base));
    let mut lines: Vec<Vec<Word>> = Vec::new();
    let mut base = f64::NEG_INFINITY;
    for word in sorted {
        if word.base - base <= BASELINE * word.size
            && let Some(line) = lines.last_mut()
        {
            line.push(word.clone());
        } else {
            base = word.base;
            lines.push(vec![word.clone()]);
        }
    }
    for line in &mut lines {
        line.sort_by(|a, b| a.area.x0.total_cmp(&b.area.x0));
    }
    lines
}

/// The gaps that part things in the writing at hand, ems.
#[derive(Clone, Copy, Debug)]
pub(super) struct Gaps {
    /// Between two cells.
    pub(super) hole: f64,
    /// Between two numbers that are two cells.
    pub(super) number_hole: f64,
    /// Between two words that lie over different columns and are two cells.
    pub(super) cut: f64,
    /// The same in headings.
    pub(super) heading_cut: f64,
}

impl Gaps {
    /// Typewriter faces have wide spaces, so what is a hole goes by the spaces between words.
    pub(super) fn of(words: &[Word], tuning: &Tuning) -> Self {
        let mut spaces: Vec<f64> = Vec::new();
        for line in rows_of_words(words) {
            for pair in line.windows(2) {
                let gap = (pair[1].area.x0 - pair[0].area.x1) / pair[0].size.min(pair[1].size).max(0.1);
                let text = !is_number(&pair[0].text) && !is_number(&pair[1].text);
                if text && (0.1..1.5).contains(&gap) {
                    spaces.push(gap);
                }
            }
        }
        spaces.sort_by(f64::total_cmp);
        let space = spaces.get(spaces.len() / 4).copied().unwrap_or(0.25);
        Self {
            hole: tuning.hole.max(1.9 * space),
            number_hole: tuning.number_hole,
            cut: tuning.cut.max(1.3 * space),
            heading_cut: tuning.heading_cut.max(1.5 * space),
        }
    }
}

pub(super) fn lines(words: &[Word], gaps: Gaps) -> Vec<Line> {
    rows_of_words(words).into_iter().map(|words| line(words, gaps)).collect()
}

fn line(words: Vec<Word>, gaps: Gaps) -> Line {
    let base = words.iter().map(|w| w.base).sum::<f64>() / words.len().max(1) as f64;
    let mut chunks: Vec<Chunk> = Vec::new();
    for word in words {
        match chunks.last_mut() {
            Some(chunk) if !parts(chunk, &word, gaps) => chunk.push(word),
            _ => chunks.push(Chunk::of(word)),
        }
    }
    Line { base, chunks }
}

/// Whether `word` begins a new chunk. Numbers stand closer in tables than words do: two of them beside each
/// other are two cells long before two words would be.
fn parts(chunk: &Chunk, word: &Word, gaps: Gaps) -> bool {
    let Some(before) = chunk.words.last() else { return false };
    let gap = word.area.x0 - chunk.area.x1;
    let size = before.size.min(word.size);
    let hole = if is_number(&before.text) && is_number(&word.text) { gaps.number_hole } else { gaps.hole };
    gap > hole * size
}

/// Whether a word is a number, or what stands in the place of one.
pub(crate) fn is_number(text: &str) -> bool {
    let mut digits = 0;
    let mut letters = 0;
    for c in text.chars() {
        if c.is_ascii_digit() {
            digits += 1;
        } else if c.is_alphabetic() {
            letters += 1;
        }
    }
    (digits > 0 && letters <= 1 && letters < digits) || stands_for_number(text)
}

/// "Not available", "none" and the like, as tables write them.
fn stands_for_number(text: &str) -> bool {
    const SIGNS: [char; 15] = ['-', '–', '—', '−', '‐', '*', '†', '‡', '#', '.', '…', '△', '▲', '▽', '▼'];
    matches!(
        text,
        "N/A" | "n/a" | "NA" | "n.a." | "(NA)" | "X" | "Ref." | "$" | "€" | "£" | "%" | "(-)" | "(X)"
    ) || (!text.is_empty() && text.chars().count() <= 4 && text.chars().all(|c| SIGNS.contains(&c)))
}

fn is_bullet(text: &str) -> bool {
    const BULLETS: [char; 16] =
        ['•', '▪', '■', '□', '○', '●', '◦', '‣', '–', '-', '*', '·', '➢', '✓', '❖', '\u{f0b7}'];
    let mut chars = text.chars();
    match (chars.next(), chars.next()) {
        (Some(c), None) => BULLETS.contains(&c) || c == '\u{fffd}' || ('\u{e000}'..='\u{f8ff}').contains(&c),
        _ => {
            let inner = text.trim_start_matches('(').trim_end_matches(['.', ')']);
            inner.len() < text.len()
                && inner.chars().count() <= 3
                && inner.chars().all(char::is_alphanumeric)
                && !text.starts_with('.')
                && !(text.starts_with('(') && inner.chars().all(|c| c.is_ascii_digit()) && inner.len() > 1)
        }
    }
}

/// Rows of hyphens and the like, with which typewriters rule, as rules; and the words without them. In a line
/// with other words they are places to fill in, and say nothing.
pub(super) fn typed_rules(words: &[Word]) -> (Vec<Word>, Vec<Area>) {
    let ruling = |w: &Word| {
        w.text.chars().count() >= 5 && w.text.chars().all(|c| matches!(c, '-' | '_' | '=' | '—' | '─'))
    };
    if !words.iter().any(ruling) {
        return (words.to_vec(), Vec::new());
    }
    let mut rules = Vec::new();
    let mut kept = Vec::new();
    for line in rows_of_words(words) {
        if line.iter().all(ruling) {
            rules.extend(
                line.iter()
                    .map(|w| Area::new(w.area.x0, w.base - 0.3 * w.size, w.area.x1, w.base - 0.2 * w.size)),
            );
        } else {
            kept.extend(line.into_iter().filter(|w| !ruling(w)));
        }
    }
    (kept, rules)
}

/// The words without the dots that lead from a label to its number. A word that dots are glued to is cut
/// there, its parts placed as if all characters were of one width.
pub(super) fn without_leaders(words: &[Word]) -> Vec<Word> {
    let mut out = Vec::with_capacity(words.len());
    for word in words {
        let chars: Vec<char> = word.text.chars().collect();
        let dot = |c: &char| matches!(c, '.' | '·' | '…' | '_' | '․');
        if chars.len() < LEADER || !chars.windows(LEADER).any(|w| w.iter().all(dot)) {
            out.push(word.clone());
            continue;
        }
        let step = word.area.width() / chars.len() as f64;
        let mut at = 0;
        while at < chars.len() {
            let leader = chars[at..].iter().take_while(|c| dot(c)).count();
            if leader >= LEADER {
                at += leader;
                continue;
            }
            let start = at;
            while at < chars.len() && chars[at..].iter().take_while(|c| dot(c)).count() < LEADER {
                at += 1;
            }
            let mut part = word.clone();
            part.text = chars[start..at].iter().collect();
            part.area.x0 = word.area.x0 + start as f64 * step;
            part.area.x1 = word.area.x0 + at as f64 * step;
            out.push(part);
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_told_from_words() {
        for number in
            ["1,234", "12.5%", "($5.2)", "—", "–", "3.1a", "2,5", "†", "1998-99", "△12", "n/a", "..."]
        {
            assert!(is_number(number), "{number}");
        }
        for word in ["Total", "A4b", "abc", "", "§", "합계", "제3조"] {
            assert!(!is_number(word), "{word}");
        }
    }

    #[test]
    fn marks_of_items_are_told_from_cells() {
        for mark in ["•", "1.", "(a)", "iv)", "12."] {
            assert!(is_bullet(mark), "{mark}");
        }
        for cell in ["12", "Total", "(12)", "1.5", "4.6"] {
            assert!(!is_bullet(cell), "{cell}");
        }
    }

    #[test]
    fn dots_that_lead_to_a_number_are_no_text() {
        let word = |text: &str| Word {
            text: text.into(),
            area: Area::new(0.0, 0.0, 100.0, 10.0),
            base: 8.0,
            size: 10.0,
        };
        let texts = |words: &[Word]| words.iter().map(|w| w.text.clone()).collect::<Vec<_>>();
        assert_eq!(texts(&without_leaders(&[word("Total........12")])), ["Total", "12"]);
        assert_eq!(texts(&without_leaders(&[word("........")])), [""; 0]);
        assert_eq!(texts(&without_leaders(&[word("etc...")])), ["etc..."]);
    }
}
