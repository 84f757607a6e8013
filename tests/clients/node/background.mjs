// A response in the background, polled until it has ended.

import OpenAI from 'openai';

const client = new OpenAI();
let response = await client.responses.create({ model: 'offline', input: 'Tell me a long story', background: true });
const statuses = [response.status];
while (['queued', 'in_progress'].includes(response.status)) {
  await new Promise((resolve) => setTimeout(resolve, 100));
  response = await client.responses.retrieve(response.id);
  statuses.push(response.status);
}
console.log(JSON.stringify({ statuses, background: response.background, text: response.output_text }));
