// Two client functions for the AI SDK, and a conversation of two turns that uses them, through one of its providers.

import { generateText, stepCountIs, streamText, tool } from 'ai';
import { z } from 'zod';

const turns = ['Plan a day in Oslo.', 'And in Bergen?'];

export async function converse(model, streamed, providerOptions = undefined) {
  const ran = [];
  const offer = (name, description, answer) => tool({
    description,
    inputSchema: z.object({ city: z.string() }),
    execute: async ({ city }) => {
      ran.push(`${name} ${city}`);
      return `${answer} in ${city}`;
    },
  });
  const tools = {
    get_weather: offer('get_weather', 'The weather in a city.', 'sunny'),
    find_hotel: offer('find_hotel', 'A hotel in a city.', 'the Grand'),
  };
  const messages = [];
  const texts = [];
  let deltas = '';
  let tokens = 0;
  for (const turn of turns) {
    messages.push({ role: 'user', content: turn });
    const given = { model, tools, messages, providerOptions, stopWhen: stepCountIs(5), maxRetries: 0 };
    let result;
    if (streamed) {
      result = streamText({ ...given, onError: ({ error }) => { throw error; } });
      for await (const piece of result.textStream) deltas += piece;
    } else {
      result = await generateText(given);
    }
    const response = await result.response;
    if (await result.finishReason !== 'stop') throw new Error(`it ended with ${await result.finishReason}`);
    tokens += (await result.totalUsage).totalTokens;
    messages.push(...response.messages);
    texts.push(await result.text);
  }
  return { texts, ran: ran.sort(), deltas: streamed ? deltas : texts.join(''), tokens };
}
