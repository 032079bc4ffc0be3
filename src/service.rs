//! The application: texts in, vectors out, without a word of HTTP.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use futures_util::future::join_all;

use crate::engine::Engine;
use crate::health::shared_check::SharedCheck;
use crate::health::{CurrentPhase, DeepReport, Phase, canary};
use crate::metrics::Metrics;
use crate::progress::Progress;
pub(crate) use crate::scheduler::CacheUse;
use crate::scheduler::Scheduler;
use crate::worker::tuning::choice::Measured;
use clock::{Clock, Moment, unix_seconds};
use model::package::ModelPackage;
use model::package::manifest::Manifest;
use model::tokenize::TextTokenizer;
pub use scheduling::Refusal;
pub use scheduling::batch::Vectors;
use settings::limits::MaxBatchTokens;
use settings::{Config, OptimizeFor, cores};

mod assembly;
pub(crate) mod chunking;
mod compute;
mod decoding;
mod door;
mod embedding;
mod facts;
mod figures;
pub(crate) mod looked_up;
mod offline;
mod request;
mod token_lists;
mod tokenizing;

pub(crate) use assembly::{Assembly, assemble};
use compute::ComputePool;
pub(crate) use compute::Wanted;
pub(crate) use door::{Beside, Door, Permit, RequestHead, earned_bytes};
pub(crate) use embedding::{ignores, json_bytes, prompt};
pub(crate) use facts::Facts;
use figures::Figures;
pub use request::Input;
pub(crate) use request::{
    AnswerBytes, EmbedError, EmbedOptions, EmbedReply, EmbedRequest, EmbeddedItem, InputType,
    Lexical, Milestones, Occurrence, OverLong,
};
use tokenizing::Pace;

/// Everything that exists once the model is ready.
pub struct ResidentModel {
    /// The verified files.
    pub package: ModelPackage,
    /// Texts to ids.
    pub tokenizer: TextTokenizer,
    /// What the workers run.
    pub engine: Arc<dyn Engine>,
    /// Why it is this engine, and why no other.
    pub engine_reason: String,
    /// How workers and batches were chosen.
    pub tuned: Tuned,
    /// Padded tokens of one batch.
    pub max_batch_tokens: MaxBatchTokens,
    /// Where requests wait.
    pub scheduler: Scheduler,
    /// From the first session that was opened to the last bucket that was run.
    pub warm_up: Duration,
}

/// What workers and batches were chosen for, and from.
#[derive(Debug, Clone)]
pub struct Tuned {
    /// The goal of the choice.
    pub optimize_for: OptimizeFor,
    /// Empty when nothing was to be chosen.
    pub measured: Vec<Measured>,
}

/// The service; exists from the first moment, long before its model does.
pub struct EmbeddingService {
    clock: Arc<dyn Clock>,
    metrics: Option<Arc<Metrics>>,
    config: Config,
    started: Moment,
    created_unix_s: u64,
    door: Arc<Door>,
    public_door: Arc<Door>,
    compute: ComputePool,
    pace: Arc<Pace>,
    phase: CurrentPhase,
    /// Why the model cannot be run; set before the phase says so.
    failure: OnceLock<String>,
    card: OnceLock<Manifest>,
    resident: OnceLock<Arc<ResidentModel>>,
    figures: OnceLock<Figures>,
    deep_check: SharedCheck,
    progress: Arc<Progress>,
}

impl EmbeddingService {
    /// A service that is loading.
    pub fn new(config: &Config, clock: Arc<dyn Clock>) -> Self {
        let threads = cores();
        let door = Door::new(config.door.max_inflight_bytes);
        Self {
            started: clock.now(),
            pace: Arc::new(Pace::new(Arc::clone(&clock), threads)),
            clock,
            metrics: config.http.metrics.then(|| Arc::new(Metrics::new())),
            public_door: door.public(),
            door,
            compute: ComputePool::new(threads),
            config: config.clone(),
            created_unix_s: unix_seconds(),
            phase: CurrentPhase::default(),
            failure: OnceLock::new(),
            card: OnceLock::new(),
            resident: OnceLock::new(),
            figures: OnceLock::new(),
            deep_check: SharedCheck::default(),
            progress: Arc::default(),
        }
    }

    /// Tells the model's name while its files are still being verified.
    pub fn announce(&self, manifest: &Manifest) {
        let mut card = manifest.clone();
        card.aliases.extend_from_slice(&self.config.model_aliases);
        let _ = self.card.set(card);
    }

    /// Takes requests from now on, unless the process is already draining.
    pub fn install(&self, resident: ResidentModel) {
        self.announce(resident.package.manifest());
        if let Some(metrics) = &self.metrics {
            resident.scheduler.set_metrics(Arc::clone(metrics));
        }
        let start = || Figures::start(&resident.engine, self.clock());
        self.figures.get_or_init(start);
        if self.resident.set(Arc::new(resident)).is_ok() {
            self.phase.advance(Phase::Ready);
            // Who began to drain before the model was there could not drain its queue.
            if self.phase() >= Phase::Draining {
                self.begin_drain();
            }
        }
    }

