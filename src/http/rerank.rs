//! Documents in the order of how near they are to a query, by the vectors of the resident model, or
//! by the scores of a cross-encoder: `/v1/rerank`, as clients of Cohere, Jina AI and Voyage AI send
//! and read it.

use std::num::NonZeroUsize;

use bytestring::ByteString;
use serde::{Deserialize, Serialize};

use super::error::{ApiError, Code};
use super::payload::{
    Body, EmbeddingRequest, Question, TRUNCATE, Truncate, WHOLE_NUMBER, agreed, input, scalar, some,
};
use super::reply::{self, Resident, Usage, frame_bytes};
use crate::service::{
    AnswerBytes, EmbedReply, EmbedRequest, EmbeddedItem, EmbeddingService, Input, InputType,
    RequestHead, Vectors, json_bytes,
};
use model::package::manifest::{Manifest, ModelKind};
use settings::HttpConfig;
use vectors::tokens::TokenVectors;
use vectors::{dense, sparse};

/// Its paths; the second one is that of Cohere's newer clients.
pub(super) const ROUTES: [&str; 2] = ["/v1/rerank", "/v2/rerank"];

/// What the lexical score counts beside the dense one; `docs/retrieval.md` has the measurements.
const LEXICAL_WEIGHT: f64 = 0.1;

/// What dense, lexical and token vectors count together: the weights of BGE-M3's authors.
const WEIGHTS: [f64; 3] = [0.4, 0.2, 0.4];

/// Products of two numbers that take as long as writing one.
const PRODUCTS_A_NUMBER: u64 = 64;

/// The most products of one request: some three seconds of a core. Nobody can stop them.
const PRODUCTS_MAX: u64 = 10_000_000_000;

/// What documents are put in order by.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum RerankScore {
    /// The cosine of the dense vectors.
    Dense,
    /// The sum of products of the lexical weights that both texts have.
    Lexical,
    /// `dense + 0.1 · lexical`
    Hybrid,
    /// The largest product of each of the query's token vectors with one of the document's, in the
    /// mean.
    Tokens,
    /// `0.4 · dense + 0.2 · lexical + 0.4 · tokens`
    All,
    /// The probability that a cross-encoder gives to a document that it reads with the query.
    CrossEncoder,
}

impl RerankScore {
    /// Those that the model has. The first one is the best, but for those that take kilobytes of
    /// memory for each token.
    pub(super) fn of_model(card: Option<&Manifest>) -> &'static [Self] {
        let Some(card) = card else { return &[Self::Dense] };
        match (card.kind, card.sparse.is_some(), card.token_vector_size.is_some()) {
            (ModelKind::CrossEncoder, ..) => &[Self::CrossEncoder],
            (ModelKind::Sparse, ..) => &[Self::Lexical],
            (_, true, true) => &[Self::Hybrid, Self::Dense, Self::Lexical, Self::Tokens, Self::All],
            (_, true, false) => &[Self::Hybrid, Self::Dense, Self::Lexical],
            (_, false, true) => &[Self::Dense, Self::Tokens],
            (_, false, false) => &[Self::Dense],
        }
    }

    /// The word for it in requests and answers.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Dense => "dense",
            Self::Lexical => "lexical",
            Self::Hybrid => "hybrid",
            Self::Tokens => "tokens",
            Self::All => "all",
            Self::CrossEncoder => "cross-encoder",
        }
    }

    /// Of token vectors alone too, a run gives one of the others.
    const fn vectors(self) -> Vectors {
        match self {
            Self::Dense | Self::Tokens | Self::CrossEncoder => Vectors::Dense,
            Self::Lexical => Vectors::Sparse,
            Self::Hybrid | Self::All => Vectors::Both,
        }
    }

    const fn needs_token_vectors(self) -> bool {
        matches!(self, Self::Tokens | Self::All)
    }

    /// Products of two numbers that comparing the vectors of tokens takes.
    fn products(self, reply: &EmbedReply) -> u64 {
        let count =
            |item: &EmbeddedItem| item.token_vectors.as_ref().map_or(0, TokenVectors::count);
        let Some((query, documents)) = reply.items.split_last() else { return 0 };
        let tokens = query.token_vectors.as_ref().map_or(0, |vectors| vectors.shape()[0]);
        let numbers: usize = documents.iter().map(count).sum();
        if self.needs_token_vectors() { tokens as u64 * numbers as u64 } else { 0 }
    }

    /// Of each document. A cross-encoder's are logits, which tell great probabilities apart.
    fn of(self, reply: &EmbedReply) -> Vec<f32> {
        if self == Self::CrossEncoder {
            return reply.items.iter().map(|pair| ModelKind::score(&pair.dense)).collect();
        }
        let (query, documents) = reply.items.split_last().expect("a request has a query");
        let [of_dense, of_lexical, of_tokens] = WEIGHTS;
        let of = |document: &EmbeddedItem| {
            let dense = || dense::cosine(&query.dense, &document.dense);
            let lexical = || sparse::dot(&query.sparse, &document.sparse);
            let both = || query.token_vectors.as_ref().zip(document.token_vectors.as_ref());
            let tokens = || both().map_or(0.0, |(query, document)| query.nearness(document));
            match self {
                Self::Dense | Self::CrossEncoder => dense(),
                Self::Lexical => lexical(),
                Self::Hybrid => dense() + LEXICAL_WEIGHT * lexical(),
                Self::Tokens => tokens(),
                Self::All => of_dense * dense() + of_lexical * lexical() + of_tokens * tokens(),
            }
        };
        documents.iter().map(|document| of(document) as f32).collect()
    }

    /// What is answered for a score.
    fn relevance(self, score: f32) -> f32 {
        if self == Self::CrossEncoder { sigmoid(score) } else { score }
    }
}

