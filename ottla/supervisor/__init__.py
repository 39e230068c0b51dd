"""Runs several broker processes on one host under one supervisor; `ottla cluster` is its command line.

  restarts      the state of one broker: a pure state machine, events in, effects out
  layout        the brokers of a cluster: ids, ports, racks, directories, and the arguments of each process
  state_file    the supervisor's state on disk, and how a process is identified although its pid may be reused
  child         the program of each process: `ottla serve`, which gets a signal when its supervisor ends
  metadata_convergence  whether every broker's metadata lists all brokers
  processes     start, output and end of one process
  supervisor    carries out the effects, and answers the commands
  control       the socket for the commands

A broker is an unmodified `ottla serve`: it does not depend on its supervisor, and clients and other brokers connect
only to the broker.
"""
