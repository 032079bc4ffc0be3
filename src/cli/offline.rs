//! What `embed` and `batch` have in common: an output that goes on where an earlier run ended.

use std::path::Path;
use std::sync::Arc;

use super::load::{Chosen, Loaded, Measuring, load};
use super::progress_bar;
use crate::corpus::{
    self, CorpusError, CorpusProgress, Destination, Machine, Maker, OutputTarget, Terms, Totals,
    Window,
};
use clock::{Clock, RealClock};
use model::package::ModelPackage;
use model::tokenize::TextTokenizer;
use settings::{Config, OptimizeFor};

/// Refuses the name by which other programs mean standard output: an output that goes on where an
/// ended run was is a file or a folder.
pub(super) fn refuse_standard_output(flag: &str, out: &Path) -> Result<(), CorpusError> {
    if out != Path::new("-") {
        return Ok(());
    }
    let problem = format!(
        "{flag} -: nothing is written to standard output, so that a run which was ended can go on; \
         name a file, such as out.jsonl (./- is a file named -)"
    );
    Err(CorpusError::Options(problem))
}

/// An output and the input that it is made from.
pub(super) struct Production<W> {
    /// Its files are not verified yet.
    pub(super) package: ModelPackage,
    pub(super) target: OutputTarget,
    /// Those that are known before the model is loaded.
    pub(super) terms: Terms,
    pub(super) windows: W,
    /// Bytes of the input; 0 when nobody knows.
    pub(super) length: u64,
}

impl<W> Production<W> {
    /// Makes what is not there yet, and shows how far it is. What is wrong with the output or with
    /// the input of a complete one is said before the model is loaded. Nothing is warmed up: a
    /// shape is run when a text needs it.
    ///
    /// # Errors
    /// When the run ends before the output is whole; finished parts stay valid.
    pub(super) fn run<M: Maker>(
        self,
        config: &Config,
        maker: impl FnOnce(ModelPackage, TextTokenizer, &Terms) -> M,
    ) -> anyhow::Result<Totals>
    where
        W: Iterator<Item = Result<Window<M::Content>, CorpusError>>,
    {
        let Self { package, target, terms, windows, length } = self;
        let mut destination = Destination::open(target, &terms)?;
        if destination.is_finished() {
            let totals = destination.check_finished::<M>(windows)?;
            tracing::info!("the output is already complete; nothing is left to do");
            return Ok(totals);
        }
        let clock: Arc<dyn Clock> = Arc::new(RealClock::new());
        let mut config = config.clone();
        config.engine.optimize_for = OptimizeFor::Throughput;
        // The last bits of a vector depend on the batch that it runs in. What shares a batch
        // depends on its size, so that must not be chosen anew in each run.
        let measuring = Measuring::MeasureWorkers;
        let Loaded { package, tokenizer, chosen } =
            load(&config, package, measuring, &clock, &Arc::default())?;
        let Chosen { engine, shapes, split, max_batch_tokens, .. } = chosen;
        let terms = terms.run_by(engine.info(), max_batch_tokens.as_usize());
        destination.begin(&terms)?;
        let machine = Machine {
            engine,
            shapes,
            workers: split.workers,
            watchdog: config.watchdog,
            clock: Arc::clone(&clock),
            progress: CorpusProgress::of(length),
        };
        let machine = Arc::new(machine);
        let maker = maker(package, tokenizer, &terms);
        let run = || corpus::run(windows, &maker, &mut destination, &machine);
        Ok(progress_bar::show_while(&machine.progress, &*clock, run)?)
    }
}
