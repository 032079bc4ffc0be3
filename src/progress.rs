//! The stage of a start and how far it is. The loading code writes it, and `/health` reads it.

use parking_lot::Mutex;

use clock::Moment;

/// The stages of a start, in their order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StartStage {
    /// The package's files are read and compared with its manifest.
    Verify,
    /// Plans are built for GPUs without one.
    BuildPlan,
    /// The engine reads the graph.
    ReadModel,
    /// The engine prepares the graph for this machine.
    Compile,
    /// Ways of running the model are measured.
    Measure,
    /// Common shapes are run, before the server is ready.
    WarmUp,
    /// Other shapes are run whenever a worker is idle.
    WarmUpIdle,
}

impl StartStage {
    /// The word of `/health` and of the log.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Verify => "verify",
            Self::BuildPlan => "build_plan",
            Self::ReadModel => "read_model",
            Self::Compile => "compile",
            Self::Measure => "measure",
            Self::WarmUp => "warm_up",
            Self::WarmUpIdle => "warm_up_idle",
        }
    }

    /// What the stage does, for people who read the log.
    const fn work(self) -> &'static str {
        match self {
            Self::Verify => "loading: verifying the package",
            Self::BuildPlan => "loading: building a plan for this GPU",
            Self::ReadModel => "loading: reading the model",
            Self::Compile => "loading: compiling the model for this machine",
            Self::Measure => "loading: measuring ways to run the model",
            Self::WarmUp => "loading: warming up the first shapes",
            Self::WarmUpIdle => "warming up the remaining shapes while workers idle",
        }
    }
}

/// How far a stage is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Step {
    /// The stage.
    pub stage: StartStage,
    /// When the stage began.
    pub begun: Moment,
    /// Shapes that were run.
    pub done: usize,
    /// Shapes to run; 0 for stages that run none.
    pub total: usize,
    /// Thousandths of a plan that are built.
    pub permille: u32,
}

/// The progress of the start. All threads that take part share it.
#[derive(Debug, Default)]
pub struct Progress(Mutex<Option<Step>>);

impl Progress {
    /// Begins a stage with `total` shapes to run. The log names `engine`.
    pub fn enter(&self, stage: StartStage, engine: Option<&str>, total: usize, now: Moment) {
        *self.0.lock() = Some(Step { stage, begun: now, done: 0, total, permille: 0 });
        let work = stage.work();
        tracing::info!(stage = stage.name(), engine, shapes = total, "{work}");
    }

    /// One more shape was run.
    pub fn advance(&self) {
        let mut step = self.0.lock();
        if let Some(step) = step.as_mut() {
            step.done += 1;
        }
    }

    /// A plan is built to `permille` thousandths. The log says each tenth.
    pub fn build(&self, permille: u32, phase: &str) {
        let mut step = self.0.lock();
        let Some(step) = step.as_mut().filter(|step| step.stage == StartStage::BuildPlan) else {
            return;
        };
        if step.permille / 100 != permille / 100 {
            let percent = permille / 10;
            tracing::info!(percent, phase, "a plan is being built");
        }
        step.permille = permille;
    }

    /// Nothing is left to do.
    pub fn finish(&self) {
        *self.0.lock() = None;
    }

    /// The stage and its progress; `None` before the first stage and after the last.
    pub(crate) fn step(&self) -> Option<Step> {
        *self.0.lock()
    }
}
