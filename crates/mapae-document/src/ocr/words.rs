//! What the recogniser says about a picture: words, their boxes and how sure it is.
//!
//! It says it twice: as a table of pieces with boxes, and as plain text. The pieces of the table are often single
//! syllables where the text has a word, so the text says which pieces belong together.

/// Words kept of a picture; more is noise.
const WORDS_MAX: usize = 20_000;
/// Characters of a word.
const WORD_CHARS_MAX: usize = 200;
/// How sure a word is at least, of 100. Under it stand the specks of a photograph.
const CONFIDENCE_MIN: f64 = 30.0;
/// Columns of the table: level, page, block, paragraph, line, word, left, top, width, height, confidence, text.
const COLUMNS: usize = 12;
/// The level of a piece.
const PIECE: &str = "5";

/// A word and its box in pixels, from the top left.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Word {
    /// Words of one number stand on one line, in reading order.
    pub(super) line: usize,
    pub(super) left: f64,
    pub(super) top: f64,
    pub(super) width: f64,
    pub(super) height: f64,
    /// Of 100.
    pub(super) confidence: f64,
    pub(super) text: String,
}

/// The words of a picture.
pub(super) fn parse(said: &str) -> Vec<Word> {
    let is_row = |line: &&str| line.split('\t').count() >= COLUMNS;
    let table: usize = said.lines().take_while(is_row).map(|line| line.len() + 1).sum();
    let mut text = Running { rest: said.get(table..).unwrap_or_default() };
    let mut words: Vec<Word> = Vec::new();
    let (mut line, mut before): (usize, &[&str]) = (0, &[]);
    let rows: Vec<Vec<&str>> =
        said.lines().take_while(is_row).map(|row| row.splitn(COLUMNS, '\t').collect()).collect();
    for row in rows.iter().filter(|row| row[0] == PIECE) {
        let same_line = row[1..5] == *before;
        line += usize::from(!same_line);
        before = &row[1..5];
        let goes_on = text.goes_on(row[11].trim()) && same_line;
        let Some(piece) = piece(row, line) else { continue };
        match words.last_mut() {
            Some(word) if goes_on && word.line == line => word.join(piece),
            _ => words.push(piece),
        }
        if words.len() > WORDS_MAX {
            break;
        }
    }
    words.retain(|word| word.confidence >= CONFIDENCE_MIN && is_word(&word.text));
    words
}

fn piece(row: &[&str], line: usize) -> Option<Word> {
    let mut numbers = [0.0; 5];
    for (number, field) in numbers.iter_mut().zip(&row[6..11]) {
        *number = field.parse().ok().filter(|n: &f64| n.abs() < 1e6)?;
    }
    let [left, top, width, height, confidence] = numbers;
    let text = row[11].trim().to_owned();
    (width >= 1.0 && height >= 1.0 && !text.is_empty()).then_some(Word {
        line,
        left,
        top,
        width,
        height,
        confidence,
        text,
    })
}

impl Word {
    fn join(&mut self, more: Self) {
        let right = (self.left + self.width).max(more.left + more.width);
        let bottom = (self.top + self.height).max(more.top + more.height);
        (self.left, self.top) = (self.left.min(more.left), self.top.min(more.top));
        (self.width, self.height) = (right - self.left, bottom - self.top);
        let (few, many) = (self.text.chars().count() as f64, more.text.chars().count() as f64);
        self.confidence = (self.confidence * few + more.confidence * many) / (few + many);
        self.text.push_str(&more.text);
    }
}

/// The plain text, as far as it has not been passed.
struct Running<'t> {
    rest: &'t str,
}

impl Running<'_> {
    /// Passes a piece; answers whether it stood directly behind what was passed before.
    fn goes_on(&mut self, piece: &str) -> bool {
        let begins = self.rest.trim_start();
        match begins.strip_prefix(piece) {
            Some(rest) => {
                let directly = begins.len() == self.rest.len();
                self.rest = rest;
                directly
            }
            None => false,
        }
    }
}

/// Rules are taken for these marks when they stand close to text.
fn is_word(text: &str) -> bool {
    let rule = |c: char| matches!(c, '|' | '¦' | '_' | '￨' | 'ㅣ');
    text.chars().count() <= WORD_CHARS_MAX && !text.chars().all(rule)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SAID: &str = "level\tpage_num\tblock_num\tpar_num\tline_num\tword_num\tleft\ttop\twidth\theight\tconf\ttext\n\
        1\t1\t0\t0\t0\t0\t0\t0\t100\t100\t-1\t\n\
        5\t1\t1\t1\t1\t1\t10\t20\t30\t8\t96.5\t예\n\
        5\t1\t1\t1\t1\t2\t42\t19\t30\t8\t91.5\t산\n\
        5\t1\t1\t1\t1\t3\t90\t20\t30\t8\t92\t총액\n\
        5\t1\t1\t1\t1\t4\t130\t20\t3\t8\t95\t|\n\
        5\t1\t1\t1\t1\t5\t140\t20\t30\t8\t12.5\t~;\n\
        5\t1\t1\t1\t2\t1\t10\t40\t30\t8\t91\ttwo\n\
        예산 총액 | ~;\n\ntwo\n\x0c";

    #[test]
    fn pieces_are_words_as_the_text_has_them_and_doubtful_ones_are_left_out() {
        let words = parse(SAID);
        let seen: Vec<_> = words.iter().map(|word| (word.text.as_str(), word.line)).collect();
        assert_eq!(seen, [("예산", 1), ("총액", 1), ("two", 2)]);
        let first = &words[0];
        assert_eq!((first.left, first.top, first.width, first.height), (10.0, 19.0, 62.0, 9.0));
        assert_eq!(first.confidence, 94.0);
    }

    #[test]
    fn a_table_without_its_text_or_cut_off_gives_its_pieces() {
        let table = SAID.find("예산 총액").unwrap_or_default();
        assert_eq!(parse(&SAID[..table]).len(), 4);
        assert_eq!(parse(&SAID[..table - 10]).len(), 3);
        assert_eq!(parse("nonsense"), []);
    }
}
