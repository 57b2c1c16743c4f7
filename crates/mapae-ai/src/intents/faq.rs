//! Pairs of question and answer that a text holds itself.

use super::section::Line;
use super::{Intent, Origin, answer};

/// Characters of a question, at most.
const QUESTION_CHARS_MAX: usize = 300;

/// So many lines that are a question make a text one of questions and answers.
const QUESTIONS_MANY: usize = 3;

/// What stands before a question and before an answer, in lower case.
const QUESTIONS: [&str; 5] = ["question", "질문", "문의", "q", "문"];
const ANSWERS: [&str; 5] = ["answer", "답변", "a", "답", "해결"];

pub(super) fn pairs(text: &str, lines: &[Line<'_>]) -> Vec<Intent> {
    let marked = marked(text, lines);
    if marked.is_empty() { unmarked(text, lines) } else { marked }
}

/// `Q: … A: …`, each with whatever lines follow until the next question or heading.
fn marked(text: &str, lines: &[Line<'_>]) -> Vec<Intent> {
    let mut found = Vec::new();
    let mut i = 0;
    while i < lines.len() {
        let Some(question) = after_mark(lines[i].text, &QUESTIONS).filter(|q| is_short(q)) else {
            i += 1;
            continue;
        };
        // The mark may stand alone, with the words under it.
        let mut next = i + 1;
        let question = match lines.get(next) {
            Some(line) if question.is_empty() && after_mark(line.text, &ANSWERS).is_none() => {
                next += 1;
                line.text
            }
            _ => question,
        };
        i = next;
        let Some(first) = lines.get(next) else { break };
        let Some(begin) = after_mark(first.text, &ANSWERS) else { continue };
        let start = first.at.start + text[first.at.clone()].rfind(begin).unwrap_or(0);
        let is_over = |line: &Line<'_>| line.heading || after_mark(line.text, &QUESTIONS).is_some();
        let end = (next + 1..lines.len()).find(|i| is_over(&lines[*i])).unwrap_or(lines.len());
        push(text, question, start..lines[end - 1].at.end, &mut found);
        i = end;
    }
    found
}

/// Lines that are one question each, with what stands under them until the next one or a heading.
fn unmarked(text: &str, lines: &[Line<'_>]) -> Vec<Intent> {
    let begins = |line: &&Line<'_>| line.apart || line.heading;
    let plain = lines.iter().filter(begins).filter(|line| is_question(line.text, false)).count();
    // A text with many questions is made of them: there a question may be more than one sentence.
    let many = plain >= QUESTIONS_MANY;
    let asks: Vec<bool> = lines.iter().map(|line| begins(&line) && is_question(line.text, many)).collect();
    let mut found = Vec::new();
    for i in (0..lines.len()).filter(|i| asks[*i]) {
        let end = (i + 1..lines.len()).find(|i| asks[*i] || lines[*i].heading).unwrap_or(lines.len());
        if end > i + 1 {
            push(text, lines[i].text, lines[i + 1].at.start..lines[end - 1].at.end, &mut found);
        }
    }
    found
}

fn push(text: &str, question: &str, at: std::ops::Range<usize>, found: &mut Vec<Intent>) {
    let question = question.split_whitespace().collect::<Vec<_>>().join(" ");
    if !question.contains(char::is_alphabetic) {
        return;
    }
    let Some((answer, at)) = answer(text, at) else { return };
    let name = question.trim_end_matches(['?', '？', ' ']).to_owned();
    found.push(Intent { name, utterances: vec![question], answer, origin: Origin::Extractive, at });
}

/// What follows a mark such as `Q:`, `Q1.`, `[질문]` at the beginning of a line.
fn after_mark<'l>(line: &'l str, marks: &[&str]) -> Option<&'l str> {
    let line = line.trim_start_matches(['*', '-', ' ']);
    let bracketed = line.strip_prefix(['[', '【', '<', '(']);
    let rest = bracketed.unwrap_or(line);
    let rest = marks.iter().find_map(|mark| {
        let head = rest.get(..mark.len())?;
        (head.to_lowercase() == **mark).then(|| &rest[mark.len()..])
    })?;
    let rest = rest.trim_start_matches(|c: char| c.is_ascii_digit() || c == ' ');
    let rest =
        rest.strip_prefix(if bracketed.is_some() { [']', '】', '>', ')'] } else { [':', '.', ')', '：'] })?;
    Some(rest.trim_start_matches(['*', ' ', ':']))
}

/// Whether a whole line is one question.
///
/// `sentences`: others may stand before it.
fn is_question(line: &str, sentences: bool) -> bool {
    const ENDS: [&str; 8] = ["나요", "까요", "인가요", "은가요", "습니까", "입니까", "ㄴ가요", "는지요"];
    let words = line.trim_end_matches(['?', '？', ' ']);
    let asks = words.len() < line.len() || ENDS.iter().any(|end| words.ends_with(end));
    // A mark of a sentence's end within the line says that it is prose.
    let prose = words.contains(['?', '？', '!']) || words.contains(". ") || words.contains("다.");
    asks && (!prose || sentences && words.len() < line.len()) && is_short(line)
}

fn is_short(line: &str) -> bool {
    line.chars().count() <= QUESTION_CHARS_MAX
}
