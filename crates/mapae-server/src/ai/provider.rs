//! Models that others serve, in the order of the configuration, and what is done when one does not answer.
//!
//! ```text
//! Question ─► the first that does not rest ─► answer ─► fits? ─► done
//!                  │ refusal (provider/refusal.rs says of which class)
//!                  ├─► once more, for a server or a line that stumbled
//!                  └─► the next;  `local`: nobody is asked;  none left: the job is given back with a due time
//! ```
//!
//! There is one owner of retries, the job's row: nothing here waits longer than a moment.

pub(crate) mod call;
pub(crate) mod intents;
pub(crate) mod redact;
pub(crate) mod refusal;
#[cfg(test)]
mod tests;

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use mapae::handler::Context;
use mapae::job::retry::Failure;
use mapae::metrics::Metrics;
use mapae::outgoing::{Destinations, NoClient};
use serde_json::Value;

use self::call::{Caller, Question};
use self::redact::redact;
use self::refusal::{Class, Refusal};
use crate::config::{Provider, ProviderSettings};

/// Before the second try.
const MOMENT: Duration = Duration::from_millis(500);
/// A wait up to this is waited for here; for a longer one the job is given back and its slot is free.
const WAIT_MAX: Duration = Duration::from_secs(5);
/// What is left of the job's time when the last call has to be over.
const MARGIN: Duration = Duration::from_secs(5);
/// For a provider that says "slower" and not how long.
const RATE_REST: Duration = Duration::from_secs(10);
/// Where only a person can help; then it is tried again.
const PERSON_REST: Duration = Duration::from_secs(600);
/// So many failures in a row, and the rests after them, doubling.
const FAILURES: u32 = 3;
const REST: (Duration, Duration) = (Duration::from_secs(10), Duration::from_secs(300));

/// The providers of this process. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Providers {
    links: Arc<[Link]>,
    metrics: Arc<Metrics>,
}

enum Link {
    Local,
    Remote(Remote),
}

/// A provider, and how it does. It is told of every answer here and nowhere else.
struct Remote {
    caller: Caller,
    standing: Mutex<Standing>,
}

#[derive(Default)]
struct Standing {
    failures: u32,
    until: Option<Instant>,
}

/// What came of a question.
pub(crate) enum Asked<T> {
    Answer(T),
    /// The turn is this program's own: its methods are next in order.
    Local,
    /// Nobody can answer this question, and asking again would not help.
    Refused(Class),
}

impl Providers {
    pub(crate) fn new(
        providers: &[Provider],
        destinations: &Destinations,
        metrics: Arc<Metrics>,
    ) -> Result<Self, NoClient> {
        let link = |provider: &Provider| {
            Ok(match provider {
                Provider::Local => Link::Local,
                Provider::Remote(settings) => Link::Remote(Remote {
                    caller: Caller::new(settings.clone(), destinations.clone())?,
                    standing: Mutex::default(),
                }),
            })
        };
        let links = providers.iter().map(link).collect::<Result<Vec<_>, _>>()?;
        Ok(Self { links: links.into(), metrics })
    }

    /// Whether somebody else is asked before this program's own methods are.
    pub(crate) fn come_first(&self) -> bool {
        matches!(self.links.first(), Some(Link::Remote(_)))
    }

    /// Asks one after the other; `read` makes of an answer what is wanted, `None` where it is not. Whether anything is
    /// taken out of the passage before it is sent depends on who is asked.
    ///
    /// # Errors
    /// The job is to stop, or to wait for somebody who may answer later.
    pub(crate) async fn ask<T: Send>(
        &self,
        ctx: &Context,
        question: &Question<'_>,
        read: &(dyn Fn(&ProviderSettings, Value) -> Option<T> + Sync),
    ) -> Result<Asked<T>, Failure> {
        for round in 0..2 {
            let (mut wait, mut refused) = (None::<Duration>, Class::Malformed);
            for link in self.links.iter() {
                let Link::Remote(remote) = link else { return Ok(Asked::Local) };
                if let Some(rest) = remote.rests(Instant::now()) {
                    wait = Some(wait.map_or(rest, |wait| wait.min(rest)));
                    continue;
                }
                match self.try_one(remote, ctx, question, read).await? {
                    Ok(answer) => return Ok(Asked::Answer(answer)),
                    Err(refusal) => {
                        refused = refusal.class;
                        let rest = refusal.wait.or_else(|| remote.rests(Instant::now()));
                        let rest = rest.or(refused.may_pass().then_some(RATE_REST));
                        wait = rest.map(|rest| wait.map_or(rest, |wait| wait.min(rest))).or(wait);
                    }
                }
            }
            let Some(wait) = wait else { return Ok(Asked::Refused(refused)) };
            if round > 0 || wait > WAIT_MAX.min(left(ctx)) {
                let message = "No provider of models answers at the moment.";
                return Err(Failure::retry_after(wait, "ai-providers-busy", message));
            }
            pause(ctx, wait).await?;
        }
        Ok(Asked::Refused(Class::Malformed))
    }

