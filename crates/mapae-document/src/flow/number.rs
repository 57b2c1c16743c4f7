//! Numbers that a program sets before paragraphs: "제1조", "1.2.", "가.". People read them, and no text holds them.
//!
//! A list has up to ten levels, each with a template in which `^1` to `^9` stand for the counters of the levels. A
//! paragraph of a level counts it on, begins the deeper ones anew, and counts as the first of those it skips.

use std::borrow::Cow;
use std::collections::HashMap;

const LEVELS: usize = 10;
/// A number this long is no number.
const TEMPLATE_MAX: usize = 64;

/// How a counter is written, in the order of the codes of HWP, by the names of HWPX.
const FORMS: [&str; 14] = [
    "DIGIT",
    "CIRCLED_DIGIT",
    "ROMAN_CAPITAL",
    "ROMAN_SMALL",
    "LATIN_CAPITAL",
    "LATIN_SMALL",
    "CIRCLED_LATIN_CAPITAL",
    "CIRCLED_LATIN_SMALL",
    "HANGUL_SYLLABLE",
    "CIRCLED_HANGUL_SYLLABLE",
    "HANGUL_JAMO",
    "CIRCLED_HANGUL_JAMO",
    "HANGUL_PHONETIC",
    "IDEOGRAPH",
];

/// The code of a form by its name; of an unknown one, that of digits.
pub(crate) fn form(name: &str) -> u32 {
    FORMS.iter().position(|form| *form == name).unwrap_or(0) as u32
}

/// A level of a list.
pub(crate) struct Level {
    pub(crate) start: u32,
    /// Its place in the forms.
    pub(crate) form: u32,
    pub(crate) template: String,
}

/// The lists of a document and how far each has counted.
#[derive(Default)]
pub(crate) struct Numbers {
    lists: HashMap<u32, Vec<Level>>,
    counters: HashMap<u32, [Option<u32>; LEVELS]>,
}

impl Numbers {
    pub(crate) fn define(&mut self, list: u32, levels: Vec<Level>) {
        self.lists.insert(list, levels);
    }

    /// The number of the next paragraph of a level, from 0, of a list; `None` for a list that is not known.
    pub(crate) fn next(&mut self, list: u32, level: usize) -> Option<String> {
        let levels = self.lists.get(&list)?;
        let own = levels.get(level).filter(|_| level < LEVELS)?;
        let counters = self.counters.entry(list).or_default();
        for (skipped, level) in counters[..level].iter_mut().zip(levels) {
            skipped.get_or_insert(level.start);
        }
        counters[level] = Some(counters[level].map_or(own.start, |count| count.saturating_add(1)));
        counters[level + 1..].fill(None);

        let mut out = String::new();
        let mut template = own.template.chars().take(TEMPLATE_MAX).peekable();
        while let Some(c) = template.next() {
            let digit = template.peek().and_then(|c| c.to_digit(10)).filter(|digit| c == '^' && *digit > 0);
            match digit.map(|digit| digit as usize - 1) {
                Some(at) => {
                    template.next();
                    if let (Some(count), Some(level)) = (counters[at], levels.get(at)) {
                        out.push_str(&written(count, level.form));
                    }
                }
                None => out.push(c),
            }
        }
        Some(out)
    }
}

/// A paragraph behind its number; of a blank one the number is not told.
pub(crate) fn numbered(number: Option<String>, text: &str) -> Cow<'_, str> {
    match number {
        Some(number) if !number.is_empty() && !text.trim().is_empty() => {
            format!("{number} {}", text.trim_start()).into()
        }
        _ => text.into(),
    }
}

/// A number in a form; in digits where the form does not go so far.
fn written(number: u32, form: u32) -> String {
    let nth =
        |letters: &str| number.checked_sub(1).and_then(|n| letters.chars().nth(n as usize)).map(String::from);
    let from = |first: char, count: u32| {
        let code = number.checked_sub(1).filter(|n| *n < count).map(|n| first as u32 + n);
        code.and_then(char::from_u32).map(String::from)
    };
    let found = match form {
        1 => from('①', 20),
        2 => roman(number),
        3 => roman(number).map(|roman| roman.to_lowercase()),
        4 => from('A', 26),
        5 => from('a', 26),
        6 => from('Ⓐ', 26),
        7 => from('ⓐ', 26),
        8 => nth("가나다라마바사아자차카타파하거너더러머버서어저처커터퍼허"),
        9 => from('㉮', 14),
        10 => nth("ㄱㄴㄷㄹㅁㅂㅅㅇㅈㅊㅋㅌㅍㅎ"),
        11 => from('㉠', 14),
        12 => spelt(number, "일이삼사오육칠팔구", '십'),
        13 => spelt(number, "一二三四五六七八九", '十'),
        _ => None,
    };
    found.unwrap_or_else(|| number.to_string())
}

fn roman(mut number: u32) -> Option<String> {
    const SIGNS: [(u32, &str); 9] =
        [(100, "C"), (90, "XC"), (50, "L"), (40, "XL"), (10, "X"), (9, "IX"), (5, "V"), (4, "IV"), (1, "I")];
    if !(1..400).contains(&number) {
        return None;
    }
    let mut out = String::new();
    for (value, sign) in SIGNS {
        while number >= value {
            out.push_str(sign);
            number -= value;
        }
    }
    Some(out)
}

/// 십일, 二十: up to 99.
fn spelt(number: u32, digits: &str, ten: char) -> Option<String> {
    let digit = |n: u32| n.checked_sub(1).and_then(|n| digits.chars().nth(n as usize));
    if !(1..100).contains(&number) {
        return None;
    }
    let mut out = String::new();
    if number >= 10 {
        out.extend((number >= 20).then(|| digit(number / 10)).flatten());
        out.push(ten);
    }
    out.extend(digit(number % 10));
    Some(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn levels_count_on_begin_anew_and_fill_what_is_skipped() {
        let level = |form, template: &str| Level { start: 1, form, template: template.to_owned() };
        let mut numbers = Numbers::default();
        numbers.define(7, vec![level(0, "제^1장"), level(8, "^2."), level(0, "^1.^2.^3)")]);
        let told: Vec<_> =
            [0, 1, 1, 2, 2, 0, 2, 1].map(|level| numbers.next(7, level)).into_iter().flatten().collect();
        assert_eq!(told, ["제1장", "가.", "나.", "1.나.1)", "1.나.2)", "제2장", "2.가.1)", "나."]);
        assert_eq!((numbers.next(7, 3), numbers.next(8, 0)), (None, None));
    }

    #[test]
    fn counters_are_written_as_their_form_says() {
        let all: Vec<String> = (0..14).map(|form| written(14, form)).collect();
        let expected = ["14", "⑭", "XIV", "xiv", "N", "n", "Ⓝ", "ⓝ", "하", "㉻", "ㅎ", "㉭", "십사", "十四"];
        assert_eq!(all, expected);
        assert_eq!(
            (written(99, 3), written(20, 12), written(500, 2)),
            ("xcix".into(), "이십".into(), "500".into())
        );
    }
}
