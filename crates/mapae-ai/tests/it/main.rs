//! The packs against what the packages they come from answered.

mod classes;
mod encoder;
mod kinds;
mod korean;
mod odd;

use std::path::PathBuf;
use std::sync::Arc;

use mapae_ai::encoder::Encoder;
use mapae_ai::korean::Dictionary;
use mapae_ai::models::Models;
use serde_json::Value;

/// The folder of the packs, which `cargo xtask test` makes and names. A test that needs them does nothing without.
fn folder() -> Option<PathBuf> {
    let folder = std::env::var_os("MAPAE_TEST_MODELS").map(PathBuf::from);
    if folder.is_none() {
        eprintln!(
            "NOT RUN: it needs packs; `cargo xtask test` makes them, and MAPAE_TEST_MODELS names their folder"
        );
    }
    folder
}

fn models() -> Option<Models> {
    let folder = folder()?;
    let models = Models::open(&folder).expect("the packs are whole");
    assert!(models.missing().is_empty(), "no packs in {}: run `cargo xtask models`", folder.display());
    Some(models)
}

fn encoder() -> Option<Arc<Encoder>> {
    models().and_then(|models| models.encoder)
}

fn dictionary() -> Option<Arc<Dictionary>> {
    models().and_then(|models| models.dictionary)
}

/// The rows of a file of frozen answers.
fn frozen(file: &str) -> Vec<Value> {
    let path: PathBuf = [env!("CARGO_MANIFEST_DIR"), "tests/it/data", file].iter().collect();
    let rows = std::fs::read_to_string(path).expect("the file is there");
    rows.lines().map(|row| serde_json::from_str(row).expect("a row is JSON")).collect()
}
