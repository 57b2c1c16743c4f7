//! One call to a server that speaks OpenAI's chat API: a question with a schema to JSON that fits it, or a refusal.
//!
//! Nothing is streamed: a job waits for the whole, and an answer that was cut off is none.

use std::time::Duration;

use mapae::outgoing::{Destinations, NoClient, Outgoing, body_of};
use serde_json::{Value, json};
use tokio::time::error::Elapsed;

use super::refusal::{Class, Refusal};
use crate::config::{ProviderSettings, Shape};

/// The largest answer that is read, in bytes.
const ANSWER_BYTES_MAX: usize = 4 << 20;
/// How often the length of an answer is raised: once, by doubling.
const LENGTHS: [u64; 2] = [1, 2];

/// What is asked.
pub(crate) struct Question<'q> {
    /// What is to be done: ours.
    pub(crate) task: &'q str,
    /// The text of the document: a stranger's. In its fence once it is sent.
    pub(crate) text: &'q str,
    pub(crate) name: &'q str,
    /// JSON Schema in the subset that all servers take: everything required, nothing additional, no bounds.
    pub(crate) schema: &'q Value,
}

/// A client of one provider.
pub(crate) struct Caller {
    settings: ProviderSettings,
    outgoing: Outgoing,
}

impl Caller {
    pub(crate) fn new(settings: ProviderSettings, destinations: Destinations) -> Result<Self, NoClient> {
        let outgoing = Outgoing::new(destinations, settings.timeout)?;
        Ok(Self { settings, outgoing })
    }

    pub(crate) fn settings(&self) -> &ProviderSettings {
        &self.settings
    }

    /// The JSON that it answers, an object; whether it fits is for the asker to see.
    ///
    /// # Errors
    /// [`Elapsed`] where `left` was over before it answered or its own time was: that says nothing of it.
    pub(crate) async fn ask(
        &self,
        question: &Question<'_>,
        left: Duration,
    ) -> Result<Result<Value, Refusal>, Elapsed> {
        let all = async {
            let mut refused = Refusal::from(Class::Truncated);
            for length in LENGTHS {
                match self.once(question, self.settings.answer_tokens * length).await {
                    // Nothing of the part that came is asked about again: it would only make the question longer.
                    Err(refusal) if refusal.class == Class::Truncated => refused = refusal,
                    answered => return answered,
                }
            }
            Err(refused)
        };
        tokio::time::timeout(left, all).await
    }

    async fn once(&self, question: &Question<'_>, tokens: u64) -> Result<Value, Refusal> {
        let url = format!("{}/chat/completions", self.settings.url.reveal().trim_end_matches('/'));
        // The address is the operator's; where it may not be called the operator has to say so.
        let mut request = self.outgoing.post(&url).map_err(|_| Class::BadRequest)?;
        if let Some(key) = &self.settings.key {
            request = request.bearer_auth(key.reveal());
        }
        let body = self.body(question, tokens).to_string();
        let request = request.header("content-type", "application/json").body(body);
        let answer = request
            .send()
            .await
            .map_err(|error| if error.is_timeout() { Class::Timeout } else { Class::Transport })?;
        let (status, headers) = (answer.status().as_u16(), answer.headers().clone());
        let bytes = body_of(answer, ANSWER_BYTES_MAX).await.map_err(|unread| match unread {
            mapae::outgoing::Unread::TooLarge => Class::Malformed,
            mapae::outgoing::Unread::Lost(error) if error.is_timeout() => Class::Timeout,
            mapae::outgoing::Unread::Lost(_) => Class::Transport,
        })?;
        let body: Option<Value> = serde_json::from_slice(&bytes).ok();
        let is_error =
            body.as_ref().is_some_and(|body| body.get("error").is_some_and(|error| !error.is_null()));
        if !(200..300).contains(&status) || is_error {
            return Err(Refusal::of(status, &headers, body.as_ref()));
        }
        read(&body.ok_or(Class::Malformed)?)
    }

    fn body(&self, question: &Question<'_>, tokens: u64) -> Value {
        let mut task = question.task.to_owned();
        if self.settings.shape != Shape::Strict {
            task += &format!(
                "\nAnswer with one JSON object that fits this schema and nothing else:\n{}",
                question.schema
            );
        }
        let mut body = json!({
            "model": self.settings.model,
            "messages": [{ "role": "system", "content": task }, { "role": "user", "content": question.text }],
            "max_tokens": tokens, "temperature": 0, "stream": false,
        });
        match self.settings.shape {
            Shape::Strict => {
                let schema = json!({ "name": question.name, "strict": true, "schema": question.schema });
                body["response_format"] = json!({ "type": "json_schema", "json_schema": schema });
            }
            Shape::Object => body["response_format"] = json!({ "type": "json_object" }),
            Shape::Prompt => {}
        }
        body
    }
}

/// The object in a reply. Why it ended comes first: what was cut off or withheld is not looked at.
fn read(reply: &Value) -> Result<Value, Refusal> {
    let choice = &reply["choices"][0];
    let message = &choice["message"];
    match choice["finish_reason"].as_str() {
        Some("length") => return Err(Class::Truncated.into()),
        Some("content_filter") => return Err(Class::Refusal.into()),
        _ => {}
    }
    if message["refusal"].as_str().is_some_and(|refusal| !refusal.is_empty()) {
        return Err(Class::Refusal.into());
    }
    let text = message["content"].as_str().unwrap_or_default().trim();
    // Without a schema models like to put a fence around it.
    let bare = text.strip_prefix("```json").or_else(|| text.strip_prefix("```")).unwrap_or(text);
    let bare = bare.strip_suffix("```").unwrap_or(bare);
    let answer: Option<Value> = serde_json::from_str(bare.trim()).ok();
    answer.filter(Value::is_object).ok_or_else(|| Class::Malformed.into())
}
