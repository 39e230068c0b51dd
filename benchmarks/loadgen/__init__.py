"""The load generators in C, compiled on demand (`compiler`), and how they are run (`runner`)."""
