// A conversation: created, continued by responses, listed, changed and deleted; and the token count of a request.

import OpenAI from 'openai';
import { tool } from './weather.mjs';

const client = new OpenAI();
const says = (content) => ({ type: 'message', role: 'user', content });
const begun = await client.conversations.create({ metadata: { topic: 'weather' }, items: [says('Hello')] });
const described = await client.conversations.update(begun.id, { metadata: { topic: 'rain' } });
const common = { model: 'offline', tools: [tool], conversation: begun.id };
const asked = await client.responses.create({ ...common, input: 'How is the weather?' });
const call = asked.output.find((item) => item.type === 'function_call');
const answer = { type: 'function_call_output', call_id: call.call_id, output: 'sunny' };
const told = await client.responses.stream({ ...common, input: [answer] }).finalResponse();
const added = await client.conversations.items.create(begun.id, { items: [says('Thanks')] });
// Two items per page, so that the SDK has to fetch further pages.
const items = [];
for await (const item of client.conversations.items.list(begun.id, { limit: 2, order: 'asc' })) items.push(item);
const found = await client.conversations.items.retrieve(items[0].id, { conversation_id: begun.id });
await client.conversations.items.delete(items[0].id, { conversation_id: begun.id });
const left = [];
for await (const item of client.conversations.items.list(begun.id)) left.push(item);
const counted = await client.responses.inputTokens.count({ model: 'offline', input: 'How much is that?', conversation: begun.id });
const kept = await client.conversations.retrieve(begun.id);
const deleted = await client.conversations.delete(begun.id);
let gone = null;
try {
  await client.conversations.retrieve(begun.id);
} catch (error) {
  if (!(error instanceof OpenAI.NotFoundError)) throw error;
  gone = error.status;
}
console.log(JSON.stringify({
  metadata: [begun.metadata, described.metadata, kept.metadata],
  echo: told.conversation.id === begun.id,
  text: told.output_text,
  added: added.data.length,
  types: items.map((item) => item.type),
  found: JSON.stringify(found) === JSON.stringify(items[0]),
  left: left.length,
  counted: [counted.object, counted.input_tokens > 0],
  deleted: [deleted.object, deleted.deleted],
  gone,
}));
