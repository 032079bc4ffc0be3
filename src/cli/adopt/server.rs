//! The other server, in whichever dialect it speaks.

use std::io::Read;
use std::thread;
use std::time::Duration;

use anyhow::{Context, bail, ensure};
use reqwest::blocking::{Client, RequestBuilder, Response};
use reqwest::header::{CONTENT_TYPE, RETRY_AFTER};
use reqwest::redirect::Policy;
use serde::Deserialize;
use serde_json::{Value, json};

use model::package::manifest::Manifest;

/// A text of thousands of tokens takes a large model minutes on a CPU.
const PATIENCE: Duration = Duration::from_secs(600);
/// How often a busy server is asked again.
const TRIES: usize = 10;
const PAUSE_MAX: Duration = Duration::from_secs(10);
/// A vector of a hundred thousand numbers as decimals is far shorter.
const ANSWER_MAX_BYTES: u64 = 16 * 1024 * 1024;

/// Where text-embeddings-inference takes texts.
const TEI_ROUTE: &str = "/embed";

#[derive(Debug)]
pub(super) struct Server {
    client: Client,
    url: String,
    key: Option<String>,
    dialect: Dialect,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Dialect {
    Tei,
    OpenAi { model: String },
}

/// A text's vector, or why the server refuses the text: status and message.
pub(super) type TheirAnswer = Result<Vec<f32>, String>;

#[derive(Deserialize)]
struct OpenAiAnswer {
    data: [OpenAiVector; 1],
}

#[derive(Deserialize)]
struct OpenAiVector {
    embedding: Vec<f32>,
}

#[derive(Deserialize)]
struct Models {
    data: Vec<ModelName>,
}

#[derive(Deserialize)]
struct ModelName {
    id: String,
}

impl Server {
    /// Asks for one vector by each dialect, until one is understood. A URL that ends with the route
    /// itself is taken as it is.
    pub(super) fn find(
        url: &str,
        model: Option<&str>,
        key: Option<String>,
        manifest: &Manifest,
    ) -> anyhow::Result<Self> {
        if !url.starts_with("http://") {
            bail!(
                "--from {url}: give the address of a server with http://; for one behind TLS, open \
                 a tunnel to its plain port"
            );
        }
        // A proxy that the environment names is for other purposes.
        let client = Client::builder().no_proxy().connect_timeout(PAUSE_MAX).timeout(PATIENCE);
        // A key is for the address that was typed.
        let client = client.redirect(Policy::none());
        let client = client.build().context("cannot make an HTTP client")?;
        let mut server = Self { client, url: String::new(), key, dialect: Dialect::Tei };
        let mut refusals = Vec::new();
        for place in routes(url) {
            server.url = place;
            server.dialect = match server.url.ends_with(TEI_ROUTE) {
                true => Dialect::Tei,
                false => Dialect::OpenAi { model: server.model(model, manifest)? },
            };
            match server.embed("text")? {
                Ok(_) => return Ok(server),
                Err(why) if why.starts_with("401") || why.starts_with("403") => {
                    let cure = match server.key {
                        Some(_) => "the file of --from-key-file has another one",
                        None => "name one with --from-key-file",
                    };
                    bail!("{} wants an API key ({why}): {cure}", server.url)
                }
                Err(why) => refusals.push(format!("{}: {why}", server.url)),
            }
        }
        bail!(
            "--from {url} embeds no text: give the address of an embedding server, and with \
             --from-model the name of its model ({})",
            refusals.join("; ")
        )
    }

    pub(super) fn url(&self) -> &str {
        &self.url
    }

    pub(super) fn embed(&self, text: &str) -> anyhow::Result<TheirAnswer> {
        let response = self.ask(text)?;
        let status = response.status();
        let body = text_of(response).with_context(|| format!("{} sent no answer", self.url))?;
        if !status.is_success() {
            return Ok(Err(format!("{status}: {}", message(&body))));
        }
        let vector = match self.dialect {
            Dialect::Tei => serde_json::from_str::<[Vec<f32>; 1]>(&body).map(|[vector]| vector),
            Dialect::OpenAi { .. } => serde_json::from_str::<OpenAiAnswer>(&body)
                .map(|OpenAiAnswer { data: [only] }| only.embedding),
        };
        Ok(Ok(vector.with_context(|| format!("{} answers something else", self.url))?))
    }

