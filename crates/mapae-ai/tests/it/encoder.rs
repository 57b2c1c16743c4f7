use mapae_ai::embed::{Embedder, Embedding};

#[test]
fn vectors_are_those_of_the_original() {
    let Some(encoder) = crate::encoder() else { return };
    let rows = crate::frozen("use.jsonl");
    let texts: Vec<&str> = rows.iter().map(|row| row["text"].as_str().expect("a text")).collect();
    // Once all together, so that the texts of a batch must not reach into each other, and once one by one.
    let together = encoder.embed(&texts);
    for ((row, text), vector) in rows.iter().zip(&texts).zip(together) {
        let ids = row["ids"].as_array().expect("a list");
        let ids: Vec<u32> = ids.iter().map(|id| id.as_u64().expect("a number") as u32).collect();
        assert_eq!(encoder.pieces(text), ids[1..ids.len() - 1], "{text:?}");
        let expected: Vec<f32> = row["vector"]
            .as_array()
            .expect("a list")
            .iter()
            .map(|n| n.as_f64().expect("a number") as f32)
            .collect();
        let model = encoder.id().to_owned();
        let expected = Embedding { model: model.clone(), vector: expected };
        for vector in [vector, encoder.embed(&[text]).remove(0)] {
            assert_eq!(vector.len(), encoder.dimension());
            let cosine = Embedding { model: model.clone(), vector }.similarity(&expected).expect("one model");
            assert!(cosine >= 0.9999, "{text:?}: {cosine}");
        }
    }
}

#[test]
fn what_means_the_same_is_nearer_than_what_does_not() {
    let Some(encoder) = crate::encoder() else { return };
    let [a, b, c] =
        ["비밀번호를 어떻게 바꾸나요?", "How do I change my password?", "서울의 오늘 날씨는 맑다."]
            .map(|text| Embedding::of(text, &*encoder));
    assert!(a.similarity(&b).expect("one model") > a.similarity(&c).expect("one model"));
}

#[test]
fn no_texts_and_a_huge_text_are_texts_too() {
    let Some(encoder) = crate::encoder() else { return };
    assert!(encoder.embed(&[]).is_empty());
    let vectors = encoder.embed(&[&"가 ".repeat(1_000_000), "", "\u{0}"]);
    assert!(vectors.iter().flatten().all(|number| number.is_finite()));
}
