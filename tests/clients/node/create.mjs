// One plain question.

import OpenAI from 'openai';

const response = await new OpenAI().responses.create({
  model: 'offline',
  input: 'Good day',
  instructions: 'Be brief.',
  metadata: { case: 'create' },
});
console.log(JSON.stringify({
  id: response.id,
  status: response.status,
  text: response.output_text,
  items: response.output.map((item) => item.type),
  instructions: response.instructions,
  metadata: response.metadata,
  tokens: response.usage.total_tokens,
}));
