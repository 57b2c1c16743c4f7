//! The kind `context.process`: a text or a record to keywords and a vector, in this process.

use async_trait::async_trait;
use mapae::handler::{Context, Handler};
use mapae::job::retry::Failure;
use mapae_ai::embed::Embedding;
use mapae_ai::keywords::keywords;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{Local, MISSING, characters};

pub(crate) const KIND: &str = "context.process";
const KEYWORDS: usize = 10;
/// Tables and lists in each other, and no deeper: params are checked for the same when they are taken.
const DEPTH_MAX: usize = 64;

pub(crate) struct Process(pub(crate) Local);

/// One of the two.
#[derive(Deserialize)]
#[serde(untagged, deny_unknown_fields)]
pub(crate) enum Input {
    Text {
        text: String,
    },
    /// Every text in it, in its order.
    Record {
        record: Value,
    },
}

#[derive(Serialize)]
pub(crate) struct Output {
    keywords: Vec<Keyword>,
    /// `null` without the pack of the encoder.
    embedding: Option<Embedding>,
    /// What made the answer poorer than it could be.
    warnings: Vec<Warning>,
}

/// The message never holds text of the job.
#[derive(Serialize)]
struct Warning {
    code: &'static str,
    message: &'static str,
}

const NO_ENCODER: Warning = Warning {
    code: MISSING,
    message: "There is no embedding: the pack of the encoder is not there. `mapae models list` says more.",
};
const NO_TEXT: Warning = Warning { code: "text-empty", message: "There is no text to work on." };

#[derive(Serialize)]
struct Keyword {
    text: String,
    score: f64,
    /// First and last-plus-one character, in the text; for a record in its texts with an empty line between them.
    at: [u64; 2],
}

#[async_trait]
impl Handler for Process {
    const KIND: &'static str = KIND;
    type Input = Input;
    type Output = Output;

    async fn run(&self, input: Input, _ctx: &Context) -> Result<Output, Failure> {
        let text = match input {
            Input::Text { text } => text,
            Input::Record { record } => {
                let mut texts = Vec::new();
                gather(&record, DEPTH_MAX, &mut texts);
                texts.join("\n\n")
            }
        };
        let local = self.0.clone();
        self.0.timed(move || process(&local, &text)).await
    }
}

fn process(local: &Local, text: &str) -> Output {
    let found = keywords(text, KEYWORDS);
    let places = characters(text, found.iter().map(|keyword| &keyword.at));
    let place = |byte: usize| places.get(&byte).copied().unwrap_or_default();
    let keyword = |k: mapae_ai::keywords::Keyword| Keyword {
        at: [place(k.at.start), place(k.at.end)],
        text: k.text,
        score: k.score,
    };
    let mut warnings = Vec::new();
    if local.embedder().is_none() {
        warnings.push(NO_ENCODER);
    }
    if text.trim().is_empty() {
        warnings.push(NO_TEXT);
    }
    Output {
        keywords: found.into_iter().map(keyword).collect(),
        embedding: local.embedder().map(|embedder| Embedding::of(text, embedder)),
        warnings,
    }
}

/// The texts of a record in its order.
fn gather<'v>(value: &'v Value, depth: usize, texts: &mut Vec<&'v str>) {
    match value {
        Value::String(text) => texts.push(text),
        Value::Array(items) if depth > 0 => items.iter().for_each(|item| gather(item, depth - 1, texts)),
        Value::Object(items) if depth > 0 => items.values().for_each(|item| gather(item, depth - 1, texts)),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::{Local, Output, gather, process};

    #[test]
    fn a_record_is_its_texts_and_a_text_has_keywords_without_any_pack() {
        let record = json!({ "title": "메시지 큐", "tags": ["작업", { "n": 1, "name": "재시도 횟수" }] });
        let mut texts = Vec::new();
        gather(&record, 64, &mut texts);
        texts.sort_unstable();
        assert_eq!(texts, ["메시지 큐", "작업", "재시도 횟수"]);
        let text = "메시지 큐를 쓴다. 메시지 큐는 빠르다.";
        let output = process(&Local::default(), text);
        let codes = |output: &Output| output.warnings.iter().map(|warning| warning.code).collect::<Vec<_>>();
        assert!(output.embedding.is_none() && codes(&output) == ["models-missing"]);
        let first = &output.keywords[0];
        let [from, to] = first.at.map(|n| usize::try_from(n).expect("fits"));
        assert_eq!(text.chars().skip(from).take(to - from).collect::<String>(), first.text);
        assert_eq!(codes(&process(&Local::default(), " ")), ["models-missing", "text-empty"]);
    }
}
