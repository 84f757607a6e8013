// A response that is cancelled. The model would take a minute.

import OpenAI from 'openai';

const client = new OpenAI();
const response = await client.responses.create({ model: 'offline', input: 'Take your time', background: true });
const cancelled = await client.responses.cancel(response.id);
console.log(JSON.stringify({
  first: response.status,
  cancelled: cancelled.status,
  again: (await client.responses.cancel(response.id)).status,
  kept: (await client.responses.retrieve(response.id)).status,
}));
