//! Sections to questions of a fixed form, by the shape of the heading.

use super::section::Line;
use super::{Intent, Origin, answer};
use crate::korean::is_hangul;

/// Characters of a section's text under which there is nothing to answer with.
const ANSWER_CHARS_MIN: usize = 4;

/// Sections with a heading whose text no intent of `taken` answers with.
pub(super) fn sections(text: &str, lines: &[Line<'_>], taken: &[Intent]) -> Vec<Intent> {
    let mut found = Vec::new();
    let mut taken = taken.iter().peekable();
    for i in (0..lines.len()).filter(|i| lines[*i].heading) {
        let end = (i + 1..lines.len()).find(|i| lines[*i].heading).unwrap_or(lines.len());
        if end == i + 1 {
            continue;
        }
        let at = lines[i + 1].at.start..lines[end - 1].at.end;
        while taken.next_if(|intent| intent.at.end <= at.start).is_some() {}
        if taken.peek().is_some_and(|intent| intent.at.start < at.end) {
            continue;
        }
        let Some((answer, at)) = answer(text, at) else { continue };
        if answer.chars().count() >= ANSWER_CHARS_MIN {
            let name = lines[i].text.split_whitespace().collect::<Vec<_>>().join(" ");
            found.push(Intent { utterances: questions(&name), name, answer, origin: Origin::Template, at });
        }
    }
    found
}

/// Two ways to ask for what stands under a heading.
fn questions(heading: &str) -> Vec<String> {
    if heading.contains(is_hangul) { korean(heading) } else { english(heading) }
}

/// Nouns that are something one does.
const DOING: [&str; 26] = [
    "설치", "신청", "등록", "변경", "설정", "삭제", "추가", "해지", "취소", "환불", "결제", "가입", "탈퇴",
    "조회", "발급", "수정", "제출", "배포", "백업", "복구", "연결", "사용", "작성", "검색", "관리", "실행",
];

fn korean(heading: &str) -> Vec<String> {
    for end in [" 방법", " 절차", " 안내"] {
        if let Some(thing) = heading.strip_suffix(end) {
            return vec![
                format!("{} 어떻게 하나요?", with(thing, "은", "는")),
                format!("{thing} 방법을 알려 주세요."),
            ];
        }
    }
    let defined = [" 개요", "의 개요", " 정의", "의 정의", " 소개", "이란", "란"];
    let thing = defined.iter().find_map(|end| heading.trim_end_matches('?').strip_suffix(end));
    if let Some(thing) = thing.filter(|thing| !thing.is_empty()) {
        return vec![
            format!("{} 무엇인가요?", with(thing, "이", "가")),
            format!("{thing}에 대해 알려 주세요."),
        ];
    }
    if DOING.iter().any(|doing| heading.ends_with(doing)) {
        return vec![
            format!("{} 어떻게 하나요?", with(heading, "은", "는")),
            format!("{heading} 방법을 알려 주세요."),
        ];
    }
    vec![format!("{heading}에 대해 알려 주세요."), format!("{} 무엇인가요?", with(heading, "은", "는"))]
}

fn english(heading: &str) -> Vec<String> {
    let lower = match heading.chars().nth(1) {
        // An abbreviation stays as it is.
        Some(second) if second.is_uppercase() => heading.to_owned(),
        _ => heading.chars().take(1).flat_map(char::to_lowercase).chain(heading.chars().skip(1)).collect(),
    };
    match lower.strip_prefix("how to ") {
        Some(doing) => vec![format!("How do I {doing}?"), format!("How can I {doing}?")],
        None => vec![format!("What is meant by {lower}?"), format!("Tell me about {lower}.")],
    }
}

/// A word with the one of two particles that its last syllable asks for.
fn with(word: &str, closed: &str, open: &str) -> String {
    let last = word.chars().rev().find(|c| c.is_alphanumeric());
    let ends_open = match last {
        Some(c) if is_hangul(c) => (u32::from(c) - 0xac00).is_multiple_of(28),
        Some(c) => "aeiouyAEIOUY2459".contains(c),
        None => true,
    };
    format!("{word}{}", if ends_open { open } else { closed })
}
