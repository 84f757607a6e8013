// The AI SDK with its provider for Open Responses, which sends the whole conversation again.

import { createOpenResponses } from '@ai-sdk/open-responses';
import { converse } from './travel.mjs';

const { OPENAI_BASE_URL, OPENAI_API_KEY } = process.env;
const model = createOpenResponses({ name: 'windlass', url: `${OPENAI_BASE_URL}/responses`, apiKey: OPENAI_API_KEY })('fake');
console.log(JSON.stringify({
  'plain, sent again': await converse(model, false),
  'streamed, sent again': await converse(model, true),
}));
