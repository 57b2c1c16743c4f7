use mapae_ai::classify::builtin::classify;

/// The examples were written together with the lists: this says that the sorts do not get into each other's way,
/// not how often they are right.
#[test]
fn the_sorts_of_business_documents_are_told_apart() {
    let rows = crate::frozen("kinds.jsonl");
    let mut wrong = Vec::new();
    for row in &rows {
        let field = |name: &str| row[name].as_str().expect("a text");
        let class = classify(field("name"), field("text"));
        if class.label != field("label") {
            wrong.push(format!("{} is not {} (unsure: {})", field("name"), class.label, class.unsure));
        }
    }
    assert!(wrong.len() * 14 <= rows.len(), "{wrong:?}");
}

#[test]
fn a_text_that_says_nothing_of_itself_is_no_sure_sort() {
    for text in ["", "1 2 3", "ㅋㅋㅋ", &"x".repeat(5_000_000)] {
        let class = classify("", text);
        assert!(class.label == "other" && class.unsure, "{class:?}");
        assert!((class.scores.values().sum::<f64>() - 1.0).abs() < 1e-3);
    }
}
