use mapae_ai::classify::{By, Classifier, Example, Label, TrainError};

fn example(label: &str, text: &str) -> Example {
    Example { label: label.into(), text: text.into() }
}

fn label(name: &str, description: &str) -> Label {
    Label { name: name.into(), description: description.into() }
}

fn examples() -> Vec<Example> {
    let fruit = [
        "붉은 사과 한 상자",
        "잘 익은 사과와 배",
        "배 두 상자를 샀다",
        "사과 주스",
        "배와 사과를 팔다",
        "apple and pear",
    ];
    let metal = [
        "굵은 철근 두 톤",
        "철근과 구리 전선",
        "구리 가격이 올랐다",
        "철근 공장",
        "구리와 철근을 팔다",
        "copper and iron",
    ];
    let all = fruit
        .iter()
        .map(|text| example("fruit", text))
        .chain(metal.iter().map(|text| example("metal", text)));
    all.collect()
}

#[test]
fn a_classifier_learns_from_examples_and_shows_how_well() {
    let classifier = Classifier::train(&[], &examples(), None).expect("trains");
    assert_eq!(classifier.by(), By::Model);
    let class = classifier.classify("사과 세 상자", None);
    assert_eq!((class.label.as_str(), class.by), ("fruit", By::Model));
    assert!((class.scores.values().sum::<f64>() - 1.0).abs() < 1e-3 && class.margin > 0.0);
    let validation = classifier.validation.as_ref().expect("validated");
    assert_eq!(validation.examples, 12);
    assert!(validation.accuracy > 0.6, "{validation:?}");
}

#[test]
fn an_answer_that_nothing_speaks_for_is_unsure() {
    let classifier = Classifier::train(&[], &examples(), None).expect("trains");
    assert!(classifier.classify("zzz", None).unsure);
    assert!(classifier.classify("", None).unsure);
}

#[test]
fn a_corrected_answer_becomes_an_example() {
    let mut examples = examples();
    let before = Classifier::train(&[], &examples, None).expect("trains").classify("호두 한 봉지", None);
    examples.extend([example("fruit", "호두 한 봉지"), example("fruit", "호두와 잣")]);
    let after = Classifier::train(&[], &examples, None).expect("trains").classify("호두 한 봉지", None);
    assert!(after.label == "fruit" && after.scores["fruit"] > before.scores["fruit"]);
}

#[test]
fn few_examples_and_descriptions_are_enough_to_begin_with_and_say_so() {
    let labels = [label("fruit", "과일: 사과, 배, 포도"), label("metal", "금속: 철, 구리, 알루미늄")];
    let none = Classifier::train(&labels, &[], None).expect("trains");
    assert_eq!((none.classify("사과 한 상자", None).label.as_str(), none.by()), ("fruit", By::LabelText));
    let one = Classifier::train(&labels, &examples()[..1], None).expect("trains");
    assert_eq!((one.classify("구리 전선", None).label.as_str(), one.by()), ("metal", By::Examples));
}

#[test]
fn what_cannot_be_learnt_from_is_refused_with_a_reason() {
    let code = |labels: &[Label], examples: &[Example]| {
        Classifier::train(labels, examples, None).expect_err("is refused").code()
    };
    assert_eq!(code(&[label("a", "x")], &[]), "labels-too-few");
    assert_eq!(code(&[label("a", "x"), label("b", " ")], &[]), "label-unknown");
    let many: Vec<Label> = (0..101).map(|n| label(&n.to_string(), "x")).collect();
    assert_eq!(code(&many, &[]), "labels-too-many");
    assert_eq!(code(&[], &vec![example("a", "x"); 2_001]), "labels-too-few");
    let many: Vec<Example> = (0..2_001).map(|n| example(&(n % 2).to_string(), "x")).collect();
    assert_eq!(code(&[], &many), "examples-too-many");
    assert_eq!(TrainError::NothingToDecide.code(), "labels-too-few");
}

#[test]
fn a_stored_classifier_answers_as_it_did() {
    let classifier = Classifier::train(&[], &examples(), None).expect("trains");
    let stored = serde_json::to_string(&classifier).expect("is written");
    assert!(!stored.contains("사과"), "no text of an example is stored");
    let read: Classifier = serde_json::from_str(&stored).expect("is read");
    assert_eq!(read.classify("철근", None), classifier.classify("철근", None));
}
