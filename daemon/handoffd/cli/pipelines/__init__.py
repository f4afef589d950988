"""`handoffd pipeline`: the pipelines that apply in a folder, checked and simulated without a daemon."""
