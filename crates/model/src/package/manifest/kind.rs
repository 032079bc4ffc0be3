//! What a model is for.

use serde::Deserialize;

use scheduling::batch::Pooling;

use super::{Manifest, ManifestError, require};

settings::named! {
    /// What the model gives; its word is also that of answers.
    #[derive(Default, Deserialize)]
    #[serde(rename_all = "kebab-case")]
    pub enum ModelKind {
        /// Vectors of texts.
        #[default]
        Embedding = "embedding",
        /// How well the second text of a pair answers the first one. The dense vector of a pair is
        /// the direction of the point `(score, 4)`, so that engines and golden numbers need not
        /// tell such a model from others: `docs/decisions/0056-a-score-is-a-direction.md`.
        CrossEncoder = "cross-encoder",
        /// Lexical weights of words that a text need not have, and no vectors. The graph gives
        /// dense rows too, which only golden numbers are compared with.
        Sparse = "sparse",
    }
}

impl ModelKind {
    /// The score that a cross-encoder's dense vector stands for: the logit of its probability.
    pub fn score(point: &[f32]) -> f32 {
        STEADY * point[0] / point[1]
    }
}

/// Numbers of a point that stands for a score.
const POINT: usize = 2;

/// The second one in front of the norm; `scripts/model_export/modules.py` writes it.
const STEADY: f32 = 4.0;

/// Refuses what a model of its kind cannot have.
pub(super) fn check(manifest: &Manifest) -> Result<(), ManifestError> {
    let has_shorter = !manifest.matryoshka_dimensions.is_empty();
    let (fits, wanted) = match manifest.kind {
        ModelKind::Embedding => {
            (manifest.words().is_none(), "words are weighed by models of the kind sparse alone")
        }
        ModelKind::CrossEncoder => (
            manifest.hidden_size == POINT
                && !has_shorter
                && manifest.sparse.is_none()
                && manifest.prompts.are_none(),
            "a cross-encoder has hidden_size 2, no shorter vectors, no lexical weights and no \
             prompts",
        ),
        ModelKind::Sparse => (
            manifest.words().is_some()
                && !has_shorter
                && manifest.small_vectors.is_empty()
                && manifest.pooling == Pooling::Mean,
            "a sparse model weighs words, and has no shorter or smaller vectors and the pooling \
             mean",
        ),
    };
    require(fits, "kind", || wanted.into())
}
