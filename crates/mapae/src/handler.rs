//! Handlers: the code that does a kind's work, and all it can see of the runtime.
//!
//! A handler gets its input and a [`Context`]; it returns what it made, or a [`Failure`] that says
//! whether trying again makes sense. It never touches the store or the broker.
//!
//! ```
//! use mapae::handler::{Context, Handler, Handlers};
//! use mapae::job::retry::Failure;
//!
//! #[derive(serde::Deserialize)]
//! struct Greet { name: String }
//!
//! /// State a handler needs is a field of it.
//! struct Greeter { greeting: String }
//!
//! #[async_trait::async_trait]
//! impl Handler for Greeter {
//!     const KIND: &'static str = "greet";
//!     type Input = Greet;
//!     type Output = String;
//!
//!     async fn run(&self, input: Greet, ctx: &Context) -> Result<String, Failure> {
//!         if input.name.is_empty() {
//!             return Err(Failure::terminal("greet-nobody", "The name is empty."));
//!         }
//!         ctx.progress(1, 1);
//!         Ok(format!("{}, {}!", self.greeting, input.name))
//!     }
//! }
//!
//! let mut handlers = Handlers::default();
//! handlers.add(Greeter { greeting: "Hello".into() });
//! ```

pub(crate) mod breaker;
mod context;
#[cfg(feature = "http")]
pub mod http;
#[cfg(feature = "http")]
pub mod signature;

use std::collections::BTreeMap;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use serde::Serialize;
use serde::de::DeserializeOwned;

pub use self::context::{Context, Gathered, Journal, JournalError, Stopped};

use crate::job::name::Kind;
use crate::job::record::Output;
use crate::job::resource::Needs;
use crate::job::retry::{Failure, RetryPolicy};

/// Does the work of one kind.
#[async_trait]
pub trait Handler: Send + Sync + 'static {
    const KIND: &'static str;
    /// What `params` must be; a job whose params are not fails for good.
    type Input: DeserializeOwned + Send + 'static;
    type Output: Serialize + Send + 'static;

    /// May run again after any crash, so it must be safe to repeat. It should watch
    /// [`Context::stopped`] and may be dropped at any await.
    async fn run(&self, input: Self::Input, ctx: &Context) -> Result<Self::Output, Failure>;
}

/// A handler with its types taken off: what the worker calls.
#[async_trait]
pub trait Task: Send + Sync + 'static {
    async fn run(&self, ctx: &Context) -> Result<Outcome, Failure>;
}

/// How a handler's run ends without a failure.
#[derive(Clone, Debug, PartialEq)]
pub enum Outcome {
    Done(Option<Output>),
    /// Another does the work, and has the lease for so long to tell its end under the same token.
    HandedOver(Duration),
}

struct Typed<H>(H);

#[async_trait]
impl<H: Handler> Task for Typed<H> {
    async fn run(&self, ctx: &Context) -> Result<Outcome, Failure> {
        let input = read_input(ctx)?;
        done(ctx, self.0.run(input, ctx).await?).await
    }
}

struct Closure<F, I>(F, std::marker::PhantomData<fn() -> I>);

#[async_trait]
impl<F, I, O, Fut> Task for Closure<F, I>
where
    F: Fn(I, Context) -> Fut + Send + Sync + 'static,
    I: DeserializeOwned + Send + 'static,
    O: Serialize + Send + 'static,
    Fut: Future<Output = Result<O, Failure>> + Send,
{
    async fn run(&self, ctx: &Context) -> Result<Outcome, Failure> {
        done(ctx, (self.0)(read_input(ctx)?, ctx.clone()).await?).await
    }
}

/// The end of a handler that gave this. Of one that gives nothing, `()`, nothing is stored.
async fn done(ctx: &Context, output: impl Serialize + Send) -> Result<Outcome, Failure> {
    let output = ctx.keep(output).await?;
    Ok(Outcome::Done(Some(output).filter(|output| *output != Output::Inline(serde_json::Value::Null))))
}

fn read_input<I: DeserializeOwned>(ctx: &Context) -> Result<I, Failure> {
    // serde's message may quote the input, which is the customer's: only the position is told.
    serde_json::from_value(ctx.job().params.clone())
        .map_err(|_| Failure::terminal("params-invalid", "The job's params are not what its kind takes."))
}

/// How a kind is run.
#[derive(Clone, Debug, PartialEq)]
pub struct KindPlan {
    pub retry: RetryPolicy,
    /// After this a job is asked to stop, and [`KindPlan::GRACE`] later it is dropped.
    pub timeout: Duration,
    /// What a job takes of the resources while it runs.
    pub needs: Needs,
}

impl KindPlan {
    pub const GRACE: Duration = Duration::from_secs(10);
}

impl Default for KindPlan {
    fn default() -> Self {
        Self { retry: RetryPolicy::default(), timeout: Duration::from_secs(30 * 60), needs: Needs::default() }
    }
}

/// A kind with what runs it.
#[derive(Clone)]
pub struct Registered {
    pub kind: Kind,
    pub task: Arc<dyn Task>,
    pub plan: KindPlan,
}

/// The kinds a process can run.
#[derive(Clone, Default)]
pub struct Handlers(BTreeMap<Kind, Registered>);

impl Handlers {
    /// Panics where the kind is no name or is taken: both are mistakes in the program, found at start.
    pub fn add<H: Handler>(&mut self, handler: H) -> &mut KindPlan {
        let kind = Kind::new(H::KIND).expect("Handler::KIND is a kind");
        self.add_task(kind, Arc::new(Typed(handler)))
    }

    /// As [`Handlers::add`], for a closure that owns its state.
    pub fn add_fn<F, I, O, Fut>(&mut self, kind: &str, run: F) -> &mut KindPlan
    where
        F: Fn(I, Context) -> Fut + Send + Sync + 'static,
        I: DeserializeOwned + Send + 'static,
        O: Serialize + Send + 'static,
        Fut: Future<Output = Result<O, Failure>> + Send + 'static,
    {
        let kind = Kind::new(kind).expect("the kind is a name");
        self.add_task(kind, Arc::new(Closure(run, std::marker::PhantomData)))
    }

    pub fn add_task(&mut self, kind: Kind, task: Arc<dyn Task>) -> &mut KindPlan {
        let registered = Registered { kind: kind.clone(), task, plan: KindPlan::default() };
        let taken = self.0.insert(kind.clone(), registered);
        assert!(taken.is_none(), "two handlers for the kind {kind}");
        &mut self.0.get_mut(&kind).expect("just inserted").plan
    }

    pub fn get(&self, kind: &Kind) -> Option<&Registered> {
        self.0.get(kind)
    }

    pub fn plan_mut(&mut self, kind: &Kind) -> Option<&mut KindPlan> {
        self.0.get_mut(kind).map(|registered| &mut registered.plan)
    }

    /// Only the kinds that `keep` allows.
    pub fn retain(&mut self, keep: impl Fn(&Kind) -> bool) {
        self.0.retain(|kind, _| keep(kind));
    }

    pub fn kinds(&self) -> Vec<Kind> {
        self.0.keys().cloned().collect()
    }

    pub fn iter(&self) -> impl Iterator<Item = &Registered> {
        self.0.values()
    }
}

/// The examples of the documentation are compiled with the crate.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/how-to/write-a-handler.md")]
struct HowToWriteAHandler;

#[cfg(doctest)]
#[doc = include_str!("../../../docs/how-to/submit-many-as-one.md")]
struct HowToSubmitManyAsOne;
