//! Separated values (RFC 4180 and what programs make of it) to one sheet.
//!
//! The text of a cell is exactly what the file holds. A value is given only where the text is a plain number
//! that loses nothing as one: `007`, `1,234` and telephone numbers stay text.

use super::grid::BookBuilder;
use super::text;
use super::value::Content;
use crate::document::Value;
use crate::error::DocumentError;

/// Separators tried, the likeliest first.
const SEPARATORS: [char; 4] = [',', '\t', ';', '|'];
/// Records by which the separator is chosen.
const SAMPLE: usize = 100;

pub(super) fn read(
    data: &[u8],
    name: &str,
    separator: Option<char>,
    book: &mut BookBuilder,
) -> Result<(), DocumentError> {
    let (text, warnings) = text::decode(data);
    warnings.into_iter().for_each(|warning| book.warn(warning));
    let separator = separator.unwrap_or_else(|| guess(&text));
    let mut sheet = book.sheet(name.rsplit_once('.').map_or(name, |(stem, _)| stem))?;
    for (record, row) in Records::new(&text, separator).zip(0..) {
        for (field, col) in record.into_iter().zip(0..) {
            if let Some(content) = content(field) {
                sheet.push(row, col, content)?;
            }
        }
    }
    sheet.finish(Vec::new());
    Ok(())
}

fn content(field: String) -> Option<Content> {
    let value = plain_number(&field);
    let mut content = Content::text(field)?;
    content.value = value;
    Some(content)
}

/// The value of a number written so that writing it again gives the same text.
fn plain_number(text: &str) -> Option<Value> {
    if !text.bytes().all(|b| b.is_ascii_digit() || matches!(b, b'-' | b'.')) {
        return None;
    }
    if let Ok(integer) = text.parse::<i64>() {
        return (integer.to_string() == text).then_some(Value::Integer(integer));
    }
    let number: f64 = text.parse().ok()?;
    // 1.50 is 1.5 with its zeros cut.
    let written = if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.') } else { text };
    (number.to_string() == written).then_some(Value::Number(number))
}

/// The separator by which most of the first records have the same number of fields.
fn guess(text: &str) -> char {
    let score = |separator: char| {
        let mut lengths: Vec<usize> = Records::new(text, separator).take(SAMPLE).map(|r| r.len()).collect();
        lengths.sort_unstable();
        let (same, fields) =
            lengths.chunk_by(|a, b| a == b).map(|run| (run.len(), run[0])).max().unwrap_or_default();
        if fields > 1 { same * 1000 + fields } else { 0 }
    };
    let mut best = (SEPARATORS[0], 0);
    for separator in SEPARATORS {
        let score = score(separator);
        if score > best.1 {
            best = (separator, score);
        }
    }
    best.0
}

/// The records of a text. Quotes protect separators and line ends; two stand for one.
struct Records<'t> {
    rest: &'t str,
    separator: char,
}

impl<'t> Records<'t> {
    fn new(text: &'t str, separator: char) -> Self {
        Self { rest: text, separator }
    }
}

impl Iterator for Records<'_> {
    type Item = Vec<String>;

    fn next(&mut self) -> Option<Vec<String>> {
        if self.rest.is_empty() {
            return None;
        }
        let mut fields = vec![String::new()];
        let mut quoted = false;
        let mut chars = self.rest.char_indices().peekable();
        while let Some((at, c)) = chars.next() {
            let field = fields.last_mut().expect("a record has at least one field");
            match c {
                '"' if quoted && chars.peek().is_some_and(|(_, next)| *next == '"') => {
                    chars.next();
                    field.push('"');
                }
                '"' if quoted => quoted = false,
                '"' if field.is_empty() => quoted = true,
                c if quoted => field.push(c),
                '\r' | '\n' => {
                    let line_end = if self.rest[at..].starts_with("\r\n") { 2 } else { 1 };
                    self.rest = &self.rest[at + line_end..];
                    return Some(fields);
                }
                c if c == self.separator => fields.push(String::new()),
                c => field.push(c),
            }
        }
        self.rest = "";
        Some(fields)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn records(text: &str, separator: char) -> Vec<Vec<String>> {
        Records::new(text, separator).collect()
    }

    #[test]
    fn quotes_protect_separators_line_ends_and_quotes() {
        let text = "a,\"b,\"\"c\"\"\r\nd\",e\r\n\r\n1,2";
        assert_eq!(records(text, ','), [vec!["a", "b,\"c\"\r\nd", "e"], vec![""], vec!["1", "2"]]);
    }

    #[test]
    fn the_separator_is_the_one_that_makes_a_table() {
        assert_eq!(guess("a;b;c\n1,5;2;3\n4;5,5;6\n"), ';');
        assert_eq!(guess("이름\t금액\n가\t1,000\n"), '\t');
        assert_eq!(guess("just text"), ',');
    }

    #[test]
    fn only_numbers_that_lose_nothing_are_values() {
        assert_eq!(plain_number("-12"), Some(Value::Integer(-12)));
        assert_eq!(plain_number("1.50"), Some(Value::Number(1.5)));
        for text in
            ["007", "1,234", "010-1234-5678", "12345678901234567890.123456789", "1.2.3", "", "-", "1e5"]
        {
            assert_eq!(plain_number(text), None, "{text}");
        }
    }
}