/// A number between zero and one.
pub(super) fn sigmoid(score: f32) -> f32 {
    1.0 / (1.0 + (-score).exp())
}

/// A query and the documents that are compared with it, in the words of some dialect.
pub(super) struct TextsToCompare {
    /// One text.
    pub(super) query: Vec<Input>,
    pub(super) documents: Vec<Input>,
    pub(super) model: Option<String>,
    pub(super) truncate: Option<Truncate>,
    pub(super) score: Option<RerankScore>,
    /// Whether the answer repeats the documents.
    pub(super) with_texts: bool,
}

/// How the answer is written.
pub(super) struct Ranking {
    pub(super) score: RerankScore,
    /// The documents, if the answer repeats them; else none.
    pub(super) texts: Vec<ByteString>,
    /// So many documents are answered, at most.
    top: usize,
}

impl TextsToCompare {
    /// What the service is asked: the documents and behind them the query.
    pub(super) fn ask<B: Body>(
        self,
        head: &RequestHead,
        config: &HttpConfig,
        service: &EmbeddingService,
    ) -> Result<(EmbedRequest, Ranking), ApiError> {
        let Self { query, documents, model, truncate, score, with_texts } = self;
        if query.is_empty() {
            return Err(ApiError::of(Code::InvalidInput, "query", "query is missing; send a text"));
        }
        let mut inputs = some::<B>(documents)?;
        let (found, most) = (inputs.len(), config.max_items);
        if found >= most.as_usize() {
            let cure = match most.get() {
                1 => "no document fits then: start it with 2 or more",
                _ => "split it into more requests",
            };
            let message = format!(
                "{} has {found} items, and with the query a request may have {most}, the server's \
                 --max-items; {cure}",
                B::INPUT
            );
            return Err(ApiError::of(Code::TooManyItems, B::INPUT, message));
        }
        let texts = inputs.iter().filter(|_| with_texts).filter_map(|item| match item {
            Input::Text(text) => Some(text.clone()),
            Input::TokenIds(_) => None,
        });
        let texts = texts.collect();
        inputs.extend(query);
        let scores = RerankScore::of_model(service.model_card());
        let score = score.unwrap_or(scores[0]);
        if !scores.contains(&score) {
            let words: Vec<String> = scores.iter().map(|s| format!("\"{}\"", s.name())).collect();
            let words = words.join(" or ");
            let message =
                format!("score must be {words} here, or left out: the model has no other score");
            return Err(ApiError::of(Code::InvalidValue, "score", message));
        }
        let request = EmbeddingRequest::of(inputs, model, truncate);
        let (mut request, _) = request.ask(score.vectors(), head, config, service)?;
        request.options.input_type = InputType::Ranking;
        request.options.token_vectors = score.needs_token_vectors();
        Ok((request, Ranking { score, texts, top: found }))
    }
}

impl Ranking {
    /// The places of the documents with their scores, the nearest first.
    pub(super) fn of(&self, reply: &EmbedReply) -> Vec<(usize, f32)> {
        let mut ranked: Vec<(usize, f32)> = self.score.of(reply).into_iter().enumerate().collect();
        // The sort is stable: of equal scores the first document comes first.
        ranked.sort_by(|(_, one), (_, other)| other.total_cmp(one));
        ranked.truncate(self.top);
        ranked
    }

