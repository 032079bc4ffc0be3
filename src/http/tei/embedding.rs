//! The bodies of `/embed`, `/embed_sparse` and `/`, and what the other bodies share with them.

use serde::{Deserialize, Serialize, Serializer};

use crate::http::endpoint::Endpoint;
use crate::http::error::{ApiError, Code, ErrorForm, FieldNames};
use crate::http::payload::{Body, Question, Use, WISHES, input, missing, scalar, with_wishes};
use crate::http::reply::{
    DECIMAL_BYTES, DenseForm, DenseFormat, DenseVector, Resident, number_bytes, write_json,
};
use crate::service::{
    AnswerBytes, EmbedOptions, EmbedReply, EmbedRequest, EmbeddingService, Input, InputType,
    Lexical, OverLong, RequestHead, Vectors,
};
use model::tokenize::Offsets;
use settings::{HttpConfig, TokenInput};
use vectors::small::NumberType;
use vectors::sparse::{Selection, SparseVector};

/// A route of TEI that needs a key.
pub(super) const fn keyed(path: &'static str) -> Endpoint {
    Endpoint::keyed(path).refusing_as(ErrorForm::Tei)
}

with_wishes! {
    /// The body of a request to `/embed`, `/embed_sparse` and `/`.
    #[derive(Debug, Default, Deserialize)]
    pub(in crate::http) struct EmbedBody {
        #[serde(default, deserialize_with = "input::read")]
        pub(super) inputs: Vec<Input>,
        #[serde(default, deserialize_with = "scalar", rename = "truncation_direction")]
        pub(super) _direction: Option<Direction>,
        /// Vectors have length one all the same.
        // The graph itself normalizes, so that there is no other vector to give. It is not refused
        // as "normalized" is: Haystack sends false by default.
        #[serde(default, deserialize_with = "scalar", rename = "normalize")]
        pub(super) _normalize: Option<bool>,
    }
}

/// Where an over-long text is cut. It keeps its start.
#[derive(Debug, Deserialize)]
pub(in crate::http) enum Direction {
    #[serde(alias = "right")]
    Right,
}

impl Body for EmbedBody {
    const FIELDS: &'static [(&'static str, &'static str)] = &[
        ("inputs", "a text, a list of texts, or token ids (POST /similarity compares sentences)"),
        ("truncation_direction", "\"right\" (a text keeps its start: \"left\" is not possible)"),
        ("normalize", "true or false (vectors have length one all the same)"),
    ];
    const WISHES: &'static [(&'static str, &'static str)] = WISHES;
    const EXAMPLE: &'static str = "{\"inputs\": \"a text\"}";
}

impl Question for EmbedBody {
    type Format = NumberType;

    fn names(&self) -> FieldNames {
        self.wishes().names()
    }

    fn ask(
        self,
        vectors: Vectors,
        head: &RequestHead,
        config: &HttpConfig,
        service: &EmbeddingService,
    ) -> Result<(EmbedRequest, NumberType), ApiError> {
        if self.inputs.is_empty() {
            return Err(missing::<Self>());
        }
        let wishes = self.wishes();
        if let Some((name, DenseFormat::Base64)) = wishes.dense_format()? {
            let message = format!(
                "{name} must be \"float\" or a type of smaller numbers here, or left out; POST \
                 /v1/embeddings gives base64"
            );
            return Err(ApiError::of(Code::InvalidValue, name, message));
        }
        let prompt = wishes.input_type()?.map(|(_, prompt)| prompt);
        let options = EmbedOptions {
            over_long: wishes.over_long(config)?,
            dimensions: wishes.dimensions()?,
            ..options(vectors, prompt, head)
        };
        let numbers = wishes.numbers(service)?;
        Ok((EmbedRequest { inputs: self.inputs, options, chunking: None }, numbers))
    }

    fn most_bytes(&numbers: &NumberType, _model_id: &str) -> AnswerBytes {
        AnswerBytes { number: number_bytes(as_list(numbers)), ..MOST_BYTES }
    }

    fn write(
        mut out: Vec<u8>,
        reply: &EmbedReply,
        vectors: Vectors,
        &numbers: &NumberType,
        resident: &Resident<'_>,
    ) -> Vec<u8> {
        let items = reply.items.iter();
        let dense = |item| DenseVector::new(item, as_list(numbers), resident.small_vectors);
        match vectors {
            Vectors::Dense | Vectors::Both => {
                let rows = items.map(|item| dense(&item.dense)).collect::<Vec<_>>();
                write_json(&mut out, &rows);
            }
            Vectors::Sparse => {
                let weights = items.map(|item| Weights(&item.sparse)).collect::<Vec<_>>();
                write_json(&mut out, &weights);
            }
        }
        out
    }
}

/// How every dense vector is written here.
const fn as_list(numbers: NumberType) -> DenseForm {
    DenseForm { numbers, format: DenseFormat::Float }
}

/// What a request wants that says nothing but its prompt.
pub(super) fn options(vectors: Vectors, prompt: Option<Use>, head: &RequestHead) -> EmbedOptions {
    EmbedOptions {
        vectors,
        input_type: prompt.map_or(InputType::Default, |Use(input_type)| input_type),
        over_long: OverLong::Truncate,
        offsets: Offsets::Skip,
        // TEI takes no ids but those of its model.
        token_input: Some(TokenInput::Model),
        dimensions: None,
        lexical: Lexical::Model,
        token_vectors: false,
        selection: Selection::default(),
        priority: head.priority,
        deadline: head.deadline,
    }
}

/// The most bytes that the parts of an answer take.
pub(super) const MOST_BYTES: AnswerBytes = AnswerBytes {
    frame: 2,
    item: 3,
    chunk: 0,
    number: DECIMAL_BYTES,
    // The names, the id, the weight.
    weight: 48,
    place: 0,
    tokens: 0,
    token_number: 0,
    has_pieces: false,
    has_texts: false,
};

/// The lexical weights of one text.
struct Weights<'a>(&'a SparseVector);

impl Serialize for Weights<'_> {
    fn serialize<S: Serializer>(&self, json: S) -> Result<S::Ok, S::Error> {
        json.collect_seq(self.0.pairs().map(|(index, value)| Weight { index, value }))
    }
}

/// A lexical weight.
#[derive(Serialize)]
struct Weight {
    index: u32,
    value: f32,
}
