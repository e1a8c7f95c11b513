CREATE TABLE "attachments" (
   "id" TEXT PRIMARY KEY,
   "type" TEXT,
   "path" TEXT,
   "url" TEXT,
   "content" BLOB
);
INSERT INTO "attachments" VALUES('6b7fa434f92a8b80aab02d9bf1a12e49ffcae424e4013a1c4f68b67e3d2bbcd0','image/png','/data/w/pixel.png',NULL,NULL);
CREATE TABLE "conversations" (
   "id" TEXT PRIMARY KEY,
   "name" TEXT,
   "model" TEXT
);
CREATE TABLE "fragments" (
   "id" INTEGER PRIMARY KEY,
   "hash" TEXT,
   "content" TEXT,
   "datetime_utc" TEXT,
   "source" TEXT
);
INSERT INTO "fragments" VALUES(1,'50e9ff3afec2255e29ab7196020df80fcddd180b29d07d36c534482e053e7211','a fragment
','2026-11-16 18:20:53','/data/w/frag.txt');
CREATE TABLE "messages" (
   "hash" TEXT PRIMARY KEY,
   "parent_hash" TEXT REFERENCES "messages"("hash"),
   "role" TEXT,
   "provider_metadata" TEXT
);
INSERT INTO "messages" VALUES('b2:074dea0bd0259e0d5dca16426a45e4f5',NULL,'system',NULL);
INSERT INTO "messages" VALUES('b2:4f20c4914ff75559767e48ef8498865e','b2:074dea0bd0259e0d5dca16426a45e4f5','user',NULL);
INSERT INTO "messages" VALUES('b2:87dc305953ea7bc281979bd4396c3029','b2:4f20c4914ff75559767e48ef8498865e','assistant',NULL);
INSERT INTO "messages" VALUES('b2:3504b12964b5621720ed5252d8d36436','b2:87dc305953ea7bc281979bd4396c3029','tool',NULL);
INSERT INTO "messages" VALUES('b2:17c8447813de42ab520d3d63170c80ef','b2:3504b12964b5621720ed5252d8d36436','assistant',NULL);
INSERT INTO "messages" VALUES('b2:e490cce7fc6269986f6312ba869bc3d9','b2:17c8447813de42ab520d3d63170c80ef','user',NULL);
INSERT INTO "messages" VALUES('b2:17476c4a85f70d93f422fa42a6b343eb','b2:e490cce7fc6269986f6312ba869bc3d9','assistant',NULL);
INSERT INTO "messages" VALUES('b2:47617401616f9125b986f59aa05a5c58',NULL,'system',NULL);
INSERT INTO "messages" VALUES('b2:4dbabd2ce2f7b03d995d692a976a1e63','b2:47617401616f9125b986f59aa05a5c58','user',NULL);
INSERT INTO "messages" VALUES('b2:51378f93f2583a4f47a738dfb73c1748','b2:4dbabd2ce2f7b03d995d692a976a1e63','assistant',NULL);
INSERT INTO "messages" VALUES('b2:ae1f248b2b3a3146b1f647574182ac38','b2:51378f93f2583a4f47a738dfb73c1748','tool',NULL);
INSERT INTO "messages" VALUES('b2:d3622b60240821f3b68bc76185296e4a','b2:ae1f248b2b3a3146b1f647574182ac38','assistant',NULL);
INSERT INTO "messages" VALUES('b2:24a6177c36ba48d1b92c15d67b5ee63d',NULL,'user',NULL);
INSERT INTO "messages" VALUES('b2:db79208e05b0160c40e8d93f6aa10af6','b2:24a6177c36ba48d1b92c15d67b5ee63d','assistant',NULL);
CREATE TABLE "part_attachments" (
   "part_id" INTEGER REFERENCES "parts"("id"),
   "attachment_id" TEXT REFERENCES "attachments"("id"),
   "order" INTEGER,
   PRIMARY KEY ("part_id", "attachment_id", "order")
);
INSERT INTO "part_attachments" VALUES(10,'6b7fa434f92a8b80aab02d9bf1a12e49ffcae424e4013a1c4f68b67e3d2bbcd0',0);
CREATE TABLE "part_fragments" (
   "part_id" INTEGER REFERENCES "parts"("id"),
   "fragment_id" INTEGER REFERENCES "fragments"("id"),
   "order" INTEGER,
   PRIMARY KEY ("part_id", "fragment_id", "order")
);
INSERT INTO "part_fragments" VALUES(13,1,0);
CREATE TABLE "parts" (
   "id" INTEGER PRIMARY KEY,
   "message_hash" TEXT REFERENCES "messages"("hash"),
   "position" INTEGER,
   "type" TEXT,
   "tool_name" TEXT,
   "text" TEXT,
   "payload" TEXT
);
INSERT INTO "parts" VALUES(1,'b2:074dea0bd0259e0d5dca16426a45e4f5',0,'text',NULL,'Be brief.',NULL);
INSERT INTO "parts" VALUES(2,'b2:4f20c4914ff75559767e48ef8498865e',0,'text',NULL,'ask',NULL);
INSERT INTO "parts" VALUES(3,'b2:87dc305953ea7bc281979bd4396c3029',0,'text',NULL,'One moment.',NULL);
INSERT INTO "parts" VALUES(4,'b2:87dc305953ea7bc281979bd4396c3029',1,'tool_call','weather',NULL,'{"name": "weather", "arguments": {"city": "Paris"}, "tool_call_id": "call_76"}');
INSERT INTO "parts" VALUES(5,'b2:87dc305953ea7bc281979bd4396c3029',2,'tool_call','weather',NULL,'{"name": "weather", "arguments": {"city": "Oslo"}, "tool_call_id": "call_77"}');
INSERT INTO "parts" VALUES(6,'b2:3504b12964b5621720ed5252d8d36436',0,'tool_result','weather',NULL,'{"name": "weather", "output": "Rain, 9 degrees", "tool_call_id": "call_76"}');
INSERT INTO "parts" VALUES(7,'b2:3504b12964b5621720ed5252d8d36436',1,'tool_result','weather',NULL,'{"name": "weather", "output": "Snow", "tool_call_id": "call_77"}');
INSERT INTO "parts" VALUES(8,'b2:17c8447813de42ab520d3d63170c80ef',0,'text',NULL,'Rain in Paris, snow in Oslo.',NULL);
INSERT INTO "parts" VALUES(9,'b2:e490cce7fc6269986f6312ba869bc3d9',0,'text',NULL,'look',NULL);
INSERT INTO "parts" VALUES(10,'b2:e490cce7fc6269986f6312ba869bc3d9',1,'attachment',NULL,NULL,'{"attachment": {"id": "6b7fa434f92a8b80aab02d9bf1a12e49ffcae424e4013a1c4f68b67e3d2bbcd0"}}');
INSERT INTO "parts" VALUES(11,'b2:17476c4a85f70d93f422fa42a6b343eb',0,'text',NULL,'Hello to you.',NULL);
INSERT INTO "parts" VALUES(12,'b2:47617401616f9125b986f59aa05a5c58',0,'text',NULL,'Be kind.',NULL);
INSERT INTO "parts" VALUES(13,'b2:4dbabd2ce2f7b03d995d692a976a1e63',0,'text',NULL,NULL,'{"text_ref": [{"fragment": 1}, {"literal": "\nx"}]}');
INSERT INTO "parts" VALUES(14,'b2:51378f93f2583a4f47a738dfb73c1748',0,'tool_call','broken',NULL,'{"name": "broken", "arguments": {"x": 1}, "tool_call_id": "call_81"}');
INSERT INTO "parts" VALUES(15,'b2:ae1f248b2b3a3146b1f647574182ac38',0,'tool_result','broken',NULL,'{"name": "broken", "output": "Error: no such thing", "tool_call_id": "call_81", "exception": "ValueError: no such thing"}');
INSERT INTO "parts" VALUES(16,'b2:d3622b60240821f3b68bc76185296e4a',0,'text',NULL,'That tool is broken.',NULL);
INSERT INTO "parts" VALUES(17,'b2:24a6177c36ba48d1b92c15d67b5ee63d',0,'text',NULL,'x',NULL);
INSERT INTO "parts" VALUES(18,'b2:db79208e05b0160c40e8d93f6aa10af6',0,'text',NULL,'Hello to you.',NULL);
CREATE TABLE "prompt_attachments" (
   "response_id" TEXT REFERENCES "responses"("id"),
   "attachment_id" TEXT REFERENCES "attachments"("id"),
   "order" INTEGER,
   PRIMARY KEY ("response_id", "attachment_id")
);
CREATE TABLE "prompt_fragments" (
   "response_id" TEXT REFERENCES "responses"("id"),
   "fragment_id" INTEGER REFERENCES "fragments"("id"),
   "order" INTEGER,
   PRIMARY KEY ("response_id", "fragment_id", "order")
);
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
, "resolved_model" TEXT, "reasoning" TEXT);
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
CREATE TABLE "threads" (
   "id" TEXT PRIMARY KEY,
   "name" TEXT,
   "tip_message_hash" TEXT REFERENCES "messages"("hash"),
   "forked_from" TEXT REFERENCES "threads"("id"),
   "datetime_utc" TEXT
);
INSERT INTO "threads" VALUES('01m7jseaafwawvbb30zjz1sz8c','ask','b2:17476c4a85f70d93f422fa42a6b343eb',NULL,'2026-11-16 18:20:51.523547+00:00');
INSERT INTO "threads" VALUES('01m7jsebtxc3g5an5tpdsarpd7','a fragment x','b2:d3622b60240821f3b68bc76185296e4a',NULL,'2026-11-16 18:20:53.068362+00:00');
INSERT INTO "threads" VALUES('01m7jsecqnn5nj6n7kp5yxmwfm','x','b2:db79208e05b0160c40e8d93f6aa10af6',NULL,'2026-11-16 18:20:53.957994+00:00');
CREATE TABLE "tool_calls" (
   "id" INTEGER PRIMARY KEY,
   "response_id" TEXT REFERENCES "responses"("id"),
   "tool_id" INTEGER REFERENCES "tools"("id"),
   "name" TEXT,
   "arguments" TEXT,
   "tool_call_id" TEXT
);
CREATE TABLE "tool_results" (
   "id" INTEGER PRIMARY KEY,
   "response_id" TEXT REFERENCES "responses"("id"),
   "tool_id" INTEGER REFERENCES "tools"("id"),
   "name" TEXT,
   "output" TEXT,
   "tool_call_id" TEXT,
   "instance_id" INTEGER REFERENCES "tool_instances"("id")
, "exception" TEXT);
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
CREATE TABLE "turn_fragments" (
   "turn_id" TEXT REFERENCES "turns"("id"),
   "fragment_id" INTEGER REFERENCES "fragments"("id"),
   "order" INTEGER,
   "kind" TEXT,
   PRIMARY KEY ("turn_id", "fragment_id", "kind", "order")
);
INSERT INTO "turn_fragments" VALUES('01m7jsebv0n55axmzwhnftq2fy',1,0,'prompt');
CREATE TABLE "turns" (
   "id" TEXT PRIMARY KEY,
   "thread_id" TEXT REFERENCES "threads"("id"),
   "parent_message_hash" TEXT REFERENCES "messages"("hash"),
   "tip_message_hash" TEXT REFERENCES "messages"("hash"),
   "model" TEXT,
   "resolved_model" TEXT,
   "options_json" TEXT,
   "schema_id" TEXT REFERENCES "schemas"("id"),
   "input_tokens" INTEGER,
   "output_tokens" INTEGER,
   "token_details" TEXT,
   "duration_ms" INTEGER,
   "datetime_utc" TEXT
, "response_json" TEXT);
INSERT INTO "turns" VALUES('01m7jseaahg1gzfsqvfaq1n9nc','01m7jseaafwawvbb30zjz1sz8c','b2:4f20c4914ff75559767e48ef8498865e','b2:87dc305953ea7bc281979bd4396c3029','loop',NULL,NULL,NULL,16,7,'{"prompt_tokens_details": {"cached_tokens": 3}}',76,'2026-11-16T18:20:51.409853+00:00','{"content": "One moment.", "finish_reason": "tool_calls", "usage": {"completion_tokens": 7, "prompt_tokens": 16, "total_tokens": 23, "prompt_tokens_details": {"cached_tokens": 3}}, "id": "chatcmpl-75", "object": "chat.completion.chunk", "model": "m1", "created": 1}');
INSERT INTO "turns" VALUES('01m7jseacy0n78xpcjpc0tn4d0','01m7jseaafwawvbb30zjz1sz8c','b2:3504b12964b5621720ed5252d8d36436','b2:17c8447813de42ab520d3d63170c80ef','loop',NULL,NULL,NULL,16,7,'{"prompt_tokens_details": {"cached_tokens": 3}}',35,'2026-11-16T18:20:51.486943+00:00','{"content": "Rain in Paris, snow in Oslo.", "finish_reason": "stop", "usage": {"completion_tokens": 7, "prompt_tokens": 16, "total_tokens": 23, "prompt_tokens_details": {"cached_tokens": 3}}, "id": "chatcmpl-78", "object": "chat.completion.chunk", "model": "m1", "created": 1}');
INSERT INTO "turns" VALUES('01m7jseb3fez975954ygsr1p3q','01m7jseaafwawvbb30zjz1sz8c','b2:e490cce7fc6269986f6312ba869bc3d9','b2:17476c4a85f70d93f422fa42a6b343eb','loop',NULL,NULL,NULL,16,7,'{"prompt_tokens_details": {"cached_tokens": 3}}',73,'2026-11-16T18:20:52.207317+00:00','{"content": "Hello to you.", "finish_reason": "stop", "usage": {"completion_tokens": 7, "prompt_tokens": 16, "total_tokens": 23, "prompt_tokens_details": {"cached_tokens": 3}}, "id": "chatcmpl-79", "object": "chat.completion.chunk", "model": "m1", "created": 1}');
INSERT INTO "turns" VALUES('01m7jsebv0n55axmzwhnftq2fy','01m7jsebtxc3g5an5tpdsarpd7','b2:4dbabd2ce2f7b03d995d692a976a1e63','b2:51378f93f2583a4f47a738dfb73c1748','loop',NULL,NULL,NULL,16,7,'{"prompt_tokens_details": {"cached_tokens": 3}}',79,'2026-11-16T18:20:52.960343+00:00','{"content": "", "finish_reason": "tool_calls", "usage": {"completion_tokens": 7, "prompt_tokens": 16, "total_tokens": 23, "prompt_tokens_details": {"cached_tokens": 3}}, "id": "chatcmpl-80", "object": "chat.completion.chunk", "model": "m1", "created": 1}');
INSERT INTO "turns" VALUES('01m7jsebxffnx9wscf9drfng6y','01m7jsebtxc3g5an5tpdsarpd7','b2:ae1f248b2b3a3146b1f647574182ac38','b2:d3622b60240821f3b68bc76185296e4a','loop',NULL,NULL,NULL,16,7,'{"prompt_tokens_details": {"cached_tokens": 3}}',27,'2026-11-16T18:20:53.039945+00:00','{"content": "That tool is broken.", "finish_reason": "stop", "usage": {"completion_tokens": 7, "prompt_tokens": 16, "total_tokens": 23, "prompt_tokens_details": {"cached_tokens": 3}}, "id": "chatcmpl-82", "object": "chat.completion.chunk", "model": "m1", "created": 1}');
INSERT INTO "turns" VALUES('01m7jsecqp6zxsq7vst1x3qn6y','01m7jsecqnn5nj6n7kp5yxmwfm','b2:24a6177c36ba48d1b92c15d67b5ee63d','b2:db79208e05b0160c40e8d93f6aa10af6','loop',NULL,NULL,NULL,16,7,'{"prompt_tokens_details": {"cached_tokens": 3}}',78,'2026-11-16T18:20:53.879056+00:00','{"id": "chatcmpl-83", "choices": [{"finish_reason": "stop", "index": 0, "message": {"content": "Hello to you.", "role": "assistant"}}], "created": 1, "model": "m1", "object": "chat.completion", "usage": {"completion_tokens": 7, "prompt_tokens": 16, "total_tokens": 23, "prompt_tokens_details": {"cached_tokens": 3}}}');
