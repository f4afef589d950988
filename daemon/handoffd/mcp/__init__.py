"""The MCP server: reads, verbs and files of projects as tools and resources of a chat agent.

A process of its own beside the daemon, which it asks like every other program (`entrance`); it holds
nothing itself. Needs the extra `mcp`; only what is imported by `server` imports the SDK.
"""
