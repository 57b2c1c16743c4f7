//! Intents in the forms that builders of chatbots read.
//!
//! | form | | read by |
//! |---|---|---|
//! | `json` | as in `document.json` | programs |
//! | `csv` | a row for each way to ask, under headings | spreadsheets, most builders |
//! | `rasa` | a zip of `domain.yml`, `data/nlu.yml`, `data/rules.yml` | Rasa 3 (training data format 3.1) |
//! | `dialogflow` | a zip of an agent's `intents/` | Dialogflow ES, *Import from zip* |

use std::collections::{HashMap, HashSet};
use std::io::{Cursor, Write};

use serde_json::{Value, json};
use zip::ZipWriter;
use zip::write::SimpleFileOptions;

use super::field;
use crate::document::Intent;

/// Bytes of a name: Dialogflow ES takes at most 100.
const NAME_BYTES_MAX: usize = 90;

/// A form of intents.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    Json,
    Csv,
    Rasa,
    Dialogflow,
}

impl Form {
    pub const ALL: [Self; 4] = [Self::Json, Self::Csv, Self::Rasa, Self::Dialogflow];

    /// `json`, `csv`, `rasa` or `dialogflow`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Json => "json",
            Self::Csv => "csv",
            Self::Rasa => "rasa",
            Self::Dialogflow => "dialogflow",
        }
    }

    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|form| form.as_str() == text)
    }

    /// What a file of it is called.
    pub fn file(self) -> &'static str {
        match self {
            Self::Json => "intents.json",
            Self::Csv => "intents.csv",
            Self::Rasa => "intents-rasa.zip",
            Self::Dialogflow => "intents-dialogflow.zip",
        }
    }

    pub fn media_type(self) -> &'static str {
        match self {
            Self::Json => "application/json",
            Self::Csv => "text/csv; charset=utf-8",
            Self::Rasa | Self::Dialogflow => "application/zip",
        }
    }

    /// The file. `language` is that of the document, as a BCP 47 tag; what cannot be one counts as `en`.
    pub fn write(self, intents: &[Intent], language: Option<&str>) -> Vec<u8> {
        match self {
            Self::Json => serde_json::to_vec_pretty(intents).expect("intents are JSON"),
            Self::Csv => csv(intents),
            Self::Rasa => zipped(&rasa(intents)),
            Self::Dialogflow => {
                zipped(&dialogflow(intents, language.filter(|tag| is_tag(tag)).unwrap_or("en")))
            }
        }
    }
}

/// By its letters and its length (RFC 5646, 4.4.1); it becomes a part of a file's name.
fn is_tag(text: &str) -> bool {
    (2..=35).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
}

fn csv(intents: &[Intent]) -> Vec<u8> {
    let mut out = Vec::from(*b"intent,utterance,answer,origin,page\r\n");
    for intent in intents {
        for utterance in &intent.utterances {
            let page = intent.page.map(|page| page.to_string()).unwrap_or_default();
            let row = [&intent.name, utterance, &intent.answer, &intent.origin, &page];
            for (column, text) in row.into_iter().enumerate() {
                if column > 0 {
                    out.push(b',');
                }
                field(text, &mut out).expect("writing to memory works");
            }
            out.extend_from_slice(b"\r\n");
        }
    }
    out
}

/// Each intent has a response and a rule that gives it.
fn rasa(intents: &[Intent]) -> Vec<(String, String)> {
    let (mut domain, mut responses) = ("version: \"3.1\"\nintents:\n".to_owned(), "responses:\n".to_owned());
    let mut nlu = "version: \"3.1\"\nnlu:\n".to_owned();
    let mut rules = "version: \"3.1\"\nrules:\n".to_owned();
    for (name, intent) in named(intents, "") {
        let name = quoted(&name);
        let action = quoted(&format!("utter_{}", name.trim_matches('"')));
        domain += &format!("  - {name}\n");
        responses += &format!("  {action}:\n    - text: {}\n", quoted(&intent.answer));
        nlu += &format!("  - intent: {name}\n    examples: |\n");
        for utterance in &intent.utterances {
            // Brackets mark entities there, and a line is an example.
            let line: Vec<&str> = utterance.split_whitespace().collect();
            nlu += &format!("      - {}\n", line.join(" ").replace('[', "(").replace(']', ")"));
        }
        rules += &format!("  - rule: {name}\n    steps:\n      - intent: {name}\n      - action: {action}\n");
    }
    if intents.is_empty() {
        let none = |text: String, key: &str| text.replace(&format!("{key}:\n"), &format!("{key}: []\n"));
        (domain, nlu, rules) = (none(domain, "intents"), none(nlu, "nlu"), none(rules, "rules"));
        responses = "responses: {}\n".to_owned();
    }
    vec![
        ("domain.yml".into(), domain + &responses),
        ("data/nlu.yml".into(), nlu),
        ("data/rules.yml".into(), rules),
    ]
}

