"""Hints that something under the `.ai` folder of a project has changed.

The `Watcher` calls back for each project whose known files may be different. It relies on the kernel
(inotify, or watchfiles where there is none) and on a sweep that finds what neither told.

It must never read what a file says, take a hint for a fact, or wait on the event loop for a disk.
"""
