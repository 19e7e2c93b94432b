"""From pixels to dense maps to keypoints."""
