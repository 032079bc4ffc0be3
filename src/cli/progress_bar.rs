//! How far a run is: a bar on a terminal, a line now and then elsewhere.

use std::io::{self, IsTerminal};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread;
use std::time::Duration;

use indicatif::{HumanCount, HumanDuration, ProgressBar, ProgressStyle};

use crate::corpus::{CorpusProgress, Done};
use clock::Clock;

const BAR_EVERY: Duration = Duration::from_millis(250);
const LINE_EVERY: Duration = Duration::from_secs(10);
/// Steps of a whole bar.
const STEPS: u64 = 1000;

/// Does `work`, and shows its progress meanwhile on standard error.
pub(super) fn show_while<T>(
    progress: &CorpusProgress,
    clock: &dyn Clock,
    work: impl FnOnce() -> T,
) -> T {
    thread::scope(|scope| {
        let (running, ended) = channel::<()>();
        let shown = scope.spawn(move || show(progress, clock, &ended));
        let value = work();
        drop(running);
        // What cannot be shown is no fault of the work.
        let _ = shown.join();
        value
    })
}

fn show(progress: &CorpusProgress, clock: &dyn Clock, ended: &Receiver<()>) {
    let bar = on_terminal();
    let every = if bar.is_some() { BAR_EVERY } else { LINE_EVERY };
    let mut begin = None;
    while let Err(RecvTimeoutError::Timeout) = ended.recv_timeout(every) {
        let (now, done) = (clock.now(), progress.done());
        if done.texts == 0 {
            continue;
        }
        let (began, before) = *begin.get_or_insert((now, done));
        let text = sentence(before, done, now.since(began));
        match &bar {
            Some(bar) => {
                bar.set_position(done.part.map_or(0, |part| (part * STEPS as f64) as u64));
                bar.set_message(text);
            }
            None => tracing::info!("{text}"),
        }
    }
    if let Some(bar) = bar {
        bar.finish_and_clear();
    }
}

/// What is done, how fast it was since `before`, and how long the rest takes at this speed.
fn sentence(before: Done, now: Done, time: Duration) -> String {
    let mut text = format!("{} texts", HumanCount(now.texts));
    let seconds = time.as_secs_f64();
    if seconds > 0.0 {
        let texts_per_s = (now.texts - before.texts) as f64 / seconds;
        let tokens_per_s = (now.tokens - before.tokens) as f64 / seconds;
        text += &format!(", {texts_per_s:.0} texts/s, {tokens_per_s:.0} tokens/s");
    }
    let padding = 1.0 - now.tokens as f64 / now.padded_tokens.max(1) as f64;
    text += &format!(", padding {:.1} %", 100.0 * padding);
    let part_per_s = now.part.zip(before.part).map(|(now, before)| (now - before) / seconds);
    if let (Some(part), Some(speed)) = (now.part, part_per_s.filter(|speed| *speed > 0.0)) {
        let left = Duration::try_from_secs_f64((1.0 - part) / speed).unwrap_or(Duration::MAX);
        text += &format!(", {:.0} % done, {} left", 100.0 * part, HumanDuration(left));
    }
    text
}

/// A bar of [`STEPS`] steps, if standard error is a terminal.
pub(super) fn on_terminal() -> Option<ProgressBar> {
    let style = ProgressStyle::with_template("{bar:30} {percent:>3} % {msg}");
    let style = style.unwrap_or_else(|_| ProgressStyle::default_bar());
    io::stderr().is_terminal().then(|| ProgressBar::new(STEPS).with_style(style))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_left_follows_from_what_this_run_did() {
        let before = Done { texts: 100, tokens: 1000, padded_tokens: 1100, part: Some(0.5) };
        let now = Done { texts: 1100, tokens: 11_000, padded_tokens: 12_500, part: Some(0.6) };
        assert_eq!(
            sentence(before, now, Duration::from_secs(10)),
            "1,100 texts, 100 texts/s, 1000 tokens/s, padding 12.0 %, 60 % done, 40 seconds left"
        );
        let unknown = Done { part: None, ..now };
        let text = sentence(Done { part: None, ..before }, unknown, Duration::from_secs(10));
        assert!(text.ends_with("padding 12.0 %"), "{text}");
        assert_eq!(sentence(before, before, Duration::ZERO), "100 texts, padding 9.1 %");
    }
}