/// A string of JSON, which is one of YAML, too (YAML 1.2, chapter 1.3).
fn quoted(text: &str) -> String {
    Value::from(text).to_string()
}

fn dialogflow(intents: &[Intent], language: &str) -> Vec<(String, String)> {
    let agent =
        json!({ "description": "", "language": language, "supportedLanguages": [], "shortDescription": "" });
    let mut files = vec![
        ("agent.json".into(), agent.to_string()),
        ("package.json".into(), json!({ "version": "1.0.0" }).to_string()),
    ];
    let says_of = format!("_usersays_{language}");
    for (name, intent) in named(intents, &says_of) {
        let message = json!({ "type": "0", "title": "", "textToSpeech": "", "lang": language, "speech": [intent.answer], "condition": "" });
        let response = json!({
            "resetContexts": false, "action": "", "affectedContexts": [], "parameters": [],
            "messages": [message], "speech": [],
        });
        let body = json!({
            "id": id(&name, 0), "name": name, "auto": true, "contexts": [], "responses": [response],
            "priority": 500_000, "webhookUsed": false, "webhookForSlotFilling": false,
            "fallbackIntent": false, "events": [], "conditionalResponses": [], "condition": "",
            "conditionalFollowupEvents": [],
        });
        let says = intent.utterances.iter().enumerate().map(|(at, text)| {
            json!({
                "id": id(&name, at + 1), "data": [{ "text": text, "userDefined": false }],
                "isTemplate": false, "count": 0, "lang": language, "updated": 0,
            })
        });
        files.push((format!("intents/{name}.json"), body.to_string()));
        files.push((format!("intents/{name}{says_of}.json"), Value::from_iter(says).to_string()));
    }
    files
}

/// The same for the same intent each time, so that a second import replaces the first.
fn id(name: &str, number: usize) -> String {
    use sha2::{Digest, Sha256};
    let digest = Sha256::digest(format!("{name}\0{number}").as_bytes());
    let hex: String = digest[..16].iter().map(|byte| format!("{byte:02x}")).collect();
    format!("{}-{}-5{}-8{}-{}", &hex[..8], &hex[8..12], &hex[13..16], &hex[17..20], &hex[20..])
}

/// Names that every builder takes: letters, digits and `_`. Each is there once, also among those with `ending` behind,
/// under which there is a second file.
fn named<'i>(intents: &'i [Intent], ending: &str) -> impl Iterator<Item = (String, &'i Intent)> {
    let (mut taken, mut numbers) = (HashSet::new(), HashMap::<String, usize>::new());
    intents.iter().map(move |intent| {
        let plain = plain(&intent.name);
        let number = numbers.entry(plain.clone()).or_insert(1);
        loop {
            let name = if *number == 1 { plain.clone() } else { format!("{plain}_{number}") };
            *number += 1;
            let second = format!("{name}{ending}");
            if !taken.contains(&name) && !taken.contains(&second) {
                taken.extend([name.clone(), second]);
                return (name, intent);
            }
        }
    })
}

fn plain(text: &str) -> String {
    let mut name = String::new();
    for c in text.chars().flat_map(char::to_lowercase) {
        let c = if c.is_alphanumeric() { c } else { '_' };
        if name.len() + c.len_utf8() > NAME_BYTES_MAX {
            break;
        }
        if c != '_' || !name.is_empty() && !name.ends_with('_') {
            name.push(c);
        }
    }
    let name = name.trim_end_matches('_');
    if name.is_empty() { "intent".to_owned() } else { name.to_owned() }
}

