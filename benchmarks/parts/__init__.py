"""What a run consists of, one file per part: what its turns do, and which lines, details and curves its result shows."""
