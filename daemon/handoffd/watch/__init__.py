"""Hints that a file in the `.ai` folder of a project has changed.

The `Watcher` calls back for each project whose known files may have changed. It relies on the kernel
(inotify, or watchfiles where there is none) and on a sweep that finds what these have missed.

It must never read a file's content, take a hint for a fact, or wait on the event loop for a disk.
"""
