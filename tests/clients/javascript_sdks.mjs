// Asks a gateway as programs on the vendors' SDKs for JavaScript do. Prints one line of JSON: the text that came, or the error.
import Anthropic from "@anthropic-ai/sdk";
import { GoogleGenAI } from "@google/genai";
import OpenAI from "openai";

const [api, url, streams] = [process.argv[2], process.argv[3], process.argv[4] === "stream"];
const limits = { apiKey: "none", maxRetries: 0 };
const said = [{ role: "user", content: "hi" }];

const ASKING = {
  "anthropic-messages": async () => {
    const asked = { model: "m", max_tokens: 100, messages: said };
    const client = new Anthropic({ ...limits, baseURL: url });
    const message = streams ? await client.messages.stream(asked).finalMessage() : await client.messages.create(asked);
    return message.content.map((block) => block.text ?? "").join("");
  },
  "openai-responses": async () => {
    const client = new OpenAI({ ...limits, baseURL: `${url}/v1` });
    const asked = { model: "m", input: "hi" };
    const response = streams ? await client.responses.stream(asked).finalResponse() : await client.responses.create(asked);
    if (response.status !== "completed") throw new Error(`the response is ${response.status}`);
    return response.output_text;
  },
  "openai-chat": async () => {
    const client = new OpenAI({ ...limits, baseURL: `${url}/v1` });
    const asked = { model: "m", messages: said };
    const completion = streams
      ? await client.chat.completions.stream(asked).finalChatCompletion()
      : await client.chat.completions.create(asked);
    return completion.choices[0].message.content;
  },
  gemini: async () => {
    const client = new GoogleGenAI({ apiKey: "none", httpOptions: { baseUrl: url } });
    const asked = { model: "m", contents: "hi" };
    if (!streams) return (await client.models.generateContent(asked)).text;
    let text = "";
    for await (const chunk of await client.models.generateContentStream(asked)) text += chunk.text ?? "";
    return text;
  },
};

try {
  console.log(JSON.stringify({ text: await ASKING[api]() }));
} catch (error) {
  console.log(JSON.stringify({ error: String(error) }));
}