    /// One provider, once or twice.
    async fn try_one<T: Send>(
        &self,
        remote: &Remote,
        ctx: &Context,
        question: &Question<'_>,
        read: &(dyn Fn(&ProviderSettings, Value) -> Option<T> + Sync),
    ) -> Result<Result<T, Refusal>, Failure> {
        let settings = remote.caller.settings();
        let sent = if settings.redact { redact(question.text).text } else { question.text.to_owned() };
        let sent = fenced(&sent);
        let question = &Question { text: &sent, ..*question };
        for attempt in 0..2 {
            let (began, left) = (Instant::now(), left(ctx));
            if left.is_zero() {
                return Err(out_of_time());
            }
            let answered = tokio::select! {
                answered = remote.caller.ask(question, left) => answered,
                () = ctx.stopped() => return Err(ctx.check().err().unwrap_or_else(Failure::cancelled)),
            };
            // Others with more time may well get an answer of it, so it is not told.
            let answered = answered.map_err(|_| out_of_time())?;
            let answered = answered.and_then(|value| read(settings, value).ok_or(Class::Malformed.into()));
            let outcome = answered.as_ref().err().map_or("ok", |refusal| refusal.class.as_str());
            self.metrics.count("mapae_ai_requests_total", format!("{}/{outcome}", settings.name), 1);
            self.metrics.time("mapae_ai_seconds", settings.name.clone(), began.elapsed());
            remote.heard(answered.as_ref().err(), Instant::now());
            let Err(refusal) = answered else { return Ok(answered) };
            tracing::warn!(provider = settings.name, outcome, "a provider of models gave no answer");
            let stumbled = matches!(refusal.class, Class::Server | Class::Transport);
            let resting = remote.rests(Instant::now()).is_some();
            if attempt > 0 || !stumbled || resting || refusal.wait.is_some() {
                return Ok(Err(refusal));
            }
            pause(ctx, MOMENT).await?;
        }
        Ok(Err(Class::Transport.into()))
    }
}

impl Remote {
    /// How long it is left alone from now.
    fn rests(&self, now: Instant) -> Option<Duration> {
        let until = self.standing().until?;
        until.checked_duration_since(now).filter(|left| !left.is_zero())
    }

    /// It has answered, or refused.
    fn heard(&self, refusal: Option<&Refusal>, now: Instant) {
        let mut standing = self.standing();
        let Some(refusal) = refusal else {
            *standing = Standing::default();
            return;
        };
        let rest = match refusal.class {
            Class::Auth | Class::Quota => Some(PERSON_REST),
            Class::Rate => Some(refusal.wait.unwrap_or(RATE_REST)),
            Class::Server | Class::Timeout | Class::Transport => {
                standing.failures += 1;
                let over = standing.failures.checked_sub(FAILURES);
                let own = over.map(|over| REST.0.saturating_mul(1 << over.min(8)).min(REST.1));
                own.max(refusal.wait)
            }
            // It has answered; what was wrong was the question or what came of it.
            _ => None,
        };
        if let Some(rest) = rest {
            standing.until = standing.until.max(Some(now + rest));
        }
    }

    fn standing(&self) -> std::sync::MutexGuard<'_, Standing> {
        self.standing.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What is left of the job's time for calls.
fn left(ctx: &Context) -> Duration {
    ctx.deadline().saturating_duration_since(Instant::now()).saturating_sub(MARGIN)
}

fn out_of_time() -> Failure {
    Failure::timeout("The job's time was over before a provider of models answered.")
}

async fn pause(ctx: &Context, wait: Duration) -> Result<(), Failure> {
    tokio::select! {
        () = tokio::time::sleep(wait) => Ok(()),
        () = ctx.stopped() => Err(ctx.check().err().unwrap_or_else(Failure::cancelled)),
    }
}

/// A passage, fenced: what stands between the two marks is a stranger's, and the mark cannot be guessed.
fn fenced(text: &str) -> String {
    let mut bytes = [0; 8];
    // Without randomness the mark is only easier to guess; the answer is checked all the same.
    let _ = getrandom::fill(&mut bytes);
    let mark = crate::credential::hex(&bytes);
    format!("PASSAGE {mark}\n{text}\nEND {mark}")
}
