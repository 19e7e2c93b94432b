// What a geometry says of the other photo.

// Where the rim of the first photo lies in the second, if a homography was found.
export function outlineOf({ kind, matrix }, { width: w, height: h }) {
  if (kind !== "homography" || !matrix) return null;
  const rim = [[-0.5, -0.5], [w - 0.5, -0.5], [w - 0.5, h - 0.5], [-0.5, h - 0.5]];
  const corners = rim.map(([x, y]) => matrix.map((row) => row[0] * x + row[1] * y + row[2]));
  return corners.every((p) => p[2] * corners[0][2] > 0) ? corners.map((p) => [p[0] / p[2], p[1] / p[2]]) : null;
}

// The line a x + b y + c = 0 in the other photo of a point (x, y) of photo `side`.
export function epipolarLine(matrix, [x, y], side) {
  const at = (r, c) => (side ? matrix[c][r] : matrix[r][c]);
  return [0, 1, 2].map((r) => at(r, 0) * x + at(r, 1) * y + at(r, 2));
}
