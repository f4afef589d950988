"""What a project's files say, without a journal: all of it is read, and only CHECKLIST.md ever written."""
