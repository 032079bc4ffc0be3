//! `/similarity`: how near sentences are to one of them.

use actix_web::Resource;
use serde::Deserialize;

use super::embedding::{Direction, EmbedBody, MOST_BYTES, keyed};
use crate::http::embed::embed;
use crate::http::error::{ApiError, Code, FieldNames};
use crate::http::payload::{Body, Question, Truncate, Use, input, missing, object, scalar};
use crate::http::reply::{DECIMAL_BYTES, Resident};
use crate::http::route::post;
use crate::service::{
    AnswerBytes, EmbedReply, EmbedRequest, EmbeddedItem, EmbeddingService, Input, RequestHead,
    Vectors,
};
use settings::HttpConfig;
use vectors::dense;

/// The body of a request to `/similarity`.
#[derive(Debug, Deserialize)]
pub(in crate::http) struct SimilarityBody {
    #[serde(default, deserialize_with = "object")]
    inputs: Option<Sentences>,
    #[serde(default, deserialize_with = "object")]
    parameters: Option<Parameters>,
}

/// One text, and those that it is compared with.
#[derive(Debug, Deserialize)]
pub(in crate::http) struct Sentences {
    /// One text, which may be in a list.
    #[serde(default, deserialize_with = "input::read")]
    source_sentence: Vec<Input>,
    #[serde(default, deserialize_with = "input::read")]
    sentences: Vec<Input>,
}

/// How the sentences are read.
#[derive(Debug, Default, Deserialize)]
pub(in crate::http) struct Parameters {
    #[serde(default, deserialize_with = "scalar")]
    truncate: Option<Truncate>,
    #[serde(default, deserialize_with = "scalar", rename = "truncation_direction")]
    _direction: Option<Direction>,
    #[serde(default, deserialize_with = "scalar")]
    prompt_name: Option<Use>,
}

impl Body for SimilarityBody {
    const FIELDS: &'static [(&'static str, &'static str)] = &[
        ("inputs", "an object with source_sentence, a text, and sentences, a list of texts"),
        (
            "parameters",
            "an object with truncate (true or false or \"NONE\" or \"END\"), prompt_name \
             (\"query\" or \"passage\") and truncation_direction (\"right\")",
        ),
    ];
    const TAKES: &'static str = "a text or a list of texts";
    const EXAMPLE: &'static str =
        "{\"inputs\": {\"source_sentence\": \"a text\", \"sentences\": [\"another\"]}}";

    fn settle(&mut self) {
        if let Some(Sentences { source_sentence, sentences }) = &mut self.inputs {
            input::settle(source_sentence);
            input::settle(sentences);
        }
    }
}

impl Question for SimilarityBody {
    type Format = ();

    fn names(&self) -> FieldNames {
        FieldNames { prompt: "prompt_name", ..FieldNames::default() }
    }

    fn ask(
        self,
        vectors: Vectors,
        head: &RequestHead,
        config: &HttpConfig,
        service: &EmbeddingService,
    ) -> Result<(EmbedRequest, ()), ApiError> {
        let Some(Sentences { source_sentence, sentences }) = self.inputs else {
            return Err(missing::<Self>());
        };
        let source = part("source_sentence", source_sentence)?;
        let mut inputs = part("sentences", sentences)?;
        if source.len() > 1 {
            let message = "source_sentence must be one text; send the others as sentences";
            return Err(ApiError::of(Code::InvalidInput, Self::INPUT, message));
        }
        // Behind the sentences: messages count items from 0.
        inputs.extend(source);
        let most = config.max_items;
        if inputs.len() > most.as_usize() {
            let message = format!(
                "inputs has more than {most} items, the server's --max-items, the source among \
                 them; split it into more requests"
            );
            return Err(ApiError::of(Code::TooManyItems, Self::INPUT, message));
        }
        let Parameters { truncate, prompt_name, .. } = self.parameters.unwrap_or_default();
        EmbedBody { inputs, truncate, prompt_name, ..EmbedBody::default() }
            .ask(vectors, head, config, service)
            .map(|(request, _)| (request, ()))
    }

    fn most_bytes((): &(), _model_id: &str) -> AnswerBytes {
        // A number for each text, however long the vectors are.
        AnswerBytes { item: DECIMAL_BYTES, number: 0, ..MOST_BYTES }
    }

    fn write(
        mut out: Vec<u8>,
        reply: &EmbedReply,
        _vectors: Vectors,
        (): &(),
        _resident: &Resident<'_>,
    ) -> Vec<u8> {
        let (source, sentences) = reply.items.split_last().expect("a request has an item");
        let cosine = |item: &EmbeddedItem| dense::cosine(&source.dense, &item.dense) as f32;
        let cosines: Vec<f32> = sentences.iter().map(cosine).collect();
        serde_json::to_writer(&mut out, &cosines).expect("a vector takes all");
        out
    }
}

/// The texts of a part of `inputs`, which has some.
fn part(name: &str, texts: Vec<Input>) -> Result<Vec<Input>, ApiError> {
    if texts.is_empty() {
        let message = format!("inputs.{name} is missing; send {}", SimilarityBody::TAKES);
        return Err(ApiError::of(Code::InvalidInput, SimilarityBody::INPUT, message));
    }
    Ok(texts)
}

pub(super) fn route() -> Resource {
    post(keyed("/similarity"), |state, request, body| {
        embed::<SimilarityBody>(state, request, body, Vectors::Dense)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http::payload::{self, InputLimits};
    use actix_web::web::Bytes;
    use settings::limits::{MaxItemBytes, MaxItems};

    #[test]
    fn either_all_texts_are_parts_of_the_body_or_it_is_free() {
        let limits = InputLimits { items: MaxItems::DEFAULT, item_bytes: MaxItemBytes::DEFAULT };
        for (inputs, is_kept) in [
            (r#"{"source_sentence":"one","sentences":["two"]}"#, true),
            (r#"{"source_sentence":"one","sentences":["two","\u0074hree"]}"#, false),
            (r#"{"sentences":["two"],"source_sentence":"on\u0065"}"#, false),
        ] {
            let body = Bytes::from(format!(r#"{{"inputs":{inputs}}}"#));
            let read: SimilarityBody = payload::read(body.clone(), limits).expect("it is right");
            assert_eq!(!body.is_unique(), is_kept, "{inputs}");
            drop(read);
        }
    }
}
