//! What is learnt from.

use serde::{Deserialize, Serialize};

/// A label and, in a few words, what belongs under it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Label {
    pub name: String,
    #[serde(default)]
    pub description: String,
}

/// A text whose label is known.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Example {
    pub label: String,
    pub text: String,
}