/// Files in an archive, the same bytes each time.
fn zipped(files: &[(String, String)]) -> Vec<u8> {
    let mut archive = ZipWriter::new(Cursor::new(Vec::new()));
    for (name, text) in files {
        let written = archive.start_file(name, SimpleFileOptions::default());
        written.expect("an archive in memory takes any name once");
        archive.write_all(text.as_bytes()).expect("writing to memory works");
    }
    archive.finish().expect("writing to memory works").into_inner()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::io::Read;

    use super::*;

    fn intents() -> Vec<Intent> {
        let intent = |name: &str, utterances: &[&str], answer: &str| Intent {
            name: name.into(),
            utterances: utterances.iter().map(|text| (*text).to_owned()).collect(),
            answer: answer.into(),
            origin: "extractive".into(),
            page: Some(3),
            quote: None,
        };
        vec![
            intent("환불이 되나요", &["환불이 되나요?", "[환불] 방법"], "7일 안에 \"됩니다\".\n- 방문"),
            intent("환불이, 되나요!", &["환불?"], "예: 됩니다"),
            intent("/", &["?"], "#"),
        ]
    }

    fn unzipped(bytes: &[u8]) -> BTreeMap<String, String> {
        let mut archive = zip::ZipArchive::new(Cursor::new(bytes)).expect("an archive");
        (0..archive.len())
            .map(|at| {
                let (mut file, mut text) = (archive.by_index(at).expect("a file"), String::new());
                file.read_to_string(&mut text).expect("UTF-8");
                (file.name().expect("a name").into_owned(), text)
            })
            .collect()
    }

    #[test]
    fn csv_has_a_row_for_each_way_to_ask() {
        let text = String::from_utf8(Form::Csv.write(&intents(), None)).expect("UTF-8");
        assert!(text.starts_with(
            "intent,utterance,answer,origin,page\r\n환불이 되나요,환불이 되나요?,\"7일 안에 \"\"됩니다\"\".\n- 방문\",extractive,3\r\n"
        ));
        assert_eq!(text.matches("\r\n").count(), 5);
    }

    #[test]
    fn rasa_has_examples_an_answer_and_a_rule_for_each() {
        let files = unzipped(&Form::Rasa.write(&intents(), Some("ko")));
        assert_eq!(files.keys().collect::<Vec<_>>(), ["data/nlu.yml", "data/rules.yml", "domain.yml"]);
        let nlu = &files["data/nlu.yml"];
        let first =
            "  - intent: \"환불이_되나요\"\n    examples: |\n      - 환불이 되나요?\n      - (환불) 방법\n";
        assert!(nlu.starts_with(&format!("version: \"3.1\"\nnlu:\n{first}")), "{nlu}");
        let domain = &files["domain.yml"];
        assert!(domain.contains("  - \"환불이_되나요_2\"\n  - \"intent\"\nresponses:\n"), "{domain}");
        let answer = "  \"utter_환불이_되나요\":\n    - text: \"7일 안에 \\\"됩니다\\\".\\n- 방문\"\n";
        assert!(domain.contains(answer), "{domain}");
        assert!(files["data/rules.yml"].contains("- intent: \"intent\"\n      - action: \"utter_intent\"\n"));
    }

    #[test]
    fn dialogflow_has_two_files_an_intent() {
        let files = unzipped(&Form::Dialogflow.write(&intents(), Some("ko")));
        assert_eq!(files.len(), 2 + 2 * 3);
        let read = |name: &str| -> Value { serde_json::from_str(&files[name]).expect("JSON") };
        let intent = read("intents/환불이_되나요.json");
        assert_eq!(intent["name"], "환불이_되나요");
        assert_eq!(intent["responses"][0]["messages"][0]["speech"][0], "7일 안에 \"됩니다\".\n- 방문");
        let says = read("intents/환불이_되나요_usersays_ko.json");
        assert_eq!(says[1]["data"][0]["text"], "[환불] 방법");
        assert_eq!(says[0]["id"].as_str().map(str::len), Some(36));
        assert_ne!(says[0]["id"], says[1]["id"]);
        assert_eq!(Form::Dialogflow.write(&intents(), None), Form::Dialogflow.write(&intents(), None));
        assert_eq!(unzipped(&Form::Dialogflow.write(&[], None)).len(), 2);
    }

    #[test]
    fn no_two_files_have_one_name_whatever_intents_and_language_are_called() {
        let named = |name: &str| Intent { name: name.into(), ..intents().remove(0) };
        for (first, second) in [("a", "a usersays ko"), ("a usersays ko", "a"), ("a", "A"), ("a_2", "a")] {
            let all = [named(first), named(second), named("a"), named("a")];
            assert_eq!(
                unzipped(&Form::Dialogflow.write(&all, Some("ko"))).len(),
                2 + 2 * 4,
                "{first}, {second}"
            );
            let domain = &unzipped(&Form::Rasa.write(&all, Some("ko")))["domain.yml"];
            let actions: std::collections::HashSet<&str> =
                domain.lines().filter(|line| line.starts_with("  \"utter_")).collect();
            assert_eq!(actions.len(), 4, "{domain}");
        }
        for language in ["../../x", "k", "", "ko/..", &"k".repeat(36)] {
            let files = unzipped(&Form::Dialogflow.write(&intents()[..1], Some(language)));
            assert!(files.contains_key("intents/환불이_되나요_usersays_en.json"), "{language}: {files:?}");
        }
    }
}
