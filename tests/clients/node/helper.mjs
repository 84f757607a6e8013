// A streamed answer with the SDK's helper, which checks each event against those before it.

import OpenAI from 'openai';

const deltas = [];
const snapshots = [];
const stream = new OpenAI().responses.stream({ model: 'offline', input: 'Tell me a story' });
stream.on('response.output_text.delta', (event) => {
  deltas.push(event.delta);
  snapshots.push(event.snapshot);
});
const final = await stream.finalResponse();
console.log(JSON.stringify({
  deltas: deltas.join(''),
  snapshot: snapshots.at(-1),
  status: final.status,
  text: final.output_text,
}));
