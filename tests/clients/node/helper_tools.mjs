// The same loop with the streaming helper, and with the whole history sent again instead of the previous response's id.

import OpenAI from 'openai';
import { tool } from './weather.mjs';

const client = new OpenAI();
const history = [{ role: 'user', content: 'How is the weather in Oslo?' }];
const deltas = [];
const args = [];
let laps = 0;
let final;
for (;;) {
  laps += 1;
  const stream = client.responses.stream({ model: 'offline', input: history, tools: [tool], store: false });
  stream.on('response.function_call_arguments.delta', (event) => deltas.push(event.delta));
  final = await stream.finalResponse();
  const asked = final.output.filter((item) => item.type === 'function_call');
  if (asked.length === 0) break;
  args.push(...asked.map((call) => call.arguments));
  history.push(...final.output);
  history.push(...asked.map((call) => ({ type: 'function_call_output', call_id: call.call_id, output: 'sunny in Oslo' })));
}
console.log(JSON.stringify({ deltas: deltas.join(''), arguments: args, laps, status: final.status, text: final.output_text }));
