"""The report of a night: what has happened in a time, and where everything is now.

`building` makes one value of the journal's rows and the views of the projects. It is pure: the same rows
give the same report, whichever daemon wrote them. `rendering` makes text, Markdown or HTML of it. Nothing
here asks the journal or a project.
"""
