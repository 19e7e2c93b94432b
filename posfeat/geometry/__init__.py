"""Pure tensor maths of cameras and images: no files, no networks."""
