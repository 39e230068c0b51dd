"""Plans the turns of a run, and carries them out."""
