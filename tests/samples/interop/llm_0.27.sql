CREATE TABLE "attachments" (
   "id" TEXT PRIMARY KEY,
   "type" TEXT,
   "path" TEXT,
   "url" TEXT,
   "content" BLOB
);
INSERT INTO "attachments" VALUES('6b7fa434f92a8b80aab02d9bf1a12e49ffcae424e4013a1c4f68b67e3d2bbcd0','image/png',NULL,NULL,X'89504E470D0A1A0A0000000D49484452000000010000000108060000001F15C4890000000D4944415478DA6364F8CF500F00038601805A347D6B0000000049454E44AE426082');
CREATE TABLE "conversations" (
   "id" TEXT PRIMARY KEY,
   "name" TEXT,
   "model" TEXT
);
INSERT INTO "conversations" VALUES('01m7jsvhvpmyg545yyvpmkwjsq','ask','loop');
INSERT INTO "conversations" VALUES('01m7jsvm6mdgjvctrfad92c3r3','a fragment x','loop');
INSERT INTO "conversations" VALUES('01m7jsvn9z7v9ba5tjqng3ten7','x','loop');
CREATE TABLE "fragments" (
   "id" INTEGER PRIMARY KEY,
   "hash" TEXT,
   "content" TEXT,
   "datetime_utc" TEXT,
   "source" TEXT
);
INSERT INTO "fragments" VALUES(1,'50e9ff3afec2255e29ab7196020df80fcddd180b29d07d36c534482e053e7211','a fragment
','2026-11-16 18:28:07','/data/w/frag.txt');
CREATE TABLE "prompt_attachments" (
   "response_id" TEXT REFERENCES "responses"("id"),
   "attachment_id" TEXT REFERENCES "attachments"("id"),
   "order" INTEGER,
   PRIMARY KEY ("response_id", "attachment_id")
);
INSERT INTO "prompt_attachments" VALUES('01m7jsvk2kttdhw759swjkv9kf','6b7fa434f92a8b80aab02d9bf1a12e49ffcae424e4013a1c4f68b67e3d2bbcd0',0);
INSERT INTO "prompt_attachments" VALUES('01m7jsvn4e4tj0a50ztpt300wq','6b7fa434f92a8b80aab02d9bf1a12e49ffcae424e4013a1c4f68b67e3d2bbcd0',0);
CREATE TABLE "prompt_fragments" (
   "response_id" TEXT REFERENCES "responses"("id"),
   "fragment_id" INTEGER REFERENCES "fragments"("id"),
   "order" INTEGER,
   PRIMARY KEY ("response_id", "fragment_id", "order")
);
INSERT INTO "prompt_fragments" VALUES('01m7jsvm6qp2qhxv9jt4hs85r6',1,0);
CREATE TABLE "responses" (
   "id" TEXT PRIMARY KEY,
   "model" TEXT,
   "prompt" TEXT,
   "system" TEXT,
   "prompt_json" TEXT,
   "options_json" TEXT,
   "response" TEXT,
   "response_json" TEXT,
   "conversation_id" TEXT REFERENCES "conversations"("id"),
   "duration_ms" INTEGER,
   "datetime_utc" TEXT,
   "input_tokens" INTEGER,
   "output_tokens" INTEGER,
   "token_details" TEXT,
   "schema_id" TEXT REFERENCES "schemas"("id")
, "resolved_model" TEXT);
INSERT INTO "responses" VALUES('01m7jsvhvs1pacenncpmv10ce0','loop','ask','Be brief.','{"messages": [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "ask"}]}','{}','One moment.','{"content": {"$": "r:01m7jsvhvs1pacenncpmv10ce0"}, "finish_reason": "tool_calls", "usage": {"completion_tokens": 7, "prompt_tokens": 16, "total_tokens": 23, "prompt_tokens_details": {"cached_tokens": 3}}, "id": "chatcmpl-109", "object": "chat.completion.chunk", "model": "m1", "created": 1}','01m7jsvhvpmyg545yyvpmkwjsq',223,'2026-11-16T18:28:05.113698+00:00',16,7,'{"prompt_tokens_details": {"cached_tokens": 3}}',NULL,NULL);
INSERT INTO "responses" VALUES('01m7jsvj2sgcpz6ghg3y4ptpzn','loop','',NULL,'{"messages": [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "ask"}, {"role": "assistant", "content": "One moment."}, {"role": "assistant", "tool_calls": [{"type": "function", "id": "call_110", "function": {"name": "weather", "arguments": "{\"city\": \"Paris\"}"}}, {"type": "function", "id": "call_111", "function": {"name": "weather", "arguments": "{\"city\": \"Oslo\"}"}}]}, {"role": "tool", "tool_call_id": "call_110", "content": "Rain, 9 degrees"}, {"role": "tool", "tool_call_id": "call_111", "content": "Snow"}]}','{}','Rain in Paris, snow in Oslo.','{"content": {"$": "r:01m7jsvj2sgcpz6ghg3y4ptpzn"}, "finish_reason": "stop", "usage": {"completion_tokens": 7, "prompt_tokens": 16, "total_tokens": 23, "prompt_tokens_details": {"cached_tokens": 3}}, "id": "chatcmpl-112", "object": "chat.completion.chunk", "model": "m1", "created": 1}','01m7jsvhvpmyg545yyvpmkwjsq',29,'2026-11-16T18:28:05.337388+00:00',16,7,'{"prompt_tokens_details": {"cached_tokens": 3}}',NULL,NULL);
INSERT INTO "responses" VALUES('01m7jsvk2kttdhw759swjkv9kf','loop','look',NULL,'{"messages": [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "ask"}, {"role": "assistant", "content": "One moment."}, {"role": "assistant", "tool_calls": [{"type": "function", "id": "call_110", "function": {"name": "weather", "arguments": "{\"city\": \"Paris\"}"}}, {"type": "function", "id": "call_111", "function": {"name": "weather", "arguments": "{\"city\": \"Oslo\"}"}}]}, {"role": "tool", "tool_call_id": "call_110", "content": "Rain, 9 degrees"}, {"role": "tool", "tool_call_id": "call_111", "content": "Snow"}, {"role": "assistant", "content": "Rain in Paris, snow in Oslo."}, {"role": "user", "content": [{"type": "text", "text": "look"}, {"type": "image_url", "image_url": {"url": "data:..."}}]}]}','{}','Hello to you.','{"content": {"$": "r:01m7jsvk2kttdhw759swjkv9kf"}, "finish_reason": "stop", "usage": {"completion_tokens": 7, "prompt_tokens": 16, "total_tokens": 23, "prompt_tokens_details": {"cached_tokens": 3}}, "id": "chatcmpl-113", "object": "chat.completion.chunk", "model": "m1", "created": 1}','01m7jsvhvpmyg545yyvpmkwjsq',176,'2026-11-16T18:28:06.355808+00:00',16,7,'{"prompt_tokens_details": {"cached_tokens": 3}}',NULL,NULL);
INSERT INTO "responses" VALUES('01m7jsvm6qp2qhxv9jt4hs85r6','loop','x','Be kind.','{"messages": [{"role": "system", "content": "Be kind."}, {"role": "user", "content": {"$r": [{"$": "f:1"}, "\nx"]}}]}','{}','','{"content": "", "finish_reason": "tool_calls", "usage": {"completion_tokens": 7, "prompt_tokens": 16, "total_tokens": 23, "prompt_tokens_details": {"cached_tokens": 3}}, "id": "chatcmpl-114", "object": "chat.completion.chunk", "model": "m1", "created": 1}','01m7jsvm6mdgjvctrfad92c3r3',154,'2026-11-16T18:28:07.511690+00:00',16,7,'{"prompt_tokens_details": {"cached_tokens": 3}}',NULL,NULL);
INSERT INTO "responses" VALUES('01m7jsvmbjydx295hkpq02hjb2','loop','',NULL,'{"messages": [{"role": "system", "content": "Be kind."}, {"role": "user", "content": {"$r": [{"$": "f:1"}, "\nx"]}}, {"role": "assistant", "tool_calls": [{"type": "function", "id": "call_115", "function": {"name": "broken", "arguments": "{\"x\": 1}"}}]}, {"role": "tool", "tool_call_id": "call_115", "content": "Error: no such thing"}]}','{}','That tool is broken.','{"content": {"$": "r:01m7jsvmbjydx295hkpq02hjb2"}, "finish_reason": "stop", "usage": {"completion_tokens": 7, "prompt_tokens": 16, "total_tokens": 23, "prompt_tokens_details": {"cached_tokens": 3}}, "id": "chatcmpl-116", "object": "chat.completion.chunk", "model": "m1", "created": 1}','01m7jsvm6mdgjvctrfad92c3r3',47,'2026-11-16T18:28:07.666320+00:00',16,7,'{"prompt_tokens_details": {"cached_tokens": 3}}',NULL,NULL);
INSERT INTO "responses" VALUES('01m7jsvn4e4tj0a50ztpt300wq','loop','x',NULL,'{"messages": [{"role": "user", "content": [{"type": "text", "text": "x"}, {"type": "image_url", "image_url": {"url": "data:..."}}]}]}','{}','Hello to you.','{"id": "chatcmpl-117", "choices": [{"finish_reason": "stop", "index": 0, "message": {"content": {"$": "r:01m7jsvn4e4tj0a50ztpt300wq"}, "role": "assistant"}}], "created": 1, "model": "m1", "object": "chat.completion", "usage": {"completion_tokens": 7, "prompt_tokens": 16, "total_tokens": 23, "prompt_tokens_details": {"cached_tokens": 3}}}','01m7jsvn9z7v9ba5tjqng3ten7',177,'2026-11-16T18:28:08.462573+00:00',16,7,'{"prompt_tokens_details": {"cached_tokens": 3}}',NULL,NULL);
CREATE TABLE "schemas" (
   "id" TEXT PRIMARY KEY,
   "content" TEXT
);
CREATE TABLE "system_fragments" (
   "response_id" TEXT REFERENCES "responses"("id"),
   "fragment_id" INTEGER REFERENCES "fragments"("id"),
   "order" INTEGER,
   PRIMARY KEY ("response_id", "fragment_id", "order")
);
CREATE TABLE "tool_calls" (
   "id" INTEGER PRIMARY KEY,
   "response_id" TEXT REFERENCES "responses"("id"),
   "tool_id" INTEGER REFERENCES "tools"("id"),
   "name" TEXT,
   "arguments" TEXT,
   "tool_call_id" TEXT
);
INSERT INTO "tool_calls" VALUES(1,'01m7jsvhvs1pacenncpmv10ce0',1,'weather','{"city": "Paris"}','call_110');
INSERT INTO "tool_calls" VALUES(2,'01m7jsvhvs1pacenncpmv10ce0',1,'weather','{"city": "Oslo"}','call_111');
INSERT INTO "tool_calls" VALUES(3,'01m7jsvm6qp2qhxv9jt4hs85r6',2,'broken','{"x": 1}','call_115');
CREATE TABLE "tool_results" (
   "id" INTEGER PRIMARY KEY,
   "response_id" TEXT REFERENCES "responses"("id"),
   "tool_id" INTEGER REFERENCES "tools"("id"),
   "name" TEXT,
   "output" TEXT,
   "tool_call_id" TEXT,
   "instance_id" INTEGER REFERENCES "tool_instances"("id")
, "exception" TEXT);
INSERT INTO "tool_results" VALUES(1,'01m7jsvj2sgcpz6ghg3y4ptpzn',1,'weather','Rain, 9 degrees','call_110',NULL,NULL);
INSERT INTO "tool_results" VALUES(2,'01m7jsvj2sgcpz6ghg3y4ptpzn',1,'weather','Snow','call_111',NULL,NULL);
INSERT INTO "tool_results" VALUES(3,'01m7jsvmbjydx295hkpq02hjb2',2,'broken','Error: no such thing','call_115',NULL,'ValueError: no such thing');
CREATE TABLE "tool_results_attachments" (
   "tool_result_id" INTEGER REFERENCES "tool_results"("id"),
   "attachment_id" TEXT REFERENCES "attachments"("id"),
   "order" INTEGER,
   PRIMARY KEY ("tool_result_id", "attachment_id")
);
CREATE TABLE "tools" (
   "id" INTEGER PRIMARY KEY,
   "hash" TEXT,
   "name" TEXT,
   "description" TEXT,
   "input_schema" TEXT
, "plugin" TEXT);
INSERT INTO "tools" VALUES(1,'3d19ca630fec35044f64da4ac19c1789427020d42c856a919a0c6de0b052b48a','weather','Weather of a city.','{"properties": {"city": {"type": "string"}}, "required": ["city"], "type": "object"}',NULL);
INSERT INTO "tools" VALUES(2,'e082fb1f72bc7a48f00542fe482291f3f80ff93704c83a17780ce7b725a9d877','broken',NULL,'{"properties": {"x": {"type": "integer"}}, "required": ["x"], "type": "object"}',NULL);
