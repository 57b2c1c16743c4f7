//! What turns texts into vectors, and vectors that know which model made them.

use serde::{Deserialize, Serialize};

/// A model that gives a text a vector. Vectors of two models have nothing to do with each other.
pub trait Embedder: Send + Sync {
    /// Names the model and its version; stored with every vector.
    fn id(&self) -> &str;

    /// Numbers of a vector.
    fn dimension(&self) -> usize;

    /// A vector of length 1 for each text, in the order of the texts. A text without a word has one too.
    fn embed(&self, texts: &[&str]) -> Vec<Vec<f32>>;
}

/// A vector and the model that made it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Embedding {
    pub model: String,
    pub vector: Vec<f32>,
}

/// Two vectors were compared that different models made.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error("the vectors are of two models ({0} and {1}): embed the texts of one of them again")]
pub struct ModelsDiffer(pub String, pub String);

impl Embedding {
    /// The vector of one text.
    pub fn of(text: &str, embedder: &dyn Embedder) -> Self {
        let vector = embedder.embed(&[text]).pop().unwrap_or_default();
        Self { model: embedder.id().to_owned(), vector }
    }

    /// How alike two texts are, −1 to 1.
    ///
    /// # Errors
    /// [`ModelsDiffer`]: such a figure would mean nothing.
    pub fn similarity(&self, other: &Self) -> Result<f32, ModelsDiffer> {
        if self.model != other.model || self.vector.len() != other.vector.len() {
            return Err(ModelsDiffer(self.model.clone(), other.model.clone()));
        }
        Ok(cosine(&self.vector, &other.vector))
    }
}

/// The cosine of two vectors of one model, 0 where one of them is zero.
pub(crate) fn cosine(a: &[f32], b: &[f32]) -> f32 {
    let dot = |a: &[f32], b: &[f32]| a.iter().zip(b).map(|(a, b)| a * b).sum::<f32>();
    let length = (dot(a, a) * dot(b, b)).sqrt();
    if length > 0.0 { dot(a, b) / length } else { 0.0 }
}

#[cfg(test)]
mod tests {
    use super::{Embedding, ModelsDiffer};

    #[test]
    fn vectors_of_two_models_are_never_compared() {
        let a = Embedding { model: "a/1".into(), vector: vec![1.0, 0.0] };
        let b = Embedding { model: "b/1".into(), vector: vec![1.0, 0.0] };
        assert_eq!(a.similarity(&b), Err(ModelsDiffer("a/1".into(), "b/1".into())));
        assert_eq!(a.similarity(&a), Ok(1.0));
    }
}
