//! What this program understands of texts by itself: the models of its folder, and how documents meet them.

mod intents;
mod process;
pub(crate) mod provider;
pub mod taught;

use std::collections::HashMap;
use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;

use async_trait::async_trait;
use mapae::handler::Context;
use mapae::job::name::SetName;
use mapae::job::retry::Failure;
use mapae::metrics::Metrics;
use mapae_ai::classify::builtin;
use mapae_ai::embed::Embedder;
use mapae_ai::encoder::Encoder;
use mapae_ai::models::Models;
use mapae_ai::pack::PackError;
use mapae_document::document::{Class, Document, Intent, Keyword, Warning};
use mapae_document::understand::{Understand, Understood};

pub(crate) use process::{KIND, Process};

use self::provider::Providers;
use self::taught::{Taught, TaughtError};

/// The code of the warning that a pack is not there.
const MISSING: &str = "models-missing";
/// Keywords of a document.
const KEYWORDS: usize = 15;

/// Texts understood without a network.
#[derive(Clone, Default)]
pub struct Local {
    /// From its pack, where that is there.
    encoder: Option<Arc<Encoder>>,
    /// What owners have taught, where there is a database that knows.
    taught: Option<Arc<Taught>>,
    /// Who is asked beside this program's own methods, and in which order.
    providers: Option<Providers>,
    metrics: Option<Arc<Metrics>>,
}

/// Where packs are looked for: beside the program, then where it was started.
pub(crate) fn folders() -> Vec<PathBuf> {
    let beside = std::env::current_exe().ok().and_then(|program| Some(program.parent()?.join("models")));
    beside.into_iter().chain([PathBuf::from("models")]).collect()
}

impl Local {
    /// With the packs that are there.
    ///
    /// # Errors
    /// [`PackError`] where one is there and broken: better not to start than to answer differently unseen.
    pub fn open() -> Result<Self, PackError> {
        let folders = folders();
        let Some(folder) = Models::find(&folders) else { return Ok(Self::default()) };
        Ok(Self { encoder: Models::open(folder)?.encoder, ..Self::default() })
    }

    /// As this one, with what owners have taught, and counted.
    pub(crate) fn with(self, taught: Arc<Taught>, metrics: Arc<Metrics>) -> Self {
        Self { taught: Some(taught), metrics: Some(metrics), ..self }
    }

    /// As this one, and others are asked, too.
    pub(crate) fn asking(self, providers: Providers) -> Self {
        Self { providers: Some(providers), ..self }
    }

    /// What texts get their vectors from.
    pub(crate) fn embedder(&self) -> Option<&dyn Embedder> {
        self.encoder.as_deref().map(|encoder| encoder as &dyn Embedder)
    }
}

#[async_trait]
impl Understand for Local {
    async fn class(
        &self,
        document: &Arc<Document>,
        labels: Option<&SetName>,
        ctx: &Context,
    ) -> Result<Understood<Class>, Failure> {
        let taught = match (labels, &self.taught) {
            (None, _) => None,
            (Some(set), Some(taught)) => Some(taught.classifier(&ctx.job().owner, set, self).await?.1),
            (Some(_), None) => return Err(TaughtError::Unknown.into()),
        };
        let mut warnings = Vec::new();
        if taught.is_some() && self.encoder.is_none() {
            warnings.push(missing("The class was decided by letters and words only"));
        }
        let (document, local) = (document.clone(), self.clone());
        let class = self
            .timed(move || match taught {
                Some(classifier) => classifier.classify(&document.text, local.embedder()),
                None => builtin::classify(&document.source.name, &document.text),
            })
            .await?;
        let value = Class {
            label: class.label,
            confidence: class.confidence,
            by: class.by.as_str().to_owned(),
            unsure: class.unsure,
            margin: class.margin,
            scores: class.scores,
        };
        Ok(Understood { value, warnings })
    }

    async fn keywords(
        &self,
        document: &Arc<Document>,
        _ctx: &Context,
    ) -> Result<Understood<Vec<Keyword>>, Failure> {
        let document = document.clone();
        Ok(self.timed(move || keywords(&document.text)).await?.into())
    }

    async fn intents(
        &self,
        document: &Arc<Document>,
        ctx: &Context,
    ) -> Result<Understood<Vec<Intent>>, Failure> {
        let (whole, local) = (document.clone(), self.clone());
        let own = self.timed(move || intents::intents(&whole, local.embedder())).await?;
        let missing = || missing("Intents that mean the same were found by their letters only");
        let mut warnings = if self.encoder.is_none() { vec![missing()] } else { Vec::new() };
        let made = match &self.providers {
            Some(providers) if providers.come_first() => {
                provider::intents::made(providers, document, ctx).await?
            }
            _ => None,
        };
        let Some(made) = made else { return Ok(Understood { value: own, warnings }) };
        warnings.extend(made.warnings);
        // Where no passage had an answer, headings are better than nothing.
        let value = if made.intents.is_empty() { own } else { intents::joined(own, made.intents) };
        Ok(Understood { value, warnings })
    }
}

impl Local {
    /// Long work, counted and timed, on a thread where it may take its time.
    async fn timed<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, Failure> {
        let began = Instant::now();
        let done = tokio::task::spawn_blocking(work).await;
        if let Some(metrics) = &self.metrics {
            let outcome = if done.is_ok() { "ok" } else { "failed" };
            metrics.count("mapae_ai_requests_total", format!("local/{outcome}"), 1);
            metrics.time("mapae_ai_seconds", "local", began.elapsed());
        }
        // Only a fault of this program ends here; it says nothing of the document, and neither may its message.
        done.map_err(|_| Failure::retryable("understand-failed", "The document could not be understood."))
    }
}

fn missing(what: &str) -> Warning {
    let message = format!("{what}: the pack of the encoder is not there. `mapae models list` says more.");
    Warning { code: MISSING.to_owned(), page: None, message }
}

fn keywords(text: &str) -> Vec<Keyword> {
    let found = mapae_ai::keywords::keywords(text, KEYWORDS);
    let places = characters(text, found.iter().map(|keyword| &keyword.at));
    let keyword = |k: mapae_ai::keywords::Keyword| Keyword {
        at: places.get(&k.at.start).copied().zip(places.get(&k.at.end).copied()).map(|(a, b)| [a, b]),
        text: k.text,
        score: k.score,
    };
    found.into_iter().map(keyword).collect()
}

/// The ends of ranges of bytes as numbers of characters, which `document.json` counts in.
fn characters<'r>(text: &str, ranges: impl Iterator<Item = &'r Range<usize>>) -> HashMap<usize, u64> {
    let mut bytes: Vec<usize> = ranges.flat_map(|range| [range.start, range.end]).collect();
    bytes.sort_unstable();
    bytes.dedup();
    let mut places = HashMap::new();
    let (mut at, mut count) = (0, 0);
    for byte in bytes {
        count += text.get(at..byte).map_or(0, |part| part.chars().count() as u64);
        at = byte;
        places.insert(byte, count);
    }
    places
}

/// The page that a byte of the document's text is on. Pages with text follow each other with an empty line.
fn page(document: &Document, byte: usize) -> Option<u32> {
    let mut end = 0;
    for page in document.pages.iter().flatten().filter(|page| !page.text.is_empty()) {
        end += page.text.len() + if end == 0 { 0 } else { 2 };
        if byte < end {
            return Some(page.number);
        }
    }
    None
}
