//! Labelled examples: what an owner teaches with is the owner's, counted and bounded.

use mapae::job::name::{LabelName, SetName};
use mapae::store::contract::{
    Example, LABELS_MAX, LabelSet, SET_EXAMPLES_MAX, SETS_MAX, Store, TEXT_CHARS_MAX, TeachError,
};

use crate::stores::{everywhere, owner};

fn set(name: &str) -> SetName {
    SetName::new(name).unwrap()
}

fn example(label: &str, text: &str) -> Example {
    Example::new(LabelName::new(label).unwrap(), "", text, false).unwrap()
}

async fn taught(store: &dyn Store, of: &str) -> Vec<(String, String)> {
    let found = store.examples(&owner(of), &set("post"), None, 10_000).await.unwrap();
    let mut all: Vec<_> = found.into_iter().map(|e| (String::from(e.label), e.text)).collect();
    all.sort();
    all
}

fn pair(label: &str, text: &str) -> (String, String) {
    (label.into(), text.into())
}

#[tokio::test]
async fn a_correction_is_the_same_example_with_another_label() {
    everywhere(async |bench| {
        let store = &*bench.store;
        let (of, post) = (owner("acme"), set("post"));
        let texts = [example("bill", "돈을 내라"), example("offer", "사 주세요")];
        let first = store.teach(&of, &post, &texts).await.unwrap();
        assert_eq!((first.examples, first.labels, first.bytes), (2, 2, 13 + 13));
        let texts = [example("bill", "돈을 내라"), example("bill", "사 주세요")];
        let again = store.teach(&of, &post, &texts).await.unwrap();
        assert_eq!((again.examples, again.labels), (2, 1));
        assert_eq!(taught(store, "acme").await, [pair("bill", "돈을 내라"), pair("bill", "사 주세요")]);
        assert_ne!(again.version, first.version, "what was learnt before is not what is to be learnt now");
        assert_eq!(store.label_set(&of, &post).await.unwrap().as_ref(), Some(&again));
        assert_eq!(store.label_sets(&of).await.unwrap(), [again]);

        let about = Example::new(LabelName::new("bill").unwrap(), "t", "돈", true).unwrap();
        let of_label = Example { text: "돈과 청구".into(), ..about.clone() };
        let told = store.teach(&of, &post, &[about.clone(), of_label.clone()]).await.unwrap();
        assert_eq!(told.examples, 3, "a label has one description");
        assert!(store.examples(&of, &post, None, 10).await.unwrap().contains(&of_label));
        assert!(store.unteach(&of, &post, about.id()).await.unwrap());
        assert!(!store.unteach(&of, &post, about.id()).await.unwrap());
        let left: LabelSet = store.label_set(&of, &post).await.unwrap().unwrap();
        assert!(left.examples == 2 && left.version != told.version);
    })
    .await;
}

#[tokio::test]
async fn what_one_owner_teaches_is_nothing_to_another() {
    everywhere(async |bench| {
        let store = &*bench.store;
        let post = set("post");
        let mine = example("bill", "same text");
        store.teach(&owner("acme"), &post, std::slice::from_ref(&mine)).await.unwrap();
        assert_eq!(store.label_sets(&owner("other")).await.unwrap(), []);
        assert_eq!(store.label_set(&owner("other"), &post).await.unwrap(), None);
        assert!(taught(store, "other").await.is_empty());
        assert!(!store.unteach(&owner("other"), &post, mine.id()).await.unwrap());
        assert!(!store.forget(&owner("other"), &post).await.unwrap());
        store.teach(&owner("other"), &post, &[example("offer", "same text")]).await.unwrap();
        assert_eq!(taught(store, "acme").await, [pair("bill", "same text")]);
        assert!(store.forget(&owner("acme"), &post).await.unwrap());
        assert!(taught(store, "acme").await.is_empty());
        assert_eq!(taught(store, "other").await, [pair("offer", "same text")]);
    })
    .await;
}

#[tokio::test]
async fn examples_are_found_in_pages() {
    everywhere(async |bench| {
        let (of, post) = (owner("acme"), set("post"));
        let all: Vec<Example> = (0..7).map(|n| example("a", &format!("text {n}"))).collect();
        bench.store.teach(&of, &post, &all).await.unwrap();
        let (mut found, mut after) = (Vec::new(), None);
        loop {
            let page = bench.store.examples(&of, &post, after, 3).await.unwrap();
            let Some(last) = page.last() else { break };
            after = Some(last.id());
            found.extend(page);
        }
        assert_eq!(found.len(), 7);
        assert!(all.iter().all(|example| found.contains(example)));
    })
    .await;
}

#[tokio::test]
async fn a_set_that_would_be_too_large_stays_as_it_was() {
    everywhere(async |bench| {
        let store = &*bench.store;
        let (of, post) = (owner("acme"), set("post"));
        let many = |label: &str, n: usize| -> Vec<Example> {
            (0..n).map(|i| example(label, &format!("{label} {i}"))).collect()
        };
        let full = store.teach(&of, &post, &many("a", SET_EXAMPLES_MAX)).await.unwrap();
        let refused = store.teach(&of, &post, &[example("b", "one more")]).await;
        assert!(matches!(refused, Err(TeachError::TooManyExamples(_))), "{refused:?}");
        assert_eq!(store.label_set(&of, &post).await.unwrap(), Some(full), "nothing of it was kept");
        store.teach(&of, &post, &many("a", SET_EXAMPLES_MAX)).await.unwrap();

        let labels: Vec<Example> =
            (0..=LABELS_MAX).map(|n| example(&n.to_string(), &n.to_string())).collect();
        let refused = store.teach(&of, &set("labels"), &labels).await;
        assert!(matches!(refused, Err(TeachError::TooManyLabels(_))), "{refused:?}");
        let long = "가".repeat(TEXT_CHARS_MAX + 10);
        let large: Vec<Example> = (0..1_900).map(|n| example("a", &format!("{n} {long}"))).collect();
        let refused = store.teach(&of, &set("bytes"), &large).await;
        assert!(matches!(refused, Err(TeachError::TooLarge(_))), "{refused:?}");

        for n in 1..SETS_MAX {
            store.teach(&of, &set(&format!("s{n}")), &[example("a", "b")]).await.unwrap();
        }
        let refused = store.teach(&of, &set("more"), &[example("a", "b")]).await;
        assert!(matches!(refused, Err(TeachError::TooManySets)), "{refused:?}");
        store.teach(&of, &post, &[example("b", "a 1")]).await.unwrap();
        store.teach(&owner("other"), &set("more"), &[example("a", "b")]).await.unwrap();
    })
    .await;
}

#[test]
fn a_text_is_kept_as_far_as_it_is_looked_at() {
    let label = LabelName::new("a").unwrap();
    let long = Example::new(label.clone(), "\0t ", &"x".repeat(TEXT_CHARS_MAX + 1), false).unwrap();
    assert_eq!((long.title.as_str(), long.text.len()), ("t", TEXT_CHARS_MAX));
    assert_eq!(Example::new(label, "title", " \n", false), None);
}
