//! What a text is about: the phrases of nouns that it returns to, early and often.
//!
//! ```text
//! text ─ candidate ─► runs of terms ─ phrase ─► phrases with counts ─ rank ─► the best, without repetition
//! ```
//!
//! A keyword always stands in the text: nothing is made up, and its offsets are those of its first occurrence.

mod candidate;
mod phrase;
mod rank;

use std::ops::Range;

use serde::Serialize;
use unicode_normalization::UnicodeNormalization;

use crate::english;

/// A phrase of a text.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Keyword {
    /// As it stands in the text, blanks made single.
    pub text: String,
    /// Above 0, the best of a text is 1. Scores of two texts do not compare.
    pub score: f64,
    /// The bytes of its first occurrence.
    pub at: Range<usize>,
}

/// Characters of a text that are looked at: what it is about shows long before.
pub const CHARS_MAX: usize = 400_000;

/// The up to `max` best keywords of a text, best first.
///
/// Nouns of Korean are found by particles and endings.
///
/// Linear in the text's length, of which at most [`CHARS_MAX`] characters are read.
pub fn keywords(text: &str, max: usize) -> Vec<Keyword> {
    let text = text.char_indices().nth(CHARS_MAX).map_or(text, |(end, _)| &text[..end]);
    let korean = crate::language::of(text) == Some("ko");
    let runs = candidate::runs(text, korean);
    rank::best(phrase::phrases(text, &runs), max)
}

/// What two keywords are compared by: width, case, punctuation and English inflection do not count, and
/// neither do blanks in Korean.
pub fn normal_form(text: &str, korean: bool) -> String {
    let text: String = text.nfkc().flat_map(char::to_lowercase).collect();
    let words = text.split(|c: char| !c.is_alphanumeric() && !matches!(c, '+' | '#' | '.'));
    let words = words.map(|word| word.trim_matches('.')).filter(|word| !word.is_empty());
    if korean { words.collect() } else { words.map(english::stem).collect::<Vec<_>>().join(" ") }
}

#[cfg(test)]
mod tests {
    use super::{keywords, normal_form};

    const KOREAN: &str = "# 메시지 큐 도입\n\n메시지 큐를 도입하면 작업이 유실되지 않는다. 메시지 큐를 통해 반복 횟수를 기록하고, \
                          반복 횟수가 다하면 작업을 데드 레터로 옮긴다.";
    const ENGLISH: &str = "A durable job queue keeps each job in a database. The durable job queue is slower than a \
                           ring buffer, but it survives a crash.";

    fn texts(text: &str) -> Vec<String> {
        keywords(text, 10).into_iter().map(|keyword| keyword.text).collect()
    }

    #[test]
    fn what_a_text_returns_to_comes_first() {
        assert_eq!(texts(KOREAN)[0], "메시지 큐");
        assert!(texts(KOREAN).contains(&"반복 횟수".to_owned()), "{:?}", texts(KOREAN));
        assert_eq!(texts(ENGLISH)[0], "durable job queue");
        assert!(texts(ENGLISH).contains(&"ring buffer".to_owned()), "{:?}", texts(ENGLISH));
    }

    #[test]
    fn every_keyword_stands_where_it_says() {
        for text in [KOREAN, ENGLISH, "e\u{301}t\u{e9} 🙂 caf\u{e9} menu, caf\u{e9} menu"] {
            for keyword in keywords(text, 10) {
                let there = text[keyword.at.clone()].split_whitespace().collect::<Vec<_>>().join(" ");
                assert_eq!(there, keyword.text);
            }
        }
    }

    #[test]
    fn a_part_that_never_stands_alone_is_not_told_beside_the_whole() {
        assert!(!texts(ENGLISH).contains(&"durable job".to_owned()), "{:?}", texts(ENGLISH));
    }

    #[test]
    fn odd_texts_have_few_keywords_and_no_trouble() {
        for text in ["", "   \n\n", "1,234 5,678", "🙂🙂🙂", "\u{fffd}\u{fffd}", "- - -", "####"] {
            assert!(texts(text).is_empty(), "{text:?}: {:?}", texts(text));
        }
        assert!(texts(&"a".repeat(10_000_000)).is_empty());
        assert!(texts(&"가".repeat(3_000_000)).len() <= 1);
        assert!(texts(&"가 나다라 ".repeat(500_000)).len() <= 10);
    }

    #[test]
    fn spelling_does_not_make_two_keywords_of_one() {
        assert_eq!(normal_form("Job-Queues", false), normal_form("job queue", false));
        assert_eq!(normal_form("메시지 큐", true), normal_form("메시지큐", true));
    }
}
