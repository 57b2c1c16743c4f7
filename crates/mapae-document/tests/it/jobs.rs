//! Documents read as jobs, with everything that can go wrong.

use bytes::Bytes;
use mapae::blob::{BlobName, PutLimits};
use mapae::handler::Handlers;
use mapae::job::record::{NewJob, Source};
use mapae::testing::{Trial, job};
use mapae_document::document::Document;
use mapae_document::handler::{Analyze, KIND};
use serde_json::json;

/// A job with this file as its source, and how it is run.
pub(crate) async fn trial(analyze: Analyze, name: &str, file: &[u8]) -> Trial {
    let mut handlers = Handlers::default();
    handlers.add(analyze);
    let mut job: NewJob = job(KIND, json!({}));
    let blob = BlobName::original(job.id.0);
    job.source = Some(Source {
        name: name.to_owned(),
        bytes: file.len() as u64,
        sha256: String::new(),
        media_type: "application/octet-stream".to_owned(),
        file: blob.to_string(),
    });
    let trial = Trial::new(handlers, job).await;
    let body = futures_util::stream::iter([Ok(Bytes::copy_from_slice(file))]);
    trial.blobs().put(&blob, body, PutLimits { bytes_max: u64::MAX }).await.unwrap();
    trial
}

pub(crate) async fn output(trial: &Trial) -> Document {
    serde_json::from_value(trial.output().await.unwrap()).unwrap()
}

/// A program that leaves a mark in `marks` whenever it starts and then does what `script` says.
pub(crate) fn marking(program: &std::path::Path, marks: &std::path::Path, script: &str) {
    std::fs::create_dir_all(marks).unwrap();
    std::fs::write(program, format!("#!/bin/sh\n: > {}/$$\n{script}\n", marks.display())).unwrap();
    std::fs::set_permissions(program, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
}
