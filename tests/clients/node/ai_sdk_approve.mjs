// The AI SDK with its provider for OpenAI: a tool of an MCP server that needs approval, which the next request gives or refuses.

import { createOpenAI } from '@ai-sdk/openai';
import { generateText, streamText } from 'ai';

const openai = createOpenAI();
const model = openai.responses('offline');
const tools = { mcp: openai.tools.mcp({ serverLabel: 'tools', serverUrl: process.env.TOOLS_URL, requireApproval: 'always' }) };

async function ask(streamed, messages, providerOptions) {
  const given = { model, tools, messages, providerOptions, maxRetries: 0 };
  if (!streamed) return generateText(given);
  const result = streamText({ ...given, onError: ({ error }) => { throw error; } });
  await result.consumeStream();
  return result;
}

async function decide(streamed, providerOptions, approved) {
  const messages = [{ role: 'user', content: 'Ask me first' }];
  const first = await ask(streamed, messages, providerOptions);
  const requests = (await first.content).filter((part) => part.type === 'tool-approval-request');
  messages.push(...(await first.response).messages);
  const content = requests.map(({ approvalId }) => ({ type: 'tool-approval-response', approvalId, approved, providerExecuted: true }));
  messages.push({ role: 'tool', content });
  const second = await ask(streamed, messages, providerOptions);
  return { asked: requests.map((part) => [part.toolCall.toolName, part.toolCall.input]), text: await second.text };
}

const both = async (streamed, providerOptions = undefined) => ({
  approved: await decide(streamed, providerOptions, true),
  rejected: await decide(streamed, providerOptions, false),
});

const unkept = { openai: { store: false } };
console.log(JSON.stringify({
  'plain, referred to': await both(false),
  'streamed, referred to': await both(true),
  'plain, sent again': await both(false, unkept),
  'streamed, sent again': await both(true, unkept),
}));
