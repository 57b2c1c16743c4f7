//! One module for each command. They print data to stdout and talk on stderr.

pub(crate) mod adopt;
pub(crate) mod analyze;
pub(crate) mod batch;
pub(crate) mod bench;
pub(crate) mod config;
pub(crate) mod dead;
pub(crate) mod dev;
pub(crate) mod doctor;
pub(crate) mod events;
pub(crate) mod job;
pub(crate) mod jobs;
pub(crate) mod key;
pub(crate) mod labels;
pub(crate) mod migrate;
pub(crate) mod models;
pub(crate) mod queue;
pub(crate) mod resources;
pub(crate) mod schedules;
pub(crate) mod serve;
pub(crate) mod shell;
pub(crate) mod submit;
pub(crate) mod tables;
pub(crate) mod watch;
pub(crate) mod work;
pub(crate) mod workers;

/// What stands between `?` and the end of an address: only what was given.
fn query(pairs: &[(&str, Option<&str>)]) -> String {
    let mut query = url::form_urlencoded::Serializer::new(String::new());
    for (name, value) in pairs {
        if let Some(value) = value {
            query.append_pair(name, value);
        }
    }
    let query = query.finish();
    if query.is_empty() { query } else { format!("?{query}") }
}

/// A part of a path, with whatever would lead elsewhere encoded.
fn segment(text: &str) -> String {
    url::form_urlencoded::byte_serialize(text.as_bytes()).collect::<String>().replace('+', "%20")
}
