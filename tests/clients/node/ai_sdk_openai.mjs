// The AI SDK with its provider for OpenAI. It refers to stored items by their ids, and sends other items again.

import { createOpenAI } from '@ai-sdk/openai';
import { converse } from './travel.mjs';

const model = createOpenAI().responses('fake');
const unkept = { openai: { store: false } };
console.log(JSON.stringify({
  'plain, referred to': await converse(model, false),
  'plain, sent again': await converse(model, false, unkept),
  'streamed, referred to': await converse(model, true),
  'streamed, sent again': await converse(model, true, unkept),
}));
