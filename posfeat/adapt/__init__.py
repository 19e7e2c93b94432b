"""Features tuned to a person's own posed photos, with the proof that it helped, or the advice not to use it."""
