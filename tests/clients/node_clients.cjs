// Clients of Node with a server: node node_clients.cjs MODULES CLIENT URL MODEL < texts.json
// MODULES is the folder above node_modules. Prints what the client gives for the texts, as JSON.

"use strict";

const fs = require("node:fs");
const { createRequire } = require("node:module");
const path = require("node:path");

const [modules, name, url, model] = process.argv.slice(2);
const load = createRequire(path.join(modules, "/"));
const texts = JSON.parse(fs.readFileSync(0, "utf-8"));
const baseURL = url + "/v1";

function openai() {
  const { OpenAI } = load("openai");
  return new OpenAI({ baseURL, apiKey: "unused", maxRetries: 0 });
}

const clients = {
  // Asks for base64 when nothing is said, and decodes it.
  async openai() {
    const answer = await openai().embeddings.create({ model, input: texts });
    return answer.data.map((item) => Array.from(item.embedding));
  },

  async openai_both() {
    const body = { input: texts, sparse_format: "dict" };
    return (await openai().post("/embeddings:both", { body })).data;
  },

  async ai_sdk() {
    const { embedMany } = load("ai");
    const { createOpenAICompatible } = load("@ai-sdk/openai-compatible");
    const provider = createOpenAICompatible({ name: "duovec", baseURL });
    const answer = await embedMany({ model: provider.textEmbeddingModel(model), values: texts });
    return answer.embeddings;
  },

  async langchain() {
    const { OpenAIEmbeddings } = load("@langchain/openai");
    const options = { model, apiKey: "unused", maxRetries: 0, configuration: { baseURL } };
    return new OpenAIEmbeddings(options).embedDocuments(texts);
  },
};

clients[name]().then(
  (found) => console.log(JSON.stringify(found)),
  (error) => {
    console.error(error);
    process.exitCode = 1;
  },
);
