//! Lists of token ids: refused until somebody says which tokenizer they are of.

use duovec::config::Config;
use serde_json::json;

use crate::support::{DENSE, Server};

#[test]
fn token_ids_are_refused_until_somebody_says_whose_they_are() {
    let server = Server::with_token_input(Config::default().token_input);
    for input in [json!([5, 6, 7]), json!([[5, 6, 7], [8]]), json!([[]])] {
        let error = server.post(DENSE, &json!({ "input": input })).error();
        error.is(400, "invalid_request_error", "token_encoding_missing", Some("input"));
        for cure in ["--token-input", "token_encoding", "check_embedding_ctx_length=False"] {
            assert!(error.message.contains(cure), "{}", error.message);
        }
    }
    server.post(DENSE, &json!({"input": "a text"})).ok();
}
