"""The MCP server: reads, verbs and files of projects as tools and resources of a chat agent.

A process of its own beside the daemon, which it asks like every other program (`entrance`); it holds
nothing itself. `server` needs the extra `mcp` and alone imports the SDK; `tool` says what a tool is,
`reads` and `verbs` are the tables of them. It must never offer what opens a gate unless a person allowed
approvals.
"""