    /// The most bytes of an answer with so much around its documents.
    pub(super) fn most_bytes(&self, frame: u64) -> AnswerBytes {
        let texts: u64 = self.texts.iter().map(|text| json_bytes(text)).sum();
        AnswerBytes {
            frame: frame + texts,
            item: RESULT_BYTES,
            has_texts: !self.texts.is_empty(),
            ..AnswerBytes::default()
        }
    }
}

/// Names and numbers of a document in an answer.
const RESULT_BYTES: u64 = 112;

/// Null is the same as leaving a field out, except for query and documents; unknown fields are
/// ignored, but for slips in names, a field that comes twice is refused.
#[derive(Debug, Deserialize)]
pub(super) struct RerankRequest {
    #[serde(default, deserialize_with = "input::read_documents")]
    documents: Vec<Input>,
    #[serde(default, deserialize_with = "input::read_query")]
    query: Vec<Input>,
    /// The model's id or an alias; absent is the resident model.
    model: Option<String>,
    /// So many documents are answered; absent answers all.
    #[serde(default, deserialize_with = "scalar")]
    top_n: Option<NonZeroUsize>,
    /// Whether the answer repeats the documents.
    #[serde(default, deserialize_with = "scalar")]
    return_documents: Option<bool>,
    /// What documents are put in order by; absent is the best that the model has.
    #[serde(default, deserialize_with = "scalar")]
    score: Option<RerankScore>,
    /// Whether an over-long text is cut, or refused.
    #[serde(default, deserialize_with = "scalar")]
    truncate: Option<Truncate>,
    /// Voyage AI's word for top_n.
    #[serde(default, deserialize_with = "scalar")]
    top_k: Option<NonZeroUsize>,
    /// Voyage AI's word for truncate.
    #[serde(default, deserialize_with = "scalar")]
    truncation: Option<bool>,
}

impl Body for RerankRequest {
    const FIELDS: &'static [(&'static str, &'static str)] = &[
        ("documents", "a list of texts, or of objects with text"),
        ("query", "a text"),
        ("model", "a string"),
        ("top_n", WHOLE_NUMBER),
        ("return_documents", "true or false"),
        (
            "score",
            "\"dense\" or \"lexical\" or \"hybrid\" or \"tokens\" or \"all\" or \"cross-encoder\"",
        ),
        ("truncate", TRUNCATE),
        ("top_k", WHOLE_NUMBER),
        ("truncation", "true or false"),
    ];
    const EXAMPLE: &'static str = "{\"query\": \"a text\", \"documents\": [\"another\"]}";

    fn settle(&mut self) {
        input::settle(&mut self.documents);
        input::settle(&mut self.query);
    }
}

/// The documents of a request, the nearest to its query first.
#[derive(Serialize)]
struct RerankList<'a> {
    object: &'static str,
    /// The model's id.
    model: &'a str,
    /// What the documents are put in order by.
    score: RerankScore,
    /// Absent where the request has a word of Voyage AI's.
    #[serde(skip_serializing_if = "Option::is_none")]
    results: Option<Vec<RankedDocument<'a>>>,
    /// The results, where the request has a word of Voyage AI's.
    #[serde(skip_serializing_if = "Option::is_none")]
    data: Option<Vec<RankedDocument<'a>>>,
    usage: Usage,
}

/// A document.
#[derive(Serialize)]
struct RankedDocument<'a> {
    /// Its place in the request.
    index: usize,
    relevance_score: f32,
    /// Absent unless the request says return_documents.
    #[serde(skip_serializing_if = "Option::is_none")]
    document: Option<ReturnedDocument<'a>>,
}

