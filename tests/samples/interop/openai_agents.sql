CREATE TABLE agent_messages (
                id INTEGER PRIMARY KEY AUTOINCREMENT,
                session_id TEXT NOT NULL,
                message_data TEXT NOT NULL,
                created_at TIMESTAMP DEFAULT CURRENT_TIMESTAMP,
                FOREIGN KEY (session_id) REFERENCES agent_sessions (session_id)
                    ON DELETE CASCADE
            );
INSERT INTO "agent_messages" VALUES(1,'one','{"content": "ask", "role": "user"}','2026-11-16 18:21:49');
INSERT INTO "agent_messages" VALUES(2,'one','{"id": "rs_84", "summary": [{"text": "Ask the tool.", "type": "summary_text"}], "type": "reasoning", "encrypted_content": "ZW5jcnlwdGVk"}','2026-11-16 18:21:49');
INSERT INTO "agent_messages" VALUES(3,'one','{"id": "msg_85", "content": [{"annotations": [], "text": "One moment.", "type": "output_text"}], "role": "assistant", "status": "completed", "type": "message"}','2026-11-16 18:21:49');
INSERT INTO "agent_messages" VALUES(4,'one','{"arguments": "{\"city\": \"Paris\"}", "call_id": "call_86", "name": "weather", "type": "function_call", "id": "fc_86", "status": "completed"}','2026-11-16 18:21:49');
INSERT INTO "agent_messages" VALUES(5,'one','{"arguments": "{\"city\": \"Oslo\"}", "call_id": "call_87", "name": "weather", "type": "function_call", "id": "fc_87", "status": "completed"}','2026-11-16 18:21:49');
INSERT INTO "agent_messages" VALUES(6,'one','{"call_id": "call_86", "output": "Rain", "type": "function_call_output"}','2026-11-16 18:21:49');
INSERT INTO "agent_messages" VALUES(7,'one','{"call_id": "call_87", "output": "Snow", "type": "function_call_output"}','2026-11-16 18:21:49');
INSERT INTO "agent_messages" VALUES(8,'one','{"id": "msg_89", "content": [{"annotations": [], "text": "Rain in Paris, snow in Oslo.", "type": "output_text"}], "role": "assistant", "status": "completed", "type": "message"}','2026-11-16 18:21:49');
INSERT INTO "agent_messages" VALUES(9,'one','{"content": "try", "role": "user"}','2026-11-16 18:21:49');
INSERT INTO "agent_messages" VALUES(10,'one','{"arguments": "{\"x\": 1}", "call_id": "call_91", "name": "broken", "type": "function_call", "id": "fc_91", "status": "completed"}','2026-11-16 18:21:50');
INSERT INTO "agent_messages" VALUES(11,'one','{"call_id": "call_91", "output": "An error occurred while running the tool. Please try again.", "type": "function_call_output"}','2026-11-16 18:21:50');
INSERT INTO "agent_messages" VALUES(12,'one','{"id": "msg_93", "content": [{"annotations": [], "text": "That tool is broken.", "type": "output_text"}], "role": "assistant", "status": "completed", "type": "message"}','2026-11-16 18:21:50');
INSERT INTO "agent_messages" VALUES(13,'one','{"content": "bye", "role": "user"}','2026-11-16 18:21:50');
INSERT INTO "agent_messages" VALUES(14,'one','{"id": "msg_95", "content": [{"annotations": [], "text": "Hello to you.", "type": "output_text"}], "role": "assistant", "status": "completed", "type": "message"}','2026-11-16 18:21:50');
INSERT INTO "agent_messages" VALUES(15,'two','{"content": "ask", "role": "user"}','2026-11-16 18:21:50');
INSERT INTO "agent_messages" VALUES(16,'two','{"id": "__fake_id__", "content": [{"annotations": [], "text": "One moment.", "type": "output_text", "logprobs": []}], "role": "assistant", "status": "completed", "type": "message", "provider_data": {"model": "m1", "response_id": "chatcmpl-97"}}','2026-11-16 18:21:50');
INSERT INTO "agent_messages" VALUES(17,'two','{"arguments": "{\"city\": \"Paris\"}", "call_id": "call_98", "name": "weather", "type": "function_call", "id": "__fake_id__", "provider_data": {"model": "m1", "response_id": "chatcmpl-97"}}','2026-11-16 18:21:50');
INSERT INTO "agent_messages" VALUES(18,'two','{"arguments": "{\"city\": \"Oslo\"}", "call_id": "call_99", "name": "weather", "type": "function_call", "id": "__fake_id__", "provider_data": {"model": "m1", "response_id": "chatcmpl-97"}}','2026-11-16 18:21:50');
INSERT INTO "agent_messages" VALUES(19,'two','{"call_id": "call_98", "output": "Rain", "type": "function_call_output"}','2026-11-16 18:21:50');
INSERT INTO "agent_messages" VALUES(20,'two','{"call_id": "call_99", "output": "Snow", "type": "function_call_output"}','2026-11-16 18:21:50');
INSERT INTO "agent_messages" VALUES(21,'two','{"id": "__fake_id__", "content": [{"annotations": [], "text": "Rain in Paris, snow in Oslo.", "type": "output_text", "logprobs": []}], "role": "assistant", "status": "completed", "type": "message", "provider_data": {"model": "m1", "response_id": "chatcmpl-100"}}','2026-11-16 18:21:50');
INSERT INTO "agent_messages" VALUES(22,'two','{"content": "try", "role": "user"}','2026-11-16 18:21:50');
INSERT INTO "agent_messages" VALUES(23,'two','{"arguments": "{\"x\": 1}", "call_id": "call_102", "name": "broken", "type": "function_call", "id": "__fake_id__", "provider_data": {"model": "m1", "response_id": "chatcmpl-101"}}','2026-11-16 18:21:50');
INSERT INTO "agent_messages" VALUES(24,'two','{"call_id": "call_102", "output": "An error occurred while running the tool. Please try again.", "type": "function_call_output"}','2026-11-16 18:21:50');
INSERT INTO "agent_messages" VALUES(25,'two','{"id": "__fake_id__", "content": [{"annotations": [], "text": "That tool is broken.", "type": "output_text", "logprobs": []}], "role": "assistant", "status": "completed", "type": "message", "provider_data": {"model": "m1", "response_id": "chatcmpl-103"}}','2026-11-16 18:21:50');
INSERT INTO "agent_messages" VALUES(26,'two','{"content": "bye", "role": "user"}','2026-11-16 18:21:50');
INSERT INTO "agent_messages" VALUES(27,'two','{"id": "__fake_id__", "content": [{"annotations": [], "text": "Hello to you.", "type": "output_text", "logprobs": []}], "role": "assistant", "status": "completed", "type": "message", "provider_data": {"model": "m1", "response_id": "chatcmpl-104"}}','2026-11-16 18:21:50');
CREATE TABLE agent_sessions (
                session_id TEXT PRIMARY KEY,
                created_at TIMESTAMP DEFAULT CURRENT_TIMESTAMP,
                updated_at TIMESTAMP DEFAULT CURRENT_TIMESTAMP
            );
INSERT INTO "agent_sessions" VALUES('one','2026-11-16 18:21:49','2026-11-16 18:21:50');
INSERT INTO "agent_sessions" VALUES('two','2026-11-16 18:21:50','2026-11-16 18:21:50');