    /// Health says no from now on; requests are still taken.
    pub(crate) fn leave_rotation(&self) {
        self.phase.advance(Phase::LameDuck);
    }

    /// Takes no new request; what was accepted is still answered.
    pub fn begin_drain(&self) {
        self.phase.advance(Phase::Draining);
        if let Some(resident) = self.resident.get() {
            resident.scheduler.drain();
        }
    }

    /// Resolves when nothing that was accepted waits or runs.
    pub async fn drained(&self) {
        if let Some(resident) = self.resident.get() {
            resident.scheduler.drained().await;
        }
    }

    /// The model cannot be run: everything that waits is answered, nothing is taken any more.
    pub fn fail(&self, reason: String) {
        // The first reason is the cause; what fails after it follows from it.
        let _ = self.failure.set(reason);
        self.phase.advance(Phase::Failed);
        self.abandon();
    }

    /// Answers everything that waits with `Refusal::NoWorker`; what runs is still answered.
    pub(crate) fn abandon(&self) {
        if let Some(resident) = self.resident.get() {
            resident.scheduler.close();
        }
    }

    /// The clock of all moments that the service tells.
    pub fn clock(&self) -> Arc<dyn Clock> {
        Arc::clone(&self.clock)
    }

    /// What is recorded for `/metrics`; `None` when it is off.
    pub(crate) fn metrics(&self) -> Option<&Metrics> {
        self.metrics.as_deref()
    }

    /// Everything of `/metrics` as Prometheus' text; `None` when it is off. Never waits.
    pub(crate) fn metrics_text(&self) -> Option<String> {
        self.metrics.as_ref().map(|metrics| metrics.text(&self.facts().to_scrape()))
    }

    /// Where those who load the model say how far they are.
    pub fn progress(&self) -> Arc<Progress> {
        Arc::clone(&self.progress)
    }

    /// Where the process is in its life; takes no lock.
    pub(crate) fn phase(&self) -> Phase {
        self.phase.get()
    }

    /// The manifest of the resident model, with the aliases that the configuration adds; `None`
    /// until it has been read.
    pub(crate) fn model_card(&self) -> Option<&Manifest> {
        self.card.get()
    }

    /// Seconds since the Unix epoch at which the process began to load the model.
    pub(crate) const fn created_unix_s(&self) -> u64 {
        self.created_unix_s
    }

    /// Whether `name` is the model's id or an alias.
    pub(crate) fn knows_model(&self, name: &str) -> bool {
        let names =
            |card: &Manifest| card.model_id == name || card.aliases.iter().any(|a| a == name);
        self.card.get().is_some_and(names)
    }

    /// The vocabulary piece of a token id.
    pub fn piece(&self, id: u32) -> Option<String> {
        self.resident.get().and_then(|resident| resident.tokenizer.piece(id))
    }

    /// Whether the process does its work: a worker lives, none is stuck. For a service manager,
    /// which restarts a process that does not for long.
    pub fn workers_live(&self) -> bool {
        let workers = self.resident.get().map(|resident| resident.scheduler.snapshot().workers);
        self.phase() < Phase::Failed
            && workers.is_some_and(|workers| workers.live > 0 && workers.stuck == 0)
    }

    /// What the process tells of itself now; never waits.
    pub(crate) fn facts(&self) -> Facts {
        Facts::of(self)
    }

    /// The model and what runs it; `None` while loading.
    pub(crate) fn resident(&self) -> Option<&ResidentModel> {
        self.resident.get().map(Arc::as_ref)
    }

    /// Runs the canary on every worker, past what waits; ends within about `timeout`. One such
    /// check runs at a time: who asks while it runs gets its report.
    pub async fn deep_health(&self, timeout: Duration) -> DeepReport {
        let Some(resident) = self.resident.get().cloned() else {
            return DeepReport { phase: self.phase(), checks: Vec::new() };
        };
        let clock = self.clock();
        let check = async move {
            let ResidentModel { scheduler, package, .. } = &*resident;
            let check =
                |worker| canary::check(worker, scheduler, package.manifest(), &*clock, timeout);
            join_all((0..scheduler.snapshot().workers.total).map(check)).await
        };
        let checks = self.deep_check.join(check).await;
        DeepReport { phase: self.phase(), checks }
    }

    /// Whether a request could be taken now, whatever it is.
    pub(crate) fn check_available(&self) -> Result<(), Refusal> {
        self.available().map(|_| ())
    }

    fn available(&self) -> Result<Arc<ResidentModel>, Refusal> {
        match (self.phase(), self.resident.get()) {
            (Phase::Ready | Phase::LameDuck, Some(resident)) => Ok(Arc::clone(resident)),
            (Phase::LameDuck | Phase::Draining, _) => Err(Refusal::Draining),
            (Phase::Failed, _) => Err(Refusal::NoWorker),
            (Phase::Loading | Phase::Ready, _) => Err(Refusal::Loading),
        }
    }
}
