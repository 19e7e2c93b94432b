"""The paper's benchmarks and peers: features in, numbers and reports out."""
