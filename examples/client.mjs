// A client with a function of its own: the model asks for it, this program runs it, and a follow-up request returns the result.
import OpenAI from 'openai';

const client = new OpenAI({ baseURL: 'http://127.0.0.1:7600/v1', apiKey: process.env.WINDLASS_TOKEN });
const functions = { shout: ({ text }) => `${text.toUpperCase()}!` };
const parameters = { type: 'object', properties: { text: { type: 'string' } }, required: ['text'], additionalProperties: false };
const tools = [{ type: 'function', name: 'shout', description: 'Makes a text loud.', parameters, strict: true }];

const [model, input] = process.argv.slice(2);
let response = await client.responses.create({ model, input, tools });
for (;;) {
  const calls = response.output.filter((item) => item.type === 'function_call');
  if (calls.length === 0) break;
  const outputs = calls.map((call) => ({
    type: 'function_call_output',
    call_id: call.call_id,
    output: functions[call.name](JSON.parse(call.arguments)),
  }));
  response = await client.responses.create({ model, input: outputs, tools, previous_response_id: response.id });
}
console.log(response.output_text);
