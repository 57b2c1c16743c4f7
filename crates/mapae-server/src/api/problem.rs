//! Every refusal of the API: RFC 9457 problem details with a stable `code` and a `help`, in English or
//! Korean as the client prefers.
//!
//! A body never repeats what the client sent: it may be a customer's content.

use std::panic::AssertUnwindSafe;

use axum::extract::Request;
use axum::http::{HeaderValue, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use futures_util::FutureExt;
use mapae::accept::SubmitError;
use mapae::job::State;
use mapae::store::contract::{AcceptError, ControlError, StoreError};
use serde::Serialize;
use utoipa::ToSchema;

/// What can be refused. The table below is all of them.
#[derive(Debug, PartialEq, Eq)]
pub struct Refusal {
    pub status: u16,
    pub code: &'static str,
    /// What is wrong: English, Korean.
    pub title: [&'static str; 2],
    /// What to do next: English, Korean.
    pub help: [&'static str; 2],
}

macro_rules! refusals {
    ($($name:ident = $status:literal $code:literal
        $title_en:literal $title_ko:literal
        $help_en:literal $help_ko:literal;)*) => {
        $(pub static $name: Refusal = Refusal {
            status: $status, code: $code, title: [$title_en, $title_ko], help: [$help_en, $help_ko],
        };)*
        /// Every refusal, for the documents and the tests.
        pub static REFUSALS: &[&Refusal] = &[$(&$name),*];
    };
}

refusals! {
    BAD_REQUEST = 400 "bad-request"
        "The request cannot be read." "요청을 읽을 수 없습니다."
        "Compare the request with /openapi.json." "요청을 /openapi.json 과 비교하세요.";
    REQUEST_UNREADABLE = 400 "request-unreadable"
        "What was sent is no HTTP request." "보낸 것이 HTTP 요청이 아닙니다."
        "Send HTTP/1.1, and TLS only to a proxy in front of the server." "HTTP/1.1 로 보내세요. TLS 는 앞단 프록시에만 보낼 수 있습니다.";
    BODY_CUT = 400 "body-cut"
        "The body ended before it was complete; nothing was kept." "본문이 끝나기 전에 끊겼습니다. 저장된 것은 없습니다."
        "Send it again." "다시 보내세요.";
    JSON_INVALID = 400 "json-invalid"
        "The body is not JSON." "본문이 JSON이 아닙니다."
        "Send valid JSON in UTF-8." "올바른 UTF-8 JSON을 보내세요.";
    JSON_TOO_DEEP = 400 "json-too-deep"
        "The JSON is nested more than 64 levels deep." "JSON의 중첩이 64단계를 넘습니다."
        "Flatten it, or send it as a file." "중첩을 줄이거나 파일로 보내세요.";
    CURSOR_INVALID = 400 "cursor-invalid"
        "The cursor is none that this server gave." "이 서버가 준 커서가 아닙니다."
        "Start again without `cursor`, then follow the `Link` header." "`cursor` 없이 다시 시작해 `Link` 헤더를 따라가세요.";
    EVENT_ID_INVALID = 400 "event-id-invalid"
        "The event id to resume after is none that this server gave." "이 서버가 준 이벤트 ID가 아닙니다."
        "Leave `Last-Event-ID` out, or send the id of an event received before." "`Last-Event-ID` 를 빼거나 전에 받은 이벤트의 ID를 보내세요.";
    QUERY_INVALID = 400 "query-invalid"
        "A query parameter is unknown or has an impossible value." "모르는 매개변수이거나 값이 올바르지 않습니다."
        "Compare the parameters with /openapi.json." "매개변수를 /openapi.json 과 비교하세요.";
    HEADER_INVALID = 400 "header-invalid"
        "A request header has an impossible value." "요청 헤더의 값이 올바르지 않습니다."
        "See `detail` for which header and what it may be." "어느 헤더가 어떤 값이어야 하는지 `detail` 을 보세요.";
    MULTIPART_INVALID = 400 "multipart-invalid"
        "The multipart body cannot be read." "multipart 본문을 읽을 수 없습니다."
        "Send the file as the part `file`, and at most once each `kind` and `params`." "파일은 `file` 파트로, `kind` 와 `params` 는 한 번씩만 보내세요.";
    UNAUTHENTICATED = 401 "unauthenticated"
        "The request has no valid key." "유효한 키가 없습니다."
        "Send `Authorization: Bearer KEY`; make a key with `mapae key create`." "`Authorization: Bearer 키` 를 보내세요. 키는 `mapae key create` 로 만듭니다.";
    FORBIDDEN = 403 "forbidden"
        "The key does not have the right that this call needs." "이 호출에 필요한 권한이 키에 없습니다."
        "Use a key with the scope named in `detail`." "`detail` 에 적힌 권한이 있는 키를 쓰세요.";
    JOB_NOT_FOUND = 404 "job-not-found"
        "There is no such job." "그런 작업이 없습니다."
        "Check the id; the job may have been deleted, or belong to another owner." "ID를 확인하세요. 삭제되었거나 다른 소유자의 작업일 수 있습니다.";
    BATCH_NOT_FOUND = 404 "batch-not-found"
        "There is no such batch." "그런 배치가 없습니다."
        "Check the id: it is that of the job that waits for the parts." "ID를 확인하세요. 부분 작업들을 기다리는 작업의 ID입니다.";
    SCHEDULE_NOT_FOUND = 404 "schedule-not-found"
        "There is no such schedule." "그런 일정이 없습니다."
        "See /v1/schedules for those there are; one that is new is known once a process that has it is started." "/v1/schedules 에서 일정 목록을 확인하세요. 새 일정은 그것을 가진 프로세스가 시작된 뒤에 보입니다.";
    LABELS_NOT_FOUND = 404 "labels-not-found"
        "There is no such set of labels, or no such example in it." "그런 라벨 집합이 없거나, 그 안에 그런 예가 없습니다."
        "See /v1/labels for those there are; import examples with `mapae labels import`." "/v1/labels 에서 목록을 확인하세요. 예는 `mapae labels import` 로 넣습니다.";
    PART_NOT_FOUND = 404 "part-not-found"
        "The result has no such part." "결과에 그런 부분이 없습니다."
        "Get /v1/jobs/{id}/result to see what there is." "/v1/jobs/{id}/result 에서 무엇이 있는지 확인하세요.";
    ROUTE_NOT_FOUND = 404 "route-not-found"
        "There is nothing at this address." "이 주소에는 아무것도 없습니다."
        "See /openapi.json for what there is." "/openapi.json 에서 무엇이 있는지 확인하세요.";
    METHOD_NOT_ALLOWED = 405 "method-not-allowed"
        "This address does not take that method." "이 주소는 그 메서드를 받지 않습니다."
        "The `Allow` header names the methods it takes." "`Allow` 헤더에 받는 메서드가 있습니다.";
    REQUEST_TIMEOUT = 408 "request-timeout"
        "The request took too long to arrive; nothing was kept." "요청이 너무 늦게 도착했습니다. 저장된 것은 없습니다."
        "Send it again over a faster connection." "더 빠른 연결로 다시 보내세요.";
    NOT_FINISHED = 409 "job-not-finished"
        "The job has not finished, so it has no result yet." "작업이 끝나지 않아 아직 결과가 없습니다."
        "Follow its events, or ask again later." "이벤트를 따라가거나 나중에 다시 요청하세요.";
    NOT_SUCCEEDED = 409 "job-not-succeeded"
        "The job ended without success, so it has no result." "작업이 성공하지 못해 결과가 없습니다."
        "See `failure` in the job for why; a failed job can be retried." "이유는 작업의 `failure` 에 있습니다. 실패한 작업은 다시 시도할 수 있습니다.";
    CONFLICT = 409 "job-state-conflict"
        "The job's state does not allow this." "작업의 상태가 이 요청을 허용하지 않습니다."
        "Get the job to see its state; only failed jobs are retried, only live ones cancelled." "작업의 상태를 확인하세요. 실패한 작업만 재시도하고, 끝나지 않은 작업만 취소할 수 있습니다.";
    LEASE_LOST = 409 "lease-lost"
        "The lease is lost: the token is not the job's any more. Nothing has changed." "임대를 잃었습니다. 이 토큰은 더 이상 작업의 것이 아닙니다. 바뀐 것은 없습니다."
        "Stop the work and drop its result; lease again for more." "작업을 멈추고 결과를 버리세요. 더 하려면 다시 임대하세요.";
    BATCH_CLOSED = 409 "batch-closed"
        "The batch takes no more parts." "배치에 더 추가할 수 없습니다."
        "Submit the others as a batch of their own." "나머지는 새 배치로 보내세요.";
    LABEL_SET_FULL = 409 "label-set-full"
        "The set of labels would be larger than a set may be; nothing of the call was kept." "라벨 집합이 한도를 넘게 됩니다. 이 호출에서 저장된 것은 없습니다."
        "See `detail` for which bound; delete examples that are not needed, or use another set." "어느 한도인지는 `detail` 에 있습니다. 필요 없는 예를 지우거나 다른 집합을 쓰세요.";
    LABELS_NOT_ENOUGH = 409 "labels-not-enough"
        "Nothing can be learnt from the set of labels as it stands." "지금의 라벨 집합에서는 배울 수 있는 것이 없습니다."
        "See `detail` for what is missing; give at least two labels, each with an example or a description." "무엇이 모자라는지는 `detail` 에 있습니다. 예나 설명이 있는 라벨을 둘 이상 주세요.";
    KEY_REUSED = 409 "idempotency-key-reused"
        "This Idempotency-Key was used for another submission." "이 Idempotency-Key 는 다른 요청에 이미 쓰였습니다."
        "Use a new key for a new submission." "새 요청에는 새 키를 쓰세요.";
    RESULT_EXPIRED = 410 "result-expired"
        "The result is no longer kept." "결과가 더 이상 보관되어 있지 않습니다."
        "Submit the file again." "파일을 다시 보내세요.";
    BODY_TOO_LARGE = 413 "body-too-large"
        "The body is larger than this call takes." "본문이 허용된 크기를 넘습니다."
        "Send less; see `detail` for the limit." "더 작게 보내세요. 한도는 `detail` 에 있습니다.";
    URI_TOO_LONG = 414 "uri-too-long"
        "The address is too long." "주소가 너무 깁니다."
        "Send long values in the body." "긴 값은 본문으로 보내세요.";
    MEDIA_TYPE_UNSUPPORTED = 415 "media-type-unsupported"
        "The body is of a kind that this call does not take." "이 호출이 받지 않는 형식입니다."
        "See `detail` for what it takes." "받는 형식은 `detail` 에 있습니다.";
    MEDIA_TYPE_MISMATCH = 415 "media-type-mismatch"
        "The file is not what its name says it is." "파일의 내용이 이름과 다른 형식입니다."
        "Send it under the right extension." "올바른 확장자로 보내세요.";
    BODY_INVALID = 422 "body-invalid"
        "The body has a missing, unknown or impossible field." "본문에 빠졌거나 모르거나 잘못된 필드가 있습니다."
        "See `detail` for which, and /openapi.json for what it may be." "어느 필드인지는 `detail`, 무엇이 가능한지는 /openapi.json 을 보세요.";
    FILE_EMPTY = 422 "file-empty"
        "The file is empty." "파일이 비어 있습니다."
        "Send a file with content." "내용이 있는 파일을 보내세요.";
    PARAMS_TOO_LARGE = 422 "params-too-large"
        "The params are more than 256 KiB of JSON." "params 가 JSON 256 KiB 를 넘습니다."
        "Put what is larger in a file." "더 큰 것은 파일로 보내세요.";
    CALLBACKS_NOT_CONFIGURED = 422 "callbacks-not-configured"
        "This server tells no callbacks." "이 서버는 콜백을 보내지 않습니다."
        "Set `callback.secret` in its configuration, or follow the job's events." "설정에 `callback.secret` 을 넣거나 작업의 이벤트를 구독하세요.";
    CALLBACK_REFUSED = 422 "callback-refused"
        "The callback's address is not one that may be called." "호출할 수 없는 콜백 주소입니다."
        "Give a public https:// address, or have it allowed by name (`outgoing.allow`)." "공개 https:// 주소를 쓰거나 이름으로 허용(`outgoing.allow`)을 받으세요.";
    RECEIVER_NOT_FOUND = 404 "receiver-not-found"
        "There is no receiver of that name." "그런 이름의 수신처가 없습니다."
        "`GET /v1/receivers` lists them." "`GET /v1/receivers` 로 목록을 보세요.";
    HEADERS_TOO_LARGE = 431 "headers-too-large"
        "The request's headers are too many or too long." "요청 헤더가 너무 많거나 깁니다."
        "Send at most 64 KiB and 100 headers." "64 KiB, 100개 이하로 보내세요.";
    TOO_MANY_PENDING = 429 "too-many-pending"
        "The owner has as many waiting jobs as are allowed." "소유자의 대기 작업이 한도에 이르렀습니다."
        "Wait as long as `Retry-After` says, then send it again." "`Retry-After` 만큼 기다린 뒤 다시 보내세요.";
    TOO_MANY_KINDS = 429 "too-many-kinds"
        "There are jobs of as many kinds as this server lets clients make up." "서버에 설정되지 않은 종류의 작업이 한도에 이르렀습니다."
        "Check the kind's name, define it in the configuration, or wait as long as `Retry-After` says." "kind 이름을 확인하거나, 설정에 정의하거나, `Retry-After` 만큼 기다리세요.";
    INTERNAL = 500 "internal"
        "The server made a mistake." "서버에 오류가 있습니다."
        "Report it with the time of the request; what was accepted is not lost." "요청 시각과 함께 알려 주세요. 접수된 작업은 사라지지 않습니다.";
    STARTING = 503 "starting"
        "The server has not reached its database yet." "서버가 아직 데이터베이스에 연결되지 않았습니다."
        "Try again; /readyz?verbose says what is missing." "다시 시도하세요. 무엇이 빠졌는지는 /readyz?verbose 에 있습니다.";
    NOT_READY = 503 "not-ready"
        "The process cannot take more work at the moment." "지금은 일을 더 받을 수 없습니다."
        "Ask again with ?verbose to see what is missing." "무엇이 빠졌는지는 ?verbose 로 확인하세요.";
    OVERLOADED = 503 "overloaded"
        "The server takes no more of these at the moment." "지금은 더 받을 수 없습니다."
        "Wait as long as `Retry-After` says, then send it again." "`Retry-After` 만큼 기다린 뒤 다시 보내세요.";
    DATABASE_UNAVAILABLE = 503 "database-unavailable"
        "The database cannot be reached; whether this was kept is not known." "데이터베이스에 연결할 수 없어 저장 여부를 알 수 없습니다."
        "Send it again with the same Idempotency-Key." "같은 Idempotency-Key 로 다시 보내세요.";
    FILES_UNAVAILABLE = 503 "files-unavailable"
        "The file store cannot be reached; nothing was kept." "파일 저장소에 연결할 수 없습니다. 저장된 것은 없습니다."
        "Send it again later." "나중에 다시 보내세요.";
    DATABASE_UNFIT = 503 "database-unfit"
        "The database is not one that this version can work with." "이 버전이 쓸 수 없는 데이터베이스입니다."
        "Run `mapae doctor`, then `mapae migrate` or a newer mapae." "`mapae doctor` 를 실행한 뒤 `mapae migrate` 하거나 새 버전을 쓰세요.";
    STORAGE_FULL = 507 "storage-full"
        "There is no room to keep this; nothing was kept." "저장 공간이 없습니다. 저장된 것은 없습니다."
        "Free space on the server, then send it again." "서버의 공간을 비운 뒤 다시 보내세요.";
}

/// One refusal, ready to be sent.
#[derive(Clone, Debug)]
pub struct Problem {
    pub refusal: &'static Refusal,
    detail: Option<String>,
    retry_after_s: Option<u64>,
}

/// The body of every 4xx and 5xx answer, `application/problem+json`.
#[derive(Serialize, ToSchema)]
#[schema(as = Problem)]
pub struct ProblemBody {
    /// `urn:mapae:problem:` and the code.
    #[serde(rename = "type")]
    pub kind: String,
    pub title: String,
    pub status: u16,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub detail: Option<String>,
    /// Stable: what programs match on.
    pub code: String,
    /// What to do next.
    pub help: String,
}

impl Problem {
    pub fn detail(mut self, detail: impl Into<String>) -> Self {
        self.detail = Some(detail.into());
        self
    }

    pub fn retry_after(mut self, seconds: u64) -> Self {
        self.retry_after_s = Some(seconds);
        self
    }

    fn body(&self, language: usize) -> ProblemBody {
        ProblemBody {
            kind: format!("urn:mapae:problem:{}", self.refusal.code),
            title: self.refusal.title[language].to_owned(),
            status: self.refusal.status,
            detail: self.detail.clone(),
            code: self.refusal.code.to_owned(),
            help: self.refusal.help[language].to_owned(),
        }
    }

    fn render(self, language: usize) -> Response {
        let bytes = serde_json::to_vec(&self.body(language)).expect("strings and numbers are JSON");
        let status = StatusCode::from_u16(self.refusal.status).expect("the table has real statuses");
        let mut response = (status, bytes).into_response();
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/problem+json"));
        headers.insert(header::CONTENT_LANGUAGE, HeaderValue::from_static(["en", "ko"][language]));
        if let Some(seconds) = self.retry_after_s {
            headers.insert(header::RETRY_AFTER, HeaderValue::from(seconds));
        }
        if self.refusal.status == 401 {
            headers.insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        response.extensions_mut().insert(self);
        response
    }
}

impl From<&'static Refusal> for Problem {
    fn from(refusal: &'static Refusal) -> Self {
        let retry_after_s = matches!(refusal.status, 429 | 503).then_some(5);
        Self { refusal, detail: None, retry_after_s }
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        self.render(0)
    }
}

impl From<StoreError> for Problem {
    /// The one place where a database's error meets a request, so it is logged here.
    fn from(error: StoreError) -> Self {
        tracing::warn!(code = error.code(), "a request met an error of the database");
        match error {
            StoreError::Unavailable(_) | StoreError::Locked(_) => (&DATABASE_UNAVAILABLE).into(),
            StoreError::Full(_) => (&STORAGE_FULL).into(),
            StoreError::NewerSchema(_) | StoreError::OlderSchema(_) | StoreError::Address(_) => {
                (&DATABASE_UNFIT).into()
            }
            StoreError::Broken(_) => (&INTERNAL).into(),
        }
    }
}

impl From<ControlError> for Problem {
    fn from(error: ControlError) -> Self {
        match error {
            ControlError::NotFound => (&JOB_NOT_FOUND).into(),
            ControlError::Conflict(state) => Self::conflict(state),
            ControlError::Store(error) => error.into(),
        }
    }
}

impl From<SubmitError> for Problem {
    fn from(error: SubmitError) -> Self {
        match error {
            SubmitError::ParamsTooLarge => (&PARAMS_TOO_LARGE).into(),
            SubmitError::ParamsTooDeep => {
                Self::from(&BODY_INVALID).detail("`params` is nested too deep: at most 100 levels.")
            }
            SubmitError::ParamsNul => {
                Self::from(&BODY_INVALID).detail("`params` may not hold the character NUL.")
            }
            SubmitError::Follows => {
                Self::from(&BODY_INVALID).detail("`on`: at most 32 jobs, at most 8 after each other.")
            }
            SubmitError::Accept(AcceptError::KeyReused) => (&KEY_REUSED).into(),
            SubmitError::Accept(AcceptError::Store(error)) => error.into(),
        }
    }
}

impl Problem {
    pub fn conflict(state: State) -> Self {
        Self::from(&CONFLICT).detail(format!("The job is {}.", state.as_str()))
    }
}

/// Answers in Korean where the client prefers it, and gives every refusal that the framework made by
/// itself a body like the others.
pub async fn speak(request: Request, next: Next) -> Response {
    let korean = prefers_korean(request.headers().get(header::ACCEPT_LANGUAGE));
    let answered = AssertUnwindSafe(next.run(request)).catch_unwind().await;
    let response = answered.unwrap_or_else(|_| Problem::from(&INTERNAL).into_response());
    let mut response = spoken(response, korean);
    response.headers_mut().insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    response.headers_mut().entry(header::CACHE_CONTROL).or_insert(HeaderValue::from_static("no-store"));
    response
}

fn spoken(response: Response, korean: bool) -> Response {
    let status = response.status();
    if !status.is_client_error() && !status.is_server_error() {
        return response;
    }
    match response.extensions().get::<Problem>().cloned() {
        Some(problem) if korean => problem.render(1),
        Some(_) => response,
        None => {
            let allow = response.headers().get(header::ALLOW).cloned();
            let mut response = Problem::from(of_framework(status)).render(usize::from(korean));
            if let Some(allow) = allow {
                response.headers_mut().insert(header::ALLOW, allow);
            }
            response
        }
    }
}

fn of_framework(status: StatusCode) -> &'static Refusal {
    match status.as_u16() {
        404 => &ROUTE_NOT_FOUND,
        405 => &METHOD_NOT_ALLOWED,
        408 => &REQUEST_TIMEOUT,
        413 => &BODY_TOO_LARGE,
        415 => &MEDIA_TYPE_UNSUPPORTED,
        400..=499 => &BAD_REQUEST,
        _ => &INTERNAL,
    }
}

/// Whether `ko` is wanted before `en`. Weights are compared as written: `0.9` after `0.8`.
fn prefers_korean(accept: Option<&HeaderValue>) -> bool {
    let Some(accept) = accept.and_then(|value| value.to_str().ok()) else { return false };
    let weight = |language: &str| {
        accept
            .split(',')
            .filter_map(|range| {
                let mut parts = range.trim().split(';');
                let tag = parts.next()?.trim();
                let weight = parts.find_map(|part| part.trim().strip_prefix("q=")).unwrap_or("1");
                let matches = tag.split('-').next()?.eq_ignore_ascii_case(language);
                matches.then(|| weight.parse::<f32>().unwrap_or(0.0))
            })
            .fold(0.0, f32::max)
    };
    weight("ko") > weight("en")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_refusal_has_its_own_code_a_sentence_and_a_help_in_both_languages() {
        let mut codes: Vec<&str> = REFUSALS.iter().map(|refusal| refusal.code).collect();
        codes.sort_unstable();
        codes.dedup();
        assert_eq!(codes.len(), REFUSALS.len());
        for refusal in REFUSALS {
            let texts = refusal.title.iter().chain(&refusal.help);
            assert!(texts.clone().all(|text| text.ends_with('.')), "{}", refusal.code);
            assert!((400..600).contains(&refusal.status), "{}", refusal.code);
        }
    }

    #[test]
    fn korean_is_spoken_only_to_who_prefers_it() {
        let cases = [
            ("ko-KR,ko;q=0.9,en;q=0.8", true),
            ("en-US,en;q=0.9,ko;q=0.8", false),
            ("de", false),
            ("ko;q=0.1", true),
            (";;,,q=,ko;q=x", false),
        ];
        for (accept, korean) in cases {
            assert_eq!(prefers_korean(Some(&HeaderValue::from_static(accept))), korean, "{accept}");
        }
    }
}