    /// Sends a text, and sends it again while the server is busy.
    fn ask(&self, text: &str) -> anyhow::Result<Response> {
        let body = match &self.dialect {
            Dialect::Tei => json!({"inputs": [text], "truncate": true}),
            Dialect::OpenAi { model } => {
                json!({"input": [text], "model": model, "encoding_format": "float"})
            }
        };
        for _ in 1..TRIES {
            let response = self.send(&body)?;
            if !matches!(response.status().as_u16(), 429 | 503) {
                return Ok(response);
            }
            let told = response.headers().get(RETRY_AFTER).and_then(|value| value.to_str().ok());
            let seconds = told.and_then(|seconds| seconds.parse().ok()).unwrap_or(1);
            thread::sleep(Duration::from_secs(seconds).min(PAUSE_MAX));
        }
        self.send(&body)
    }

    fn send(&self, body: &Value) -> anyhow::Result<Response> {
        let request = self.client.post(&self.url).header(CONTENT_TYPE, "application/json");
        let request = self.with_key(request.body(body.to_string()));
        request.send().map_err(|error| unreached(error, &self.url))
    }

    fn with_key(&self, request: RequestBuilder) -> RequestBuilder {
        match &self.key {
            Some(key) => request.bearer_auth(key),
            None => request,
        }
    }

    /// The name to ask for by OpenAI's dialect: what was typed, the package's where the server has
    /// it, or the only one that there is.
    fn model(&self, typed: Option<&str>, manifest: &Manifest) -> anyhow::Result<String> {
        if let Some(typed) = typed {
            return Ok(typed.to_owned());
        }
        let own = &manifest.model_id;
        let list = self.url.trim_end_matches("embeddings").to_owned() + "models";
        let response = self
            .with_key(self.client.get(&list))
            .send()
            .map_err(|error| unreached(error, &list))?;
        let models = text_of(response).ok().and_then(|text| serde_json::from_str(&text).ok());
        // Not every server has a list.
        let Some(Models { data }) = models else { return Ok(own.clone()) };
        let ids: Vec<String> = data.into_iter().map(|model| model.id).collect();
        let is_own = |id: &&String| *id == own || manifest.aliases.contains(id);
        match (ids.iter().find(is_own), &ids[..]) {
            (Some(id), _) | (None, [id]) => Ok(id.clone()),
            (None, []) => Ok(own.clone()),
            (None, _) => {
                bail!("{list} has several models: name one with --from-model: {}", ids.join(", "))
            }
        }
    }
}

fn unreached(error: reqwest::Error, url: &str) -> anyhow::Error {
    let question = if error.is_connect() { " (is a server running there?)" } else { "" };
    anyhow::Error::new(error).context(format!("cannot ask {url}{question}"))
}

fn text_of(response: Response) -> anyhow::Result<String> {
    let mut text = String::new();
    response.take(ANSWER_MAX_BYTES + 1).read_to_string(&mut text)?;
    ensure!(text.len() as u64 <= ANSWER_MAX_BYTES, "the answer is longer than 16 MiB");
    Ok(text)
}

fn routes(url: &str) -> Vec<String> {
    let url = url.trim_end_matches('/');
    if url.ends_with(TEI_ROUTE) || url.ends_with("/embeddings") {
        return vec![url.to_owned()];
    }
    if url.ends_with("/v1") {
        return vec![format!("{url}/embeddings")];
    }
    vec![format!("{url}{TEI_ROUTE}"), format!("{url}/v1/embeddings")]
}

/// What an answer says went wrong: in OpenAI's form, TEI's, or as it is.
fn message(body: &str) -> String {
    let json: Value = serde_json::from_str(body).unwrap_or_default();
    let error = &json["error"];
    let said = error["message"].as_str().or(error.as_str()).or(json["message"].as_str());
    // It is shown on a terminal.
    said.unwrap_or(body).chars().filter(|c| !c.is_control()).take(300).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_asked_by_both_dialects_unless_it_says_one() {
        let both = ["http://a:1/embed", "http://a:1/v1/embeddings"];
        for (url, expected) in [
            ("http://a:1", &both[..]),
            ("http://a:1/", &both),
            ("http://a:1/v1", &both[1..]),
            ("http://a:1/v1/embeddings", &both[1..]),
            ("http://a:1/embed", &both[..1]),
        ] {
            assert_eq!(routes(url), expected, "{url}");
        }
    }

    #[test]
    fn the_message_of_an_error_is_found_in_each_form() {
        for (body, said) in [
            (r#"{"error": {"message": "too long"}}"#, "too long"),
            (r#"{"error": "too long", "error_type": "Validation"}"#, "too long"),
            (r#"{"object": "error", "message": "too long"}"#, "too long"),
            ("too long", "too long"),
        ] {
            assert_eq!(message(body), said);
        }
    }
}
