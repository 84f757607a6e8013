// Refused requests, and the SDK's errors about them.

import OpenAI from 'openai';

const client = new OpenAI();

async function refusal(ask) {
  try {
    await ask();
  } catch (error) {
    if (!(error instanceof OpenAI.APIError)) throw error;
    return {
      class: error.constructor.name,
      status: error.status,
      type: error.type,
      code: error.code,
      param: error.param,
      says: Boolean(error.error.message),
    };
  }
  return null;
}

const create = (body) => client.responses.create({ model: 'offline', input: 'hi', ...body });
const stranger = new OpenAI({ apiKey: "nobody's" });
console.log(JSON.stringify({
  temperature: await refusal(() => create({ temperature: 9 })),
  streamed: await refusal(() => create({ temperature: 9, stream: true })),
  model: await refusal(() => create({ model: 'no such model' })),
  previous: await refusal(() => create({ previous_response_id: 'resp_unknown' })),
  unknown: await refusal(() => client.responses.retrieve('resp_unknown')),
  stranger: await refusal(() => stranger.responses.create({ model: 'offline', input: 'hi' })),
}));
