//! What a job made: the whole, and of a document its text and its tables.
//!
//! A result may be far larger than what this process should hold: the whole is streamed, and of a part
//! only that part is read into memory.

use std::fmt;
use std::fs::File;
use std::io::BufReader;

use axum::body::Body;
use axum::extract::{FromRequestParts, Path, State};
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use mapae::blob::BlobName;
use mapae::job;
use mapae::job::name::JobId;
use mapae::job::record::Output;
use mapae::store::contract::Scope;
use mapae_ai::intents::INTENTS_MAX;
use mapae_document::document::{Intent, Table};
use mapae_document::output::chatbot::Form;
use serde::Deserialize;
use serde::de::{self, DeserializeSeed, IgnoredAny, MapAccess, SeqAccess, Visitor};

use super::Api;
use super::auth::{Caller, ResultRead};
use super::documents::of_blobs;
use super::extract::Id;
use super::jobs::tagged;
use super::problem::{self, Problem, ProblemBody};
use crate::runtime::Runtime;

/// What the job made, as JSON.
#[utoipa::path(
    get, path = "/v1/jobs/{id}/result", tag = "jobs", params(("id" = String, Path)),
    security(("key" = ["files:read"]), ("key" = ["jobs:read"])),
    responses(
        (status = 200, content_type = "application/json"),
        (status = 204, description = "It has succeeded and gave nothing."),
        (status = 409, description = "It has not finished, or not with success.", body = ProblemBody),
        (status = 410, description = "It is no longer kept.", body = ProblemBody),
        (status = "default", body = ProblemBody),
    ),
)]
pub(super) async fn whole(
    State(api): State<Api>,
    caller: Caller<ResultRead>,
    Id(id): Id,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    let name = match output(&caller.runtime, &caller.scope(), id).await? {
        None => return Ok(StatusCode::NO_CONTENT.into_response()),
        Some(Output::Inline(value)) => {
            let bytes = serde_json::to_vec(&value).expect("what came from JSON is JSON");
            return Ok(tagged(&headers, bytes, "application/json"));
        }
        Some(Output::File { name, .. }) => name,
    };
    // A file never changes under its name, so the name is its tag.
    let tag = format!("\"{}\"", crate::credential::hex(&super::auth::hash(&name)[..12]));
    if headers.get(header::IF_NONE_MATCH).and_then(|value| value.to_str().ok()) == Some(&tag) {
        return Ok((StatusCode::NOT_MODIFIED, [(header::ETAG, tag)]).into_response());
    }
    let reading = caller.runtime.blobs.get(&blob(&name)?).await.map_err(|error| of_blobs(&api, error))?;
    let headers = [(header::CONTENT_TYPE, "application/json".to_owned()), (header::ETAG, tag)];
    let mut response = (headers, Body::from_stream(reading.body)).into_response();
    response.headers_mut().insert(header::CONTENT_LENGTH, HeaderValue::from(reading.bytes));
    Ok(response)
}

/// The document's text.
#[utoipa::path(
    get, path = "/v1/jobs/{id}/result/text", tag = "jobs", params(("id" = String, Path)),
    security(("key" = ["files:read"]), ("key" = ["jobs:read"])),
    responses((status = 200, content_type = "text/plain"), (status = "default", body = ProblemBody)),
)]
pub(super) async fn text(
    State(api): State<Api>,
    caller: Caller<ResultRead>,
    Id(id): Id,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    let text = text_of(&api, &caller.runtime, &caller.scope(), id).await?;
    Ok(tagged(&headers, text.into_bytes(), "text/plain; charset=utf-8"))
}

/// The text of the document that the job made.
pub(super) async fn text_of(
    api: &Api,
    runtime: &Runtime,
    scope: &Scope,
    id: JobId,
) -> Result<String, Problem> {
    #[derive(Deserialize)]
    struct WithText {
        text: String,
    }
    let found = read(api, runtime, scope, id, |source| match source {
        Source::Value(value) => WithText::deserialize(value).ok(),
        Source::File(file) => serde_json::from_reader(file).ok(),
    });
    let WithText { text } = found.await?.ok_or(&problem::PART_NOT_FOUND)?;
    Ok(text)
}

