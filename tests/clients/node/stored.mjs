// The stored parts of a response, and their deletion.

import { isDeepStrictEqual } from 'node:util';
import OpenAI from 'openai';

const client = new OpenAI();
const first = await client.responses.create({ model: 'offline', input: 'Good day' });
const input = ['one', 'two', 'three'].map((content) => ({ role: 'user', content }));
const second = await client.responses.create({ model: 'offline', input });
const kept = await client.responses.retrieve(second.id);
// One item per page, so that the SDK has to fetch further pages.
const items = [];
for await (const item of client.responses.inputItems.list(second.id, { limit: 1, order: 'asc' })) items.push(item);
await client.responses.delete(second.id);
let gone = null;
try {
  await client.responses.retrieve(second.id);
} catch (error) {
  if (!(error instanceof OpenAI.NotFoundError)) throw error;
  gone = error.status;
}
const models = [];
for await (const model of client.models.list()) models.push(model.id);
console.log(JSON.stringify({
  equal: isDeepStrictEqual(kept, second),
  words: items.flatMap((item) => item.content.map((part) => part.text)),
  ids: new Set(items.map((item) => item.id)).size,
  gone,
  first: (await client.responses.retrieve(first.id)).output_text,
  models,
}));
