// A stream that breaks because the server dies, resumed after the last event that arrived.

import OpenAI from 'openai';

// The server comes back within a second or two: the SDK retries until then.
const client = new OpenAI({ maxRetries: 8 });
const numbers = [];
let text = '';
let id;
let broken = null;
let seen = null;

async function read(stream) {
  for await (const event of stream) {
    numbers.push(event.sequence_number);
    if (event.type === 'response.created') {
      id = event.response.id;
    } else if (event.type === 'response.output_text.delta') {
      text += event.delta;
      // The test kills the server when it sees the third of these.
      console.log(JSON.stringify({ seen: event.sequence_number }));
    } else if (event.type === 'response.completed') {
      return event.response;
    }
  }
  return null;
}

let final;
try {
  final = await read(await client.responses.create({ model: 'offline', input: 'Tell me an endless story', stream: true }));
} catch (error) {
  // The SDK passes the runtime's error about a broken body through unchanged.
  broken = error.name;
  seen = numbers.length;
  final = await read(await client.responses.retrieve(id, { stream: true, starting_after: numbers.at(-1) }));
}
console.log(JSON.stringify({
  broken,
  seen_before: seen,
  numbers,
  same: final.id === id,
  status: final.status,
  deltas: text,
  text: final.output.flatMap((item) => item.content.map((part) => part.text)).join(''),
}));
