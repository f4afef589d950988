"""Claude Code's hooks (level 1): what one answers, and how it gets into Claude Code's settings."""
