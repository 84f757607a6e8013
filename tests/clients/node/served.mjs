// A server tool, alone and in one iteration with a client function; plain and with the streaming helper.

import OpenAI from 'openai';
import { tool } from './weather.mjs';

const client = new OpenAI();
const tools = [{ type: 'mcp', server_label: 'tools', require_approval: 'never' }, tool];

const ways = {
  plain: (asked) => client.responses.create({ model: 'offline', tools, ...asked }),
  helper: (asked) => client.responses.stream({ model: 'offline', tools, ...asked }).finalResponse(),
};

function seen(response) {
  const of = (type) => response.output.filter((item) => item.type === type);
  return {
    status: response.status,
    items: response.output.map((item) => item.type),
    offers: of('mcp_list_tools').flatMap((item) => item.tools.map((offered) => offered.name)).slice(0, 2),
    calls: of('mcp_call').map((call) => [
      call.server_label, call.name, JSON.parse(call.arguments), call.output, call.error ?? null, call.status,
    ]),
    text: response.output_text,
  };
}

const saw = {};
for (const [name, way] of Object.entries(ways)) {
  const alone = await way({ input: 'Have it echoed' });
  const mixed = await way({ input: 'Both at once' });
  const asked = mixed.output.filter((item) => item.type === 'function_call');
  const input = asked.map((call) => ({ type: 'function_call_output', call_id: call.call_id, output: 'sunny in Oslo' }));
  saw[name] = [seen(alone), seen(mixed), seen(await way({ previous_response_id: mixed.id, input }))];
}
console.log(JSON.stringify(saw));
