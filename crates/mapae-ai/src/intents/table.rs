//! Tables that are lists of questions and answers: a column says that it asks, another that it answers.

/// Rows of a table that are looked at for its headings.
const HEADINGS_MAX: usize = 3;
/// Characters of a question, at most.
const QUESTION_CHARS_MAX: usize = 300;

const QUESTIONS: [&str; 13] = [
    "question",
    "questions",
    "q",
    "faq",
    "질문",
    "질의",
    "문의",
    "문의사항",
    "문의내용",
    "질문내용",
    "질의내용",
    "물음",
    "자주묻는질문",
];
const ANSWERS: [&str; 11] =
    ["answer", "answers", "a", "response", "답변", "답", "회신", "응답", "답변내용", "회신내용", "해결방법"];

/// The pairs of a table, in its order: question, answer, and the row (from 0). `rows` are its cells with an empty text
/// where there is none; a table whose first rows name no column that asks and one that answers has no pairs.
pub fn table_pairs<'t>(rows: &[Vec<&'t str>]) -> Vec<(&'t str, &'t str, usize)> {
    let named = rows.iter().take(HEADINGS_MAX).enumerate().find_map(|(row, cells)| {
        let column = |names: &[&str]| cells.iter().position(|cell| names.contains(&heading(cell).as_str()));
        Some((row, column(&QUESTIONS)?, column(&ANSWERS)?))
    });
    let Some((head, asks, answers)) = named else { return Vec::new() };
    let pair = |(row, cells): (usize, &Vec<&'t str>)| {
        let question = cells.get(asks)?.trim();
        let answer = cells.get(answers)?.trim();
        let asked = question.contains(char::is_alphabetic) && question.chars().count() <= QUESTION_CHARS_MAX;
        (asked && !answer.is_empty()).then_some((question, answer, row))
    };
    rows.iter().enumerate().skip(head + 1).filter_map(pair).collect()
}

/// A heading as it is compared: `질문 내용(필수)` and `Question:` are what they begin with.
fn heading(cell: &str) -> String {
    let bare = cell.split(['(', '（', '[']).next().unwrap_or_default();
    bare.chars().filter(|c| c.is_alphanumeric()).flat_map(char::to_lowercase).collect()
}

#[cfg(test)]
mod tests {
    use super::table_pairs;

    #[test]
    fn the_columns_say_what_asks_and_what_answers() {
        let rows = [
            vec!["자주 묻는 질문", "", ""],
            vec!["번호", "질문 내용", "답변(담당)"],
            vec!["1", "환불이 되나요?", "7일 안에 됩니다."],
            vec!["2", "", "묻지 않은 답"],
            vec!["3", "언제 여나요", ""],
            vec!["4", "회비", "매월 냅니다.\n첫째 날에."],
        ];
        let found = table_pairs(&rows);
        assert_eq!(
            found,
            [("환불이 되나요?", "7일 안에 됩니다.", 2), ("회비", "매월 냅니다.\n첫째 날에.", 5)]
        );
        assert_eq!(table_pairs(&[vec!["Q", "A"], vec!["Is it?", "Yes."]]), [("Is it?", "Yes.", 1)]);
        assert!(table_pairs(&[vec!["항목", "금액"], vec!["사과", "1,000"]]).is_empty());
        assert!(table_pairs(&[vec!["질문"], vec!["환불?"]]).is_empty());
        assert!(table_pairs(&[]).is_empty());
    }
}
