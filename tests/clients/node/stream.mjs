// A streamed answer, event by event.

import OpenAI from 'openai';

const events = [];
for await (const event of await new OpenAI().responses.create({ model: 'offline', input: 'Tell me a story', stream: true })) {
  events.push(event);
}
const last = events.at(-1).response;
console.log(JSON.stringify({
  types: events.map((event) => event.type),
  numbers: events.map((event) => event.sequence_number),
  deltas: events.filter((event) => event.type === 'response.output_text.delta').map((event) => event.delta).join(''),
  whole: events.filter((event) => event.type === 'response.output_text.done').map((event) => event.text),
  status: last.status,
  text: last.output.flatMap((item) => item.content.map((part) => part.text)).join(''),
  ids: [...new Set(events.filter((event) => event.response).map((event) => event.response.id))],
}));
