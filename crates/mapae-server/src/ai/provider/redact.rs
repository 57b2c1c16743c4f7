//! What is said of persons, taken out before a text leaves the machine, and put back into what comes.
//!
//! Numbers count where their check digits fit, so that other numbers of that length stay.

/// Digits of a number: no card has more.
const DIGITS_MAX: usize = 19;
/// Korea's number among countries.
const KOREA: [u32; 2] = [8, 2];
/// Between two digits, as in `(02) - 123`.
const SEPARATORS_MAX: usize = 3;

/// A text without them, and what was in their places. Never kept, never logged.
pub(crate) struct Redacted {
    pub(crate) text: String,
    taken: Vec<(String, String)>,
}

/// Resident registration numbers, business numbers, cards, phones and mail addresses to placeholders such as `[PHONE-1]`.
/// The same one has the same placeholder.
pub(crate) fn redact(text: &str) -> Redacted {
    let chars: Vec<(usize, char)> = text.char_indices().collect();
    let mut redacted = Redacted { text: String::with_capacity(text.len()), taken: Vec::new() };
    let (mut at, mut copied) = (0, 0);
    while at < chars.len() {
        let Some((kind, end)) = found(&chars, at) else {
            at += 1;
            continue;
        };
        let (from, to) = (chars[at].0, chars.get(end).map_or(text.len(), |c| c.0));
        redacted.text.push_str(&text[copied..from]);
        let placeholder = redacted.placeholder(kind, &text[from..to]);
        redacted.text.push_str(&placeholder);
        (at, copied) = (end, to);
    }
    redacted.text.push_str(&text[copied..]);
    redacted
}

impl Redacted {
    /// What it says with everything in its place again.
    pub(crate) fn restore(&self, text: &str) -> String {
        self.taken.iter().fold(text.to_owned(), |text, (placeholder, was)| text.replace(placeholder, was))
    }

    fn placeholder(&mut self, kind: &str, was: &str) -> String {
        if let Some((placeholder, _)) = self.taken.iter().find(|(_, taken)| taken == was) {
            return placeholder.clone();
        }
        let placeholder = format!("[{kind}-{}]", self.taken.len() + 1);
        self.taken.push((placeholder.clone(), was.to_owned()));
        placeholder
    }
}

/// What begins at that character, and where it ends.
fn found(chars: &[(usize, char)], at: usize) -> Option<(&'static str, usize)> {
    let back = |by: usize| at.checked_sub(by).map(|before| chars[before].1);
    let before = back(1);
    let c = chars[at].1;
    if is_local(c)
        && !before.is_some_and(is_local)
        && let Some(end) = mail(chars, at)
    {
        return Some(("EMAIL", end));
    }
    if !(c.is_ascii_digit() || c == '+') || continues(before, back(2)) {
        return None;
    }
    kind(&numbers(chars, at), c == '+')
}

/// Whether digits are of a kind.
type Fits<'f> = &'f dyn Fn(&[u32]) -> bool;

