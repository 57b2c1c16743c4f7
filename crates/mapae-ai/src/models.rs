//! The packs of a folder: which there are, and what they give.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::embed::Embedder;
use crate::encoder::Encoder;
use crate::korean::{Dictionary, UserWords};
use crate::pack::{Pack, PackError};

/// The names of the packs' files.
pub const FILES: [&str; 2] = ["use-multilingual.mpk", "mecab-ko.mpk"];

/// What texts are understood with. Without packs the lexical methods do what they can.
#[derive(Clone, Default)]
pub struct Models {
    pub encoder: Option<Arc<Encoder>>,
    pub dictionary: Option<Arc<Dictionary>>,
}

impl Models {
    /// Opens what the folder holds. A pack that is not there is no error; one that is there and broken is.
    ///
    /// # Errors
    /// [`PackError`] of the first pack that cannot be used.
    pub fn open(folder: &Path) -> Result<Self, PackError> {
        Self::open_with_words(folder, UserWords::default())
    }

    /// As [`Models::open`], with words that the Korean dictionary is to know as well.
    ///
    /// # Errors
    /// As [`Models::open`].
    pub fn open_with_words(folder: &Path, words: UserWords) -> Result<Self, PackError> {
        let pack = |name: &str| match Pack::open(&folder.join(name)) {
            Err(PackError::Read(error)) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
            opened => opened.map(Some),
        };
        let encoder = pack(FILES[0])?.map(Encoder::new).transpose()?;
        let dictionary = pack(FILES[1])?.map(Dictionary::new).transpose()?.map(|d| d.with_words(words));
        Ok(Self { encoder: encoder.map(Arc::new), dictionary: dictionary.map(Arc::new) })
    }

    pub fn embedder(&self) -> Option<&dyn Embedder> {
        self.encoder.as_deref().map(|encoder| encoder as &dyn Embedder)
    }

    /// The files of packs that are not there.
    pub fn missing(&self) -> Vec<&'static str> {
        let there = [self.encoder.is_some(), self.dictionary.is_some()];
        FILES.into_iter().zip(there).filter(|(_, there)| !there).map(|(file, _)| file).collect()
    }

    /// The first of the folders that holds a pack.
    pub fn find(folders: &[PathBuf]) -> Option<&PathBuf> {
        folders.iter().find(|folder| FILES.iter().any(|file| folder.join(file).is_file()))
    }
}
