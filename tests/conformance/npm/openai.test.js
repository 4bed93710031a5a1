// The `openai` npm SDK against a running Triptych: URL from TRIPTYCH_URL. Run by test_openai_npm.py.
import assert from "node:assert/strict";
import { test } from "node:test";
import OpenAI, { toFile } from "openai";

const client = new OpenAI({ baseURL: `${process.env.TRIPTYCH_URL}/v1`, apiKey: "none", maxRetries: 0 });
const model = "smollm2-135m";
const messages = [{ role: "user", content: "What is the capital of France? Answer in one short sentence." }];

test("a whole answer is right and counted", async () => {
  const answer = await client.chat.completions.create({ model, messages, temperature: 0, max_tokens: 32 });
  assert.match(answer.choices[0].message.content, /Paris/);
  assert.equal(answer.choices[0].finish_reason, "stop");
  assert.equal(answer.usage.total_tokens, answer.usage.prompt_tokens + answer.usage.completion_tokens);
});

test("a stream carries text, an end and the usage that was asked for", async () => {
  const stream = await client.chat.completions.create({
    model, messages, temperature: 0, max_tokens: 24, stream: true, stream_options: { include_usage: true },
  });
  let text = "", reason = null, usage = null;
  for await (const chunk of stream) {
    text += chunk.choices[0]?.delta?.content ?? "";
    reason = chunk.choices[0]?.finish_reason ?? reason;
    usage = chunk.usage ?? usage;
  }
  assert.match(text, /Paris/);
  assert.equal(reason, "stop");
  assert.ok(usage.completion_tokens > 0);
});

test("logprobs and two choices come in their shape", async () => {
  const answer = await client.chat.completions.create({
    model, messages, n: 2, max_tokens: 4, logprobs: true, top_logprobs: 2, seed: 3,
  });
  assert.deepEqual(answer.choices.map((one) => one.index).sort(), [0, 1]);
  for (const choice of answer.choices) {
    for (const position of choice.logprobs.content) assert.equal(position.top_logprobs.length, 2);
  }
});

test("a json schema is kept to", async () => {
  const schema = {
    type: "object", properties: { ok: { type: "boolean" } }, required: ["ok"], additionalProperties: false,
  };
  const answer = await client.chat.completions.create({
    model, messages: [{ role: "user", content: "Is water wet? As JSON." }], max_tokens: 40, temperature: 0,
    response_format: { type: "json_schema", json_schema: { name: "answer", schema, strict: true } },
  });
  assert.equal(typeof JSON.parse(answer.choices[0].message.content).ok, "boolean");
});

test("errors have their class", async () => {
  await assert.rejects(client.chat.completions.create({ model: "gpt-4", messages }), OpenAI.NotFoundError);
  await assert.rejects(client.chat.completions.create({ model, messages, temperature: 9 }), (error) => {
    assert.ok(error instanceof OpenAI.BadRequestError);
    assert.equal(error.param, "temperature");
    return true;
  });
});

test("a client may leave in mid-stream", async () => {
  const stream = await client.chat.completions.create({
    model, messages: [{ role: "user", content: "Tell a long story." }], max_tokens: 800, stream: true,
  });
  for await (const _ of stream) break;
  stream.controller.abort();
  const answer = await client.chat.completions.create({ model, messages, max_tokens: 4 });
  assert.equal(answer.choices.length, 1);
});

test("a picture is drawn, and named again", async () => {
  const omni = "triptych-omni-tiny";
  const drawn = await client.images.generate({ model: omni, prompt: "Draw a seven.", size: "256x256" });
  const png = drawn.data[0].b64_json;
  assert.ok(Buffer.from(png, "base64").subarray(1, 4).equals(Buffer.from("PNG")));
  const content = [
    { type: "image_url", image_url: { url: `data:image/png;base64,${png}` } },
    { type: "text", text: "Which digit is this?" },
  ];
  const named = await client.chat.completions.create({
    model: omni, messages: [{ role: "user", content }], max_tokens: 16, temperature: 0,
  });
  assert.match(named.choices[0].message.content, /7/);
});

test("a text is spoken, and heard again", async () => {
  const cascade = "smollm2-cascade";
  const spoken = await client.audio.speech.create({
    model: cascade, voice: "alloy", input: "A picture is worth a thousand words.", response_format: "mp3",
  });
  const file = await toFile(Buffer.from(await spoken.arrayBuffer()), "said.mp3");
  const heard = await client.audio.transcriptions.create({ model: cascade, file, language: "en" });
  assert.match(heard.text, /picture is worth a thousand words/i);
});