/// What the number is and where it ends. Another one may follow over a blank, so each place where digits end is tried,
/// the nearest first: a part of the next would leave the rest of it to be read.
fn kind((digits, ends): &Numbers, country: bool) -> Option<(&'static str, usize)> {
    let first = |fits: Fits<'_>| ends.iter().find(|(count, _)| fits(&digits[..*count])).map(|(_, end)| *end);
    let last =
        |fits: Fits<'_>| ends.iter().rev().find(|(count, _)| fits(&digits[..*count])).map(|(_, end)| *end);
    if country {
        let end = if digits.starts_with(&KOREA) { first(&is_korean) } else { last(&is_foreign) };
        return Some(("PHONE", end?));
    }
    // A card's digits are in fours or in one; in other groups it is looked for last, as one in ten numbers has the check.
    let fours = |digits: &[u32]| (ends[0].0 == 4 || ends[0].0 == digits.len()) && is_card(digits);
    let kinds: [(_, Fits<'_>); 5] = [
        ("RRN", &is_resident),
        ("CARD", &fours),
        ("BRN", &is_business),
        ("PHONE", &is_phone),
        ("CARD", &is_card),
    ];
    kinds.iter().find_map(|(kind, fits)| Some((*kind, first(fits)?)))
}

/// Whether what stands before says that it is the rest of a word or of a longer number.
fn continues(before: Option<char>, second: Option<char>) -> bool {
    match before {
        Some(c) if c.is_ascii_alphanumeric() => true,
        Some(c) if c == '.' || is_dash(c) => second.is_some_and(|c| c.is_ascii_digit()),
        _ => false,
    }
}

/// Digits, and each place where they may end: how many digits those are, and the character behind.
type Numbers = (Vec<u32>, Vec<(usize, usize)>);

/// Digits with separators between them. No letter stands where they end, for that says that they are part of something
/// else.
fn numbers(chars: &[(usize, char)], at: usize) -> Numbers {
    let (mut digits, mut ends, mut separators) = (Vec::new(), Vec::new(), 0);
    for (i, (_, c)) in chars[at..].iter().enumerate() {
        if let Some(digit) = c.to_digit(10) {
            if digits.len() == DIGITS_MAX {
                break;
            }
            digits.push(digit);
            separators = 0;
            if !chars.get(at + i + 1).is_some_and(|(_, next)| next.is_ascii_alphanumeric()) {
                ends.push((digits.len(), at + i + 1));
            }
        } else if i > 0 {
            separators += 1;
            let separates = is_dash(*c) || matches!(c, ' ' | '\u{a0}' | '.' | '(' | ')');
            if separators > SEPARATORS_MAX || !separates {
                break;
            }
        }
    }
    (digits, ends)
}

/// A hyphen, or one of those that typesetters put in its place.
fn is_dash(c: char) -> bool {
    matches!(c, '-' | '\u{2010}'..='\u{2013}' | '\u{2212}')
}

fn mail(chars: &[(usize, char)], at: usize) -> Option<usize> {
    let local = chars[at..].iter().take(65).position(|(_, c)| !is_local(*c))?;
    if local == 0 || chars[at + local].1 != '@' {
        return None;
    }
    let host = &chars[at + local + 1..];
    let is_host = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '.';
    let length = host.iter().take(254).position(|(_, c)| !is_host(*c)).unwrap_or(host.len().min(254));
    let host: String = host[..length].iter().map(|(_, c)| c).collect();
    let host = host.trim_end_matches(['.', '-']);
    let ending = host.rsplit_once('.')?.1;
    (ending.len() >= 2 && ending.chars().all(|c| c.is_ascii_alphabetic()))
        .then(|| at + local + 1 + host.len())
}

fn is_local(c: char) -> bool {
    c.is_ascii_alphanumeric() || "._%+-".contains(c)
}

/// A resident registration number: a date of birth and a check digit. Since October 2020 new ones have none.
fn is_resident(digits: &[u32]) -> bool {
    if digits.len() != 13 {
        return false;
    }
    let (month, day, sort) = (digits[2] * 10 + digits[3], digits[4] * 10 + digits[5], digits[6]);
    let dated = (1..=12).contains(&month) && (1..=31).contains(&day) && (1..=8).contains(&sort);
    let weights = [2, 3, 4, 5, 6, 7, 8, 9, 2, 3, 4, 5];
    let sum: u32 = digits.iter().zip(weights).map(|(digit, weight)| digit * weight).sum();
    let checked = (11 - sum % 11) % 10 == digits[12];
    let recent = digits[0] * 10 + digits[1] >= 20 && matches!(sort, 3 | 4 | 7 | 8);
    dated && (checked || recent)
}

fn is_business(digits: &[u32]) -> bool {
    if digits.len() != 10 {
        return false;
    }
    let weights = [1, 3, 7, 1, 3, 7, 1, 3, 5];
    let sum: u32 = digits.iter().zip(weights).map(|(digit, weight)| digit * weight).sum();
    (10 - (sum + digits[8] * 5 / 10) % 10) % 10 == digits[9]
}

/// Luhn's check.
fn is_card(digits: &[u32]) -> bool {
    let double = |digit: u32| if digit > 4 { 2 * digit - 9 } else { 2 * digit };
    let sum =
        digits.iter().rev().enumerate().map(|(i, digit)| if i % 2 == 1 { double(*digit) } else { *digit });
    (13..=DIGITS_MAX).contains(&digits.len())
        && sum.sum::<u32>().is_multiple_of(10)
        && matches!(digits[0], 2..=6 | 9)
}

/// A number with the country's before it, 15 digits at most (ITU-T E.164).
fn is_foreign(digits: &[u32]) -> bool {
    (9..=15).contains(&digits.len())
}

/// With the country's number, in place of the first zero or, as some write it, before it.
fn is_korean(digits: &[u32]) -> bool {
    let Some(rest) = digits.strip_prefix(&KOREA) else { return false };
    let rest = rest.strip_prefix(&[0]).unwrap_or(rest);
    is_phone(&[&[0], rest].concat())
}

/// Korean numbers by how they begin.
fn is_phone(digits: &[u32]) -> bool {
    match digits {
        [0, 1, 0 | 1 | 6..=9, ..] => matches!(digits.len(), 10 | 11),
        [0, 2, ..] => matches!(digits.len(), 9 | 10),
        [0, 3..=7, ..] => matches!(digits.len(), 10 | 11),
        [1, 5 | 6 | 8, ..] => digits.len() == 8,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::redact;

    #[test]
    fn what_is_of_persons_is_taken_out_and_put_back() {
        let text = "홍길동 900101-1234568, 010-1234-5678 / hong.gil@example.co.kr. 카드 4111 1111 1111 1111, \
                    사업자 220-81-62517, 다시 010-1234-5678, +82 10 1234 5678, 대표 1588-0000.";
        let redacted = redact(text);
        assert_eq!(
            redacted.text,
            "홍길동 [RRN-1], [PHONE-2] / [EMAIL-3]. 카드 [CARD-4], 사업자 [BRN-5], 다시 [PHONE-2], [PHONE-6], 대표 [PHONE-7]."
        );
        assert_eq!(redacted.restore(&redacted.text), text);
    }

    #[test]
    fn a_number_is_taken_out_whatever_stands_beside_it_and_between_its_digits() {
        for (text, redacted) in [
            ("홍길동 900101-1234568 010-1234-5678", "홍길동 [RRN-1] [PHONE-2]"),
            ("900101-1234568 2026.01.02", "[RRN-1] 2026.01.02"),
            ("010-1234-5678 3 명", "[PHONE-1] 3 명"),
            ("3 010-1234-5678", "3 [PHONE-1]"),
            ("010-1234-5678 010-9876-5432", "[PHONE-1] [PHONE-2]"),
            ("4111 1111 1111 1111 12/27", "[CARD-1] 12/27"),
            ("4111 1111 1111 1111 010-1234-5678", "[CARD-1] [PHONE-2]"),
            ("Tel.010-1234-5678", "Tel.[PHONE-1]"),
            ("(02) 123-4567", "([PHONE-1]"),
            ("(010-1234-5678)", "([PHONE-1])"),
            ("010\u{2013}1234\u{2013}5678", "[PHONE-1]"),
            ("+82-2-123-4567 02-1234-5678", "[PHONE-1] [PHONE-2]"),
            ("+82 (0)10-1234-5678", "[PHONE-1]"),
            ("+33 1 23 45 67 89", "[PHONE-1]"),
            ("010 - 1234 - 5678", "[PHONE-1]"),
            ("900101 - 1234568", "[RRN-1]"),
            ("220-81-62517 (02) 123-4567", "[BRN-1] ([PHONE-2]"),
        ] {
            let found = redact(text);
            assert_eq!(found.text, redacted, "{text}");
            assert_eq!(found.restore(&found.text), text);
        }
    }

    #[test]
    fn other_numbers_and_signs_stay() {
        for text in [
            "2026-01-31 09:30:00, 1,234,567원, 12.345.678",
            "주문 900101-1234567, 4111 1111 1111 1112, 220-81-62518",
            "v1.15.880 a@b @example.com x@y.1",
            "ISBN 978-3-16-148410",
            "",
            "한글만 있는 글",
        ] {
            assert_eq!(redact(text).text, text);
        }
        let long = "1".repeat(100_000) + &"a@".repeat(50_000);
        assert_eq!(redact(&long).text.len(), long.len());
    }
}
