// A tool of the server's that needs approval, approved and rejected: with the streaming helper and without, continuing the response and with
// the whole conversation sent again.

import OpenAI from 'openai';

const client = new OpenAI();
const tools = [{ type: 'mcp', server_label: 'tools', require_approval: 'always' }];
const input = [{ role: 'user', content: 'Ask me first' }];

const plain = (asked) => client.responses.create({ model: 'offline', tools, ...asked });
const helper = (asked) => client.responses.stream({ model: 'offline', tools, ...asked }).finalResponse();

async function decide(way, chained, decision) {
  const first = await way({ input });
  const request = first.output.at(-1);
  const answer = { type: 'mcp_approval_response', approval_request_id: request.id, ...decision };
  const second = chained
    ? await way({ previous_response_id: first.id, input: [answer] })
    : await way({ input: [...input, ...first.output, answer] });
  const call = second.output.find((item) => item.type === 'mcp_call');
  return {
    asked: [
      first.status, first.output.map((item) => item.type), request.server_label, request.name, JSON.parse(request.arguments),
    ],
    items: second.output.map((item) => item.type),
    of_request: call.approval_request_id === request.id,
    outcome: [call.output, call.error ?? null, call.status],
    text: second.output_text,
  };
}

const both = async (way, chained) => ({
  approved: await decide(way, chained, { approve: true }),
  rejected: await decide(way, chained, { approve: false, reason: 'not today' }),
});

console.log(JSON.stringify({
  'plain, chained': await both(plain, true),
  'plain, sent again': await both(plain, false),
  'helper, chained': await both(helper, true),
  'helper, sent again': await both(helper, false),
}));