/// A document as it was sent; its bare text is Voyage AI's way.
#[derive(Serialize)]
#[serde(untagged)]
enum ReturnedDocument<'a> {
    Object { text: &'a str },
    Text(&'a str),
}

/// How the answer is written.
pub(super) struct RerankFormat {
    ranking: Ranking,
    /// Whether the client is one of Voyage AI's.
    for_voyage: bool,
}

impl Question for RerankRequest {
    type Format = RerankFormat;

    fn ask(
        self,
        _vectors: Vectors,
        head: &RequestHead,
        config: &HttpConfig,
        service: &EmbeddingService,
    ) -> Result<(EmbedRequest, RerankFormat), ApiError> {
        let for_voyage = self.top_k.is_some() || self.truncation.is_some();
        let top = agreed(&[("top_n", self.top_n), ("top_k", self.top_k)])?;
        let top = top.map_or(usize::MAX, |(_, top)| top.get());
        let truncation = self.truncation.map(Truncate::Plain);
        let truncate = agreed(&[("truncate", self.truncate), ("truncation", truncation)])?;
        let comparison = TextsToCompare {
            query: self.query,
            documents: self.documents,
            model: self.model,
            truncate: truncate.map(|(_, truncate)| truncate),
            score: self.score,
            with_texts: self.return_documents == Some(true),
        };
        let (request, ranking) = comparison.ask::<Self>(head, config, service)?;
        let ranking = Ranking { top, ..ranking };
        Ok((request, RerankFormat { ranking, for_voyage }))
    }

    fn most_bytes(format: &RerankFormat, model_id: &str) -> AnswerBytes {
        format.ranking.most_bytes(frame_bytes(model_id))
    }

    fn work(format: &RerankFormat, reply: &EmbedReply) -> Result<usize, ApiError> {
        let products = format.ranking.score.products(reply);
        if products > PRODUCTS_MAX {
            return Err(ApiError::too_many_products(products, PRODUCTS_MAX));
        }
        Ok(reply::numbers(reply) + (products / PRODUCTS_A_NUMBER) as usize)
    }

    fn write(
        mut out: Vec<u8>,
        reply: &EmbedReply,
        _vectors: Vectors,
        RerankFormat { ranking, for_voyage }: &RerankFormat,
        resident: &Resident<'_>,
    ) -> Vec<u8> {
        let returned = |text| {
            if *for_voyage {
                ReturnedDocument::Text(text)
            } else {
                ReturnedDocument::Object { text }
            }
        };
        let result = |(index, score): (usize, f32)| RankedDocument {
            index,
            relevance_score: ranking.score.relevance(score),
            document: ranking.texts.get(index).map(|text| returned(text)),
        };
        let results: Vec<_> = ranking.of(reply).into_iter().map(result).collect();
        let (results, data) =
            if *for_voyage { (None, Some(results)) } else { (Some(results), None) };
        let list = RerankList {
            object: "list",
            model: resident.id,
            score: ranking.score,
            results,
            data,
            usage: Usage::of(reply),
        };
        serde_json::to_writer(&mut out, &list).expect("a vector takes all");
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::service::Milestones;
    use proptest::prelude::*;

    #[test]
    fn comparing_tokens_that_would_keep_a_core_is_refused_and_much_of_it_is_work() {
        let text = |tokens: usize| EmbeddedItem {
            token_vectors: Some(TokenVectors::new(8, vec![0.0; 8 * tokens])),
            ..EmbeddedItem::default()
        };
        let work = |score, documents: [usize; 2], query| {
            let items = [documents[0], documents[1], query].map(text).into();
            let milestones = Milestones::default();
            let reply = EmbedReply { items, prompt_tokens: 0, milestones, cache_use: None };
            let ranking = Ranking { score, texts: Vec::new(), top: 1 };
            RerankRequest::work(&RerankFormat { ranking, for_voyage: false }, &reply)
        };
        let numbers = 8 * (3000 + 1000 + 2000);
        for score in [RerankScore::Tokens, RerankScore::All] {
            let found = work(score, [3000, 1000], 2000).expect("it is little");
            assert_eq!(found, numbers + 4000 * 8 * 2000 / 64);
            let error = work(score, [30_000, 10_000], 31_251).expect_err("it takes seconds");
            let error = format!("{error:?}");
            assert!(error.contains("takes 10000320000 products"), "{error}");
        }
        assert_eq!(work(RerankScore::Dense, [3000, 1000], 2000).ok(), Some(numbers));
    }

    proptest! {
        #[test]
        fn no_answer_is_larger_than_the_room_for_it(
            texts in prop::collection::vec("(?s).{0,20}", 1..20),
            numbers in prop::collection::vec(-1.0_f32..1.0, 2),
        ) {
            let vector = |number: f32| {
                EmbeddedItem { dense: vec![number, 1e-7], ..EmbeddedItem::default() }
            };
            let query = std::iter::once(vector(numbers[1]));
            let items = texts.iter().map(|_| vector(numbers[0])).chain(query).collect();
            let (milestones, prompt_tokens) = (Milestones::default(), u64::MAX);
            let reply = EmbedReply { items, prompt_tokens, milestones, cache_use: None };
            let texts = texts.into_iter().map(ByteString::from).collect();
            let ranking = Ranking { score: RerankScore::Dense, texts, top: usize::MAX };
            let ranking = RerankFormat { ranking, for_voyage: false };
            let id = "a\u{1}\"/b";
            let resident = Resident { id, vocab_size: 0, small_vectors: &[], piece: &|_| None };
            let room = reply::room(&reply, RerankRequest::most_bytes(&ranking, id));
            let vectors = Vectors::Dense;
            let answer = RerankRequest::write(Vec::new(), &reply, vectors, &ranking, &resident);
            prop_assert!(answer.len() <= room, "{} of {room}", answer.len());
        }
    }
}
