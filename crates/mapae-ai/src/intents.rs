//! What a reader may ask of a text, with the answer that stands in it.
//!
//! Nothing is written that the text does not say: an answer is a part of the text, and a question is either one
//! too ([`Origin::Extractive`]) or a heading put into a fixed form ([`Origin::Template`]).

mod faq;
mod merge;
mod section;
mod table;
mod template;

use std::ops::Range;

use serde::Serialize;

pub use table::table_pairs;

use crate::embed::Embedder;

/// Intents of one text, at most.
pub const INTENTS_MAX: usize = 300;
/// Characters of an answer, at most; a longer one is cut after a sentence.
pub const ANSWER_CHARS_MAX: usize = 4_000;
/// Bytes of a text that are looked at.
pub const BYTES_MAX: usize = 4_000_000;

/// Where the words of a question come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Origin {
    /// The text asks it itself.
    Extractive,
    /// A heading in a fixed form.
    Template,
}

impl Origin {
    /// `extractive` or `template`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Extractive => "extractive",
            Self::Template => "template",
        }
    }
}

/// A question with its answer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Intent {
    pub name: String,
    /// Ways to ask, the text's own first.
    pub utterances: Vec<String>,
    /// As it stands in the text.
    pub answer: String,
    pub origin: Origin,
    /// The bytes of the answer.
    pub at: Range<usize>,
}

/// The intents of a text in its order, near-duplicates merged.
///
/// Questions that the text answers itself come from marked pairs (`Q:`/`A:`, `질문:`/`답변:`) and from lines that
/// are a question with an answer under them; every other section with a heading becomes a template question.
pub fn intents(text: &str, embedder: Option<&dyn Embedder>) -> Vec<Intent> {
    let end = (0..=text.len().min(BYTES_MAX)).rev().find(|end| text.is_char_boundary(*end)).unwrap_or(0);
    let text = &text[..end];
    let lines = section::lines(text);
    let mut found = faq::pairs(text, &lines);
    found.extend(template::sections(text, &lines, &found));
    found.sort_by_key(|intent| intent.at.start);
    found.truncate(INTENTS_MAX);
    // What is quoted must be there, whatever made it.
    found.retain(|intent| text.get(intent.at.clone()) == Some(intent.answer.as_str()));
    merge::near_duplicates(found, embedder)
}

/// The part of a text as an answer: without blanks around it, cut after a sentence where it is too long.
fn answer(text: &str, at: Range<usize>) -> Option<(String, Range<usize>)> {
    let part = &text[at.clone()];
    let start = at.start + (part.len() - part.trim_start().len());
    let mut part = part.trim();
    if let Some((limit, _)) = part.char_indices().nth(ANSWER_CHARS_MAX) {
        let cut = &part[..limit];
        let end = cut
            .rfind(['.', '。', '\n'])
            .map_or(limit, |end| end + cut[end..].chars().next().map_or(0, char::len_utf8));
        part = part[..end].trim_end();
    }
    (!part.is_empty()).then(|| (part.to_owned(), start..start + part.len()))
}

#[cfg(test)]
mod tests {
    use super::{Intent, Origin, intents};

    fn of(text: &str) -> Vec<Intent> {
        let found = intents(text, None);
        for intent in &found {
            assert_eq!(text[intent.at.clone()], intent.answer, "every answer is a quote");
        }
        found
    }

    #[test]
    fn marked_pairs_are_taken_whole() {
        let found = of(
            "자주 묻는 질문\n\nQ: 비밀번호를 어떻게 바꾸나요?\nA: 설정에서 바꿉니다.\n1. 설정을 엽니다.\n2. 저장합니다.\n\n\
                        Q2. 환불이 되나요?\nA2. 7일 안에 됩니다.\n",
        );
        assert_eq!(found.len(), 2, "{found:?}");
        assert_eq!(found[0].utterances[0], "비밀번호를 어떻게 바꾸나요?");
        assert_eq!(found[0].answer, "설정에서 바꿉니다.\n1. 설정을 엽니다.\n2. 저장합니다.");
        assert_eq!(found[0].origin, Origin::Extractive);
        assert_eq!(found[1].answer, "7일 안에 됩니다.");
    }

    #[test]
    fn a_line_that_is_a_question_is_answered_by_what_stands_under_it() {
        let found = of(
            "# FAQ\n\n## How do I reset my password?\n\nOpen the settings. Choose reset.\n\n## Is there a trial?\n\nYes.\n",
        );
        assert_eq!(
            found.iter().map(|i| i.answer.as_str()).collect::<Vec<_>>(),
            ["Open the settings. Choose reset.", "Yes."]
        );
        assert!(found.iter().all(|intent| intent.origin == Origin::Extractive));
    }

    #[test]
    fn a_question_within_prose_is_none() {
        assert!(of("We asked: what is a lease? It is the right to run a job until a time.").is_empty());
    }

    #[test]
    fn headings_become_template_questions_by_their_shape() {
        let found = of(
            "# 서버 설치\n\n패키지를 받아 실행합니다.\n\n# 임대란\n\n작업을 실행할 권리이다.\n\n# Job states\n\nThere are six.\n",
        );
        assert!(found.iter().all(|intent| intent.origin == Origin::Template));
        assert_eq!(found[0].utterances[0], "서버 설치는 어떻게 하나요?");
        assert_eq!(found[1].utterances[0], "임대가 무엇인가요?");
        assert_eq!(found[2].utterances[0], "What is meant by job states?");
    }

    #[test]
    fn the_same_question_twice_is_one_intent() {
        let found = of("Q: 환불이 되나요?\nA: 7일 안에 됩니다.\n\nQ: 환불이 되나요 ?\nA: 7일 안에 됩니다.\n");
        assert_eq!(found.len(), 1, "{found:?}");
    }

    #[test]
    fn odd_texts_have_no_intents_and_no_trouble() {
        for text in ["", "?", "Q:", "Q:\nA:", "# \n#\n", "A: only an answer", "?\n?\n?\n"] {
            assert!(of(text).is_empty(), "{text:?}");
        }
        assert!(of(&"Q: a?\n".repeat(100_000)).len() <= super::INTENTS_MAX);
        assert!(of(&"x".repeat(10_000_000)).is_empty());
    }
}