/// One table of the document, counted from 1.
#[utoipa::path(
    get, path = "/v1/jobs/{id}/result/tables/{table}", tag = "jobs",
    params(("id" = String, Path), ("table" = String, Path, description = "`N.csv` or `N.json`")),
    security(("key" = ["files:read"]), ("key" = ["jobs:read"])),
    responses(
        (status = 200, content(("text/csv"), ("application/json"))),
        (status = "default", body = ProblemBody),
    ),
)]
pub(super) async fn table(
    State(api): State<Api>,
    caller: Caller<ResultRead>,
    Id(id): Id,
    wanted: Wanted,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    let number = wanted.number;
    let scope = caller.scope();
    let found = read(&api, &caller.runtime, &scope, id, move |source| match source {
        Source::Value(value) => NthTable(number).deserialize(value).ok().flatten(),
        Source::File(file) => {
            NthTable(number).deserialize(&mut serde_json::Deserializer::from_reader(file)).ok().flatten()
        }
    });
    let table = found.await?.ok_or(&problem::PART_NOT_FOUND)?;
    if !wanted.csv {
        let bytes = serde_json::to_vec(&table).expect("a table is JSON");
        return Ok(tagged(&headers, bytes, "application/json"));
    }
    let mut bytes = Vec::new();
    mapae_document::output::csv(&table, &mut bytes).expect("writing to memory works");
    let mut response = tagged(&headers, bytes, "text/csv; charset=utf-8");
    // Never shown in place: a browser is not to guess what it is.
    let attachment = HeaderValue::from_static("attachment; filename=\"table.csv\"");
    response.headers_mut().insert(header::CONTENT_DISPOSITION, attachment);
    Ok(response)
}

/// The document's intents, in a form that builders of chatbots read.
#[utoipa::path(
    get, path = "/v1/jobs/{id}/result/{part}", tag = "jobs",
    params(("id" = String, Path), ("part" = String, Path, description = "`intents.json`, `intents.csv`, `intents.rasa` or `intents.dialogflow`")),
    security(("key" = ["files:read"]), ("key" = ["jobs:read"])),
    responses(
        (status = 200, content(("application/json"), ("text/csv"), ("application/zip"))),
        (status = "default", body = ProblemBody),
    ),
)]
pub(super) async fn intents(
    State(api): State<Api>,
    caller: Caller<ResultRead>,
    Id(id): Id,
    Path(path): Path<std::collections::HashMap<String, String>>,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    #[derive(Deserialize)]
    struct WithIntents {
        language: Option<String>,
        intents: Option<Vec<Intent>>,
    }
    let form = path.get("part").and_then(|part| Form::parse(part.strip_prefix("intents.")?));
    let form = form.ok_or(&problem::PART_NOT_FOUND)?;
    let scope = caller.scope();
    // Written there, too: it takes its time for a large one.
    let found = read(&api, &caller.runtime, &scope, id, move |source| {
        let found: WithIntents = match source {
            Source::Value(value) => WithIntents::deserialize(value).ok(),
            Source::File(file) => serde_json::from_reader(file).ok(),
        }?;
        // A document has no more. Others may have made this one.
        let mut intents = found.intents?;
        intents.truncate(INTENTS_MAX);
        Some(form.write(&intents, found.language.as_deref()))
    });
    let bytes = found.await?.ok_or(&problem::PART_NOT_FOUND)?;
    let mut response = tagged(&headers, bytes, form.media_type());
    if form != Form::Json {
        // Never shown in place: a browser is not to guess what it is.
        let attachment = HeaderValue::from_str(&format!("attachment; filename=\"{}\"", form.file()));
        response.headers_mut().insert(header::CONTENT_DISPOSITION, attachment.expect("a name of ours"));
    }
    Ok(response)
}

/// `7.csv` or `7.json` at the end of the path.
pub(super) struct Wanted {
    number: usize,
    csv: bool,
}

impl FromRequestParts<Api> for Wanted {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, api: &Api) -> Result<Self, Problem> {
        let path = Path::<std::collections::HashMap<String, String>>::from_request_parts(parts, api).await;
        let read = || {
            let path = path.ok()?;
            let (number, form) = path.get("table")?.split_once('.')?;
            let csv = match form {
                "csv" => true,
                "json" => false,
                _ => return None,
            };
            Some(Self { number: number.parse().ok().filter(|number| *number > 0)?, csv })
        };
        read().ok_or_else(|| (&problem::PART_NOT_FOUND).into())
    }
}

/// Where a result is read from.
enum Source {
    Value(serde_json::Value),
    File(BufReader<File>),
}

