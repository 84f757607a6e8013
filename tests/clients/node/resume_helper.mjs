// A stream of a background response that breaks and is resumed, with the streaming helper.

import OpenAI from 'openai';

const client = new OpenAI({ maxRetries: 8 });
let text = '';
let last;
let id;
let broken = null;

async function read(stream) {
  for await (const event of stream) {
    last = event.sequence_number;
    if (event.type === 'response.created') {
      id = event.response.id;
    } else if (event.type === 'response.output_text.delta') {
      text += event.delta;
      console.log(JSON.stringify({ seen: last }));
    }
  }
  return stream.finalResponse();
}

let final;
try {
  final = await read(client.responses.stream({ model: 'offline', input: 'Tell me an endless story', background: true }));
} catch (error) {
  broken = error.constructor.name;
  final = await read(client.responses.stream({ response_id: id, starting_after: last }));
}
console.log(JSON.stringify({ broken, same: final.id === id, status: final.status, deltas: text, text: final.output_text }));
