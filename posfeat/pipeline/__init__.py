"""One verb a file: paths in, one artefact out, resumable."""
