"""The paper's losses, one file for each idea; they see tensors and cameras, never networks."""
