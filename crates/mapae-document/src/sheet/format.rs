//! Number formats where they change what a person reads: percent, currency, units. A number that is only grouped or
//! rounded for the eye keeps its exact digits.
//!
//! The codes are those of ECMA-376, 18.8.31. Dates have been told apart before; fractions, powers of ten, scaled
//! numbers and conditions are left exact.

use crate::document::Value;

/// The two accounting formats whose currency is that of whoever looks.
const OF_THE_READER: [&str; 2] = ["_($* #,##0_)", "_($* #,##0.00_)"];

/// How numbers of a format are written.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Format {
    positive: Pattern,
    negative: Option<Pattern>,
}

#[derive(Clone, Debug, Default, PartialEq)]
struct Pattern {
    before: String,
    after: String,
    percent: bool,
    thousands: bool,
    /// Digits before the point, and the least and most behind it.
    whole: usize,
    least: usize,
    most: usize,
}

impl Format {
    /// `None` where the format does not change what a number says.
    pub(super) fn of(code: &str) -> Option<Self> {
        if OF_THE_READER.iter().any(|builtin| code.starts_with(builtin)) {
            return None;
        }
        let mut sections = code.split(';');
        let positive = Pattern::of(sections.next()?)?;
        if !positive.percent && !positive.says_something() {
            return None;
        }
        Some(Self { positive, negative: sections.next().and_then(Pattern::of) })
    }

    /// A number as it is read; other values have no number format.
    pub(super) fn text(&self, value: &Value) -> Option<String> {
        let number = match value {
            Value::Integer(n) => *n as f64,
            Value::Number(n) => *n,
            _ => return None,
        };
        match &self.negative {
            Some(negative) if number < 0.0 => Some(negative.text(-number)),
            _ if number < 0.0 => Some(format!("-{}", self.positive.text(-number))),
            _ => Some(self.positive.text(number)),
        }
    }
}

impl Pattern {
    fn of(section: &str) -> Option<Self> {
        let mut pattern = Self::default();
        let (mut digits, mut point, mut ended, mut comma) = (false, false, false, false);
        let mut chars = section.chars();
        while let Some(c) = chars.next() {
            let mut literal = String::new();
            match c {
                '0' | '#' => {
                    // Digits after words after digits are a telephone number.
                    if ended {
                        return None;
                    }
                    pattern.thousands |= comma;
                    (digits, comma) = (true, false);
                    match (point, c) {
                        (false, '0') => pattern.whole += 1,
                        (false, _) => {}
                        (true, '0') => {
                            pattern.most += 1;
                            pattern.least = pattern.most;
                        }
                        (true, _) => pattern.most += 1,
                    }
                    continue;
                }
                '.' if digits && !point && !ended => {
                    point = true;
                    continue;
                }
                ',' if digits && !point && !comma => {
                    comma = true;
                    continue;
                }
                '"' => literal.extend(chars.by_ref().take_while(|c| *c != '"')),
                '\\' => literal.extend(chars.next()),
                // Room as wide as a character, and a character that fills up.
                '_' | '*' => {
                    chars.next();
                    continue;
                }
                '[' => {
                    let inside: String = chars.by_ref().take_while(|c| *c != ']').collect();
                    if let Some(currency) = inside.strip_prefix('$') {
                        literal.push_str(currency.split('-').next().unwrap_or_default());
                    } else if inside.starts_with(['<', '>', '='])
                        || !inside.chars().all(char::is_alphanumeric)
                    {
                        return None;
                    }
                }
                '%' => {
                    pattern.percent = true;
                    literal.push('%');
                }
                '?' | '/' | '@' | ',' => return None,
                c if c.is_ascii_alphabetic() => return None,
                c => literal.push(c),
            }
            ended |= digits && !literal.is_empty();
            if digits { pattern.after.push_str(&literal) } else { pattern.before.push_str(&literal) }
        }
        // A comma at the end of the digits counts in thousands.
        (digits && !comma).then_some(pattern)
    }

    /// Whether it holds more than signs and brackets.
    fn says_something(&self) -> bool {
        let mark = |c: char| !c.is_whitespace() && !matches!(c, '-' | '+' | '(' | ')');
        self.before.contains(mark) || self.after.contains(mark)
    }

    fn text(&self, number: f64) -> String {
        let number = if self.percent { number * 100.0 } else { number };
        let most = self.most.min(15);
        let mut written = format!("{:.most$}", rounded(number, most));
        if let Some(point) = written.find('.') {
            let shown = written.trim_end_matches('0').len().max(point + 1 + self.least.min(most));
            written.truncate(shown);
            written.truncate(written.trim_end_matches('.').len());
        }
        let (whole, rest) = written.split_at(written.find('.').unwrap_or(written.len()));
        let mut digits = format!("{whole:0>width$}", width = self.whole.min(30));
        if self.thousands {
            let mut at = digits.len();
            while at > 3 {
                at -= 3;
                digits.insert(at, ',');
            }
        }
        format!("{}{digits}{rest}{}", self.before, self.after).trim().to_owned()
    }
}

/// Half is rounded up, also where it is a little less for being a double: 8.5 % is 0.085.
fn rounded(number: f64, places: usize) -> f64 {
    let scale = 10f64.powi(places as i32);
    let scaled = number * scale * (1.0 + 4.0 * f64::EPSILON);
    // Beyond this there is nothing behind the point.
    if scaled.abs() < 1e15 { scaled.round() / scale } else { number }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(code: &str, number: f64) -> Option<String> {
        Format::of(code)?.text(&Value::Number(number))
    }

    #[test]
    fn percent_currency_and_units_are_written_as_they_are_read() {
        let cases: [(&str, f64, &str); 12] = [
            ("0%", 0.085, "9%"),
            ("0.0%", 0.085, "8.5%"),
            ("0.##%", 0.5, "50%"),
            ("\"₩\"#,##0", 1_248_000.0, "₩1,248,000"),
            ("[$₩-412]#,##0;-[$₩-412]#,##0", -1200.0, "-₩1,200"),
            ("$#,##0.00", 1234.5, "$1,234.50"),
            ("$#,##0.00", -5.0, "-$5.00"),
            ("_-\"₩\"* #,##0_-;\\-\"₩\"* #,##0_-;_-\"₩\"* \"-\"_-;_-@_-", 98_000.0, "₩98,000"),
            ("#,##0.00\\ [$€-407]", 9.5, "9.50 €"),
            ("\"$\"#,##0_);[Red]\\(\"$\"#,##0\\)", -7.0, "($7)"),
            ("#,##0\"원\"", 12_345.0, "12,345원"),
            ("0000\"호\"", 7.0, "0007호"),
        ];
        for (code, number, read) in cases {
            assert_eq!(text(code, number).as_deref(), Some(read), "{code}");
        }
    }

    #[test]
    fn what_only_pleases_the_eye_is_left_exact() {
        for code in [
            "General",
            "0.00",
            "#,##0",
            "#,##0 ;(#,##0)",
            "_-* #,##0_-;\\-* #,##0_-",
            "0.00E+00",
            "# ?/?",
            "#,##0,\"천\"",
            "[>=100]0\"점\";0",
            "000\\-0000",
            "@",
            "yyyy\"년\"",
            "_($* #,##0_);_($* (#,##0);_($* \"-\"_);_(@_)",
        ] {
            assert_eq!(Format::of(code), None, "{code}");
        }
        assert_eq!(Format::of("0%").and_then(|format| format.text(&Value::Bool(true))), None);
    }
}
