"""Other people's programs: a mock provider and MCP servers from npm, LiteLLM, and the official SDKs."""
