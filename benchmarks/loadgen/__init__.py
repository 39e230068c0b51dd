"""Compiles the load generators in C on demand (`compiler`), and runs them (`runner`)."""
