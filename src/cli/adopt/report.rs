//! What `duovec adopt` prints.

use std::fmt::Write;

use super::here::{Here, Prompt};
use super::probes::Probe;
use super::search::Score;
use super::server::{Server, TheirAnswer};
use settings::SpecialTokenText;

/// Characters of a probe that are shown.
const SHOWN: usize = 50;

pub(super) struct Report<'a> {
    pub(super) here: &'a Here,
    pub(super) server: &'a Server,
    pub(super) probes: &'a [Probe],
    pub(super) there: &'a [TheirAnswer],
    pub(super) least: f64,
    /// With the settings that were given.
    pub(super) own: Score,
    /// With the settings that agree best, if those do not.
    pub(super) found: Option<Score>,
    /// Numbers of the server's vectors.
    pub(super) width: usize,
    /// The least and the greatest length of its vectors, if they are not of length one.
    pub(super) lengths: Option<[f64; 2]>,
    /// The most tokens of a probe, where the package takes more.
    pub(super) longest: usize,
}

/// A setting of which the servers have two values.
struct Difference {
    what: &'static str,
    here: String,
    there: String,
    cure: String,
}

impl Report<'_> {
    /// The text, and in a sentence what differs.
    pub(super) fn write(&self) -> (String, Result<(), String>) {
        let differences = self.differences();
        let mut text = format!(
            "there: {}, vectors of {} numbers\nhere:  {}\n\n",
            self.server.url(),
            self.width,
            self.here.name()
        );
        text += &self.settings("with the settings here", &self.own);
        if let Some(score) = self.found.as_ref().filter(|_| !differences.is_empty()) {
            text += &self.settings("with the settings that agree best", score);
        }
        for Difference { what, here, there, cure } in &differences {
            let _ = writeln!(text, "differs: {what}: here {here}, there {there}; {cure}");
        }
        if self.longest < self.own.way.tokens {
            let longest = self.longest;
            let _ = writeln!(text, "not compared: texts of more than {longest} tokens (--longest)");
        }
        let closest = self.found.as_ref().unwrap_or(&self.own);
        text += &self.probes_that_differ(closest);
        let verdict = self.verdict(&differences, closest);
        if verdict.is_ok() {
            text += "all probes agree: an index that this server filled stays valid with the \
                     settings here, as far as probes can tell\n";
        }
        (text, verdict)
    }

    fn verdict(&self, differences: &[Difference], closest: &Score) -> Result<(), String> {
        let compared = closest.compared().len();
        if differences.is_empty() && closest.all_agree() {
            return Ok(());
        }
        let differing = compared - self.own.agreeing;
        let start = match differing {
            0 => "the vectors have the same directions, and differ otherwise".to_owned(),
            _ => format!("{differing} of {compared} probes differ"),
        };
        let weights = self.here.manifest().sources.get("weights");
        let weights = weights.map_or_else(String::new, |of| format!(" (here: {of})"));
        Err(match (differences.is_empty(), closest.all_agree()) {
            (true, _) => format!(
                "{start}, and no setting that was tried explains it: other weights{weights}, or a \
                 prompt that --prompt can name; else embed the index anew"
            ),
            (false, true) => format!(
                "{start}: do what the lines that begin with `differs` say, and all probes agree"
            ),
            (false, false) => format!(
                "{start}: {} still differ with the settings that agree best",
                compared - closest.agreeing
            ),
        })
    }

    /// A line for the settings, a line for how well they agree.
    fn settings(&self, title: &str, score: &Score) -> String {
        let way = &score.way;
        let reading = &self.here.readings()[way.reading];
        let compared = score.compared();
        format!(
            "{title}: prompt {}, {} tokens, pooling {}, normalization {}, escaped special tokens \
             {}\n  {} of {} probes have a cosine of {} or more: least {:.6}, median {:.6}\n\n",
            self.prompt(&way.prompt),
            way.tokens,
            way.pooling.name(),
            reading.normalization.name(),
            reading.special.name(),
            score.agreeing,
            compared.len(),
            self.least,
            compared[0],
            compared[compared.len() / 2]
        )
    }

    fn prompt(&self, prompt: &Prompt) -> String {
        match prompt {
            Prompt::Own(None) => "none".to_owned(),
            Prompt::Own(Some(name)) => {
                format!("{:?}", self.here.manifest().prompts.text(*name).unwrap_or_default())
            }
            Prompt::Other(text) => format!("{text:?}"),
        }
    }

    fn differences(&self) -> Vec<Difference> {
        let mut all = Vec::new();
        let mut add = |what, here: &dyn ToString, there: &dyn ToString, cure: String| {
            let (here, there) = (here.to_string(), there.to_string());
            all.push(Difference { what, here, there, cure });
        };
        let hidden_size = self.here.manifest().hidden_size;
        if self.width < hidden_size {
            let cure = format!("send \"dimensions\": {} with each request", self.width);
            add("numbers of a vector", &hidden_size, &self.width, cure);
        }
        if let Some([least, most]) = self.lengths {
            let there = format!("{least:.3} to {most:.3}");
            let cure = "only a store that compares by cosine can take both".to_owned();
            add("length of vectors (normalization)", &1, &there, cure);
        }
        let Some(score) = &self.found else { return all };
        let (own, way) = (&self.own.way, &score.way);
        if way.prompt != own.prompt {
            let (here, there) = (self.prompt(&own.prompt), self.prompt(&way.prompt));
            add("prompt", &here, &there, prompt_cure(&way.prompt));
        }
        let (readings, anew) = (self.here.readings(), "make the package anew with");
        if way.pooling != own.pooling {
            let cure = format!("{anew} --pooling {}", way.pooling.name());
            add("pooling", &own.pooling.name(), &way.pooling.name(), cure);
        }
        let [here, there] = [own, way].map(|way| &readings[way.reading]);
        if there.normalization != here.normalization {
            let name = there.normalization.name();
            let cure = format!("give --tokenizer-normalization {name}");
            add("tokenizer's normalization", &here.normalization.name(), &name, cure);
        }
        if there.special != here.special {
            let words = [here.special, there.special].map(|special| match special {
                SpecialTokenText::Special => "special tokens",
                SpecialTokenText::Plain => "plain text",
            });
            let cure = format!("give --escape-special-tokens {}", there.special.name());
            add("<s> and the like in texts", &words[0], &words[1], cure);
        }
        if way.tokens != own.tokens {
            let cure = format!("{anew} --max-tokens {}", way.tokens);
            add("tokens of a text", &own.tokens, &way.tokens, cure);
        } else if self.takes_more(score) {
            let cure = format!("{anew} a greater --max-tokens, if the model takes more");
            add("tokens of a text", &own.tokens, &"more", cure);
        }
        all
    }

    /// Whether nothing differs but texts that are cut here.
    fn takes_more(&self, score: &Score) -> bool {
        let way = &score.way;
        let differs = |cosine: &Option<f64>| cosine.is_some_and(|cosine| cosine < self.least);
        let pairs = self.probes.iter().zip(&score.cosines);
        let mut differing = pairs.filter(|(_, cosine)| differs(cosine)).peekable();
        differing.peek().is_some()
            && differing.all(|(probe, _)| self.here.count(&probe.text, way) > way.tokens)
    }

    /// Probes that differ even so, and those that the server refused.
    fn probes_that_differ(&self, score: &Score) -> String {
        let mut text = String::new();
        for ((probe, answer), cosine) in self.probes.iter().zip(self.there).zip(&score.cosines) {
            let shown: String = probe.text.chars().take(SHOWN).collect();
            let name = probe.kind.name();
            let _ = match (cosine, answer) {
                (Some(cosine), _) if *cosine < self.least => {
                    writeln!(text, "cosine {cosine:.6}: {name}: {shown:?}")
                }
                (_, Err(why)) => {
                    writeln!(text, "not compared, the server refuses it: {name}: {shown:?}: {why}")
                }
                _ => Ok(()),
            };
        }
        text
    }
}

fn prompt_cure(prompt: &Prompt) -> String {
    match prompt {
        Prompt::Own(name) => {
            format!("give --default-prompt {}", name.map_or("none", |name| name.name()))
        }
        Prompt::Other(text) => {
            format!("make the package anew with --query-prompt {text:?}, its default prompt then")
        }
    }
}
