//! Whole runs on the fake engine, with faults.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};

use super::*;
use crate::engine::EngineError;
use crate::engine::fake::{FakeEngine, FakeScript, ScriptedFault, expected_dense};
use clock::RealClock;
use scheduling::batch::plan::Shapes;
use settings::limits::MaxBatchTokens;

const HIDDEN: usize = 8;

/// A window whose texts are given by their lengths.
fn window(lengths: Vec<u32>) -> Window<Vec<u32>> {
    let mut digest = PieceDigest::default();
    lengths.iter().for_each(|length| digest.add(length.to_le_bytes()));
    Window { content: lengths, digest: digest.finish(), place: "here".to_owned(), bytes: 1 }
}

/// Writes a line for each text: whether its row is that of its ids, or that it was lost.
struct Checks;

impl Maker for Checks {
    const ITEMS: &'static str = "texts";
    type Content = Vec<u32>;
    type Prepared = Vec<TokenIds>;

    fn prepare(&self, lengths: Vec<u32>) -> Result<(Vec<TokenIds>, Vec<TokenIds>), CorpusError> {
        let ids = |length: &u32| TokenIds::new(&(0..*length).collect::<Vec<_>>());
        let items: Vec<TokenIds> = lengths.iter().map(ids).collect();
        Ok((items.clone(), items))
    }

    fn part<'a>(&'a self, prepared: &'a Vec<TokenIds>, rows: Vec<TextRow>) -> NewPart<'a> {
        assert_eq!(prepared.len(), rows.len());
        let line = |(ids, row): (&TokenIds, &TextRow)| match row.lost {
            Some(_) => format!("{} lost\n", ids.len()),
            None => format!("{} {}\n", ids.len(), row.rows.dense == expected_dense(ids, HIDDEN)),
        };
        let lines: String = prepared.iter().zip(&rows).map(line).collect();
        let write = Box::new(move |path: &Path| {
            stream(path, |out| std::io::Write::write_all(out, lines.as_bytes()))
        });
        NewPart { totals: Totals::default(), reasons: Vec::new(), write }
    }
}

struct Workplace {
    folder: tempfile::TempDir,
}

impl Workplace {
    fn new() -> Self {
        Self { folder: tempfile::tempdir().expect("a temporary folder") }
    }

    fn out(&self) -> PathBuf {
        self.folder.path().join("out")
    }

    /// What was written, of three windows; else why the run ended.
    fn run(&self, workers: usize, script: FakeScript) -> Result<String, String> {
        let windows = [vec![3, 9, 30, 31, 64], vec![], vec![5; 40], vec![7, 2, 60]];
        let windows = windows.into_iter().map(|lengths| Ok(window(lengths)));
        self.run_with(windows, &Checks, workers, script).map_err(|error| error.to_string())?;
        Ok(std::fs::read_to_string(self.out()).expect("it is written"))
    }

    fn run_with<M: Maker>(
        &self,
        windows: impl Iterator<Item = Result<Window<M::Content>, CorpusError>>,
        maker: &M,
        workers: usize,
        script: FakeScript,
    ) -> Result<Totals, CorpusError> {
        let tokens = MaxBatchTokens::DEFAULT;
        let machine = Machine {
            engine: Arc::new(FakeEngine::with_script(HIDDEN, script)),
            shapes: Shapes::on_cpu(64, tokens),
            workers,
            watchdog: WatchdogConfig::default(),
            clock: Arc::new(RealClock::new()),
            progress: CorpusProgress::default(),
        };
        let terms = Terms::default();
        let mut destination = Destination::open(OutputTarget::lines(self.out()), &terms)?;
        destination.begin(&terms)?;
        run(windows, maker, &mut destination, &Arc::new(machine))
    }
}

/// A writer that is busy with its first part until too much is read, or all that may be.
struct SlowWriter<'a> {
    read: &'a AtomicUsize,
    written: AtomicUsize,
}

impl Maker for SlowWriter<'_> {
    const ITEMS: &'static str = "texts";
    type Content = Vec<u32>;
    type Prepared = Vec<TokenIds>;

    fn prepare(&self, lengths: Vec<u32>) -> Result<(Vec<TokenIds>, Vec<TokenIds>), CorpusError> {
        Checks.prepare(lengths)
    }

    fn part<'a>(&'a self, prepared: &'a Vec<TokenIds>, rows: Vec<TextRow>) -> NewPart<'a> {
        let written = self.written.fetch_add(1, Ordering::SeqCst);
        let in_memory = || self.read.load(Ordering::SeqCst) - written;
        let looks = if written == 0 { 100 } else { 0 };
        for _ in (0..looks).take_while(|_| in_memory() <= WINDOWS) {
            thread::sleep(Duration::from_millis(5));
        }
        assert!(in_memory() <= WINDOWS, "{} windows are in memory", in_memory());
        Checks::part(&Checks, prepared, rows)
    }
}

