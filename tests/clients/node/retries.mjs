// Sends a request for each line it reads, with a client at its default settings. If the client gives up, it calls once more, as a user
// would, and prints what it got in the end.

import readline from 'node:readline';
import { createOpenAI } from '@ai-sdk/openai';
import { generateText, streamText } from 'ai';
import OpenAI from 'openai';

async function openaiSdk(base, streamed) {
  const client = new OpenAI({ baseURL: base });
  if (!streamed) return (await client.responses.create({ model: 'agent/clerk', input: 'go' })).output_text;
  let last;
  for await (const event of await client.responses.create({ model: 'agent/clerk', input: 'go', stream: true })) last = event;
  if (last?.type !== 'response.completed') throw new Error(`the stream ended with ${last?.type}`);
  return last.response.output.filter((item) => item.type === 'message').flatMap((item) => item.content).map((part) => part.text).join('');
}

async function aiSdk(base, streamed) {
  const model = createOpenAI({ baseURL: base }).responses('agent/clerk');
  if (!streamed) return (await generateText({ model, prompt: 'go' })).text;
  let text = '';
  let isWhole = false;
  for await (const part of streamText({ model, prompt: 'go', onError: () => {} }).fullStream) {
    if (part.type === 'error') throw part.error;
    if (part.type === 'text-delta') text += part.text;
    if (part.type === 'finish') isWhole = true;
  }
  if (!isWhole) throw new Error('the stream did not finish');
  return text;
}

const send = { openai: openaiSdk, ai: aiSdk }[process.argv[2]];
for await (const line of readline.createInterface({ input: process.stdin })) {
  const asked = JSON.parse(line);
  const errors = [];
  let calls = 0;
  let text = null;
  while (text === null && calls < 2) {
    calls += 1;
    try {
      text = await send(asked.base, asked.streamed);
    } catch (error) {
      errors.push(String(error));
    }
  }
  console.log(JSON.stringify({ text, calls, errors }));
}
