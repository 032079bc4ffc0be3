//! A trace of requests: JSON lines with the time in seconds and the tokens of each text.

use std::time::Duration;

use anyhow::{anyhow, bail};
use fastrand::Rng;
use serde_json::Value;

use super::{NUMBER_MAX, PRIORITIES};
use crate::batch::Priority;
use crate::capacity::load::{Lengths, Traced};

/// How a line is written.
const EXAMPLE: &str = r#"{"time": 0.25, "tokens": [43, 12], "priority": "bulk"}"#;

/// What reads a file.
pub(super) struct TraceReader<'a> {
    pub path: &'a str,
    /// Of texts whose line does not tell.
    pub lengths: Option<Lengths>,
    /// Longer texts are cut, as the server does.
    pub length_max: usize,
    /// Larger requests are refused, as the server does.
    pub items_max: usize,
    pub seed: u64,
}

impl TraceReader<'_> {
    /// All requests, by time.
    pub(super) fn read(&self) -> anyhow::Result<Vec<Traced>> {
        self.parse(&super::read(self.path)?)
    }

    pub(super) fn parse(&self, text: &str) -> anyhow::Result<Vec<Traced>> {
        let mut random = Rng::with_seed(self.seed);
        let mut requests = Vec::new();
        for (index, line) in text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty()) {
            let request = self.request(line, &mut random);
            requests.push(
                request.map_err(|problem| anyhow!("{}:{}: {problem}", self.path, index + 1))?,
            );
        }
        if requests.is_empty() {
            bail!("{} has no request: write a line for each, such as {EXAMPLE}", self.path);
        }
        requests.sort_by_key(|request| request.at);
        let first = requests[0].at;
        requests.iter_mut().for_each(|request| request.at -= first);
        Ok(requests)
    }

    fn request(&self, line: &str, random: &mut Rng) -> Result<Traced, String> {
        let value: Value = serde_json::from_str(line)
            .map_err(|error| format!("the line is not JSON ({error}); write {EXAMPLE}"))?;
        let time = value.get("time").and_then(Value::as_f64);
        let time = time.filter(|time| (0.0..=NUMBER_MAX).contains(time)).ok_or_else(|| {
            "`time` must be the request's time in seconds, from zero to 1e9".to_owned()
        })?;
        let tokens = match (value.get("tokens"), value.get("texts")) {
            (Some(tokens), None) => tokens_of(tokens).ok_or_else(|| {
                "`tokens` must be a whole number above zero, or a list of them with one for each \
                 text"
                    .to_owned()
            })?,
            (None, Some(texts)) => self.draw(texts, random)?,
            _ => {
                return Err("give `tokens` or `texts`, and not both, so that the size of the \
                            request is known"
                    .to_owned());
            }
        };
        if tokens.len() > self.items_max {
            return Err(format!(
                "the server refuses a request of {} texts, because --max-items is {}",
                tokens.len(),
                self.items_max
            ));
        }
        let tokens = tokens.into_iter().map(|tokens| tokens.min(self.length_max)).collect();
        let at = Duration::from_secs_f64(time);
        Ok(Traced { at, tokens, priority: priority(value.get("priority"))? })
    }

    /// Texts of lengths that were typed.
    fn draw(&self, texts: &Value, random: &mut Rng) -> Result<Vec<usize>, String> {
        let count = whole(texts).filter(|&count| count <= self.items_max).ok_or_else(|| {
            format!("`texts` must be a whole number from 1 to --max-items {}", self.items_max)
        })?;
        let lengths = self.lengths.as_ref().ok_or_else(|| {
            "`texts` does not say how long they are: add --tokens to the command, or give \
             `tokens` instead"
                .to_owned()
        })?;
        Ok((0..count).map(|_| lengths.draw(random)).collect())
    }
}

fn tokens_of(value: &Value) -> Option<Vec<usize>> {
    match value {
        Value::Array(all) if all.is_empty() => None,
        Value::Array(all) => all.iter().map(whole).collect(),
        one => whole(one).map(|tokens| vec![tokens]),
    }
}

