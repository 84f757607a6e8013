// A client function: the model calls it, the client sends the result, the model continues.

import OpenAI from 'openai';
import { tool } from './weather.mjs';

const client = new OpenAI();
const calls = [];
const statuses = [];
let earlier;
let response = await client.responses.create({ model: 'offline', input: 'How is the weather in Oslo?', tools: [tool] });
statuses.push(response.status);
for (;;) {
  const asked = response.output.filter((item) => item.type === 'function_call');
  if (asked.length === 0) break;
  const input = asked.map((call) => {
    const args = JSON.parse(call.arguments);
    calls.push([call.name, args]);
    return { type: 'function_call_output', call_id: call.call_id, output: `sunny in ${args.city}` };
  });
  earlier = response.id;
  response = await client.responses.create({ model: 'offline', previous_response_id: earlier, input, tools: [tool] });
  statuses.push(response.status);
}
console.log(JSON.stringify({
  calls,
  statuses,
  text: response.output_text,
  chained: response.previous_response_id === earlier,
}));