/// The job's result, through `part`, on a thread where it may take its time.
async fn read<T: Send + 'static>(
    api: &Api,
    runtime: &Runtime,
    scope: &Scope,
    id: JobId,
    part: impl FnOnce(Source) -> Option<T> + Send + 'static,
) -> Result<Option<T>, Problem> {
    let source = match output(runtime, scope, id).await? {
        None => return Ok(None),
        Some(Output::Inline(value)) => Source::Value(value),
        Some(Output::File { name, .. }) => {
            let file = runtime.blobs.open_local(&blob(&name)?).await;
            Source::File(BufReader::new(file.map_err(|error| of_blobs(api, error))?))
        }
    };
    let read = tokio::task::spawn_blocking(move || part(source)).await;
    read.map_err(|_| (&problem::INTERNAL).into())
}

/// What a job gave that has succeeded: nothing, where its handler gave nothing.
async fn output(runtime: &Runtime, scope: &Scope, id: JobId) -> Result<Option<Output>, Problem> {
    let store = &runtime.store;
    let job = store.job(scope, id).await?.ok_or(&problem::JOB_NOT_FOUND)?;
    match job.state {
        job::State::Succeeded => {}
        job::State::Pending | job::State::Running => return Err((&problem::NOT_FINISHED).into()),
        ended => {
            let detail = format!("The job is {}.", ended.as_str());
            return Err(Problem::from(&problem::NOT_SUCCEEDED).detail(detail));
        }
    }
    Ok(store.output(scope, id).await?)
}

fn blob(name: &str) -> Result<BlobName, Problem> {
    BlobName::parse(name).map_err(|_| (&problem::INTERNAL).into())
}

/// Reads the table of that number out of a document and passes over everything else.
struct NthTable(usize);

impl<'de> DeserializeSeed<'de> for NthTable {
    type Value = Option<Table>;

    fn deserialize<D: de::Deserializer<'de>>(self, document: D) -> Result<Option<Table>, D::Error> {
        document.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for NthTable {
    type Value = Option<Table>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a document")
    }

    fn visit_map<M: MapAccess<'de>>(self, mut document: M) -> Result<Option<Table>, M::Error> {
        let mut found = None;
        while let Some(name) = document.next_key::<String>()? {
            if name == "tables" {
                found = document.next_value_seed(Tables(self.0))?;
            } else {
                document.next_value::<IgnoredAny>()?;
            }
        }
        Ok(found)
    }
}

struct Tables(usize);

impl<'de> DeserializeSeed<'de> for Tables {
    type Value = Option<Table>;

    fn deserialize<D: de::Deserializer<'de>>(self, tables: D) -> Result<Option<Table>, D::Error> {
        tables.deserialize_option(self)
    }
}

impl<'de> Visitor<'de> for Tables {
    type Value = Option<Table>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list of tables, or null")
    }

    fn visit_none<E: de::Error>(self) -> Result<Option<Table>, E> {
        Ok(None)
    }

    fn visit_some<D: de::Deserializer<'de>>(self, tables: D) -> Result<Option<Table>, D::Error> {
        tables.deserialize_seq(self)
    }

    fn visit_seq<S: SeqAccess<'de>>(self, mut tables: S) -> Result<Option<Table>, S::Error> {
        for _ in 1..self.0 {
            if tables.next_element::<IgnoredAny>()?.is_none() {
                return Ok(None);
            }
        }
        let found = tables.next_element()?;
        while tables.next_element::<IgnoredAny>()?.is_some() {}
        Ok(found)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn nth(number: usize, json: &str) -> Option<u32> {
        let mut source = serde_json::Deserializer::from_str(json);
        NthTable(number).deserialize(&mut source).unwrap().map(|table| table.id)
    }

    #[test]
    fn only_the_table_asked_for_is_read() {
        let table = |id: u32| {
            format!(
                r#"{{"id":{id},"page":null,"sheet":"s","bbox":null,"confidence":1.0,"title":null,
                    "header_rows":0,"rows":1,"columns":1,"cells":[]}}"#
            )
        };
        let json = format!(r#"{{"text":"x","tables":[{},{}],"sheets":[1]}}"#, table(1), table(2));
        assert_eq!((nth(1, &json), nth(2, &json), nth(3, &json)), (Some(1), Some(2), None));
        assert_eq!(nth(1, r#"{"tables":null}"#), None);
        assert_eq!(nth(1, r#"{"other":[]}"#), None);
    }
}