fn whole(value: &Value) -> Option<usize> {
    usize::try_from(value.as_u64()?).ok().filter(|&number| number > 0)
}

fn priority(value: Option<&Value>) -> Result<Option<Priority>, String> {
    let Some(value) = value.filter(|value| !value.is_null()) else { return Ok(None) };
    let known = PRIORITIES.iter().find(|(word, _)| value.as_str() == Some(*word));
    let known = known.map(|(_, priority)| Some(*priority));
    known.ok_or_else(|| {
        "`priority` must be \"interactive\" or \"bulk\"; it may be left out".to_owned()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> anyhow::Result<Vec<Traced>> {
        let lengths = Lengths::new(vec![(7, 1.0)]);
        TraceReader { path: "trace", lengths, length_max: 512, items_max: 100, seed: 1 }.parse(text)
    }

    #[test]
    fn requests_are_sorted_and_begin_at_zero() {
        let text = r#"
            {"time": 3.5, "tokens": [5, 9000], "priority": "bulk"}

            {"time": 1.5, "tokens": 43, "user": "ignored"}
            {"time": 2.0, "texts": 3, "priority": null}"#;
        let at = Duration::from_millis;
        let expected = [
            Traced { at: at(0), tokens: vec![43], priority: None },
            Traced { at: at(500), tokens: vec![7, 7, 7], priority: None },
            Traced { at: at(2000), tokens: vec![5, 512], priority: Some(Priority::Bulk) },
        ];
        assert_eq!(parse(text).expect("each line is well"), expected);
    }

    #[test]
    fn a_bad_line_is_named_with_what_it_should_be() {
        for (line, problem) in [
            ("{", "is not JSON"),
            ("[]", "`time` must be"),
            (r#"{"tokens": 5}"#, "`time` must be"),
            (r#"{"time": -1, "tokens": 5}"#, "from zero to 1e9"),
            (r#"{"time": "1", "tokens": 5}"#, "`time` must be"),
            (r#"{"time": 1e10, "tokens": 5}"#, "from zero to 1e9"),
            (r#"{"time": 1}"#, "give `tokens` or `texts`"),
            (r#"{"time": 1, "tokens": 5, "texts": 1}"#, "and not both"),
            (r#"{"time": 1, "tokens": 0}"#, "`tokens` must be"),
            (r#"{"time": 1, "tokens": []}"#, "`tokens` must be"),
            (r#"{"time": 1, "tokens": [5, -5]}"#, "`tokens` must be"),
            (r#"{"time": 1, "tokens": 1.5}"#, "`tokens` must be"),
            (r#"{"time": 1, "texts": 0}"#, "`texts` must be"),
            (r#"{"time": 1, "texts": 101}"#, "--max-items 100"),
            (r#"{"time": 1, "tokens": 5, "priority": "high"}"#, "`priority` must be"),
        ] {
            let text = format!("{{\"time\": 0, \"tokens\": 5}}\n\n{line}\n");
            let error = parse(&text).expect_err(line).to_string();
            assert!(error.starts_with("trace:3: ") && error.contains(problem), "{error}");
        }
    }

    #[test]
    fn a_request_above_the_limit_of_items_is_named() {
        let line = format!("{{\"time\": 0, \"tokens\": {:?}}}", vec![5; 101]);
        let error = parse(&line).expect_err("the server would refuse it").to_string();
        assert!(error.contains("101 texts") && error.contains("--max-items is 100"), "{error}");
    }

    #[test]
    fn a_trace_without_a_request_is_an_error() {
        let error = parse("\n \n").expect_err("nothing is there").to_string();
        assert!(error.contains("has no request"), "{error}");
    }

    #[test]
    fn texts_without_lengths_ask_for_them() {
        let reader =
            TraceReader { path: "trace", lengths: None, length_max: 512, items_max: 100, seed: 1 };
        let error = reader.parse(r#"{"time": 0, "texts": 2}"#).expect_err("no lengths").to_string();
        assert!(error.contains("add --tokens"), "{error}");
    }
}
