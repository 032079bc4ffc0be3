//! Tries settings until the vectors agree.

use super::here::{Here, Prompt, Way};
use super::probes::{LIMITS, Probe, ProbeKind};
use super::server::TheirAnswer;
use model::package::manifest::PromptName;
use scheduling::batch::Pooling;
use vectors::dense::{cosine, cut};

/// Prompts of well-known models, for packages that do not have them.
const PROMPTS: [&str; 9] = [
    "query: ",
    "passage: ",
    "search_query: ",
    "search_document: ",
    "Represent this sentence for searching relevant passages: ",
    "为这个句子生成表示以用于检索相关文章：",
    "task: search result | query: ",
    "title: none | text: ",
    "Instruct: Given a web search query, retrieve relevant passages that answer the query\nQuery: ",
];

pub(super) struct Search<'a> {
    pub(super) here: &'a mut Here,
    pub(super) probes: &'a [Probe],
    pub(super) there: &'a [TheirAnswer],
    pub(super) least: f64,
}

#[derive(Debug, Clone)]
pub(super) struct Score {
    /// The settings of the package's vectors.
    pub(super) way: Way,
    /// Of each probe; nothing for those that the server refuses, and for those that were not asked
    /// for.
    pub(super) cosines: Vec<Option<f64>>,
    pub(super) agreeing: usize,
}

impl Score {
    /// The cosines of all that were compared, ascending.
    pub(super) fn compared(&self) -> Vec<f64> {
        let mut all: Vec<f64> = self.cosines.iter().flatten().copied().collect();
        all.sort_unstable_by(f64::total_cmp);
        all
    }

    pub(super) fn all_agree(&self) -> bool {
        self.agreeing == self.compared().len()
    }

    fn is_better(&self, other: &Self) -> bool {
        let sum = |score: &Self| score.compared().iter().sum::<f64>();
        (self.agreeing, sum(self)) > (other.agreeing, sum(other))
    }
}

impl Search<'_> {
    pub(super) fn compare(&mut self, way: &Way) -> anyhow::Result<Score> {
        self.compare_some(way, |_| true)
    }

    /// The settings that agree best with the server. Each kind of setting is looked for with the
    /// probes that show it, and those that were found before it.
    pub(super) fn closest(&mut self, own: &Way, prompts: &[String]) -> anyhow::Result<Score> {
        let mut candidates = Vec::new();
        for prompt in self.prompts(own, prompts) {
            for pooling in Pooling::ALL {
                candidates.push(Way { prompt: prompt.clone(), pooling, ..own.clone() });
            }
        }
        let best = self.best(own, candidates, ProbeKind::is_plain)?;
        let readings = 0..self.here.readings().len();
        let candidates = readings.map(|reading| Way { reading, ..best.clone() });
        let best = self.best(&best, candidates.collect(), ProbeKind::is_written)?;
        let limits = LIMITS.iter().filter(|&&tokens| tokens < own.tokens);
        let candidates = limits.map(|&tokens| Way { tokens, ..best.clone() });
        let best = self.best(&best, candidates.collect(), ProbeKind::is_length)?;
        self.compare(&best)
    }

    /// The first one of the best.
    fn best(
        &mut self,
        so_far: &Way,
        candidates: Vec<Way>,
        shows: fn(ProbeKind) -> bool,
    ) -> anyhow::Result<Way> {
        let mut best = self.compare_some(so_far, shows)?;
        for way in candidates {
            let score = self.compare_some(&way, shows)?;
            if score.is_better(&best) {
                best = score;
            }
        }
        Ok(best.way)
    }

    fn compare_some(
        &mut self,
        way: &Way,
        shows: impl Fn(ProbeKind) -> bool,
    ) -> anyhow::Result<Score> {
        let mut cosines = Vec::with_capacity(self.probes.len());
        for (probe, answer) in self.probes.iter().zip(self.there) {
            let theirs = answer.as_ref().ok().filter(|_| shows(probe.kind));
            let cosine = theirs.map(|theirs| {
                let ours = cut(self.here.vector(&probe.text, way)?, theirs.len());
                let cosine = cosine(&ours, theirs);
                // Numbers that are not finite agree with nothing.
                anyhow::Ok(if cosine.is_finite() { cosine } else { -1.0 })
            });
            cosines.push(cosine.transpose()?);
        }
        let agreeing = cosines.iter().flatten().filter(|cosine| **cosine >= self.least).count();
        Ok(Score { way: way.clone(), cosines, agreeing })
    }

    /// None, the package's own, and others.
    fn prompts(&self, own: &Way, given: &[String]) -> Vec<Prompt> {
        let manifest = self.here.manifest();
        let named =
            PromptName::ALL.into_iter().filter(|&name| manifest.prompts.text(name).is_some());
        let mut all = vec![own.prompt.clone(), Prompt::Own(None)];
        all.extend(named.map(|name| Prompt::Own(Some(name))));
        let known: Vec<&str> = self.here.prompts().collect();
        let others = given.iter().map(String::as_str).chain(PROMPTS);
        all.extend(
            others.filter(|text| !known.contains(text)).map(|text| Prompt::Other(text.to_owned())),
        );
        all
    }
}
