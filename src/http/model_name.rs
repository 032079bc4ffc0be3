//! The names of the resident model: its id and aliases, and what clients put around them.

use super::error::{ApiError, Code};
use crate::health::Phase;
use crate::service::{EmbeddingService, InputType, Refusal, prompt};
use model::package::manifest::Manifest;
use settings::{Dialect, HttpConfig, PROMPT_ENDS};

/// What clients such as LiteLLM put in front of a model's name.
const PROVIDER: &str = "openai/";

/// What NIM's clients put behind a model's name: they have no field for it.
pub(super) const PROMPTS: [(&str, InputType); 2] =
    [(PROMPT_ENDS[0], InputType::Query), (PROMPT_ENDS[1], InputType::Passage)];

/// Which prompt a model's name asks for; `None` when the model is not served here, or takes no
/// texts for this use.
pub(super) fn prompt_of(
    name: &str,
    config: &HttpConfig,
    service: &EmbeddingService,
) -> Option<InputType> {
    let knows = |name: &str| {
        service.knows_model(name)
            || name.strip_prefix(PROVIDER).is_some_and(|name| service.knows_model(name))
    };
    let takes = |asked| service.model_card().is_some_and(|card| prompt(card, asked).is_ok());
    // A package may have an alias with such an end: its prompt is what the name says nevertheless.
    let mut prompts = PROMPTS.into_iter().filter(|_| config.speaks(Dialect::Nim));
    let asked = prompts
        .find(|(suffix, asked)| name.strip_suffix(suffix).is_some_and(knows) && takes(*asked));
    let asked = asked.map(|(_, prompt)| prompt);
    asked.or_else(|| knows(name).then_some(InputType::Default))
}

/// The manifest of the resident model, as soon as it is loaded.
pub(super) fn card(service: &EmbeddingService) -> Result<&Manifest, ApiError> {
    let phase = service.phase();
    let card = service.model_card().filter(|_| phase != Phase::Loading);
    card.ok_or_else(|| {
        ApiError::unavailable(match phase {
            Phase::Loading | Phase::Ready => Refusal::Loading,
            Phase::LameDuck | Phase::Draining => Refusal::Draining,
            Phase::Failed => Refusal::NoWorker,
        })
    })
}

/// The name is not repeated, as no content of a request is.
pub(super) fn unknown_model(service: &EmbeddingService) -> ApiError {
    let served = service.model_card().map_or("", |card| &card.model_id);
    let message = format!(
        "this model is not served here; send \"{served}\", or leave model out; GET /v1/models has \
         the aliases, and the operator adds others with --model-aliases"
    );
    ApiError::of(Code::ModelNotFound, "model", message)
}

#[cfg(test)]
mod tests {
    use super::*;
    use clock::RealClock;
    use model::package::ModelPackage;
    use settings::Config;
    use std::sync::Arc;

    #[test]
    fn a_name_carries_no_prompt_that_the_model_would_refuse() {
        let package = ModelPackage::read_manifest(&testing::tiny()).expect("the fixture is whole");
        let mut manifest = package.manifest().clone();
        manifest.prompts.passage = Some("passage: ".to_owned());
        let service = EmbeddingService::new(&Config::default(), Arc::new(RealClock::new()));
        service.announce(&manifest);
        let asked = |name: &str| prompt_of(name, &HttpConfig::default(), &service);
        assert_eq!(asked("tiny"), Some(InputType::Default));
        assert_eq!(asked("tiny-passage"), Some(InputType::Passage));
        assert_eq!(asked("tiny-query"), None);
    }
}
