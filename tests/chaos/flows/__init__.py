"""The chaos of flows: played under a daemon that is killed again and again, and judged from outside."""
