"""Images and poses -> pairs -> batches."""
