//! What is said of persons, taken out before a text leaves the machine, and put back into what comes.
//!
//! Numbers count where their check digits fit, so that other numbers of that length stay.

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
    if !(c.is_ascii_digit() || c == '+') || before.is_some_and(|c| c.is_ascii_alphanumeric() || c == '.') {
        return None;
    }
    // The rest of a longer number.
    if before == Some('-') && back(2).is_some_and(|c| c.is_ascii_digit()) {
        return None;
    }
    let (digits, end) = number(chars, at);
    let kind = match digits.len() {
        13 if is_resident(&digits) => "RRN",
        13..=19 if is_card(&digits) => "CARD",
        10 if is_business(&digits) => "BRN",
        8..=14 if is_phone(&digits, c == '+') => "PHONE",
        _ => return None,
    };
    Some((kind, end))
}

/// Digits with at most one separator between two of them.
fn number(chars: &[(usize, char)], at: usize) -> (Vec<u32>, usize) {
    let (mut digits, mut end, mut i) = (Vec::new(), at, at);
    while let Some((_, c)) = chars.get(i) {
        match c.to_digit(10) {
            Some(digit) if digits.len() < 20 => {
                digits.push(digit);
                end = i + 1;
            }
            Some(_) => return (Vec::new(), at),
            None if i == at && *c == '+' => {}
            None if end == i && matches!(c, '-' | ' ' | '.' | ')') => {}
            None => break,
        }
        i += 1;
    }
    // A letter right behind says that it is part of something else.
    if chars.get(end).is_some_and(|(_, c)| c.is_ascii_alphabetic()) {
        (Vec::new(), at)
    } else {
        (digits, end)
    }
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
    let (month, day, sort) = (digits[2] * 10 + digits[3], digits[4] * 10 + digits[5], digits[6]);
    let dated = (1..=12).contains(&month) && (1..=31).contains(&day) && (1..=8).contains(&sort);
    let weights = [2, 3, 4, 5, 6, 7, 8, 9, 2, 3, 4, 5];
    let sum: u32 = digits.iter().zip(weights).map(|(digit, weight)| digit * weight).sum();
    let checked = (11 - sum % 11) % 10 == digits[12];
    let recent = digits[0] * 10 + digits[1] >= 20 && matches!(sort, 3 | 4 | 7 | 8);
    dated && (checked || recent)
}

fn is_business(digits: &[u32]) -> bool {
    let weights = [1, 3, 7, 1, 3, 7, 1, 3, 5];
    let sum: u32 = digits.iter().zip(weights).map(|(digit, weight)| digit * weight).sum();
    (10 - (sum + digits[8] * 5 / 10) % 10) % 10 == digits[9]
}

/// Luhn's check.
fn is_card(digits: &[u32]) -> bool {
    let double = |digit: u32| if digit > 4 { 2 * digit - 9 } else { 2 * digit };
    let sum =
        digits.iter().rev().enumerate().map(|(i, digit)| if i % 2 == 1 { double(*digit) } else { *digit });
    sum.sum::<u32>().is_multiple_of(10) && matches!(digits[0], 2..=6 | 9)
}

/// Korean numbers by how they begin; others with their country's.
fn is_phone(digits: &[u32], country: bool) -> bool {
    if country {
        return digits.len() >= 9;
    }
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
