"""One supervised project: its folder and its own files, what is wrong with it, and the tracks that it has.

`project.py` owns the tracks, their loops, and their time limits. A hint makes `reconciler.py` look at the
folder; what others wrote there becomes facts for the tracks. The rest is what people ask of one project
(`status.py`), do in it themselves (`manual.py`), and what is kept of it while it has nothing to do
(`rest.py`). It relies on `track/` for every decision and every run, and on `inspection/` for what the files
say. Nothing here knows another project, supervises a project or lets one go: that is `fleet/`'s. What a
folder contains, however broken, is a condition of this project and never an exception that reaches another
one.
"""