#[test]
fn a_slow_writer_holds_no_more_windows_in_memory() {
    let read = AtomicUsize::new(0);
    let windows = (0..20).map(|_| {
        read.fetch_add(1, Ordering::SeqCst);
        Ok(window(vec![5; 3]))
    });
    let slow = SlowWriter { read: &read, written: AtomicUsize::new(0) };
    let ended = Workplace::new().run_with(windows, &slow, 3, FakeScript::default());
    ended.expect("no window too many was read");
    assert_eq!(slow.written.into_inner(), 20);
}

#[test]
fn a_run_at_its_last_step_keeps_its_work_folder_from_another_one() {
    let place = Workplace::new();
    place.run(1, FakeScript::default()).expect("it is whole");
    let work = place.folder.path().join("out.duovec_work");
    std::fs::create_dir(&work).expect("created");
    let lock = std::fs::File::create(work.join("lock")).expect("created");
    lock.lock().expect("nobody else holds it");
    let open = || Destination::open(OutputTarget::lines(place.out()), &Terms::default());
    assert!(open().expect("it is whole").is_finished() && work.exists());
    drop(lock);
    assert!(open().expect("it is whole").is_finished() && !work.exists());
}

fn faults(faults: &[(u64, ScriptedFault)]) -> FakeScript {
    let faults = faults.iter().cloned().collect::<HashMap<_, _>>();
    FakeScript { faults, ..FakeScript::default() }
}

fn failing(error: EngineError) -> FakeScript {
    faults(&[(1, ScriptedFault::Fail(error))])
}

/// What an undisturbed run writes.
fn whole() -> String {
    let lengths = [&[3, 9, 30, 31, 64][..], &[5; 40], &[7, 2, 60]].concat();
    lengths.iter().map(|length| format!("{length} true\n")).collect()
}

#[test]
fn a_fault_of_the_engine_ends_the_run_and_the_next_run_goes_on_with_any_number_of_lanes() {
    for (script, lanes) in [
        failing(EngineError::Transient("broken".to_owned())),
        failing(EngineError::SessionLost("broken".to_owned())),
        faults(&[(1, ScriptedFault::Panic)]),
        faults(&[(1, ScriptedFault::NoRows)]),
        FakeScript { failing_opens: 1, ..FakeScript::default() },
        FakeScript { panicking_opens: 1, ..FakeScript::default() },
    ]
    .into_iter()
    .zip(1..)
    {
        let place = Workplace::new();
        let error = place.run(1, script).expect_err("a batch is lost");
        assert!(error.contains("run the same command again"), "{error}");
        assert!(!place.out().exists(), "nothing was written for the texts that did not run");
        assert_eq!(place.run(lanes, FakeScript::default()), Ok(whole()), "{lanes} lanes");
    }
}

#[test]
fn a_text_that_could_not_run_without_a_lost_one_ends_the_run() {
    let errors: [fn(String) -> EngineError; 3] =
        [EngineError::Transient, EngineError::OutOfMemory, EngineError::SessionLost];
    for error in errors {
        let place = Workplace::new();
        // Both share a row. The first is lost for good, and the second cannot run alone.
        let run = |script| {
            place.run_with([Ok(window(vec![9, 8]))].into_iter(), &Checks, 1, script)?;
            Ok::<_, CorpusError>(std::fs::read_to_string(place.out()).expect("it is written"))
        };
        let failed = ScriptedFault::Fail(error("scripted".to_owned()));
        let ended = run(faults(&[(0, ScriptedFault::NotFinite), (2, failed)]));
        let fault = ended.expect_err("nobody knows whether the second text is at fault");
        assert!(fault.to_string().contains("scripted"), "{fault}");
        let again = run(faults(&[(0, ScriptedFault::NotFinite)])).expect("all runs are done");
        assert_eq!(again, "9 lost\n8 true\n");
    }
}

#[test]
fn a_row_that_is_not_finite_is_lost_alone() {
    let script = faults(&[(0, ScriptedFault::NotFinite)]);
    let written = Workplace::new().run(1, script).expect("the others have rows");
    assert_eq!(written, whole().replacen("64 true", "64 lost", 1));
    let rescues = true;
    let script = FakeScript { rescues, ..faults(&[(0, ScriptedFault::NotFinite)]) };
    assert_eq!(Workplace::new().run(1, script), Ok(whole()));
}

#[test]
fn a_panic_ends_the_run_and_no_row_takes_the_place_of_another() {
    let items: Vec<usize> = (0..100).collect();
    let work = |item: &usize| {
        assert!(*item != 3, "broken at {item}");
        *item
    };
    let error = on_all_cores(&items, work).expect_err("one panics").to_string();
    assert!(error.contains("broken at 3"), "{error}");
}
